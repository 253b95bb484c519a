//! Which feed a hub's watches are on: feeds that are made, joined, moved and ended.

use api::etcdserverpb::watch_request::RequestUnion;
use api::etcdserverpb::{WatchCancelRequest, WatchCreateRequest, WatchProgressRequest};
use std::ops::Bound;

use super::{Hub, Id};
use crate::watch::feed::{Feed, Lane};
use crate::watch::mistake::Mistake;
use crate::watch::{ClientId, FeedId, Subject, WatchId};

/// Feeds with the same first key that are looked at to find one that can be joined.
const SIBLINGS_MAX: usize = 16;
/// Bytes of a key of which all beginnings are looked up, to find ranges that have it: prefixes of it, mostly.
const BEGINNINGS_MAX: usize = 256;

impl Hub {
    /// Has a feed go on, on the stream of another lane. It gets another number, so that what is still said of the old one is not taken
    /// for its own.
    pub(super) fn change_lane(&mut self, old: FeedId, lane: Lane) {
        let Some(mut feed) = self.remove(old) else { return };
        self.ask(feed.lane, RequestUnion::CancelRequest(WatchCancelRequest { watch_id: old }));
        (feed.lane, feed.is_created) = (lane, false);
        feed.forget_recent();
        let watches = feed.audience.ids();
        let number = self.insert(feed);
        for id in watches {
            if let Some(watch) = self.watch_mut(id) {
                watch.feed = Some(number);
            }
        }
        self.ask_for(number);
    }

    fn insert(&mut self, feed: Feed) -> FeedId {
        self.last_feed = self.last_feed.saturating_add(1);
        self.beginnings.entry(feed.subject.key.clone()).or_default().push(self.last_feed);
        let count = self.lanes.of_mut(feed.lane);
        *count = count.saturating_add(1);
        self.feeds.insert(self.last_feed, feed);
        self.last_feed
    }

    /// Feeds that may have what another one has, or more: those with the same first key, with a beginning of it, and with the keys right
    /// before it.
    fn candidates(&self, number: FeedId, subject: &Subject) -> Vec<FeedId> {
        let key = &subject.key;
        let shorter = (0..key.len().min(BEGINNINGS_MAX)).rev().filter_map(|len| key.get(..len));
        // What is watched as everything begins with the smallest key.
        let prefixes = shorter.chain([&b"\0"[..]]).filter(|beginning| beginning != key);
        let before = || self.beginnings.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&**key))).rev();
        let near = before().take(SIBLINGS_MAX).filter(|(beginning, _)| {
            !(key.starts_with(beginning) && beginning.len() < BEGINNINGS_MAX) && **beginning != b"\0"[..]
        });
        let same = self.beginnings.get(key).into_iter();
        let found = same.chain(prefixes.filter_map(|beginning| self.beginnings.get(beginning)));
        let others = |feeds: &Vec<FeedId>| -> Vec<FeedId> {
            feeds.iter().copied().filter(|other| *other != number).take(SIBLINGS_MAX).collect()
        };
        found.chain(near.map(|(_, feeds)| feeds)).flat_map(others).collect()
    }

    /// Joins a feed with another one that has what it lacks, or the other way around.
    pub(super) fn join_or_be_joined(&mut self, number: FeedId) {
        let Some(feed) = self.feeds.get(&number) else { return };
        if self.feeds.len() < 2 {
            return;
        }
        let mut is_near = false;
        for other in self.candidates(number, &feed.subject.clone()) {
            let Some(one) = self.feeds.get(&number) else { return };
            let Some(two) = self.feeds.get(&other) else { continue };
            let can_move = |from: &Feed, to: &Feed| from.is_created && to.can_be_joined_by(from);
            let (into_other, into_this) = (can_move(one, two), can_move(two, one));
            let is_main = |feed: &Feed| feed.is_created && feed.lane == Lane::Main;
            // The fewer move.
            if into_other && (one.audience.len() <= two.audience.len() || !into_this) {
                return self.join(number, other);
            }
            if into_this {
                self.join(other, number);
            } else {
                is_near |= is_main(one) && is_main(two) && two.subject.contains(&one.subject);
            }
        }
        // Those that have come as far without an event know it by the progress of all.
        if is_near && !self.progress.is_asked {
            self.ask_progress();
        }
    }

    /// Has all watches of a feed get their events from another one.
    fn join(&mut self, from: FeedId, to: FeedId) {
        let Some(watches) = self.feeds.get(&from).map(|feed| feed.audience.ids()) else { return };
        let Some(recent) = self.feeds.get(&to).map(Feed::recent) else { return };
        for id in watches {
            self.note_position(id);
            let Some(watch) = self.watch_mut(id) else { continue };
            watch.feed = Some(to);
            let subject = watch.subject.clone();
            if let Some(new) = self.feeds.get_mut(&to) {
                new.audience.add(&new.subject.clone(), &subject, id);
            }
            if !Mistake::LosesEventsAtJoin.is_planted() {
                recent.iter().for_each(|batch| self.give(id, batch));
            }
        }
        self.end_feed(from);
    }

    /// What a watch has been sent by its feed, as a revision of its own.
    pub(super) fn note_position(&mut self, id: Id) {
        let Some(watch) = self.clients.get_mut(&id.0).and_then(|client| client.watches.get_mut(&id.1)) else { return };
        let feed = watch.feed.and_then(|feed| self.feeds.get(&feed));
        if let Some(feed) = feed.filter(|feed| watch.is_told && feed.position >= 0) {
            watch.next = watch.next.max(feed.position.saturating_add(1));
        }
    }

    /// Asks a member for a watch of its own for a client's watch.
    pub(super) fn feed_anew(&mut self, client: ClientId, number: WatchId) {
        let Some(watch) = self.watch_mut((client, number)) else { return };
        let (subject, position) = (watch.subject.clone(), watch.next.saturating_sub(1));
        let feed = self.insert(Feed::new(subject, (client, number), position));
        if let Some(watch) = self.watch_mut((client, number)) {
            watch.feed = Some(feed);
        }
        self.ask_for(feed);
    }

    pub(super) fn ask_for(&mut self, number: FeedId) {
        let Some(feed) = self.feeds.get(&number) else { return };
        let lane = feed.lane;
        if !*self.is_up.of(lane) {
            return;
        }
        let request = WatchCreateRequest {
            key: feed.subject.key.clone(),
            range_end: feed.subject.range_end.clone(),
            start_revision: feed.position.saturating_add(1),
            progress_notify: true,
            prev_kv: feed.subject.prev_kv,
            watch_id: number,
            ..WatchCreateRequest::default()
        };
        self.creating.of_mut(lane).push_back(number);
        self.ask(lane, RequestUnion::CreateRequest(request));
    }

    pub(super) fn ask_progress(&mut self) {
        self.progress.asked.append(&mut self.progress.waiting);
        (self.progress.is_asked, self.progress.since_ms) = (true, self.now_ms);
        if *self.is_up.of(Lane::Main) {
            self.ask(Lane::Main, RequestUnion::ProgressRequest(WatchProgressRequest {}));
        }
    }

    /// Takes a watch about `subject` off its feed, which ends with the last one that wants all of it: the others get feeds of their own.
    pub(super) fn take_off(&mut self, id: Id, subject: &Subject, feed: Option<FeedId>) {
        let Some(number) = feed else { return };
        let Some(feed) = self.feeds.get_mut(&number) else { return };
        feed.audience.remove(subject, id);
        if feed.creator == Some(id) {
            feed.creator = None;
        }
        if feed.audience.is_empty() {
            return self.end_feed(number);
        }
        if feed.audience.is_partial() {
            let left = feed.audience.ids();
            left.iter().for_each(|id| self.note_position(*id));
            self.end_feed(number);
            left.into_iter().for_each(|(client, watch)| self.feed_anew(client, watch));
        }
    }

    fn end_feed(&mut self, number: FeedId) {
        let Some(feed) = self.remove(number) else { return };
        let is_asked = feed.is_created || self.creating.of(feed.lane).contains(&number);
        if is_asked {
            self.ask(feed.lane, RequestUnion::CancelRequest(WatchCancelRequest { watch_id: number }));
        }
    }

    pub(super) fn remove(&mut self, number: FeedId) -> Option<Feed> {
        let feed = self.feeds.remove(&number)?;
        let count = self.lanes.of_mut(feed.lane);
        *count = count.saturating_sub(1);
        self.recent_bytes = self.recent_bytes.saturating_sub(feed.recent_bytes);
        if let Some(siblings) = self.beginnings.get_mut(&feed.subject.key) {
            siblings.retain(|other| *other != number);
            if siblings.is_empty() {
                self.beginnings.remove(&feed.subject.key);
            }
        }
        Some(feed)
    }
}
