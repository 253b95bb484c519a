//! Clients that take nothing, and those that do so again: their watches are taken off their feeds, and get feeds again, a few at a time.

use std::ops::Bound;

use super::{Hub, Id};
use crate::watch::mistake::Mistake;
use crate::watch::{ClientId, WatchId};

impl Hub {
    /// A client takes nothing: its watches are taken off their feeds, each at the next events for it at the latest.
    pub(crate) fn stall(&mut self, id: ClientId) {
        self.turn(id, true);
    }

    /// A client takes what it is told again: its watches go on where they were.
    pub(crate) fn resume(&mut self, id: ClientId) {
        self.turn(id, false);
    }

    /// A client has no room for events that a watch was given: it is stalled, and gets them from `from` on when it takes them.
    pub(crate) fn untell(&mut self, id: ClientId, number: WatchId, from: i64) {
        self.stall(id);
        // It does not have everything up to the position of its feed.
        self.rest((id, number));
        if let Some(watch) = self.known_mut((id, number))
            && !Mistake::LosesWhatFindsNoRoom.is_planted()
        {
            watch.next = watch.next.min(from);
        }
    }

    /// Has all watches of a client looked at. Those that were looked at last when it did the same before come last: one that stalls and
    /// resumes in turns still gets to all of them.
    fn turn(&mut self, id: ClientId, is_stalled: bool) {
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.is_stalled != is_stalled) else { return };
        client.is_stalled = is_stalled;
        if client.unturned == 0 {
            self.turning.push_back(id);
        }
        client.unturned = client.watches.len().max(1);
    }

    /// Looks at one watch of a client that has stalled or resumed: takes it off its feed, or has it get one. False if there is none.
    pub(super) fn turn_next(&mut self) -> bool {
        let Some(id) = self.turning.pop_front() else { return false };
        let Some(client) = self.clients.get_mut(&id) else { return true };
        let [resumed, stalled] = &mut client.turned;
        let turned = if client.is_stalled { stalled } else { resumed };
        let later = (Bound::Excluded(*turned), Bound::Unbounded);
        let next = client.watches.range(later).next().or_else(|| client.watches.first_key_value());
        let next = next.map(|(number, watch)| (*number, watch.feed.is_some()));
        *turned = next.map_or(*turned, |(number, _)| number);
        client.unturned = if next.is_some() { client.unturned.saturating_sub(1) } else { 0 };
        if client.unturned > 0 {
            self.turning.push_back(id);
        }
        let Some((number, has_feed)) = next else { return true };
        match (client.is_stalled, has_feed) {
            (true, true) => self.rest((id, number)),
            (false, false) => self.feed_anew(id, number),
            _ => {}
        }
        true
    }

    /// Takes a watch off its feed, with what that has given it.
    pub(super) fn rest(&mut self, id: Id) {
        self.note_position(id);
        let Some(watch) = self.watch_mut(id) else { return };
        let (feed, subject) = (watch.feed.take(), watch.subject.clone());
        self.take_off(id, &subject, feed);
    }
}
