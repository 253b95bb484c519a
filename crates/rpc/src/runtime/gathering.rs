//! The memory of requests that are not answered yet: of all connections, of those of one host, and of each.
//!
//! A connection counts for itself, and adds changes to the sums. Its part is bounded by all three, so that neither a connection nor a
//! host takes the room of others. However little is left, [`SHARE_BYTES`] belong to each connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::{Address, Origin};

/// The part of what all connections may hold that those of one host may (an IPv4 address, an IPv6 /64), and that one connection may.
const HOST_PART: usize = 2;
const CONNECTION_PART: usize = 4;
/// What a connection may always hold.
pub(crate) const SHARE_BYTES: usize = 64 << 10;

/// What is counted, each by itself.
#[derive(Debug, Default)]
struct Sums {
    /// Requests that are not whole.
    incomplete: AtomicUsize,
    /// The headers of streams that have a handler: they last as long as the streams.
    heads: AtomicUsize,
    /// What waits for clients, or for sockets (`held.rs`).
    held: AtomicUsize,
}

/// The sums of one server.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// What all connections may hold, in bytes.
    max: usize,
    all: Arc<Sums>,
    hosts: Mutex<HashMap<Origin, Weak<Sums>>>,
}

impl Gathering {
    /// For a server whose connections may together hold `max` bytes of each kind.
    pub(crate) fn new(max: usize) -> Gathering {
        Gathering { max, ..Gathering::default() }
    }

    /// The bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        let Sums { incomplete, heads, .. } = &*self.all;
        incomplete.load(Ordering::Relaxed).saturating_add(heads.load(Ordering::Relaxed))
    }

    /// What a connection from `address` counts towards.
    pub(crate) fn of(&self, address: &Address) -> Account {
        let origin = Origin::of(address.ip());
        // Nothing that holds it can panic half way.
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = hosts.get(&origin).and_then(Weak::upgrade) {
            return Account { max: self.max, host, all: self.all.clone() };
        }
        // Those without connections go before the table grows, so it stays as long as twice the others at most.
        if hosts.len() == hosts.capacity() {
            hosts.retain(|_, host| host.strong_count() > 0);
        }
        let host = Arc::new(Sums::default());
        hosts.insert(origin, Arc::downgrade(&host));
        Account { max: self.max, host, all: self.all.clone() }
    }
}

/// The sums that one connection counts towards.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    max: usize,
    host: Arc<Sums>,
    all: Arc<Sums>,
}

impl Account {
    /// For requests that are not whole.
    pub(crate) fn incomplete(&self) -> Share {
        Share { account: self.clone(), of: |sums| &sums.incomplete, bytes: 0, told_bytes: 0 }
    }

    /// What the connections of its host hold that waits to be sent.
    pub(crate) fn held(&self) -> &AtomicUsize {
        &self.host.held
    }

    /// For the headers of streams.
    pub(crate) fn heads(&self) -> Share {
        Share { account: self.clone(), of: |sums| &sums.heads, bytes: 0, told_bytes: 0 }
    }
}

/// What one connection holds. The sums have it back when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    account: Account,
    of: fn(&Sums) -> &AtomicUsize,
    /// Counted here.
    bytes: usize,
    /// Of them in the sums.
    told_bytes: usize,
}

impl Share {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What may be held beyond that.
    pub(crate) fn room(&self) -> usize {
        let left = |sums: &Sums, most: usize| most.saturating_sub((self.of)(sums).load(Ordering::Relaxed));
        let max = self.account.max;
        let shared = left(&self.account.all, max).min(left(&self.account.host, max / HOST_PART));
        let own = |most: usize| most.saturating_sub(self.bytes);
        own(max / CONNECTION_PART).min(shared.max(own(SHARE_BYTES)))
    }

    /// Counts something that took `before` and takes `after` now.
    pub(crate) fn change(&mut self, before: usize, after: usize) {
        // No more is taken away than was added.
        self.bytes = self.bytes.wrapping_add(after).wrapping_sub(before);
        self.tell();
    }

    /// Nothing is held any more.
    pub(crate) fn clear(&mut self) {
        self.bytes = 0;
        self.tell();
    }

    fn tell(&mut self) {
        let before = std::mem::replace(&mut self.told_bytes, self.bytes);
        if before != self.bytes {
            let more = self.bytes.wrapping_sub(before);
            (self.of)(&self.account.all).fetch_add(more, Ordering::Relaxed);
            (self.of)(&self.account.host).fetch_add(more, Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_BYTES_MAX: usize = 256 << 20;
    const HOST_BYTES_MAX: usize = ALL_BYTES_MAX / 2;
    const CONNECTION_BYTES_MAX: usize = ALL_BYTES_MAX / 4;
    use std::net::SocketAddr;

    fn client(host: u8, port: u16) -> Address {
        Address::Tcp(SocketAddr::from(([10, 0, 0, host], port)))
    }

    /// As much as there is room for.
    fn full(mut share: Share) -> Share {
        share.change(0, share.room());
        share
    }

    #[test]
    fn no_host_takes_the_room_of_another() {
        let gathering = Gathering::new(ALL_BYTES_MAX);
        let of = |host, port| gathering.of(&client(host, port)).incomplete();
        let greedy: Vec<Share> = (0..4).map(|port| full(of(1, port))).collect();
        let held: Vec<usize> = greedy.iter().map(Share::bytes).collect();
        assert_eq!(held, [CONNECTION_BYTES_MAX, CONNECTION_BYTES_MAX, SHARE_BYTES, SHARE_BYTES]);
        assert_eq!(of(2, 0).room(), CONNECTION_BYTES_MAX);
        let second: Vec<Share> = (0..3).map(|port| full(of(2, port))).collect();
        // All is taken but what each connection has for itself.
        let mut other = of(3, 0);
        assert_eq!(other.room(), SHARE_BYTES);
        other.change(0, 1_000);
        assert_eq!(other.room(), SHARE_BYTES - 1_000);
        // Headers are another matter.
        assert_eq!(gathering.of(&client(1, 0)).heads().room(), CONNECTION_BYTES_MAX);
        drop((greedy, second, other));
        assert_eq!(gathering.all.incomplete.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn hosts_without_connections_are_forgotten() {
        let gathering = Gathering::new(ALL_BYTES_MAX);
        let kept = full(gathering.of(&client(0, 0)).heads());
        for index in 0..10_000_u32 {
            gathering.of(&Address::Tcp(SocketAddr::from((index.to_be_bytes(), 0))));
        }
        assert!(gathering.hosts.lock().is_ok_and(|hosts| hosts.len() < 100));
        assert_eq!(gathering.of(&client(0, 1)).heads().room(), HOST_BYTES_MAX - kept.bytes());
    }
}
