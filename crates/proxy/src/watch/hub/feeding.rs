//! Which feed a hub's watches are on: feeds that are made, joined, moved and ended.

use api::etcdserverpb::watch_create_request::FilterType;
use api::etcdserverpb::watch_request::RequestUnion;
use api::etcdserverpb::{WatchCancelRequest, WatchCreateRequest, WatchProgressRequest};
use std::collections::BTreeSet;
use std::ops::Bound;

use super::{Hub, Id, Watch};
use crate::watch::feed::{Feed, Lane};
use crate::watch::mistake::Mistake;
use crate::watch::{ClientId, FeedId, Subject, WatchId};

/// Feeds with the same first key that are looked at to find one that can be joined.
const SIBLINGS_MAX: usize = 16;
/// Feeds that a member is asked for before it has answered any: a member that takes nothing must not have more requests wait for it.
const CREATING_MAX: usize = if cfg!(test) { 3 } else { 4_096 };
/// Watches that are moved, and batches that are given to them, before others have their turn.
const EFFORT_MAX: usize = if cfg!(test) { 2 } else { 1_024 };
/// Bytes of a key of which all beginnings are looked up, to find ranges that have it: prefixes of it, mostly.
const BEGINNINGS_MAX: usize = 256;

impl Hub {
    /// Has a feed go on, on the stream of another lane. It gets another number, so that what is still said of the old one is not taken
    /// for its own.
    pub(super) fn change_lane(&mut self, old: FeedId, lane: Lane) {
        let Some(mut feed) = self.remove(old) else { return };
        if feed.is_asked {
            self.ask(feed.lane, RequestUnion::CancelRequest(WatchCancelRequest { watch_id: old }));
        }
        (feed.lane, feed.is_asked, feed.is_created, feed.is_in_line) = (lane, false, false, false);
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
        self.beginnings.entry(feed.subject.key.clone()).or_default().insert(self.last_feed);
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
        let others = |feeds: &BTreeSet<FeedId>| -> Vec<FeedId> {
            feeds.iter().copied().filter(|other| *other != number).take(SIBLINGS_MAX).collect()
        };
        found.chain(near.map(|(_, feeds)| feeds)).flat_map(others).collect()
    }

    /// Has a feed looked at soon, to join it with others or to break it up.
    pub(super) fn stand_in_line(&mut self, number: FeedId) {
        let is_alone = self.feeds.len() < 2;
        if let Some(feed) = self.feeds.get_mut(&number).filter(|feed| !is_alone || feed.audience.is_partial())
            && !std::mem::replace(&mut feed.is_in_line, true)
        {
            self.line.push_back(number);
        }
    }

    /// Does some of the work that can wait: watches whose clients have stalled or resumed, feeds that may be joined or are broken up, and
    /// watches whose clients have gone. True if there is more.
    pub(crate) fn work(&mut self) -> bool {
        let mut effort = 0_usize;
        // The line of feeds may not end for long, and neither may the clients.
        while effort < EFFORT_MAX / 2 && self.turn_next() {
            effort = effort.saturating_add(1);
        }
        while effort < EFFORT_MAX {
            // In turns: a line that does not end would keep the watches of all who have gone, which nobody's claim counts any more.
            self.is_leaving_next = !self.is_leaving_next;
            let gone = if self.is_leaving_next || self.line.is_empty() { self.next_leaving() } else { None };
            if let Some((id, watch)) = gone {
                effort = effort.saturating_add(1);
                self.take_off(id, &watch.subject, watch.feed);
            } else if let Some(number) = self.line.pop_front() {
                if let Some(feed) = self.feeds.get_mut(&number) {
                    feed.is_in_line = false;
                    let (is_partial, most) = (feed.audience.is_partial(), EFFORT_MAX.saturating_sub(effort));
                    let took =
                        if is_partial { self.break_up(number, most) } else { self.join_or_be_joined(number, most) };
                    effort = effort.saturating_add(took);
                }
                effort = effort.saturating_add(1);
            } else if self.turn_next() {
                effort = effort.saturating_add(1);
            } else {
                return false;
            }
        }
        self.has_work()
    }

    /// Whether [`Hub::work`] has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.line.is_empty() || !self.leaving.is_empty() || !self.turning.is_empty()
    }

    fn next_leaving(&mut self) -> Option<(Id, Watch)> {
        let mut gone = self.leaving.first_entry()?;
        let client = *gone.key();
        let next = gone.get_mut().pop_first();
        if gone.get().is_empty() {
            gone.remove();
        }
        next.map(|(number, watch)| ((client, number), watch))
    }

    /// Joins a feed with another one that has what it lacks, or the other way around. What takes more effort than `most` goes on later;
    /// returns what it took.
    fn join_or_be_joined(&mut self, number: FeedId, most: usize) -> usize {
        let Some(feed) = self.feeds.get(&number) else { return 0 };
        let (mut is_near, mut effort) = (false, 0_usize);
        for other in self.candidates(number, &feed.subject.clone()) {
            let Some(one) = self.feeds.get(&number) else { return effort };
            let Some(two) = self.feeds.get(&other) else { continue };
            let can_move = |from: &Feed, to: &Feed| from.is_created && to.can_be_joined_by(from);
            let (into_other, into_this) = (can_move(one, two), can_move(two, one));
            let is_main = |feed: &Feed| feed.is_created && feed.lane == Lane::Main;
            effort = effort.saturating_add(1);
            // The fewer move.
            if into_other && (one.audience.len() <= two.audience.len() || !into_this) {
                effort = effort.saturating_add(self.join(number, other, most.saturating_sub(effort)));
                self.stand_in_line(number);
                return effort;
            }
            if into_this {
                effort = effort.saturating_add(self.join(other, number, most.saturating_sub(effort)));
                if effort >= most {
                    self.stand_in_line(number);
                    return effort;
                }
            } else {
                is_near |= is_main(one) && is_main(two) && two.has_room_for(one);
            }
        }
        // Those that have come as far without an event know it by the progress of all.
        if is_near && !self.progress.is_asked {
            self.ask_progress();
        }
        effort
    }

    /// Has watches of a feed get their events from another one, one at least and those that `most` has room for. The feed ends with the
    /// last of them. Returns what it took.
    fn join(&mut self, from: FeedId, to: FeedId, most: usize) -> usize {
        let most = most.max(1);
        let Some(watches) = self.feeds.get(&from).map(|feed| feed.audience.some(most)) else { return 0 };
        let mut effort = 0_usize;
        for id in watches {
            if effort >= most {
                break;
            }
            effort = effort.saturating_add(1);
            self.note_position(id);
            let Some(watch) = self.watch_mut(id) else { continue };
            watch.feed = Some(to);
            let (subject, next) = (watch.subject.clone(), watch.next);
            if let Some(old) = self.feeds.get_mut(&from) {
                old.audience.remove(&subject, id);
            }
            let Some(new) = self.feeds.get_mut(&to) else { continue };
            new.audience.add(&new.subject.clone(), &subject, id);
            if !Mistake::LosesEventsAtJoin.is_planted() {
                let recent = new.recent_from(next);
                effort = effort.saturating_add(recent.len());
                recent.iter().for_each(|batch| self.give(id, batch, None));
            }
        }
        let is_left = self.feeds.get(&from).is_some_and(|feed| feed.audience.is_empty());
        if is_left || Mistake::EndsHalfJoined.is_planted() {
            self.end_feed(from);
        }
        effort
    }

    /// What a watch has been sent by its feed, as a revision of its own.
    pub(super) fn note_position(&mut self, id: Id) {
        let Some(watch) = self.clients.get_mut(&id.0).and_then(|client| client.watches.get_mut(&id.1)) else { return };
        let feed = watch.feed.and_then(|feed| self.feeds.get(&feed));
        if let Some(feed) = feed.filter(|feed| watch.is_told && feed.position >= 0) {
            watch.next = watch.next.max(feed.position.saturating_add(1));
        }
    }

    /// Asks a member for a watch of its own for a client's watch, unless its client takes nothing.
    pub(super) fn feed_anew(&mut self, client: ClientId, number: WatchId) {
        let Some(watch) = self.watch_mut((client, number)) else { return };
        watch.feed = None;
        // Nobody asks for a watch of a client that has gone.
        let Some(taker) = self.clients.get(&client).filter(|client| !client.is_stalled) else { return };
        let Some(watch) = taker.watches.get(&number) else { return };
        let (subject, position) = (watch.subject.clone(), watch.next.saturating_sub(1));
        let feed = self.insert(Feed::new(subject, (client, number), position));
        if let Some(watch) = self.watch_mut((client, number)) {
            watch.feed = Some(feed);
        }
        self.ask_for(feed);
    }

    pub(super) fn ask_for(&mut self, number: FeedId) {
        let Some(feed) = self.feeds.get_mut(&number) else { return };
        let lane = feed.lane;
        if !*self.is_up.of(lane) {
            return;
        }
        if self.creating.of(lane).len() >= CREATING_MAX {
            self.unasked.of_mut(lane).insert(number);
            return;
        }
        feed.is_asked = true;
        // Other filters are for the proxy: watches with different ones share a feed.
        let none = || vec![FilterType::Noput as i32, FilterType::Nodelete as i32];
        let request = WatchCreateRequest {
            key: feed.subject.key.clone(),
            range_end: feed.subject.range_end.clone(),
            start_revision: feed.position.saturating_add(1),
            progress_notify: true,
            prev_kv: feed.subject.prev_kv,
            filters: if feed.subject.no_events { none() } else { Vec::new() },
            watch_id: number,
            ..WatchCreateRequest::default()
        };
        self.creating.of_mut(lane).push_back(number);
        self.ask(lane, RequestUnion::CreateRequest(request));
    }

    /// Asks for the next feed that waits, now that the member has answered one.
    pub(super) fn ask_on(&mut self, lane: Lane) {
        if let Some(number) = self.unasked.of_mut(lane).pop_first() {
            self.ask_for(number);
        }
    }

    pub(super) fn ask_progress(&mut self) {
        self.progress.asked.append(&mut self.progress.waiting);
        (self.progress.is_asked, self.progress.since_ms) = (true, self.now_ms);
        if *self.is_up.of(Lane::Main) {
            self.ask(Lane::Main, RequestUnion::ProgressRequest(WatchProgressRequest {}));
        }
    }

    /// Takes a watch about `subject` off its feed, which ends with the last one that wants all of it: it is broken up first if others are
    /// left.
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
            self.stand_in_line(number);
        }
    }

    /// Has watches of a feed that none of them wants all of get feeds of their own, as many as `most` has room for. The feed ends with the
    /// last of them, and goes on until then. Returns what it took.
    fn break_up(&mut self, number: FeedId, most: usize) -> usize {
        let Some(watches) = self.feeds.get(&number).map(|feed| feed.audience.some(most)) else { return 0 };
        for (client, watch) in &watches {
            self.rest((*client, *watch));
            self.feed_anew(*client, *watch);
        }
        watches.len()
    }

    fn end_feed(&mut self, number: FeedId) {
        let Some(feed) = self.remove(number) else { return };
        if feed.is_asked {
            self.ask(feed.lane, RequestUnion::CancelRequest(WatchCancelRequest { watch_id: number }));
        }
    }

    pub(super) fn remove(&mut self, number: FeedId) -> Option<Feed> {
        let feed = self.feeds.remove(&number)?;
        self.unasked.of_mut(feed.lane).remove(&number);
        let count = self.lanes.of_mut(feed.lane);
        *count = count.saturating_sub(1);
        self.recent_bytes = self.recent_bytes.saturating_sub(feed.recent_bytes);
        if let Some(siblings) = self.beginnings.get_mut(&feed.subject.key) {
            siblings.remove(&number);
            if siblings.is_empty() {
                self.beginnings.remove(&feed.subject.key);
            }
        }
        Some(feed)
    }
}
