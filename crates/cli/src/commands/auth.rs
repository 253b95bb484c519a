//! `auth`: switches authentication on and off.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome};
use crate::print;
use api::etcdserverpb::*;

pub(crate) const COMMAND: Command = group(
    "auth",
    "Whether users and permissions matter",
    &[
        command("enable", "", "Has the cluster ask who somebody is", enable),
        command("disable", "", "Lets everybody do everything", disable),
        command("status", "", "Tells whether users matter", status),
    ],
);

/// The user, and the role, that may do everything.
const ROOT: &str = "root";

fn nothing(context: &Context, name: &str) -> Outcome {
    if context.args().is_empty() {
        return Ok(());
    }
    Err(Failure::args(format!("auth {name} command does not accept any arguments")))
}

fn enable(context: &Context) -> Outcome {
    nothing(context, "enable")?;
    context.printer()?;
    let client = context.client()?;
    context.call(async {
        match client.auth_enable(AuthEnableRequest {}).await {
            // The user is there, but not the role.
            Err(error) if error.is(api::Error::RootRoleNotExist) => {
                client.role_add(AuthRoleAddRequest { name: ROOT.into() }).await?;
                let grant = AuthUserGrantRoleRequest { user: ROOT.into(), role: ROOT.into() };
                client.user_grant_role(grant).await?;
                client.auth_enable(AuthEnableRequest {}).await
            }
            other => other,
        }
    })?;
    print::out(b"Authentication Enabled\n")
}

fn disable(context: &Context) -> Outcome {
    nothing(context, "disable")?;
    context.printer()?;
    let client = context.client()?;
    context.call(client.auth_disable(AuthDisableRequest {}))?;
    print::out(b"Authentication Disabled\n")
}

fn status(context: &Context) -> Outcome {
    nothing(context, "status")?;
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.auth_status(AuthStatusRequest {}))?;
    let (enabled, revision) = (answer.enabled, answer.auth_revision);
    let simple = || format!("Authentication Status: {enabled}\nAuthRevision: {revision}\n").into_bytes();
    printer.answer("etcdserverpb.AuthStatusResponse", &answer, Some(&simple), None)
}
