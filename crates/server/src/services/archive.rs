//! `cairnpb.Archive`: the entries that this member has applied, for `cairn backup`.

use super::reply::encode;
use super::within::{Order, Stop, answer, held};
use crate::auth::Permitted;
use crate::auth::rules::Root;
use crate::node::Node;
use api::cairnpb::entries_response::State;
use api::cairnpb::{EntriesRequest, EntriesResponse};
use api::{Error, Message};
use replica::Stretch;
use rpc::{Call, Reply, Responder};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of the entries of one answer, of which there is always one.
const BATCH_BYTES: u64 = 1 << 20;

pub(super) fn entries(node: &Arc<Node>, call: Call, request: Permitted<Root, EntriesRequest>, responder: Responder) {
    let order = Order {
        client: call.peer.address,
        is_heavy: true,
        likely_bytes: BATCH_BYTES.saturating_mul(2),
        request_bytes: call.message.len(),
    };
    answer(node, order, responder, move |terms| {
        let message = find(terms.node, &request)?;
        // It may have waited for memory, and users may have been changed meanwhile.
        request.check_unchanged(&terms.node.store)?;
        let claim = terms.claim(message.encoded_len())?;
        Ok(match encode(&message)? {
            Reply::Whole(bytes) => Reply::Whole(held(claim, bytes)),
            other => other,
        })
    });
}

fn find(node: &Node, request: &EntriesRequest) -> Result<EntriesResponse, Stop> {
    if request.asker > 0 {
        let kept = Some(request.kept_index).filter(|index| *index > 0);
        node.followers.keep_for_archive(request.asker, kept, node.status.applied(), node.now_ms());
    }
    let header = Some(node.header(node.store.revision()));
    // A member that is cut off has heard of a leader within this time; then it knows of none.
    let cut_off_ms = u64::try_from(node.config.election_timeout.as_millis()).unwrap_or(u64::MAX).saturating_mul(2);
    let has_leader = node.status.leader() != 0;
    let (asked_ms, committed) = (now_ms(), node.status.committed());
    let applied_index = node.status.applied();
    // A member that has much to apply knows of more than it has to give.
    let caught_up_ms = node.followers.caught_up.until_ms(asked_ms, committed, applied_index);
    let complete_ms = if has_leader { caught_up_ms.saturating_sub(cut_off_ms) } else { 0 };
    // The clock is looked at after the index: what an answer has was applied when it says.
    let time_ms = now_ms();
    let base = EntriesResponse { header, applied_index, time_ms, complete_ms, ..EntriesResponse::default() };
    let stopped = || Stop::from(Error::Stopped);
    if request.index == 0 {
        let (index, term) = node.applied_entry().ok_or_else(stopped)?;
        return Ok(EntriesResponse { index, term, ..base });
    }
    let EntriesRequest { index, term, .. } = *request;
    let base = EntriesResponse { index, term, ..base };
    Ok(match node.stretch((index, term), BATCH_BYTES).ok_or_else(stopped)? {
        // Later ones may have been applied since the clock was looked at.
        Stretch::Entries(mut entries) => {
            entries.retain(|entry| entry.index() <= applied_index);
            EntriesResponse { entries, ..base }
        }
        Stretch::Behind => EntriesResponse { state: State::Behind.into(), ..base },
        Stretch::Trimmed => EntriesResponse { state: State::Trimmed.into(), ..base },
        Stretch::Differs(ours) => EntriesResponse { state: State::Differs.into(), term: ours, ..base },
    })
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
