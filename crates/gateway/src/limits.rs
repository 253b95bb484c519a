//! Limits of requests and answers.

use crate::table::Target;
use api::{Code, Error};
use budget::{Budget, Claim, Pool};
use bytes::Bytes;
use rpc::{Address, Reply, Status};
use std::sync::Arc;
use std::time::Duration;

/// What requests are held to.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// A message, in bytes.
    pub(crate) message_bytes_max: usize,
    /// What all clients together may have held.
    pub(crate) budget: Arc<Budget>,
    /// How long the next kilobyte of a value that has begun may take.
    pub(crate) body_timeout: Duration,
}

impl Limits {
    /// Length of one JSON value: base64 makes bytes a third longer.
    pub(crate) fn json_bytes_max(&self) -> usize {
        self.message_bytes_max.saturating_mul(2)
    }

    /// Claims what of an answer is held while it is made JSON.
    pub(crate) async fn claim_element(&self, bytes: u64, client: Address) -> Result<Option<Claim>, Status> {
        if bytes == 0 {
            return Ok(None);
        }
        self.budget.claim(Pool::of_answer(bytes), bytes, client).await.map(Some).map_err(Status::from)
    }
}

/// What of a reply is held while it is made JSON: an element. Of a transaction's it may be nearly all of it, of all others it is a pair.
pub(crate) fn element_bytes(reply: &Reply, target: &Target, limits: &Limits) -> u64 {
    match reply {
        Reply::Parts { len, .. } if target.response.name == TXN_RESPONSE => *len as u64,
        // Claimed as a whole already, and its client must not be told of a failure: the deletion is done.
        Reply::Parts { .. } if target.response.name == DELETE_RANGE_RESPONSE => 0,
        Reply::Parts { len, .. } => (*len).min(limits.message_bytes_max) as u64,
        Reply::Whole(_) => 0,
    }
}

const DELETE_RANGE_RESPONSE: &str = "etcdserverpb.DeleteRangeResponse";

/// How long a stream waits that was refused memory before it asks again.
const PAUSE: Duration = Duration::from_secs(1);

impl Limits {
    /// The message of a stream, in one piece: its JSON is made of that. What lies in several places is claimed before it is put together,
    /// for as long as it lives; the stream waits for that. An error if it is not as long as it says.
    pub(crate) async fn gather(&self, reply: Reply, client: Address) -> Result<Bytes, Status> {
        let bytes = match reply {
            Reply::Whole(message) => return Ok(message),
            Reply::Parts { len, .. } => len as u64,
        };
        let claim = loop {
            match self.budget.claim(Pool::of_answer(bytes), bytes, client).await {
                Ok(claim) => break claim,
                Err(Error::Stopped) => return Err(Error::Stopped.into()),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        };
        let whole = reply.into_whole().ok_or_else(|| Status::new(Code::Internal, "the answer is not what it says"))?;
        Ok(claim.hold(whole))
    }
}

/// The answer that is one list of long elements.
const TXN_RESPONSE: &str = "etcdserverpb.TxnResponse";

#[cfg(test)]
impl Limits {
    /// Of messages of 1 MiB, and a budget of 64 MiB.
    pub(crate) fn for_tests(body_timeout: Duration) -> Limits {
        Limits { message_bytes_max: 1 << 20, budget: Budget::new(64 << 20, Duration::MAX), body_timeout }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "tests")]
mod tests {
    use super::*;
    use rpc::Chunks;
    use std::task::Waker;

    #[test]
    fn a_message_in_parts_is_claimed_before_it_is_put_together() {
        let limits = Limits::for_tests(Duration::MAX);
        let budget = limits.budget.clone();
        let granting = std::thread::spawn(move || budget.run());
        let all = limits.budget.try_claim(Pool::Long, 32 << 20, None).expect("room");
        let parts: Chunks = (0..10).map(|part| Bytes::from(vec![part; 100_000])).collect();
        let mut gathering = Box::pin(limits.gather(parts.into_reply(), Address::Unix));
        let mut cx = std::task::Context::from_waker(Waker::noop());
        assert!(gathering.as_mut().poll(&mut cx).is_pending());
        drop(all);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let whole = runtime.block_on(gathering).expect("whole");
        assert_eq!((whole.len(), limits.budget.held(Pool::Long)), (1_000_000, 1_000_000));
        assert!(whole.chunks(100_000).zip(0..10).all(|(part, byte)| part.iter().all(|other| *other == byte)));
        drop(whole);
        assert_eq!(limits.budget.held(Pool::Long), 0);
        limits.budget.stop();
        granting.join().expect("no panic");
    }
}
