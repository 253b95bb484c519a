//! How much of each pool each connection and each host holds: a connection may have a quarter of what is shared, and a host half.

use crate::pool::Pool;
use rpc::{Address, Origin};
use std::collections::HashMap;

/// What of each pool is held by connection, and by host.
#[derive(Default)]
pub(crate) struct Shares {
    by_client: HashMap<(Pool, Address), u64>,
    by_host: HashMap<(Pool, Origin), u64>,
}

/// Whose share is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsedUp {
    /// The connection's: only what it holds itself can make room.
    Connection,
    /// Its host's, but not its own: other clients may be behind the same address.
    Host,
}

impl Shares {
    /// The share, if any, that has no room for `bytes` more of a pool that shares `most`, for a claim that has `own` already. A
    /// connection or host that holds nothing else may have as much as one answer takes.
    pub(crate) fn used_up(&self, pool: Pool, client: Address, bytes: u64, own: u64, most: u64) -> Option<UsedUp> {
        if !fits(self.by_client.get(&(pool, client)), bytes, own, most / 4) {
            return Some(UsedUp::Connection);
        }
        let of_host = self.by_host.get(&(pool, origin(Some(client))));
        if fits(of_host, bytes, own, host_share(most)) { None } else { Some(UsedUp::Host) }
    }

    pub(crate) fn note(&mut self, pool: Pool, client: Address, bytes: u64) {
        let of_client = self.by_client.entry((pool, client)).or_default();
        *of_client = of_client.saturating_add(bytes);
        let of_host = self.by_host.entry((pool, origin(Some(client)))).or_default();
        *of_host = of_host.saturating_add(bytes);
    }

    pub(crate) fn forget(&mut self, pool: Pool, client: Address, bytes: u64) {
        fn take<K: Eq + std::hash::Hash>(from: &mut HashMap<K, u64>, key: &K, bytes: u64) {
            if let Some(held) = from.get_mut(key) {
                *held = held.saturating_sub(bytes);
                if *held == 0 {
                    from.remove(key);
                }
            }
        }
        take(&mut self.by_client, &(pool, client), bytes);
        take(&mut self.by_host, &(pool, origin(Some(client))), bytes);
    }

    /// Whether nothing of what is shared is held.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_client.is_empty() && self.by_host.is_empty()
    }
}

/// What a host may have of `shared`.
pub(crate) fn host_share(shared: u64) -> u64 {
    shared / 2
}

/// Whether `bytes` more than is `held` are within a share, or nothing else is held than the `own`.
fn fits(held: Option<&u64>, bytes: u64, own: u64, share: u64) -> bool {
    held.is_none_or(|held| *held <= own || held.saturating_add(bytes) <= share)
}

/// The host whose share a client's claims count towards.
pub(crate) fn origin(client: Option<Address>) -> Origin {
    Origin::of(client.and_then(|client| client.ip()))
}
