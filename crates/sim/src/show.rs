//! Messages and answers in a few words, for the trace.

use crate::operation::{Answer, Request};
use api::raftpb;
use std::fmt::Write;

pub(crate) fn message(message: &raftpb::Message) -> String {
    let mut text = format!("{:?} term {}", message.r#type(), message.term());
    // Writing into a string cannot fail.
    let _ = write!(text, " index {} logterm {} commit {}", message.index(), message.log_term(), message.commit());
    if let (Some(first), Some(last)) = (message.entries.first(), message.entries.last()) {
        let _ = write!(text, " entries {}/{}..{}/{}", first.index(), first.term(), last.index(), last.term());
    }
    if message.reject() {
        let _ = write!(text, " reject hint {}", message.reject_hint());
    }
    if !message.context().is_empty() {
        let _ = write!(text, " context {:x}", crc32c::crc32c(message.context()));
    }
    text
}

pub(crate) fn request(request: &Request) -> String {
    use api::Message;
    match request {
        Request::Write(data) => {
            let request = api::etcdserverpb::InternalRaftRequest::decode(data.clone()).unwrap_or_default();
            if let Some(put) = &request.put {
                format!("put {:?} {} bytes lease {}", put.key, put.value.len(), put.lease)
            } else if let Some(delete) = &request.delete_range {
                format!("delete {:?}..{:?}", delete.key, delete.range_end)
            } else if let Some(txn) = &request.txn {
                format!("txn {:?}", txn.compare)
            } else if let Some(grant) = &request.lease_grant {
                format!("grant {} for {} s", grant.id, grant.ttl)
            } else if let Some(revoke) = &request.lease_revoke {
                format!("revoke {}", revoke.id)
            } else if let Some(compaction) = &request.compaction {
                format!("compact {}", compaction.revision)
            } else {
                "nothing".into()
            }
        }
        Request::ConfChange(change) => format!("{:?} {:x}", change.r#type(), change.node_id()),
        Request::Read { range, linearizable } => {
            let kind = if *linearizable { "linearizable" } else { "serializable" };
            format!("{kind} read {:?}..{:?}", range.key, range.range_end)
        }
        Request::KeepAlive { lease } => format!("keep {lease} alive"),
        Request::Transfer { to } => format!("transfer to {to:x}"),
        Request::ReadIndex => "read index".into(),
    }
}

pub(crate) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Applied { index, result: Ok(_) } => format!("applied at {index}"),
        Answer::Applied { index, result: Err(error) } => format!("applied at {index}: {error:?}"),
        Answer::Read { revision, count, .. } => format!("{count} keys at revision {revision}"),
        Answer::Renewed { ttl_seconds, .. } => format!("{ttl_seconds} s"),
        Answer::ReadIndex { applied } => format!("read index {applied}"),
        Answer::Refused => "refused".into(),
        Answer::Unknown => "unknown".into(),
    }
}
