//! Places for accepted connections that are no streams: each has a thread and a bounded buffer.
//!
//! Every connection begins as a non-member's. When the non-members' places are full, the origin with the most of them loses its oldest:
//! non-members take places from each other and from no member. The first request that names this cluster and one of its members moves
//! the connection to the places of that member; each member has its own. With TLS that asks for certificates nobody gets so far without
//! one. Without it, a client that copies a member's headers takes places of that one member, and of those only idle ones: a connection of
//! the member that finds none stays among the non-members and is served there.

use crate::stream::Breaker;
use contain::lock;
use rpc::{Crowd, Origin};
use socket2::Socket;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use telemetry::metrics::Page;

/// Limit of connections that have not named a member yet.
pub(crate) const NON_MEMBERS_MAX: usize = 128;
/// Limit of connections of one member. A member needs fewer than ten; eight of these are kept for a short time when its
/// clients use leases.
pub(crate) const MEMBER_CONNECTIONS_MAX: usize = 16;
/// Limit of connections that have lost their places without their threads having noticed yet. A thread notices at its
/// next read or write.
const LEAVING_MAX: usize = 2 * CALLS_MAX;
/// Limit of concurrent calls of non-members. A call may take long, and does not notice meanwhile that its connection
/// has lost its place.
const CALLS_MAX: usize = 128;

/// All places.
#[derive(Default)]
pub(crate) struct Places {
    table: Mutex<Table>,
    /// Number of closed connections, by [`Lost`].
    lost: [AtomicU64; 3],
}

#[derive(Clone, Copy)]
enum Lost {
    NonMember,
    Idle,
    Refused,
}

#[derive(Default)]
struct Table {
    non_members: Crowd<Breaker>,
    members: BTreeMap<u64, Crowd<Held>>,
    leaving: usize,
    /// Non-members whose calls are being answered.
    calling: usize,
}

/// The place of a member's connection.
struct Held {
    breaker: Breaker,
    /// Whether the connection waits for the next request.
    is_idle: bool,
}

impl Places {
    /// A place for a new connection, given up when dropped. `None` if too many connections have just lost theirs.
    pub(crate) fn take(self: &Arc<Places>, socket: &Socket, host: Option<IpAddr>) -> io::Result<Option<Place>> {
        let breaker = Breaker::of(socket)?;
        let origin = Origin::of(host);
        let mut table = lock(&self.table);
        if table.non_members.len() >= NON_MEMBERS_MAX {
            if table.leaving >= LEAVING_MAX {
                self.count(Lost::Refused);
                return Ok(None);
            }
            if let Some(oldest) = table.non_members.evict() {
                table.leaving = table.leaving.saturating_add(1);
                self.count(Lost::NonMember);
                oldest.end();
            }
        }
        let number = table.non_members.add(origin, breaker);
        Ok(Some(Place { places: self.clone(), origin, member: None, number, is_calling: false }))
    }

    fn count(&self, lost: Lost) {
        if let Some(counter) = self.lost.get(lost as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of places taken by non-members, and by members.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> (usize, usize) {
        let table = lock(&self.table);
        (table.non_members.len(), table.members.values().map(Crowd::len).sum())
    }

    /// The number of connections that have lost their place, or found none.
    #[cfg(test)]
    pub(crate) fn lost(&self) -> u64 {
        self.lost.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }

    /// Appends the metrics of places to a page.
    pub(crate) fn render(&self, page: &mut Page) {
        let (non_members, members) = {
            let table = lock(&self.table);
            (table.non_members.len(), table.members.values().map(Crowd::len).sum::<usize>())
        };
        let name = "cairn_peer_port_connections";
        page.family(name, "gauge", "Connections on the peer port that are no streams, by whose they are.");
        page.labelled(name, &[("of", "members")], members);
        page.labelled(name, &[("of", "non_members")], non_members);
        let name = "cairn_peer_port_connections_dropped_total";
        page.family(name, "counter", "Connections on the peer port that were closed to make room for others.");
        for (why, counter) in ["non_member", "idle", "refused"].into_iter().zip(&self.lost) {
            page.labelled(name, &[("why", why)], counter.load(Ordering::Relaxed));
        }
    }
}

/// One connection's place.
pub(crate) struct Place {
    places: Arc<Places>,
    origin: Origin,
    /// The member that the connection has named.
    member: Option<u64>,
    number: u64,
    is_calling: bool,
}

impl Place {
    /// Moves the connection, which has named `member`, to the member's places. It stays where it is if it has lost its place, or if the
    /// member has none left.
    pub(crate) fn show(&mut self, member: u64) {
        if self.member.is_some() {
            return;
        }
        let mut table = lock(&self.places.table);
        // A connection that has lost its own place takes none from the member.
        if table.non_members.get_mut(self.number).is_none() {
            return;
        }
        let of_member = table.members.entry(member).or_default();
        if of_member.len() >= MEMBER_CONNECTIONS_MAX {
            let Some(idle) = of_member.evict_if(|held| held.is_idle) else { return };
            idle.breaker.end();
            table.leaving = table.leaving.saturating_add(1);
            self.places.count(Lost::Idle);
        }
        let Some(breaker) = table.non_members.remove(self.number) else { return };
        let held = Held { breaker, is_idle: false };
        self.number = table.members.entry(member).or_default().add(self.origin, held);
        self.member = Some(member);
    }

    /// Whether the connection has named a member.
    pub(crate) fn is_members(&self) -> bool {
        self.member.is_some()
    }

    /// Notes whether the connection waits for a request.
    pub(crate) fn set_idle(&mut self, is_idle: bool) {
        let Some(member) = self.member else { return };
        let mut table = lock(&self.places.table);
        if let Some(held) = table.members.get_mut(&member).and_then(|of_member| of_member.get_mut(self.number)) {
            held.is_idle = is_idle;
        }
    }

    /// Begins a call that may take long. False if too many non-members make one already.
    pub(crate) fn begin_call(&mut self) -> bool {
        if self.member.is_some() {
            return true;
        }
        let mut table = lock(&self.places.table);
        if table.calling >= CALLS_MAX {
            return false;
        }
        table.calling = table.calling.saturating_add(1);
        self.is_calling = true;
        true
    }

    /// Ends the call.
    pub(crate) fn end_call(&mut self) {
        if std::mem::take(&mut self.is_calling) {
            let mut table = lock(&self.places.table);
            table.calling = table.calling.saturating_sub(1);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end_call();
        let mut table = lock(&self.places.table);
        let is_held = match self.member {
            None => table.non_members.remove(self.number).is_some(),
            Some(member) => {
                let of_member = table.members.get_mut(&member);
                let is_held = of_member.is_some_and(|of_member| of_member.remove(self.number).is_some());
                if table.members.get(&member).is_some_and(Crowd::is_empty) {
                    table.members.remove(&member);
                }
                is_held
            }
        };
        if !is_held {
            table.leaving = table.leaving.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    /// A connection's place, and the other end of the connection.
    struct Guest(Place, UnixStream);

    impl Guest {
        fn is_gone(&mut self) -> bool {
            self.1.set_nonblocking(true).expect("a socket");
            matches!(self.1.read(&mut [0]), Ok(0))
        }
    }

    fn come(places: &Arc<Places>, host: u8) -> Option<Guest> {
        let (here, there) = UnixStream::pair().expect("sockets");
        let socket = Socket::from(OwnedFd::from(here));
        let place = places.take(&socket, Some(IpAddr::from([10, 0, 0, host]))).expect("a descriptor")?;
        Some(Guest(place, there))
    }

    #[test]
    fn non_members_take_places_from_themselves() {
        let places = Arc::new(Places::default());
        let mut member = come(&places, 1).expect("a place");
        member.0.show(2);
        // This connection has sent nothing yet, and is older than all others.
        let mut early = come(&places, 1).expect("a place");
        let mut guests: Vec<_> = (0..NON_MEMBERS_MAX - 1 + LEAVING_MAX)
            .map(|place| {
                let guest = come(&places, 2 + (place % 2) as u8).expect("a place");
                assert!(places.taken().0 <= NON_MEMBERS_MAX);
                guest
            })
            .collect();
        assert!(!member.is_gone() && !early.is_gone());
        early.0.show(2);
        assert_eq!(places.taken(), (NON_MEMBERS_MAX - 1, 2));
        assert!(guests[..LEAVING_MAX].iter_mut().all(Guest::is_gone), "the oldest go first");
        assert!(!guests[LEAVING_MAX..].iter_mut().any(Guest::is_gone));
        // The number of connections that have lost their place and still exist is limited too.
        let last = come(&places, 4);
        assert!(last.is_some(), "there is a free place");
        assert!(come(&places, 4).is_none(), "too many are leaving");
        drop(guests.remove(0));
        assert!(come(&places, 4).is_some());
        drop((guests, member, early, last));
        assert_eq!(places.taken(), (0, 0));
        assert_eq!(lock(&places.table).leaving, 0);
    }

    #[test]
    fn whoever_copies_a_name_takes_what_is_idle_of_that_name() {
        let places = Arc::new(Places::default());
        let mut real: Vec<_> = (0..3).map(|_| come(&places, 1).expect("a place")).collect();
        real.iter_mut().for_each(|guest| guest.0.show(2));
        // One of the connections waits for the next request, two serve one.
        real[0].0.set_idle(true);
        let copy = |_| {
            let mut guest = come(&places, 9).expect("a place");
            guest.0.show(2);
            guest.0.set_idle(true);
            guest
        };
        let mut copies: Vec<_> = (0..3 * MEMBER_CONNECTIONS_MAX).map(copy).collect();
        assert!(!real.iter_mut().any(Guest::is_gone), "the origin with most of them loses");
        assert_eq!(places.taken(), (0, MEMBER_CONNECTIONS_MAX));
        // All connections serve requests: the member's next one is placed among the non-members, and its old ones stay.
        copies.iter_mut().for_each(|guest| guest.0.set_idle(false));
        real[0].0.set_idle(false);
        let mut next = come(&places, 1).expect("a place");
        next.0.show(2);
        assert_eq!(places.taken(), (1, MEMBER_CONNECTIONS_MAX));
        assert!(!next.is_gone());
        // This does not affect another member.
        let mut other = come(&places, 3).expect("a place");
        other.0.show(3);
        assert_eq!(places.taken(), (1, MEMBER_CONNECTIONS_MAX + 1));
    }

    #[test]
    fn whoever_has_lost_its_place_takes_none_from_a_member() {
        let places = Arc::new(Places::default());
        let mut real: Vec<_> = (0..MEMBER_CONNECTIONS_MAX).map(|_| come(&places, 1).expect("a place")).collect();
        for guest in &mut real {
            guest.0.show(2);
            guest.0.set_idle(true);
        }
        let mut late: Vec<_> = (0..NON_MEMBERS_MAX + 1).map(|_| come(&places, 9).expect("a place")).collect();
        assert!(late[0].is_gone());
        late[0].0.show(2);
        late[0].0.show(3);
        assert!(!real.iter_mut().any(Guest::is_gone), "the newcomer has no use for the place");
        assert!(!lock(&places.table).members.contains_key(&3));
        assert_eq!(places.taken(), (NON_MEMBERS_MAX, MEMBER_CONNECTIONS_MAX));
    }

    #[test]
    fn long_calls_of_non_members_are_few() {
        let places = Arc::new(Places::default());
        let mut callers: Vec<_> = (0..CALLS_MAX + 1).map(|_| come(&places, 1).expect("a place")).collect();
        let begun = callers.iter_mut().filter_map(|guest| guest.0.begin_call().then_some(())).count();
        assert_eq!(begun, CALLS_MAX);
        let last = callers.last_mut().expect("one");
        last.0.show(2);
        assert!(last.0.begin_call(), "a member's");
        callers[0].0.end_call();
        drop(callers.remove(1));
        assert_eq!(lock(&places.table).calling, CALLS_MAX - 2);
    }
}
