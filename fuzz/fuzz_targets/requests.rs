//! Requests as a client could send them: decoding and the checks in front of consensus.
#![no_main]

use api::Message;
use api::etcdserverpb as pb;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, message)) = data.split_first() else { return };
    let message = Bytes::copy_from_slice(message);
    match kind % 8 {
        0 => drop(pb::RangeRequest::decode(message).map(|request| api::check::range(&request))),
        1 => drop(pb::PutRequest::decode(message).map(|request| api::check::put(&request))),
        2 => drop(pb::DeleteRangeRequest::decode(message).map(|request| api::check::delete_range(&request))),
        3 => {
            let ours = api::decode::txn(message.clone(), usize::MAX);
            // Where prost can, both say the same.
            if let Ok(theirs) = pb::TxnRequest::decode(message) {
                assert!(ours.as_ref().is_ok_and(|ours| *ours == theirs));
            }
            drop(ours.map(|request| api::check::txn(&request, api::limits::TXN_OPS_MAX)));
        }
        4 => drop(pb::WatchRequest::decode(message)),
        5 => drop(pb::InternalRaftRequest::decode(message)),
        6 => drop(api::raftpb::Message::decode(message)),
        _ => drop(pb::LeaseGrantRequest::decode(message)),
    }
});
