//! One watch at a member, and the clients' watches that it feeds.

use api::etcdserverpb::ResponseHeader;
use api::mvccpb::Event;
use prost::Message as _;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Subject;
use super::audience::{Audience, Id};
use super::picked::Kinds;

/// Bytes of recent events that a feed keeps for those who join it.
const RECENT_BYTES_MAX: usize = 256 * 1024;

/// The bytes of all events that are in memory: those that feeds keep, and those that wait for clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(Arc<AtomicUsize>);

impl Live {
    /// How many there are.
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Events that came together.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The header they came with.
    pub(crate) header: ResponseHeader,
    /// In the order of their revisions, at least one.
    pub(crate) events: Vec<Event>,
    /// Everything up to this revision had come before.
    pub(crate) after: i64,
    /// The revision of the first one.
    pub(crate) first: i64,
    /// The revision of the last one.
    pub(crate) last: i64,
    /// What they take as a message.
    pub(crate) bytes: usize,
    pub(crate) kinds: Kinds,
    live: Live,
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.live.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The revision of an event.
pub(crate) fn revision(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

impl Batch {
    /// The events of a response behind `position`, if there are any.
    pub(crate) fn new(header: ResponseHeader, mut events: Vec<Event>, position: i64, live: &Live) -> Option<Batch> {
        events.retain(|event| revision(event) > position);
        let (first, last) = (events.first().map(revision)?, events.last().map(revision)?);
        let bytes = events.iter().map(Event::encoded_len).fold(0, usize::saturating_add);
        live.0.fetch_add(bytes, Ordering::Relaxed);
        let mut kinds = Kinds::default();
        events.iter().for_each(|event| kinds.add(event));
        Some(Batch { header, events, after: position, first, last, bytes, kinds, live: live.clone() })
    }
}

/// Where the watch of a feed is at the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// On the stream whose progress is asked for.
    Main,
    /// It begins in the future: on the main stream it would keep the member from telling its progress.
    Future,
}

/// Something of each lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PerLane<T> {
    main: T,
    future: T,
}

impl<T> PerLane<T> {
    pub(crate) fn of(&self, lane: Lane) -> &T {
        match lane {
            Lane::Main => &self.main,
            Lane::Future => &self.future,
        }
    }

    pub(crate) fn of_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Main => &mut self.main,
            Lane::Future => &mut self.future,
        }
    }
}

/// One watch at a member.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) subject: Subject,
    pub(crate) lane: Lane,
    /// The client's watch for which it was made, until the member has answered.
    pub(crate) creator: Option<Id>,
    /// Whether the member was asked for it, on the present stream.
    pub(crate) is_asked: bool,
    /// Whether the member has created it, on the present stream.
    pub(crate) is_created: bool,
    /// Whether it stands in the hub's line of feeds that may be joined with others, or are broken up.
    pub(crate) is_in_line: bool,
    /// Whether the member has what it asked for: one that begins at a compacted revision is created, too, and ended right after that.
    pub(crate) is_begun: bool,
    /// Every event up to this revision has come, and was given to all of `audience`; -1 as long as the member has not said where it begins.
    pub(crate) position: i64,
    pub(crate) audience: Audience,
    recent: VecDeque<Arc<Batch>>,
    pub(crate) recent_bytes: usize,
    /// `recent` has every event behind this revision, up to `position`.
    pub(crate) recent_from: i64,
}

impl Feed {
    pub(crate) fn new(subject: Subject, creator: Id, position: i64) -> Feed {
        let mut audience = Audience::default();
        audience.add(&subject, &subject, creator);
        Feed {
            subject,
            lane: Lane::Main,
            creator: Some(creator),
            is_asked: false,
            is_created: false,
            is_in_line: false,
            is_begun: false,
            position,
            audience,
            recent: VecDeque::new(),
            recent_bytes: 0,
            recent_from: position,
        }
    }

    /// Everything up to `revision` has come.
    pub(crate) fn advance(&mut self, revision: i64) {
        self.is_begun = true;
        self.position = self.position.max(revision);
    }

    /// Keeps events for those who join, as long as there is room. Also advances.
    pub(crate) fn keep(&mut self, batch: &Arc<Batch>) {
        self.advance(batch.last);
        self.recent_bytes = self.recent_bytes.saturating_add(batch.bytes);
        self.recent.push_back(batch.clone());
        while self.recent_bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.recent.pop_front() else { break };
            self.recent_bytes = self.recent_bytes.saturating_sub(oldest.bytes);
            self.recent_from = self.recent_from.max(oldest.last);
        }
    }

    /// Forgets what it keeps for those who join.
    pub(crate) fn forget_recent(&mut self) {
        self.recent.clear();
        (self.recent_bytes, self.recent_from) = (0, self.position);
    }

    /// What has come lately and a watch lacks whose next revision is `next`.
    pub(crate) fn recent_from(&self, next: i64) -> Vec<Arc<Batch>> {
        let known = self.recent.partition_point(|batch| batch.last < next);
        self.recent.range(known..).cloned().collect()
    }

    /// Whether the watches of another feed that have everything up to its position can join: this one has what they lack, and is not
    /// behind them. They may have to be told that what they lack is compacted, so the member must have answered. A feed that reads old revisions would keep them waiting, and fail for all of them where these are compacted.
    pub(crate) fn can_be_joined_by(&self, other: &Feed) -> bool {
        self.is_created
            && other.is_begun
            && self.lane == Lane::Main
            && (self.recent_from..=self.position).contains(&other.position)
            && self.has_room_for(other)
    }

    /// Whether it has everything that another feed has, and room for the watches of that, however far both are. One that is broken up
    /// takes no more on.
    pub(crate) fn has_room_for(&self, other: &Feed) -> bool {
        self.subject.contains(&other.subject)
            && !self.audience.is_partial()
            && self.audience.has_room(&self.subject, &other.subject, &other.audience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_joins_a_feed_that_is_behind() {
        let subject = Subject { key: "a".into(), range_end: "b".into(), prev_kv: false, no_events: false };
        let begun = |mut feed: Feed| {
            feed.is_begun = true;
            feed
        };
        let at = |position| begun(Feed::new(subject.clone(), (2, 1), position));
        let mut feed = Feed::new(subject.clone(), (1, 1), 4);
        feed.is_created = true;
        assert!(feed.can_be_joined_by(&at(4)) && !feed.can_be_joined_by(&at(3)));
        // One that is level at 1000 would wait for all that this one has to read.
        assert!(!feed.can_be_joined_by(&at(1000)));
        feed.advance(1000);
        assert!(feed.can_be_joined_by(&at(1000)) && feed.can_be_joined_by(&at(4)) && !feed.can_be_joined_by(&at(1001)));
        let other = Subject { key: "aa".into(), range_end: Default::default(), prev_kv: false, no_events: false };
        assert!(feed.can_be_joined_by(&begun(Feed::new(other, (2, 1), 1000))), "a part of it");
        let other = Subject { key: "a".into(), range_end: "c".into(), prev_kv: false, no_events: false };
        assert!(!feed.can_be_joined_by(&begun(Feed::new(other, (2, 1), 1000))), "more than it");
        assert!(!feed.can_be_joined_by(&Feed::new(subject.clone(), (2, 1), 4)), "it may be compacted");
    }

    #[test]
    fn feeds_with_too_many_parts_in_all_do_not_join() {
        let of = Subject { key: "a".into(), range_end: "b".into(), prev_kv: false, no_events: false };
        let with_parts = |client, parts: std::ops::Range<usize>| {
            let mut feed = Feed::new(of.clone(), (client, 0), 4);
            (feed.is_created, feed.is_begun) = (true, true);
            for number in parts {
                let part = Subject {
                    key: format!("a{number}").into(),
                    range_end: "b".into(),
                    prev_kv: false,
                    no_events: false,
                };
                feed.audience.add(&of, &part, (client, 1 + number as i64));
            }
            feed
        };
        let feed = with_parts(1, 0..40);
        assert!(feed.can_be_joined_by(&with_parts(2, 40..64)) && feed.can_be_joined_by(&with_parts(2, 16..64)));
        assert!(!feed.can_be_joined_by(&with_parts(2, 40..65)), "each part is looked at for each event");
        // Their own keys are one part more.
        let wide = Subject { range_end: "c".into(), ..of.clone() };
        let mut wide = Feed::new(wide, (3, 0), 4);
        wide.is_created = true;
        assert!(wide.can_be_joined_by(&with_parts(2, 0..63)) && !wide.can_be_joined_by(&with_parts(2, 0..64)));
    }
}
