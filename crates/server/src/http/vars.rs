//! `/debug/vars`, as Go's `expvar` lays it out, and `/debug/requests`.

use super::page as response;
use crate::node::Node;
use crate::services::METHODS;
use crate::{logging, system};
use bytes::Bytes;
use http::{Response, StatusCode};
use std::fmt::Write;

/// The command line without passwords, the limit of open files, memory, and where Raft stands. Of `memstats` only what has a meaning without a garbage
/// collector: `Sys` is the address space, `HeapSys` what of it is in memory, `HeapAlloc` what the allocator has given out.
pub(super) fn page(node: &Node) -> Response<Bytes> {
    let mut text = String::from("{\n\"cmdline\": [");
    for (place, word) in system::command_line().iter().enumerate() {
        text.push_str(if place == 0 { "" } else { "," });
        logging::quote(&mut text, word);
    }
    let memory = system::memory();
    let (id, status) = (node.member_id, &node.status);
    let state = match (status.is_leader(), status.is_learner()) {
        _ if node.is_observer() => "CairnObserver",
        (true, _) => "StateLeader",
        (false, true) => "StateLearner",
        (false, false) => "StateFollower",
    };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "],\n\"file_descriptor_limit\": {},\n\
         \"memstats\": {{\"Alloc\":{given},\"Sys\":{},\"HeapAlloc\":{given},\"HeapSys\":{},\"NumGC\":0,\"EnableGC\":false}},\n\
         \"raft.status\": {{\"id\":\"{id:x}\",\"term\":{},\"commit\":{},\"lead\":\"{:x}\",\"raftState\":\"{state}\",\"applied\":{}}}\n}}\n",
        system::open_files_limit(),
        memory.virtual_bytes,
        memory.resident_bytes,
        status.term(),
        status.committed(),
        status.leader(),
        status.applied(),
        given = memory.allocated_bytes,
    );
    response(StatusCode::OK, "application/json; charset=utf-8", text)
}

/// The calls that run and those that have ended, by method.
pub(super) fn traces(stats: Option<&rpc::Stats>) -> Response<Bytes> {
    let mut text = String::from(
        "<html>\n<head><title>/debug/requests</title></head>\n<body>\n<table>\n\
         <tr><th>method</th><th>active</th><th>ended</th><th>failed</th></tr>\n",
    );
    for (index, method) in METHODS.iter().enumerate() {
        let Some(counts) = stats.map(|stats| stats.method(index)).filter(|counts| counts.started > 0) else { continue };
        let ended: u64 = counts.handled.iter().sum();
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{ended}</td><td>{}</td></tr>",
            method.path,
            counts.started.saturating_sub(ended),
            counts.handled.iter().skip(1).sum::<u64>()
        );
    }
    text.push_str("</table>\n</body>\n</html>\n");
    response(StatusCode::OK, "text/html; charset=utf-8", text)
}
