//! The observers that follow this process now.

use crate::stream::Breaker;
use contain::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Observers that may follow one process. Each has a thread here, and a batch of entries on its way.
pub(crate) const FOLLOWERS_MAX: usize = 64;

/// The streams to observers, by their ids.
#[derive(Default)]
pub(crate) struct Followers {
    table: Mutex<BTreeMap<u64, (u64, Breaker)>>,
    serial: AtomicU64,
}

/// A place among the followers; given up when dropped.
pub(crate) struct Seat {
    followers: Arc<Followers>,
    id: u64,
    serial: u64,
}

impl Followers {
    /// A place for this observer. Its former stream, which it has given up, is ended. `None` if all places are taken.
    pub(crate) fn take(self: &Arc<Followers>, id: u64, breaker: Breaker) -> Option<Seat> {
        let mut table = lock(&self.table);
        if table.len() >= FOLLOWERS_MAX && !table.contains_key(&id) {
            return None;
        }
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        if let Some((_, former)) = table.insert(id, (serial, breaker)) {
            former.end();
        }
        Some(Seat { followers: self.clone(), id, serial })
    }

    /// Whether this observer follows.
    pub(crate) fn has(&self, id: u64) -> bool {
        lock(&self.table).contains_key(&id)
    }

    /// Ends all streams. The observers look for another source, or come again.
    pub(crate) fn end_all(&self) {
        lock(&self.table).values().for_each(|(_, breaker)| breaker.end());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = lock(&self.followers.table);
        if table.get(&self.id).is_some_and(|(serial, _)| *serial == self.serial) {
            table.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::Socket;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn places_are_limited_and_a_second_stream_ends_the_first() {
        let followers = Arc::<Followers>::default();
        let come = |id| {
            let (here, there) = UnixStream::pair().expect("sockets");
            let breaker = Breaker::of(&Socket::from(OwnedFd::from(here))).expect("a descriptor");
            (followers.take(id, breaker), there)
        };
        let mut seats: Vec<_> = (1..=FOLLOWERS_MAX as u64).map(come).collect();
        assert!(seats.iter().all(|(seat, _)| seat.is_some()));
        assert!(come(1_000).0.is_none());
        let again = come(1);
        assert!(again.0.is_some());
        let mut first = seats.remove(0);
        assert!(matches!(first.1.read(&mut [0]), Ok(0)), "its former stream has ended");
        drop(first);
        assert!(followers.has(1), "the former stream's place was given to the new one");
        drop(again);
        assert!(!followers.has(1) && come(1_000).0.is_some());
    }
}
