//! `--experimental-serializable-ordering`: reads never go back behind what the proxy has shown.

use api::etcdserverpb::ResponseHeader;
use api::{Code, Message};
use bytes::Bytes;
use rpc::Status;
use std::sync::atomic::{AtomicI64, Ordering};

/// How often each member is asked before the read fails, as in etcd.
const ROUNDS: usize = 5;

/// The newest revision that was shown to any client.
#[derive(Debug, Default)]
pub(crate) struct Order(AtomicI64);

/// The beginning of every answer about keys.
#[derive(Clone, PartialEq, Message)]
struct Headed {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
}

/// The revision of an answer about keys; 0 if it has none.
pub(crate) fn revision_of(answer: &Bytes) -> i64 {
    Headed::decode(answer.clone()).ok().and_then(|headed| headed.header).map_or(0, |header| header.revision)
}

impl Order {
    /// Has `ask` called until its answer is no older than what was shown before, by members in turn.
    ///
    /// # Errors
    /// Those of `ask`; that no member is as far.
    pub(crate) async fn keep<F: Future<Output = Result<Bytes, Status>>>(
        &self,
        members: usize,
        ask: impl Fn() -> F,
    ) -> Result<Bytes, Status> {
        let least = self.0.load(Ordering::Acquire);
        for _ in 0..members.saturating_mul(ROUNDS).max(1) {
            let answer = ask().await?;
            if self.shows(&answer) >= least {
                return Ok(answer);
            }
        }
        let text = "etcdclient: no cluster members have a revision higher than the previously received revision";
        Err(Status::new(Code::Unknown, text))
    }

    /// Notes the revision of an answer that a client gets, and returns it.
    pub(crate) fn shows(&self, answer: &Bytes) -> i64 {
        let revision = revision_of(answer);
        self.shows_revision(revision);
        revision
    }

    /// Notes a revision that a client gets.
    pub(crate) fn shows_revision(&self, revision: i64) {
        self.0.fetch_max(revision, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::RangeResponse;
    use std::cell::Cell;

    fn at(revision: i64) -> Result<Bytes, Status> {
        let header = Some(ResponseHeader { revision, ..ResponseHeader::default() });
        Ok(RangeResponse { header, count: 3, ..RangeResponse::default() }.encode_to_vec().into())
    }

    #[tokio::test]
    async fn older_answers_are_asked_for_again() {
        let order = Order::default();
        order.shows(&at(5).expect("an answer"));
        let asked = Cell::new(0);
        let ask = |from: i64| {
            let asked = &asked;
            move || {
                asked.set(asked.get() + 1);
                let revision = from + asked.get();
                async move { at(revision) }
            }
        };
        let answer = order.keep(3, ask(1)).await.expect("the fourth");
        assert_eq!((asked.get(), order.shows(&answer)), (4, 5));
        asked.set(0);
        assert!(order.keep(3, ask(-100)).await.is_err_and(|status| status.message.contains("no cluster members")));
        assert_eq!(asked.get(), 15);
    }
}
