//! `member`.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{PARSE_UINT, hex, switch, text};
use crate::print::fields::Lines;
use crate::print::json::Style;
use crate::print::{self, Format, go, json, table};
use crate::raw;
use api::etcdserverpb::*;

pub(crate) const COMMAND: Command =
    group(
        "member",
        "Members of the cluster",
        &[
            command("add", "<name> --peer-urls=<URLs>", "Adds a member", add).with(&[
                text("peer-urls", "", "URLs of its peer port, separated by commas"),
                switch("learner", "without a vote"),
            ]),
            command("list", "", "Lists the members", list).with(&[text(
                "consistency",
                "l",
                "l: linearizable, s: serializable",
            )]),
            command("promote", "<member>", "Gives a learner a vote", promote),
            command("remove", "<member>", "Removes a member", remove),
            command("update", "<member> --peer-urls=<URLs>", "Changes the peer URLs of a member", update)
                .with(&[text("peer-urls", "", "URLs of its peer port, separated by commas")]),
        ],
    );

fn id(context: &Context) -> Outcome<u64> {
    let [id] = context.args() else { return Err(Failure::args("member ID is not provided")) };
    hex(id, PARSE_UINT).map_err(|why| Failure::args(format!("bad member ID arg ({why}), expecting ID in Hex")))
}

fn urls(context: &Context) -> Outcome<Vec<String>> {
    match context.parsed.text("peer-urls") {
        "" => Err(Failure::args("member peer urls not provided")),
        urls => urls.split(',').map(url).collect(),
    }
}

/// A URL that members have.
fn url(text: &str) -> Outcome<String> {
    let url = raw::string(text)?;
    match api::url::split(url.trim()) {
        Ok(_) => Ok(url),
        Err(why) => Err(Failure::new(code::ERROR, why)),
    }
}

fn add(context: &Context) -> Outcome {
    let name = match context.args() {
        [] => return Err(Failure::args("member name not provided")),
        [name] => name,
        names => {
            let urls = names.iter().filter(|name| name.starts_with("http://"));
            let hints: String = urls.map(|url| format!(", did you mean --peer-urls={url}")).collect();
            return Err(Failure::args(format!("too many arguments{hints}")));
        }
    };
    let (peer_ur_ls, is_learner) = (urls(context)?, context.parsed.switch("learner"));
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.member_add(MemberAddRequest { peer_ur_ls, is_learner }))?;
    let name = raw::bytes(name);
    let added = answer.member.clone().unwrap_or_default();
    let cluster = answer.header.as_ref().map_or(0, |header| header.cluster_id);
    let simple = || {
        let kind = if is_learner { " as learner" } else { "" };
        let mut out = format!("Member {:16x} added{kind} to cluster {cluster:16x}\n", added.id);
        let (name, peers) = (go::quote(&name), go::quote(&initial_cluster(&name, &answer)));
        go::put(&mut out, format_args!("\nETCD_NAME={name}\nETCD_INITIAL_CLUSTER={peers}\n"));
        let own = go::quote(added.peer_ur_ls.join(",").as_bytes());
        go::put(&mut out, format_args!("ETCD_INITIAL_ADVERTISE_PEER_URLS={own}\n"));
        out += "ETCD_INITIAL_CLUSTER_STATE=\"existing\"\n";
        out.into_bytes()
    };
    let fields = || {
        let mut lines = Lines::with_hex_ids(printer.hex);
        lines.header(answer.header.as_ref());
        member(&mut lines, &added);
        lines.end()
    };
    printer.answer("etcdserverpb.MemberAddResponse", &answer, Some(&simple), Some(&fields))?;
    if printer.format == Format::Simple {
        // Beside what etcd's tool prints, which scripts read.
        flags::say_bytes(&start_line(&name, &answer, &added));
    }
    Ok(())
}

/// Names and peer URLs of all members, of which the added one has this name.
fn initial_cluster(name: &[u8], answer: &MemberAddResponse) -> Vec<u8> {
    let added = answer.member.as_ref().map_or(0, |member| member.id);
    let mut peers: Vec<Vec<u8>> = Vec::new();
    for member in &answer.members {
        let name = if member.id == added { name } else { member.name.as_bytes() };
        peers.extend(member.peer_ur_ls.iter().map(|url| [name, b"=", url.as_bytes()].concat()));
    }
    peers.join(&b',')
}

/// The command that starts the added member: all in flags, since a variable and the flag of its name are refused together.
fn start_line(name: &[u8], answer: &MemberAddResponse, added: &Member) -> Vec<u8> {
    let own = added.peer_ur_ls.join(",").into_bytes();
    let flags: [(&str, &[u8]); 5] = [
        ("name", name),
        ("initial-cluster-state", b"existing"),
        ("initial-cluster", &initial_cluster(name, answer)),
        ("initial-advertise-peer-urls", &own),
        ("listen-peer-urls", &own),
    ];
    let mut line = b"\nTo start it, either set these variables or paste this, with --listen-client-urls and --advertise-client-urls:\ncairn serve".to_vec();
    for (flag, value) in flags {
        line.extend_from_slice(format!(" --{flag}=").as_bytes());
        line.extend(shell_word(value));
    }
    line.push(b'\n');
    line
}

/// A word for a shell. Names are chosen by others: nothing in them may be run.
fn shell_word(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:,=@+".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return word.to_vec();
    }
    let mut quoted = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

fn list(context: &Context) -> Outcome {
    let linearizable = match context.parsed.text("consistency") {
        "l" => true,
        "s" => false,
        // etcd's tool names the flag of another command here, which is never set.
        _ => return Err(Failure::new(code::BAD_FEATURE, "unknown consistency flag \"l\"")),
    };
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.member_list(MemberListRequest { linearizable }))?;
    let rows = || {
        let row = |member: &Member| {
            let state = if member.name.is_empty() { "unstarted" } else { "started" };
            let (peers, clients) = (member.peer_ur_ls.join(","), member.client_ur_ls.join(","));
            let learner = member.is_learner.to_string();
            vec![format!("{:x}", member.id), state.into(), member.name.clone(), peers, clients, learner]
        };
        answer.members.iter().map(row).collect::<Vec<_>>()
    };
    match printer.format {
        Format::Table => {
            let headings = ["ID", "Status", "Name", "Peer Addrs", "Client Addrs", "Is Learner"];
            print::out(table::draw(&headings, &rows()).as_bytes())
        }
        Format::Json => {
            let style = Style { hex_ids: printer.hex };
            printer.json(&json::message("etcdserverpb.MemberListResponse", &answer, style))
        }
        _ => {
            let simple = || rows().iter().map(|row| row.join(", ") + "\n").collect::<String>().into_bytes();
            let fields = || {
                let mut lines = Lines::with_hex_ids(printer.hex);
                lines.header(answer.header.as_ref());
                for one in &answer.members {
                    member(&mut lines, one);
                }
                lines.end()
            };
            printer.answer("etcdserverpb.MemberListResponse", &answer, Some(&simple), Some(&fields))
        }
    }
}

fn member(lines: &mut Lines, member: &Member) {
    lines.id("ID", member.id).quoted("Name", member.name.as_bytes());
    for url in &member.peer_ur_ls {
        lines.quoted("PeerURL", url.as_bytes());
    }
    for url in &member.client_ur_ls {
        lines.quoted("ClientURL", url.as_bytes());
    }
    lines.line("IsLearner", member.is_learner).empty();
}

/// Prints what became of a member.
fn done<A: api::Message>(
    context: &Context,
    name: &str,
    answer: &A,
    header: Option<&ResponseHeader>,
    id: u64,
    what: &str,
) -> Outcome {
    let cluster = header.map_or(0, |header| header.cluster_id);
    let simple = || format!("Member {id:16x} {what} cluster {cluster:16x}\n").into_bytes();
    let fields = || {
        let mut lines = Lines::new();
        lines.header(header);
        lines.end()
    };
    context.printer()?.answer(name, answer, Some(&simple), Some(&fields))
}

fn promote(context: &Context) -> Outcome {
    let id = id(context)?;
    let client = context.client()?;
    let answer = context.call(client.member_promote(MemberPromoteRequest { id }))?;
    done(context, "etcdserverpb.MemberPromoteResponse", &answer, answer.header.as_ref(), id, "promoted in")
}

fn remove(context: &Context) -> Outcome {
    let id = id(context)?;
    let client = context.client()?;
    let answer = context.call(client.member_remove(MemberRemoveRequest { id }))?;
    done(context, "etcdserverpb.MemberRemoveResponse", &answer, answer.header.as_ref(), id, "removed from")
}

fn update(context: &Context) -> Outcome {
    let (id, peer_ur_ls) = (id(context)?, urls(context)?);
    let client = context.client()?;
    let answer = context.call(client.member_update(MemberUpdateRequest { id, peer_ur_ls }))?;
    done(context, "etcdserverpb.MemberUpdateResponse", &answer, answer.header.as_ref(), id, "updated in")
}
