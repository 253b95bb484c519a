//! Limits of requests and answers.

use crate::table::Target;
use budget::{Budget, Claim, Pool};
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

/// What of a reply is held while it is made JSON: of a transaction's a whole element, which may be nearly all of it.
pub(crate) fn element_bytes(reply: &Reply, target: &Target) -> u64 {
    match reply {
        Reply::Parts { len, .. } if target.response.name == TXN_RESPONSE => *len as u64,
        _ => 0,
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
