//! The memory that a call keeps while it waits.

use api::Error;
use budget::{Budget, Claim};
use rpc::Address;
use std::sync::Arc;

/// Bytes of a request that stay in memory while its call waits. They count for the client that sent them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weight {
    bytes: usize,
    client: Option<Address>,
}

impl Weight {
    /// The weight of the member's own requests, and of calls whose size no client can choose.
    pub(crate) const NONE: Weight = Weight { bytes: 0, client: None };

    /// The weight of `bytes` bytes that `client` has sent.
    pub(crate) fn of(bytes: usize, client: Address) -> Weight {
        Weight { bytes, client: Some(client) }
    }

    /// The client that sent the bytes; `None` for the member's own requests.
    pub(crate) fn client(self) -> Option<Address> {
        self.client
    }

    /// This weight plus `bytes`.
    #[must_use]
    pub(crate) fn and(self, bytes: usize) -> Weight {
        Weight { bytes: self.bytes.saturating_add(bytes), ..self }
    }

    /// Claims the weight of the budget; `None` if it is small.
    pub(crate) fn claim(self, budget: &Arc<Budget>) -> Result<Option<Claim>, Error> {
        // The member's own requests count for no client.
        let Some(client) = self.client else { return Ok(None) };
        budget.claim_request(self.bytes, client)
    }
}
