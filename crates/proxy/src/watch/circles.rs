//! Hubs for all clients: one for each identity.

use std::collections::{BTreeMap, HashMap};

use super::feed::Live;
use super::mistake::Mistake;
use super::{ClientId, Hub};
use crate::identity::Identity;

/// Clients with the same identity, by number.
pub(crate) type CircleId = u64;

/// Identities that may have watches at a time. Each has streams to members of its own.
const CIRCLES_MAX: usize = 4_096;
/// Bytes of recent events that all hubs together keep.
const RECENT_BYTES_MAX: usize = 32 << 20;

/// Clients with the same identity, and their hub.
#[derive(Debug)]
struct Circle {
    identity: Identity,
    hub: Hub,
    /// What of `Circles::recent_bytes` is its hub's.
    recent_bytes: usize,
}

/// All circles, and which client is in which.
#[derive(Debug)]
pub(crate) struct Circles {
    each: BTreeMap<CircleId, Circle>,
    by_identity: HashMap<Identity, CircleId>,
    of_client: HashMap<ClientId, CircleId>,
    last: CircleId,
    recent_bytes: usize,
    /// Members that there are to ask.
    members: usize,
    live: Live,
}

impl Circles {
    /// For so many members. Events in memory count as `live`.
    pub(crate) fn new(members: usize, live: Live) -> Circles {
        let (each, by_identity, of_client) = Default::default();
        Circles { each, by_identity, of_client, last: 0, recent_bytes: 0, members, live }
    }

    /// A client has begun a stream. `None` if there are too many identities already.
    pub(crate) fn open(&mut self, client: ClientId, identity: &Identity) -> Option<CircleId> {
        let mut known = self.by_identity.get(identity).copied();
        if Mistake::MixesIdentities.is_planted() {
            known = self.each.keys().next().copied();
        }
        let circle = match known {
            Some(circle) => circle,
            None if self.each.len() >= CIRCLES_MAX => return None,
            None => {
                self.last = self.last.saturating_add(1);
                let hub = Hub::new(self.members, self.live.clone());
                self.each.insert(self.last, Circle { identity: identity.clone(), hub, recent_bytes: 0 });
                self.by_identity.insert(identity.clone(), self.last);
                self.last
            }
        };
        self.of_client.insert(client, circle);
        self.hub_mut(circle)?.open(client);
        Some(circle)
    }

    /// The circle of a client.
    pub(crate) fn of(&self, client: ClientId) -> Option<CircleId> {
        self.of_client.get(&client).copied()
    }

    /// A client's stream is over.
    pub(crate) fn close(&mut self, client: ClientId) -> Option<CircleId> {
        let circle = self.of_client.remove(&client)?;
        self.hub_mut(circle)?.close(client);
        Some(circle)
    }

    /// A client's hub has ended its stream.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.of_client.remove(&client);
    }

    pub(crate) fn hub_mut(&mut self, circle: CircleId) -> Option<&mut Hub> {
        self.each.get_mut(&circle).map(|circle| &mut circle.hub)
    }

    pub(crate) fn identity(&self, circle: CircleId) -> Option<&Identity> {
        self.each.get(&circle).map(|circle| &circle.identity)
    }

    /// Forgets a circle that has no client. True if it did.
    pub(crate) fn remove_if_empty(&mut self, number: CircleId) -> bool {
        if !self.each.get(&number).is_some_and(|circle| circle.hub.is_empty()) {
            return false;
        }
        let Some(circle) = self.each.remove(&number) else { return false };
        self.recent_bytes = self.recent_bytes.saturating_sub(circle.recent_bytes);
        self.by_identity.remove(&circle.identity);
        true
    }

    /// Counts what a hub keeps for those who join, and has the hub forget most of it that keeps most if that is too much in all.
    pub(crate) fn bound_recent(&mut self, number: CircleId) {
        let Some(circle) = self.each.get_mut(&number) else { return };
        let now = circle.hub.recent_bytes();
        let before = std::mem::replace(&mut circle.recent_bytes, now);
        self.recent_bytes = self.recent_bytes.saturating_sub(before).saturating_add(now);
        if self.recent_bytes > RECENT_BYTES_MAX
            && let Some(most) = self.each.values_mut().max_by_key(|circle| circle.recent_bytes)
        {
            most.hub.forget_recent();
            self.recent_bytes = self.recent_bytes.saturating_sub(std::mem::take(&mut most.recent_bytes));
        }
    }

    /// Circles whose hubs wait for the time to pass.
    pub(crate) fn waiting(&self) -> Vec<CircleId> {
        self.each.iter().filter(|(_, circle)| circle.hub.is_waiting()).map(|(number, _)| *number).collect()
    }

    /// Watches of all clients, and watches at members.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let sum = |of: fn(&Hub) -> usize| self.each.values().map(|circle| of(&circle.hub) as u64).sum();
        (sum(Hub::watches), sum(Hub::feeds))
    }

    #[cfg(test)]
    pub(crate) fn hubs(&self) -> impl Iterator<Item = &Hub> {
        self.each.values().map(|circle| &circle.hub)
    }

    #[cfg(test)]
    pub(crate) fn numbers(&self) -> Vec<CircleId> {
        self.each.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::feed::Lane;
    use api::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchResponse};
    use api::mvccpb::{Event, KeyValue};

    fn identity(token: u64) -> Identity {
        Identity::of(&[("token", token.to_string())].into_iter().collect())
    }

    #[test]
    fn identities_are_bounded_and_forgotten() {
        let mut circles = Circles::new(1, Live::default());
        for client in 0..CIRCLES_MAX as u64 {
            assert!(circles.open(client, &identity(client)).is_some());
        }
        assert_eq!(circles.open(1 << 40, &identity(1 << 40)), None);
        assert!(circles.open(1 << 41, &identity(5)).is_some(), "one that is known");
        let gone = circles.close(7).expect("a circle");
        assert!(circles.remove_if_empty(gone));
        assert!(circles.open(1 << 40, &identity(1 << 40)).is_some());
        assert_eq!((circles.each.len(), circles.by_identity.len()), (CIRCLES_MAX, CIRCLES_MAX));
    }

    #[test]
    fn recent_events_are_bounded_over_all() {
        let mut circles = Circles::new(1, Live::default());
        let header = |revision| Some(ResponseHeader { revision, ..ResponseHeader::default() });
        let mut most = 0;
        for client in 0..400 {
            let circle = circles.open(client, &identity(client)).expect("a circle");
            let hub = circles.hub_mut(circle).expect("a hub");
            hub.up(Lane::Main);
            hub.create(client, WatchCreateRequest { key: "a".into(), watch_id: 1, ..WatchCreateRequest::default() });
            hub.receive(
                Lane::Main,
                WatchResponse { header: header(1), watch_id: 1, created: true, ..Default::default() },
            );
            let value = vec![0; 200 << 10].into();
            let kv = Some(KeyValue { key: "a".into(), value, mod_revision: 2, ..KeyValue::default() });
            let events = vec![Event { kv, ..Event::default() }];
            hub.receive(Lane::Main, WatchResponse { header: header(2), watch_id: 1, events, ..Default::default() });
            circles.bound_recent(circle);
            let kept: usize = circles.hubs().map(Hub::recent_bytes).sum();
            assert_eq!(kept, circles.recent_bytes);
            most = most.max(kept);
        }
        assert!((RECENT_BYTES_MAX / 2..=RECENT_BYTES_MAX).contains(&most), "{most}");
    }
}
