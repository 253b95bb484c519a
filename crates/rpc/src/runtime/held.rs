//! What waits for clients, to take it or to go on: the sum over all connections of a server, and each connection's share when it is too much.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::limits;

use super::gathering::Account;

/// What a connection may hold while all together hold too much.
pub(crate) const HELD_BYTES_SHARE: usize = 64 << 10;
/// What a connection may always hold: so little that the limit on connections bounds it.
const HELD_BYTES_LEAST: usize = TOLD_BYTES_MIN;
/// What a stream of the gateway may: a connection may have thousands of them, which no sum of the connection has.
pub(crate) const STREAM_BYTES_SHARE: usize = 4 << 10;

/// The part of what is too much that a host may have before its connections hold hardly anything.
const HOST_PART: usize = 4;

/// Changes of what a connection holds that are told.
const TOLD_BYTES_MIN: usize = 16 << 10;

/// The sum of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBytes {
    of_all: Arc<AtomicUsize>,
    /// The sum beyond which no connection may hold more than a share.
    max: usize,
}

thread_local! {
    /// The sum of the server whose request thread this is.
    static CURRENT: RefCell<Option<HeldBytes>> = const { RefCell::new(None) };
}

impl HeldBytes {
    pub(crate) fn new(max: usize) -> HeldBytes {
        HeldBytes { of_all: Arc::default(), max }
    }

    /// From here on this thread is one of the server's.
    pub(crate) fn enter(&self) {
        CURRENT.set(Some(self.clone()));
    }

    /// The sum of the server whose request thread this is. On other threads nothing is bounded.
    pub(crate) fn current() -> HeldBytes {
        CURRENT.with_borrow(Option::clone).unwrap_or(HeldBytes::new(usize::MAX))
    }

    /// The sum.
    pub(crate) fn bytes(&self) -> usize {
        self.of_all.load(Ordering::Relaxed)
    }

    /// Whether all together hold too much.
    pub(crate) fn is_crowded(&self) -> bool {
        self.bytes() >= self.max
    }

    /// Whether all together hold twice that, which only many connections can.
    pub(crate) fn is_overcrowded(&self) -> bool {
        self.bytes() >= self.max.saturating_mul(2)
    }

    /// Bytes below which a stream may have more queued that belongs to no connection's sum.
    pub(crate) fn stream_room(&self) -> usize {
        if self.is_crowded() { STREAM_BYTES_SHARE } else { limits::STREAM_SEND_BYTES_MAX }
    }

    /// A holder of it, which holds nothing yet.
    pub(crate) fn part(&self) -> HeldPart {
        HeldPart { of: self.clone(), account: None, told_bytes: 0 }
    }

    /// The same for a connection.
    pub(crate) fn part_of(&self, account: Account) -> HeldPart {
        HeldPart { of: self.clone(), account: Some(account), told_bytes: 0 }
    }
}

/// The part of one connection or stream in the sum. Dropping it takes the part out of the sum.
#[derive(Debug)]
pub(crate) struct HeldPart {
    of: HeldBytes,
    /// That of its connection: the host is known by it.
    account: Option<Account>,
    told_bytes: usize,
}

impl HeldPart {
    pub(crate) fn sum(&self) -> &HeldBytes {
        &self.of
    }

    /// Bytes below which the connection may add to what it holds: any number at first, less once all together hold too much. Once so many
    /// connections have that share that they are as much again, hardly any for those of a host that has much of it, and for all once that is twice as much again.
    pub(crate) fn share(&self) -> usize {
        // Hosts may be without number.
        let is_far_beyond = || self.of.bytes() >= self.of.max.saturating_mul(4);
        let of_host = || self.account.as_ref().map_or(0, |account| account.held().load(Ordering::Relaxed));
        match () {
            () if !self.of.is_crowded() => usize::MAX,
            () if !self.of.is_overcrowded() => HELD_BYTES_SHARE,
            () if of_host() < self.of.max / HOST_PART && !is_far_beyond() => HELD_BYTES_SHARE,
            () => HELD_BYTES_LEAST,
        }
    }

    /// Notes what is held now. Small changes are added to the sum together.
    pub(crate) fn tell(&mut self, held: usize) {
        let before = self.told_bytes;
        if held.abs_diff(before) >= TOLD_BYTES_MIN || (held == 0 && before != 0) {
            self.told_bytes = held;
            let more = held.wrapping_sub(before);
            self.of.of_all.fetch_add(more, Ordering::Relaxed);
            if let Some(account) = &self.account {
                account.held().fetch_add(more, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for HeldPart {
    fn drop(&mut self) {
        self.tell(0);
    }
}
