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
            if let Ok(request) = pb::TxnRequest::decode(message) {
                let accepted = api::check::txn(&request, api::limits::TXN_OPS_MAX).is_ok();
                // What is accepted must decode again as the payload of a log entry, or the member could not apply it.
                let entry = pb::InternalRaftRequest { txn: Some(request), ..Default::default() }.encode_to_vec();
                assert!(!accepted || pb::InternalRaftRequest::decode(&entry[..]).is_ok());
            }
        }
        4 => drop(pb::WatchRequest::decode(message)),
        5 => drop(pb::InternalRaftRequest::decode(message)),
        6 => drop(api::raftpb::Message::decode(message)),
        _ => drop(pb::LeaseGrantRequest::decode(message)),
    }
});
