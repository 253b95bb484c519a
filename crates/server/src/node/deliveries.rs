//! Outcomes on their way to those who wait for them.
//!
//! Who waits has come from a request thread, and what its answer touches is in the caches of that thread's core. So the outcomes of a
//! batch are parted by thread, and each thread encodes and sends its own. Those of puts and small transactions, which are nearly all: a
//! large answer would keep the thread's connections waiting, and its pairs in memory, and what else there is wants the order of the log.

use super::{Done, Outcome};
use crate::client_share;
use api::etcdserverpb::response_op::Response as Answer;
use api::mvccpb::KeyValue;
use rpc::Home;
use std::time::Duration;
use store::Response;

/// Answers in an outcome that goes to its thread, pairs in one of them, and bytes of all pairs.
const ANSWERS_MAX: usize = 8;
const PAIRS_MAX: usize = 4;
const BYTES_MAX: usize = 16 << 10;

/// The outcomes of a batch.
#[derive(Default)]
pub(super) struct Deliveries {
    by_home: Vec<(Home, Vec<Delivery>)>,
}

/// The outcome of one proposal.
pub(super) struct Delivery {
    pub(super) done: Done,
    pub(super) outcome: Outcome,
    /// What applying it took of the processor; 0 where that is not measured.
    pub(super) worked: Duration,
}

impl Delivery {
    fn end(self) {
        client_share::worked(self.worked);
        self.done.end(self.outcome);
        client_share::unmeasured();
    }
}

impl Deliveries {
    /// Adds one for a request thread. It is delivered at once if there is none, or if this is called on it.
    pub(super) fn add(&mut self, home: Option<Home>, delivery: Delivery) {
        let goes_home = |home: &Home| Home::here() != Some(*home) && is_small(&delivery.outcome);
        let Some(home) = home.filter(goes_home) else { return delivery.end() };
        match self.by_home.iter_mut().find(|(other, _)| *other == home) {
            Some((_, deliveries)) => deliveries.push(delivery),
            None => self.by_home.push((home, vec![delivery])),
        }
    }

    /// Gives each thread its own.
    pub(super) fn send(self) {
        for (home, deliveries) in self.by_home {
            home.give(move || deliveries.into_iter().for_each(Delivery::end));
        }
    }
}

fn is_small(outcome: &Outcome) -> bool {
    match outcome {
        Ok(Response::Put(put)) => bytes(put.prev_kv.as_slice()).is_some_and(|bytes| bytes <= BYTES_MAX),
        Ok(Response::Txn(txn)) if txn.responses.len() <= ANSWERS_MAX => {
            let each = txn.responses.iter().map(|op| match &op.response {
                Some(Answer::ResponsePut(put)) => bytes(put.prev_kv.as_slice()),
                Some(Answer::ResponseRange(range)) => bytes(&range.kvs),
                Some(Answer::ResponseDeleteRange(deleted)) => bytes(&deleted.prev_kvs),
                Some(Answer::ResponseTxn(_)) | None => None,
            });
            each.sum::<Option<usize>>().is_some_and(|bytes| bytes <= BYTES_MAX)
        }
        _ => false,
    }
}

/// Bytes of these pairs, if they are few.
fn bytes(pairs: &[KeyValue]) -> Option<usize> {
    (pairs.len() <= PAIRS_MAX).then(|| pairs.iter().map(|pair| pair.key.len() + pair.value.len()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::{PutResponse, RangeResponse, ResponseOp, TxnResponse};

    #[test]
    fn what_is_large_is_delivered_at_once() {
        let pair = |len| KeyValue { key: "k".into(), value: vec![0; len].into(), ..KeyValue::default() };
        let put = |len| Ok(Response::Put(PutResponse { prev_kv: Some(pair(len)), ..PutResponse::default() }));
        assert!(is_small(&Ok(Response::Put(PutResponse::default()))) && is_small(&put(BYTES_MAX - 1)));
        assert!(!is_small(&put(BYTES_MAX)), "the key counts");
        let txn = |responses| Ok(Response::Txn(TxnResponse { responses, ..TxnResponse::default() }));
        let op = |response| ResponseOp { response: Some(response) };
        let range =
            |pairs| op(Answer::ResponseRange(RangeResponse { kvs: vec![pair(1); pairs], ..Default::default() }));
        assert!(is_small(&txn(vec![])) && is_small(&txn(vec![range(PAIRS_MAX); ANSWERS_MAX])));
        assert!(!is_small(&txn(vec![range(PAIRS_MAX + 1)])) && !is_small(&txn(vec![range(0); ANSWERS_MAX + 1])));
        assert!(!is_small(&txn(vec![op(Answer::ResponseTxn(TxnResponse::default()))])));
        assert!(!is_small(&Err(api::Error::LeaseNotFound)));
    }
}
