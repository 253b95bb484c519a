//! `user`.

use super::role;
use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome};
use crate::flags::{Flag, switch, text};
use crate::{print, raw, terminal};
use api::authpb::UserAddOptions;
use api::etcdserverpb::*;

/// Asks on the terminal, twice.
const INTERACTIVE: Flag =
    Flag { default: "true", ..switch("interactive", "ask for the password on the terminal, rather than read it") };

pub(crate) const COMMAND: Command = group(
    "user",
    "Users",
    &[
        command("add", "<name or name:password>", "Adds a user", add).with(&[
            INTERACTIVE,
            text("new-user-password", "", "the password of the new user"),
            switch("no-password", "a user who is known by a certificate only"),
        ]),
        command("delete", "<name>", "Deletes a user", delete),
        command("get", "<name>", "Shows the roles of a user", get)
            .with(&[switch("detail", "show what the roles permit")]),
        command("list", "", "Lists the users", list),
        command("passwd", "<name>", "Changes a password", passwd).with(&[INTERACTIVE]),
        command("grant-role", "<user> <role>", "Gives a user a role", grant_role),
        command("revoke-role", "<user> <role>", "Takes a role from a user", revoke_role),
    ],
);

fn name(context: &Context, command: &str) -> Outcome<String> {
    let [name] = context.args() else {
        return Err(Failure::args(format!("user {command} command requires user name as its argument")));
    };
    raw::string(name)
}

fn add(context: &Context) -> Outcome {
    let given = name(context, "add")?;
    let no_password = context.parsed.switch("no-password");
    let from_flag = raw::string(context.parsed.text("new-user-password"))?;
    let (name, password) = match given.split_once(':') {
        _ if no_password => (&given[..], String::new()),
        _ if !from_flag.is_empty() => (&given[..], from_flag),
        Some(("", _)) => return Err(Failure::args("empty user name is not allowed")),
        Some((name, password)) => (name, password.into()),
        None => (&given[..], password(context, &given)?),
    };
    let printer = context.printer()?;
    let client = context.client()?;
    let options = Some(UserAddOptions { no_password });
    let request = AuthUserAddRequest { name: name.into(), password, options, ..Default::default() };
    let answer = context.call(client.user_add(request))?;
    let text = format!("User {name} created");
    printer.done("etcdserverpb.AuthUserAddResponse", &answer, answer.header.as_ref(), &text)
}

/// Asks for a password twice, or reads it.
fn password(context: &Context, name: &str) -> Outcome<String> {
    if !context.parsed.switch("interactive") {
        return terminal::word();
    }
    let first = crate::flags::password(&format!("Password of {name}: "))?;
    if first.is_empty() {
        return Err(Failure::args("empty password"));
    }
    let second = crate::flags::password(&format!("Type password of {name} again for confirmation: "))?;
    if first != second {
        return Err(Failure::args("given passwords are different"));
    }
    Ok(first)
}

fn delete(context: &Context) -> Outcome {
    let name = name(context, "delete")?;
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.user_delete(AuthUserDeleteRequest { name: name.clone() }))?;
    let text = format!("User {name} deleted");
    printer.done("etcdserverpb.AuthUserDeleteResponse", &answer, answer.header.as_ref(), &text)
}

fn get(context: &Context) -> Outcome {
    let name = name(context, "get")?;
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.user_get(AuthUserGetRequest { name: name.clone() }))?;
    if context.parsed.switch("detail") {
        print::out(format!("User: {name}\n").as_bytes())?;
        for name in &answer.roles {
            print::out(b"\n")?;
            let answer = context.call(client.role_get(AuthRoleGetRequest { role: name.clone() }))?;
            role::show(printer, name, &answer)?;
        }
        return Ok(());
    }
    let simple = || {
        let roles: String = answer.roles.iter().map(|role| format!(" {role}")).collect();
        format!("User: {name}\nRoles:{roles}\n").into_bytes()
    };
    printer.answer("etcdserverpb.AuthUserGetResponse", &answer, Some(&simple), None)
}

fn list(context: &Context) -> Outcome {
    if !context.args().is_empty() {
        return Err(Failure::args("user list command requires no arguments"));
    }
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.user_list(AuthUserListRequest {}))?;
    let simple = || answer.users.iter().map(|user| format!("{user}\n")).collect::<String>().into_bytes();
    printer.answer("etcdserverpb.AuthUserListResponse", &answer, Some(&simple), None)
}

fn passwd(context: &Context) -> Outcome {
    let name = name(context, "passwd")?;
    let password = password(context, &name)?;
    let printer = context.printer()?;
    let client = context.client()?;
    let request = AuthUserChangePasswordRequest { name: name.clone(), password, ..Default::default() };
    let answer = context.call(client.user_change_password(request))?;
    let header = answer.header.as_ref();
    printer.done("etcdserverpb.AuthUserChangePasswordResponse", &answer, header, "Password updated")
}

fn grant_role(context: &Context) -> Outcome {
    let [user, role] = context.args() else {
        return Err(Failure::args("user grant command requires user name and role name as its argument"));
    };
    let (user, role) = (raw::string(user)?, raw::string(role)?);
    let printer = context.printer()?;
    let client = context.client()?;
    let request = AuthUserGrantRoleRequest { user: user.clone(), role: role.clone() };
    let answer = context.call(client.user_grant_role(request))?;
    let text = format!("Role {role} is granted to user {user}");
    printer.done("etcdserverpb.AuthUserGrantRoleResponse", &answer, answer.header.as_ref(), &text)
}

fn revoke_role(context: &Context) -> Outcome {
    let [user, role] = context.args() else {
        return Err(Failure::args("user revoke-role requires user name and role name as its argument"));
    };
    let (user, role) = (raw::string(user)?, raw::string(role)?);
    let printer = context.printer()?;
    let client = context.client()?;
    let request = AuthUserRevokeRoleRequest { name: user.clone(), role: role.clone() };
    let answer = context.call(client.user_revoke_role(request))?;
    let text = format!("Role {role} is revoked from user {user}");
    printer.done("etcdserverpb.AuthUserRevokeRoleResponse", &answer, answer.header.as_ref(), &text)
}
