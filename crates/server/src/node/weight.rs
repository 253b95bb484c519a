//! The memory that a call keeps while it waits.

use api::Error;
use budget::{Budget, Claim};
use rpc::Address;
use std::sync::Arc;

/// Bytes of a request that wait with its call, on a client's account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weight {
    bytes: usize,
    client: Option<Address>,
}

impl Weight {
    /// Of what the member asks on its own account, or of calls that clients cannot make larger.
    pub(crate) const NONE: Weight = Weight { bytes: 0, client: None };

    /// Of so many bytes that `client` has sent.
    pub(crate) fn of(bytes: usize, client: Address) -> Weight {
        Weight { bytes, client: Some(client) }
    }

    /// Who has sent them.
    pub(crate) fn client(self) -> Option<Address> {
        self.client
    }

    /// The same and so many more bytes.
    #[must_use]
    pub(crate) fn and(self, bytes: usize) -> Weight {
        Weight { bytes: self.bytes.saturating_add(bytes), ..self }
    }

    /// Claims it of the budget; nothing if it is little.
    pub(crate) fn claim(self, budget: &Arc<Budget>) -> Result<Option<Claim>, Error> {
        // What the member asks itself is nobody's.
        let Some(client) = self.client else { return Ok(None) };
        budget.claim_request(self.bytes, client)
    }
}
