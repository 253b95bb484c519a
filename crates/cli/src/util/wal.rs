//! `wal dump`: prints the records of a Raft log, ours or etcd's.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome};
use crate::flags::text;
use crate::print::{self, go};
use crate::raw;
use api::Message;
use api::etcdserverpb::{InternalRaftRequest, Metadata};
use api::raftpb::{ConfChange, Entry, EntryType};
use etcd_import::log::{self, Record};

pub(crate) const COMMAND: Command = group(
    "wal",
    "The Raft log of a stopped member",
    &[command("dump", "<dir of the log> (or --data-dir)", "Lists the records of a log, and checks them", dump)
        .with(&[text("data-dir", "", "directory of a member's data")])],
);

/// Characters of an entry that are shown.
const SHOWN_CHARS_MAX: usize = 240;

fn dump(context: &Context) -> Outcome {
    let dir = match (context.args(), context.parsed.text("data-dir")) {
        ([dir], "") => raw::path(dir),
        ([], dir) if !dir.is_empty() => raw::path(dir).join("member").join("wal"),
        _ => return Err(Failure::args("wal dump requires the directory of a log, or --data-dir")),
    };
    let mut failed = None;
    let read = log::read_while(&dir, &mut |record| {
        failed = print::out((line(&record) + "\n").as_bytes()).err();
        failed.is_none()
    });
    // A reader that takes no more lines gets no report of damage after them.
    failed.map_or(Ok(read?), Err)
}

fn line(record: &Record) -> String {
    match record {
        Record::Metadata(bytes) => {
            let metadata = Metadata::decode(&bytes[..]).unwrap_or_default();
            format!("metadata  member {:x} of cluster {:x}", metadata.node_id(), metadata.cluster_id())
        }
        Record::State(state) => {
            format!("state     term {}, vote {:x}, commit {}", state.term(), state.vote(), state.commit())
        }
        Record::Snapshot(snapshot) => format!("snapshot  {:>4} {:>10}", snapshot.term(), snapshot.index()),
        Record::Entry(entry) => format!("entry     {:>4} {:>10}  {}", entry.term(), entry.index(), contents(entry)),
    }
}

fn contents(entry: &Entry) -> String {
    let data = entry.data.clone().unwrap_or_default();
    let text = match entry.r#type() {
        EntryType::EntryNormal if data.is_empty() => "nothing".into(),
        EntryType::EntryNormal => match InternalRaftRequest::decode(data.clone()) {
            Ok(request) => print::text::message("etcdserverpb.InternalRaftRequest", &request),
            Err(_) => go::quote(&data),
        },
        EntryType::EntryConfChange => match ConfChange::decode(data.clone()) {
            Ok(change) => {
                let (method, id) = (change.r#type().as_str_name(), change.node_id());
                let context = if change.context().is_empty() {
                    String::new()
                } else {
                    format!(" {}", go::quote(change.context()))
                };
                format!("method={method} id={id:x}{context}")
            }
            Err(_) => go::quote(&data),
        },
        EntryType::EntryConfChangeV2 => format!("ConfChangeV2 {}", go::quote(&data)),
    };
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
