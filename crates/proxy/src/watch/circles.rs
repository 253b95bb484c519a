//! Hubs for all clients: one for each identity.

use std::collections::{BTreeMap, HashMap};

use super::feed::Live;
use api::Error;
use rpc::Origin;

use super::mistake::Mistake;
use super::{ClientId, Hub};
use crate::identity::Identity;
use crate::places::{Place, Places};

/// Clients with the same identity, by number.
pub(crate) type CircleId = u64;

/// Bytes of recent events that all hubs together keep.
const RECENT_BYTES_MAX: usize = 32 << 20;

/// Clients with the same identity, and their hub.
#[derive(Debug)]
struct Circle {
    identity: Identity,
    /// Those of [`Circles::places`] that it has: one of each origin of its clients, none once it is lost.
    places: Vec<Place>,
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
    places: Places<CircleId>,
    last: CircleId,
    recent_bytes: usize,
    /// Members that there are to ask.
    members: usize,
    live: Live,
}

impl Circles {
    /// For so many members. Events in memory count as `live`.
    pub(crate) fn new(members: usize, live: Live) -> Circles {
        let (each, by_identity, of_client, places) = Default::default();
        Circles { each, by_identity, of_client, places, last: 0, recent_bytes: 0, members, live }
    }

    /// A client has begun a stream. Returns its circle, and the one that has lost its last place for that: the streams of its clients are
    /// ended.
    pub(crate) fn open(
        &mut self,
        client: ClientId,
        origin: Origin,
        identity: &Identity,
    ) -> (CircleId, Option<CircleId>) {
        let mut known = self.by_identity.get(identity).copied();
        if Mistake::MixesIdentities.is_planted() {
            known = self.each.keys().next().copied();
        }
        let circle = known.unwrap_or_else(|| {
            self.last = self.last.saturating_add(1);
            let (identity, hub) = (identity.clone(), Hub::new(self.members, self.live.clone()));
            self.by_identity.insert(identity.clone(), self.last);
            self.each.insert(self.last, Circle { identity, places: Vec::new(), hub, recent_bytes: 0 });
            self.last
        });
        let own = self.each.get_mut(&circle);
        let mut lost = own.and_then(|own| self.places.join(&mut own.places, origin, circle));
        if let Some(one) = lost.and_then(|lost| self.each.get_mut(&lost)) {
            if self.places.are_left(&mut one.places) {
                lost = None;
            } else {
                self.by_identity.remove(&one.identity);
                one.hub.end_all(&Error::TooManyRequests.into());
            }
        }
        self.of_client.insert(client, circle);
        if let Some(hub) = self.hub_mut(circle) {
            hub.open(client);
        }
        (circle, lost)
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
        circle.places.iter().for_each(|place| self.places.leave(place));
        // One that has lost its place may have a successor.
        if self.by_identity.get(&circle.identity) == Some(&number) {
            self.by_identity.remove(&circle.identity);
        }
        true
    }

    /// Looks at what has become of a circle: whether members know its identity, and what its hub keeps.
    pub(crate) fn look_at(&mut self, number: CircleId) {
        if let Some(circle) = self.each.get_mut(&number).filter(|circle| circle.hub.is_known()) {
            circle.places.iter_mut().for_each(|place| self.places.know(place));
        }
        self.bound_recent(number);
    }

    /// Counts what a hub keeps for those who join, and has the hub forget most of it that keeps most if that is too much in all.
    fn bound_recent(&mut self, number: CircleId) {
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
    use crate::places::PLACES_MAX;
    use crate::watch::Output;
    use crate::watch::feed::Lane;
    use api::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchResponse};
    use api::mvccpb::{Event, KeyValue};

    fn identity(token: u64) -> Identity {
        Identity::of(&[("token", token.to_string())].into_iter().collect())
    }

    fn origin(host: u8) -> Origin {
        Origin::of(Some([10, 0, 0, host].into()))
    }

    #[test]
    fn strangers_with_any_number_of_identities_keep_nobody_out() {
        let mut circles = Circles::new(1, Live::default());
        let (mine, _) = circles.open(1 << 40, origin(2), &identity(1 << 40));
        let header = Some(ResponseHeader { revision: 1, ..ResponseHeader::default() });
        let hub = circles.hub_mut(mine).expect("a hub");
        hub.up(Lane::Main);
        hub.create(1 << 40, WatchCreateRequest { key: "a".into(), ..WatchCreateRequest::default() });
        hub.receive(Lane::Main, WatchResponse { header, watch_id: 1, created: true, ..Default::default() });
        circles.look_at(mine);
        for client in 0..2 * PLACES_MAX as u64 {
            let (_, lost) = circles.open(client, origin(1), &identity(client));
            let Some(lost) = lost else { continue };
            // The oldest of those that say nothing.
            let ended = circles.hub_mut(lost).expect("a hub").take();
            assert!(matches!(ended[..], [Output::End(of, _)] if of == client + 1 - PLACES_MAX as u64), "{ended:?}");
            circles.forget(client + 1 - PLACES_MAX as u64);
            assert!(circles.remove_if_empty(lost));
        }
        assert_eq!((circles.each.len(), circles.by_identity.len()), (PLACES_MAX, PLACES_MAX));
        assert_eq!(circles.open(1 << 41, origin(2), &identity(1 << 40)), (mine, None));
        let (other, lost) = circles.open(1 << 42, origin(3), &identity(1 << 42));
        assert!(lost.is_some() && lost != Some(mine) && circles.of(1 << 42) == Some(other));
    }

    #[test]
    fn what_clients_of_many_origins_share_is_not_for_one_of_them_to_lose() {
        let mut circles = Circles::new(1, Live::default());
        let nobody = Identity::of(&Default::default());
        let (shared, _) = circles.open(1 << 40, origin(1), &nobody);
        circles.open(1 << 41, origin(2), &nobody);
        for client in 0..2 * PLACES_MAX as u64 {
            let (_, lost) = circles.open(client, origin(1), &identity(client));
            assert_ne!(lost, Some(shared), "for client {client}");
            if let Some(lost) = lost {
                circles.hub_mut(lost).expect("a hub").take();
                circles.remove_if_empty(lost);
            }
        }
        // One more origin has its own place for it.
        let (joined, lost) = circles.open(1 << 42, origin(3), &nobody);
        assert!(joined == shared && lost.is_some_and(|lost| lost != shared), "{joined} {lost:?}");
        circles.remove_if_empty(lost.expect("one of the first origin"));
        assert_eq!(circles.of(1 << 41), Some(shared));
        assert!(circles.each.len() <= PLACES_MAX);
    }

    #[test]
    fn identities_are_forgotten() {
        let mut circles = Circles::new(1, Live::default());
        for client in 0..10 {
            circles.open(client, origin(1), &identity(client));
        }
        let gone = circles.close(7).expect("a circle");
        assert!(circles.remove_if_empty(gone));
        assert_eq!((circles.each.len(), circles.by_identity.len()), (9, 9));
    }

    #[test]
    fn recent_events_are_bounded_over_all() {
        let mut circles = Circles::new(1, Live::default());
        let header = |revision| Some(ResponseHeader { revision, ..ResponseHeader::default() });
        let mut most = 0;
        for client in 0..400 {
            let circle = circles.open(client, origin(1), &identity(client)).0;
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
