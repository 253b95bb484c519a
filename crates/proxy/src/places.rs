//! Places for identities: each one has streams to members of its own, so that there cannot be any number of them.
//!
//! An identity that no member has answered yet is a stranger's: anybody can show a token that was made up. Strangers take places from each
//! other, and from those that members know only as long as they have few themselves. When there is none left, the origin with the most of
//! them loses its oldest, as connections do.
//!
//! An identity that clients of several origins have, as that of all who show no token, has a place of each of them, and loses its streams
//! with the last: no origin can take them from the others by filling its own places.

use rpc::{Crowd, Origin};

/// Places.
pub(crate) const PLACES_MAX: usize = 4_096;
/// Places that strangers have if they want them.
pub(crate) const STRANGERS_MIN: usize = 1_024;

/// Origins whose places one identity has: those of a crowd would take all of them.
const SHARES_MAX: usize = 64;

/// What has a place, by whether members know its identity.
#[derive(Debug)]
pub(crate) struct Places<T> {
    strangers: Crowd<T>,
    known: Crowd<T>,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { strangers: Crowd::default(), known: Crowd::default() }
    }
}

/// One's place.
#[derive(Debug)]
pub(crate) struct Place {
    number: u64,
    origin: Origin,
    is_known: bool,
}

impl<T> Places<T> {
    /// A place for one that begins, and who has lost its own for it.
    fn take(&mut self, origin: Origin, new: T) -> (Place, Option<T>) {
        let is_full = self.strangers.len().saturating_add(self.known.len()) >= PLACES_MAX;
        let crowd = if self.strangers.len() >= STRANGERS_MIN { &mut self.strangers } else { &mut self.known };
        let lost = if is_full { crowd.evict() } else { None };
        (Place { number: self.strangers.add(origin, new), origin, is_known: false }, lost)
    }

    /// A client of an origin is among those of one identity, which has a place of that origin then. Returns who has lost a place for it:
    /// all is lost only if [`Places::are_left`] says so.
    pub(crate) fn join(&mut self, held: &mut Vec<Place>, origin: Origin, who: T) -> Option<T> {
        if held.len() >= SHARES_MAX || held.iter().any(|place| place.origin == origin) {
            return None;
        }
        let (mut place, lost) = self.take(origin, who);
        if held.iter().any(|place| place.is_known) {
            self.know(&mut place);
        }
        held.push(place);
        lost
    }

    /// Whether one that has lost a place still has others. Those that are lost are dropped.
    pub(crate) fn are_left(&mut self, held: &mut Vec<Place>) -> bool {
        held.retain(|place| {
            let crowd = if place.is_known { &mut self.known } else { &mut self.strangers };
            crowd.get_mut(place.number).is_some()
        });
        !held.is_empty()
    }

    /// A member has answered one.
    pub(crate) fn know(&mut self, place: &mut Place) {
        if !place.is_known
            && let Some(one) = self.strangers.remove(place.number)
        {
            (place.number, place.is_known) = (self.known.add(place.origin, one), true);
        }
    }

    /// One needs its place no more, if it still has it.
    pub(crate) fn leave(&mut self, place: &Place) {
        let crowd = if place.is_known { &mut self.known } else { &mut self.strangers };
        crowd.remove(place.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn origin(host: u16) -> Origin {
        let [high, low] = host.to_be_bytes();
        Origin::of(Some(IpAddr::from([10, 0, high, low])))
    }

    #[test]
    fn one_that_takes_all_places_loses_its_own() {
        let mut places = Places::default();
        let mut greedy: Vec<Place> = (0..PLACES_MAX).map(|number| places.take(origin(1), number).0).collect();
        let (mut other, lost) = places.take(origin(2), 1_000_000);
        assert_eq!(lost, Some(0), "its oldest");
        for number in PLACES_MAX..2 * PLACES_MAX {
            let (place, lost) = places.take(origin(1), number);
            assert_eq!(lost, Some(number - PLACES_MAX + 1), "its own");
            greedy.push(place);
        }
        places.know(&mut other);
        assert!(other.is_known);
        // It was known in vain: it has lost its place.
        places.know(&mut greedy[0]);
        assert!(!greedy[0].is_known);
        greedy.iter().chain([&other]).for_each(|place| places.leave(place));
        assert!(places.strangers.is_empty() && places.known.is_empty());
    }

    #[test]
    fn strangers_from_everywhere_leave_places_to_those_who_are_known() {
        let mut places = Places::default();
        let known = PLACES_MAX - STRANGERS_MIN;
        for number in 0..known {
            let (mut place, lost) = places.take(origin(number as u16), number);
            places.know(&mut place);
            assert_eq!(lost, None);
        }
        let lost = |number: usize, places: &mut Places<usize>| places.take(origin(10_000 + number as u16), number).1;
        for number in 0..2 * PLACES_MAX {
            let lost = lost(PLACES_MAX + number, &mut places);
            assert_eq!(lost, number.checked_sub(STRANGERS_MIN).map(|oldest| PLACES_MAX + oldest));
        }
        assert_eq!((places.known.len(), places.strangers.len()), (known, STRANGERS_MIN));
    }

    #[test]
    fn one_that_many_share_has_places_of_some() {
        let (mut places, mut held) = (Places::default(), Vec::new());
        for host in 0..2 * SHARES_MAX {
            assert_eq!(places.join(&mut held, origin(host as u16 / 2), 0), None);
        }
        assert_eq!((held.len(), places.strangers.len()), (SHARES_MAX, SHARES_MAX), "one of each origin");
        places.join(&mut held, origin(1_000), 0);
        assert_eq!((held.len(), places.strangers.len()), (SHARES_MAX, SHARES_MAX));
        held.truncate(1);
        places.know(&mut held[0]);
        places.join(&mut held, origin(1_000), 0);
        assert!(held[1].is_known, "members know the identity, wherever its clients are");
        places.leave(&held[0]);
        assert!(places.are_left(&mut held) && held.len() == 1);
        places.leave(&held[0]);
        assert!(!places.are_left(&mut held));
    }

    #[test]
    fn a_stranger_finds_a_place_among_those_who_are_known() {
        let mut places = Places::default();
        for number in 0..PLACES_MAX {
            let (mut place, _) = places.take(origin(1), number);
            places.know(&mut place);
        }
        assert_eq!(places.take(origin(2), PLACES_MAX).1, Some(0));
    }
}
