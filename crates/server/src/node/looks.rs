//! Keys that members look at for large transactions and deletions before they apply anything else.
//!
//! One request alone may have them look at any number. Many together would keep everybody waiting for as long as they come, so their sum is
//! bounded; and a host has at most half of it, but for a request that is its only one, so that another host's finds room. A host is an IPv4
//! address, or an IPv6 site of 48 bits: its owner has as many networks as he likes.

use super::Node;
use crate::overload::Class;
use api::Error;
use api::limits::{TXN_KEYS_FREE, TXN_KEYS_TOGETHER_MAX};
use contain::lock;
use rpc::{Address, Origin};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// What a host may have under way if that is not its only request.
const HOST_MAX: u64 = TXN_KEYS_TOGETHER_MAX / 2;
/// Up to here a host that has nothing under way finds room.
const FIRST_MAX: u64 = 2 * TXN_KEYS_TOGETHER_MAX;

/// The keys of all requests under way from this member.
#[derive(Default)]
pub(super) struct Looks(Mutex<Book>);

#[derive(Default)]
struct Book {
    total: u64,
    /// Of each host that has any.
    by_host: HashMap<Origin, u64>,
}

/// The keys of one request, until its outcome is there. Nothing for a request of few keys.
#[derive(Default)]
pub(crate) struct Looked(Option<(Arc<Looks>, Origin, u64)>);

impl Looks {
    /// Claims that every member looks at so many keys for a request from `host`. `None` if there is no room.
    fn claim(self: &Arc<Self>, host: Origin, keys: u64) -> Option<Looked> {
        if keys <= TXN_KEYS_FREE {
            return Some(Looked(None));
        }
        let mut book = lock(&self.0);
        let (all, own) =
            (book.total.saturating_add(keys), book.by_host.get(&host).map_or(keys, |own| own.saturating_add(keys)));
        let is_first = own == keys && (all <= FIRST_MAX || all == keys);
        if !is_first && (all > TXN_KEYS_TOGETHER_MAX || own > HOST_MAX) {
            return None;
        }
        book.total = all;
        book.by_host.insert(host, own);
        Some(Looked(Some((self.clone(), host, keys))))
    }
}

impl Drop for Looked {
    fn drop(&mut self) {
        let Some((looks, host, keys)) = self.0.take() else { return };
        let mut book = lock(&looks.0);
        book.total = book.total.saturating_sub(keys);
        if let Some(own) = book.by_host.get_mut(&host) {
            *own = own.saturating_sub(keys);
            if *own == 0 {
                book.by_host.remove(&host);
            }
        }
    }
}

impl Node {
    /// Claims that every member looks at so many keys for a request of `client`; the member itself is a client too.
    pub(crate) fn claim_looks(&self, client: Option<Address>, keys: u64) -> Result<Looked, Error> {
        let host = Origin::of(client.and_then(|client| client.ip())).site();
        self.looks.claim(host, keys).ok_or_else(|| self.refuse(Class::Write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> Origin {
        Origin::of(Some([10, 0, 0, last].into()))
    }

    #[test]
    fn one_host_leaves_room_for_others() {
        let looks = Arc::<Looks>::default();
        let claim = |last, keys| looks.claim(host(last), keys);
        let alone = claim(1, u64::MAX / 2).expect("it is alone");
        assert!(claim(1, TXN_KEYS_FREE + 1).is_none() && claim(2, TXN_KEYS_FREE + 1).is_none());
        assert!(claim(1, TXN_KEYS_FREE).is_some(), "few keys do not count");
        drop(alone);
        let half = [(); 2].map(|()| claim(1, HOST_MAX / 2).expect("half of all is the host's"));
        assert!(claim(1, TXN_KEYS_FREE + 1).is_none(), "and no more");
        let other = [(); 2].map(|()| claim(2, HOST_MAX / 2).expect("the other half"));
        assert!(claim(2, TXN_KEYS_FREE + 1).is_none());
        let third = claim(3, HOST_MAX).expect("the first of a host finds room beyond that");
        assert!(claim(3, TXN_KEYS_FREE + 1).is_none(), "a second one does not");
        let fourth = claim(4, HOST_MAX).expect("twice the sum");
        assert!(claim(5, TXN_KEYS_FREE + 1).is_none(), "that is all there is");
        drop((third, fourth, other));
        drop(half);
        assert!(lock(&looks.0).total == 0 && lock(&looks.0).by_host.is_empty());
    }
}
