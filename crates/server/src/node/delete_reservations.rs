//! Reservations of the delete headroom for proposals: deletions and ends of leases.

use super::headroom::{Claim, NoEnd};
use super::{Node, Outcome};
use api::Error;
use api::etcdserverpb::{TxnResponse, response_op};
use store::Response;

impl Claim {
    /// Ends the reservation with the outcome of the proposal. If the outcome is unknown, it stays until the proposal can no longer be
    /// applied; if something was deleted, until every member has applied it.
    pub(crate) fn end(mut self, node: &Node, outcome: &Outcome) {
        let is_doubtful =
            matches!(outcome, Err(Error::Timeout | Error::TimeoutDueToLeaderFail | Error::TimeoutDueToConnectionLost));
        let is_to_come = is_doubtful || (self.headroom.least_told_bytes().is_some() && has_deleted(outcome));
        let Some(reservation) = self.reservation.take().filter(|reservation| reservation.bytes() > 0 && is_to_come)
        else {
            return;
        };
        // After this time the forwarded proposal, and the entry that the leader made of it, have arrived or are lost.
        let patience_ms = if is_doubtful { 2 * node.config.election_timeout.as_millis() as u64 } else { 0 };
        self.headroom.keep(reservation, self.ending.take(), node.now_ms() + patience_ms);
    }
}

/// Whether a proposal has deleted something, or may have.
fn has_deleted(outcome: &Outcome) -> bool {
    match outcome {
        Ok(Response::DeleteRange(answer)) => answer.deleted > 0,
        Ok(Response::Txn(answer)) => txn_has_deleted(answer),
        // The transaction was applied; only then was its answer found to be too large.
        Ok(_) | Err(Error::TxnAnswerTooLarge) => true,
        // The proposal was refused, before it entered the log or when it was applied.
        Err(_) => false,
    }
}

fn txn_has_deleted(answer: &TxnResponse) -> bool {
    let mut left = vec![answer];
    while let Some(answer) = left.pop() {
        for op in &answer.responses {
            match &op.response {
                Some(response_op::Response::ResponseDeleteRange(answer)) if answer.deleted > 0 => return true,
                Some(response_op::Response::ResponseTxn(nested)) => left.push(nested),
                _ => {}
            }
        }
    }
    false
}

impl Node {
    /// Reserves headroom for a deletion that writes `cost` bytes on every member.
    pub(crate) fn claim_headroom(&self, cost: u64) -> Result<Claim, Error> {
        let reservation = self.store.reserve_delete(cost, self.headroom.share())?;
        Ok(Claim { reservation: Some(reservation), headroom: self.headroom.clone(), ending: None })
    }

    /// Reserves headroom for the end of a lease.
    pub(super) fn claim_lease_end(&self, lease: i64) -> Result<Claim, NoEnd> {
        self.headroom.claim_lease_end(&self.store, lease, self.store.revoke_cost_bytes(lease))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_deleted_nothing_keeps_no_reservation() {
        use api::etcdserverpb::{DeleteRangeResponse, LeaseRevokeResponse, PutResponse, ResponseOp};
        fn deleted(deleted: i64) -> DeleteRangeResponse {
            DeleteRangeResponse { deleted, ..Default::default() }
        }
        fn op(response: response_op::Response) -> ResponseOp {
            ResponseOp { response: Some(response) }
        }
        fn delete(count: i64) -> ResponseOp {
            op(response_op::Response::ResponseDeleteRange(deleted(count)))
        }
        let txn = |responses| TxnResponse { responses, ..Default::default() };
        let put = || op(response_op::Response::ResponsePut(PutResponse::default()));
        let nested = |responses| op(response_op::Response::ResponseTxn(txn(responses)));
        let kept = |outcome: Outcome| has_deleted(&outcome);
        assert!(kept(Ok(Response::DeleteRange(deleted(1)))) && !kept(Ok(Response::DeleteRange(deleted(0)))));
        assert!(kept(Ok(Response::Txn(txn(vec![put(), delete(0), nested(vec![delete(2)])])))));
        assert!(!kept(Ok(Response::Txn(txn(vec![put(), delete(0), nested(vec![delete(0), put()])])))));
        assert!(kept(Ok(Response::LeaseRevoke(7, LeaseRevokeResponse::default()))));
        assert!(kept(Err(Error::TxnAnswerTooLarge)));
        // Levels cost no stack.
        let stack = std::thread::Builder::new().stack_size(256 * 1024);
        let deep = stack.spawn(|| {
            let response = response_op::Response::ResponseTxn;
            let mut answer = TxnResponse { responses: vec![delete(1)], ..Default::default() };
            for _ in 0..100_000 {
                answer = TxnResponse { responses: vec![op(response(answer))], ..Default::default() };
            }
            let is_found = txn_has_deleted(&answer);
            // Its destructor would recurse.
            std::mem::forget(answer);
            is_found
        });
        assert!(deep.expect("a thread").join().expect("no overflow"));
        let refusals = [Error::TooManyRequests, Error::AuthOldRevision, Error::LeaseNotFound, Error::NotPrimaryLessor];
        assert_eq!(refusals.map(|error| kept(Err(error))), [false; 4]);
    }
}
