//! What a hub makes of the messages of members.

use api::etcdserverpb::{ResponseHeader, WatchResponse};
use std::sync::Arc;

use super::{Hub, NO_WATCH, Output, RECENT_BYTES_MAX, Watch};
use crate::watch::audience::Id;
use crate::watch::feed::{Batch, Feed, Lane};
use crate::watch::mistake::Mistake;
use crate::watch::picked::{Picked, Selection};
use crate::watch::{ClientId, FeedId, Telling};

/// Whether a member says that it does not know a token, which another one may.
fn is_about_token(reason: &str) -> bool {
    use api::Error::{AuthOldRevision, InvalidAuthToken};
    [InvalidAuthToken, AuthOldRevision].iter().any(|error| reason.contains(error.message()))
}

impl Hub {
    /// A member has sent something on the stream of a lane.
    pub(crate) fn receive(&mut self, lane: Lane, response: WatchResponse) {
        let header = response.header.unwrap_or_default();
        if self.is_of_another_cluster(&response) {
            // It answers a request of this stream all the same: the next answer is that to the next request.
            if response.created {
                self.creating.of_mut(lane).pop_front();
            }
            self.change_cluster(header);
            if response.created {
                self.ask_on(lane);
            }
            return;
        }
        let revision = self.header.revision.max(header.revision);
        self.header = ResponseHeader { revision, ..header };
        if response.created {
            self.created(lane, header, response);
        } else if response.canceled {
            self.ended(response);
        } else if !response.events.is_empty() {
            self.events(header, response);
        } else if response.watch_id == NO_WATCH {
            self.told_progress(lane, header);
        } else {
            self.told_progress_of(response.watch_id, header);
        }
    }

    fn created(&mut self, lane: Lane, header: ResponseHeader, response: WatchResponse) {
        let asked = self.creating.of_mut(lane).pop_front();
        self.ask_on(lane);
        // Nobody wants one that is not there any more, and the member was told so.
        let Some(number) = asked.filter(|number| self.feeds.contains_key(number)) else { return };
        if response.canceled {
            // The stream of the other lane may be with the same member.
            let refusals = self.refusals.of_mut(lane);
            if is_about_token(&response.cancel_reason) && refusals.saturating_add(1) < self.members {
                *refusals = refusals.saturating_add(1);
                self.down(lane);
                return self.out.push(Output::Elsewhere(lane));
            }
            return self.fail(number, &response);
        }
        *self.refusals.of_mut(lane) = 0;
        self.is_known = true;
        let Some(feed) = self.feeds.get_mut(&number) else { return };
        feed.is_created = true;
        self.suspect(number, header.revision);
        let Some(feed) = self.feeds.get_mut(&number) else { return };
        if feed.position < 0 {
            (feed.position, feed.recent_from) = (header.revision, header.revision);
        }
        feed.is_begun |= feed.position >= header.revision;
        let (position, creator) = (feed.position, feed.creator.take());
        let is_future = lane == Lane::Main && position > header.revision;
        if let Some((client, watch_number)) = creator
            && let Some(watch) = self.known_mut((client, watch_number))
        {
            if watch.next == 0 {
                watch.next = position.saturating_add(1);
            }
            if !std::mem::replace(&mut watch.is_told, true) {
                let is_canceled = watch.is_canceled;
                let answer = WatchResponse { watch_id: watch_number, created: true, ..self.answer_at(header) };
                self.tell(client, answer);
                if is_canceled {
                    return self.cancel(client, watch_number);
                }
            }
        }
        if is_future {
            return self.change_lane(number, Lane::Future);
        }
        self.stand_in_line(number);
    }

    fn events(&mut self, header: ResponseHeader, response: WatchResponse) {
        let Some(feed) = self.feeds.get_mut(&response.watch_id) else { return };
        let Some(batch) = Batch::new(header, response.events, feed.position, &self.live) else { return };
        let batch = Arc::new(batch);
        let before = feed.recent_bytes;
        feed.keep(&batch);
        let shares = feed.audience.of_events(&batch.events);
        let after = feed.recent_bytes;
        self.recent_bytes = self.recent_bytes.saturating_sub(before).saturating_add(after);
        for share in shares {
            share.ids.into_iter().for_each(|id| self.give(id, &batch, share.events.as_ref()));
        }
        if self.recent_bytes > RECENT_BYTES_MAX
            && let Some(feed) = self.feeds.get_mut(&response.watch_id)
        {
            self.recent_bytes = self.recent_bytes.saturating_sub(feed.recent_bytes);
            feed.forget_recent();
        }
        if self.feeds.get(&response.watch_id).is_some_and(|feed| feed.lane == Lane::Future) {
            return self.change_lane(response.watch_id, Lane::Main);
        }
        self.stand_in_line(response.watch_id);
    }

    /// Gives a watch what it wants of a batch: of `about`, if these are known to be the events about its keys. Nothing is copied for it:
    /// a batch goes to all its watches before any of them has claimed what it is told.
    pub(super) fn give(&mut self, id: Id, batch: &Arc<Batch>, about: Option<&Arc<Picked>>) {
        let Some(client) = self.clients.get_mut(&id.0) else { return };
        let Some(watch) = client.watches.get_mut(&id.1) else { return };
        if client.is_stalled {
            // It gets them when its client takes them. What came before them was given to it.
            if let Some(feed) = watch.feed.take() {
                let had = if Mistake::SkipsWhatComesStalled.is_planted() { batch.last } else { batch.after };
                watch.next = watch.next.max(had.saturating_add(1));
                let subject = watch.subject.clone();
                self.take_off(id, &subject, Some(feed));
            }
            return;
        }
        let feed = watch.feed.and_then(|feed| self.feeds.get(&feed));
        let is_whole = || feed.is_some_and(|feed| feed.subject == watch.subject);
        let about = match about {
            Some(about) => Some(about.clone()),
            None if is_whole() => None,
            None => Some(Arc::new(Picked::of(&batch.events, |event| watch.is_about(event)))),
        };
        let selection = Selection { batch: batch.clone(), about, wants: watch.wants() };
        let from = watch.next.max(batch.after.saturating_add(1));
        watch.next = watch.next.max(batch.last.saturating_add(1));
        if selection.is_empty() {
            return;
        }
        let telling = Telling::Events { watch: id.1, from, fragment: watch.fragment, selection };
        self.out.push(Output::Tell(id.0, telling));
    }

    /// The progress of all feeds on the stream.
    fn told_progress(&mut self, lane: Lane, header: ResponseHeader) {
        if lane != Lane::Main {
            return;
        }
        let (mut advanced, mut quiet) = (Vec::new(), Vec::new());
        for (number, feed) in &mut self.feeds {
            if feed.lane == Lane::Main && feed.is_created {
                feed.advance(header.revision);
                advanced.push(*number);
            } else if feed.lane == Lane::Future && feed.position < header.revision {
                quiet.push(*number);
            }
        }
        // The future has come, without an event: nobody asks that stream how far it is.
        for number in quiet {
            self.change_lane(number, Lane::Main);
        }
        (self.progress.is_asked, self.progress.moves) = (false, 0);
        for client in std::mem::take(&mut self.progress.asked) {
            if self.awaits_feed(client, header.revision) {
                self.progress.waiting.insert(client);
            } else {
                self.tell_progress(client, header);
            }
        }
        // The largest feeds are joined by the others.
        for number in advanced {
            self.stand_in_line(number);
        }
        if !self.progress.waiting.is_empty() {
            self.ask_progress();
        }
    }

    /// Whether a feed has still to be made, or a member to create it on the main stream, for a watch of a client that is not as far as
    /// `revision`: its progress comes behind that.
    fn awaits_feed(&self, id: ClientId, revision: i64) -> bool {
        if Mistake::TellsProgressEarly.is_planted() {
            return false;
        }
        let Some(client) = self.clients.get(&id) else { return false };
        let awaits = |feed: &Feed| feed.lane == Lane::Main && !feed.is_created && feed.position < revision;
        let waits = |watch: &Watch| match watch.feed.and_then(|feed| self.feeds.get(&feed)) {
            Some(feed) => awaits(feed),
            None => !client.is_stalled,
        };
        client.watches.values().any(|watch| watch.is_told && watch.next <= revision && waits(watch))
    }

    /// Tells a client how far all its watches are: not further than it has been sent events.
    fn tell_progress(&mut self, id: ClientId, header: ResponseHeader) {
        let Some(client) = self.clients.get(&id) else { return };
        let reached = |watch: &Watch| {
            let sent = watch.next.saturating_sub(1);
            watch.feed.and_then(|feed| self.feeds.get(&feed)).map_or(sent, |feed| feed.position.max(sent))
        };
        let mut least = header.revision;
        if !Mistake::TellsProgressEarly.is_planted() {
            let told = client.watches.values().filter(|watch| watch.is_told);
            least = told.map(reached).fold(least, i64::min);
        }
        if least > 0 {
            let header = ResponseHeader { revision: least, ..header };
            self.tell(id, WatchResponse { watch_id: NO_WATCH, ..self.answer_at(header) });
        }
    }

    /// The progress of one feed.
    fn told_progress_of(&mut self, number: FeedId, header: ResponseHeader) {
        let Some(feed) = self.feeds.get_mut(&number) else { return };
        feed.advance(header.revision);
        for id in feed.audience.ids() {
            // One that is ahead of the feed was told more already.
            let wants = |watch: &mut Watch| {
                watch.progress_notify && watch.is_told && watch.next <= header.revision.saturating_add(1)
            };
            if self.known_mut(id).is_some_and(wants) {
                let answer = WatchResponse { watch_id: id.1, ..self.answer_at(header) };
                self.tell(id.0, answer);
            }
        }
        self.stand_in_line(number);
    }

    /// A member has ended a feed.
    fn ended(&mut self, response: WatchResponse) {
        if self.feeds.contains_key(&response.watch_id) {
            self.fail(response.watch_id, &response);
        }
    }

    /// Ends a feed, and with it the watches that cannot go on without it. Those that are not compacted can, and those that want a part of
    /// what they may not have all of any more.
    fn fail(&mut self, number: FeedId, response: &WatchResponse) {
        let Some(feed) = self.feeds.get(&number) else { return };
        let (watches, subject) = (feed.audience.ids(), feed.subject.clone());
        for id in &watches {
            self.note_position(*id);
        }
        self.remove(number);
        if Mistake::SwallowsCompaction.is_planted() && response.compact_revision != 0 {
            return;
        }
        for (id, watch_number) in watches {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let Some(watch) = client.watches.get_mut(&watch_number) else { continue };
            let is_told = watch.is_told;
            watch.feed = None;
            let is_partial = response.compact_revision == 0 && watch.subject != subject;
            let is_kept = response.compact_revision != 0 && watch.next >= response.compact_revision;
            if is_told && (is_partial || is_kept) {
                self.feed_anew(id, watch_number);
                continue;
            }
            client.remove(watch_number);
            let answer = WatchResponse {
                watch_id: if is_told { watch_number } else { NO_WATCH },
                created: !is_told,
                canceled: true,
                compact_revision: response.compact_revision,
                cancel_reason: response.cancel_reason.clone(),
                ..self.answer()
            };
            self.tell(id, answer);
        }
    }
}
