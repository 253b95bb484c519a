//! The end of a stride: its versions go into the index, its revisions become readable, and watchers hear of them.

use super::applier::Applier;
use crate::log::write;
use crate::mistake::Mistake;
use crate::read::KeySpan;
use crate::types::{Loc, Version};
use crate::watch::{Event, Kind, Publication};
use api::limits::{APPLY_STRIDE_OPS, INSTALL_STRIDE_BYTES};
use bytes::Bytes;
use std::sync::atomic::Ordering;

/// A version that is in the log's buffer and not yet in the index.
pub(crate) struct Change {
    pub(crate) key: Bytes,
    pub(crate) version: Version,
    /// What it replaces.
    pub(crate) prev: Option<Loc>,
}

impl Change {
    fn event(&self) -> Event {
        Event {
            kind: if self.version.is_tombstone() { Kind::Delete } else { Kind::Put },
            key: self.key.clone(),
            rev: self.version.rev,
            loc: self.version.loc,
            prev: self.prev,
        }
    }
}

impl Applier {
    /// Puts the stride's versions into the index, in short holds of its lock, and publishes each revision with its last version. Watchers
    /// hear of a revision before a client that has read it can ask them for progress.
    pub(super) fn publish_changes(&self) {
        // Built before anything is locked. If a watcher registers later, they are built under the lock.
        let events: Option<Vec<Event>> =
            (!self.store.hub.is_idle()).then(|| self.changes.iter().map(Change::event).collect());
        let mut rest = &self.changes[..];
        let (mut told, mut installed) = (0, 0);
        let mut paths = self.paths.iter().peekable();
        while let Some(first) = rest.first() {
            let (chunk, behind) = rest.split_at(install_stride(rest));
            let last = chunk[chunk.len() - 1].version.rev.main;
            // Further chunks may have more changes of the last revision.
            let is_split = behind.first().is_some_and(|next| next.version.rev.main == last);
            let began_here = first.version.rev.main != last;
            let begins_split = is_split && (began_here || !self.store.unpublished.is_any());
            // Looks at every key of the revision: not while readers wait.
            let span = begins_split.then(|| self.span_of(last));
            let published = if is_split { last - 1 } else { last };
            let publication = (published > self.store.revision()).then(|| self.store.hub.begin());
            let mut index = write(&self.store.index);
            failpoint::point!(BEFORE_WRITEBACK_BUF);
            for change in chunk {
                let path = paths.next_if(|(at, _)| *at == installed).map(|(_, path)| *path);
                index.push_on(path, &change.key, change.version);
                installed += 1;
            }
            if begins_split {
                self.store.unpublished.set(span);
            } else if !is_split && self.store.unpublished.is_any() {
                self.store.unpublished.set(None);
            }
            self.store.revision.store(published, Ordering::Release);
            failpoint::point!(AFTER_WRITEBACK_BUF);
            drop(index);
            if let Some(publication) = publication {
                let end = self.changes.partition_point(|change| change.version.rev.main <= published);
                let built = events.as_ref().and_then(|events| events.get(told..end));
                tell(publication, published, &self.changes[told..end], built);
                told = end;
            }
            rest = behind;
        }
    }

    /// The keys that a revision of the stride changes, as a span.
    fn span_of(&self, main: i64) -> KeySpan {
        let from = self.changes.partition_point(|change| change.version.rev.main < main);
        let mut span = KeySpan { first: self.changes[from].key.clone(), last: self.changes[from].key.clone() };
        for change in self.changes[from..].iter().take_while(|change| change.version.rev.main == main) {
            if change.key < span.first {
                span.first = change.key.clone();
            } else if change.key > span.last {
                span.last = change.key.clone();
            }
        }
        span
    }
}

/// Pushes to watchers what readers see now. `events` are those of the changes, if they were built.
fn tell(publication: Publication<'_>, published: i64, changes: &[Change], events: Option<&[Event]>) {
    if publication.is_idle() {
        return publication.skip_to(published);
    }
    let built: Vec<Event>;
    let events = match events {
        Some(events) => events,
        None => {
            built = changes.iter().map(Change::event).collect();
            &built
        }
    };
    let twice: Vec<Event>;
    let events = if Mistake::TellsTransactionsTwice.is_planted() {
        twice = told_twice(events);
        &twice
    } else {
        events
    };
    let revisions: Vec<(i64, &[Event])> = events
        .chunk_by(|a, b| a.rev.main == b.rev.main)
        .filter_map(|chunk| Some((chunk.first()?.rev.main, chunk)))
        .collect();
    publication.publish(&revisions);
}

/// For [`Mistake::TellsTransactionsTwice`]: the last event of a transaction with several comes again.
fn told_twice(events: &[Event]) -> Vec<Event> {
    let transactions = events.chunk_by(|a, b| a.rev.main == b.rev.main);
    transactions.flat_map(|chunk| chunk.iter().chain(chunk.last().filter(|_| chunk.len() > 1))).cloned().collect()
}

/// How many of the changes one hold of the index lock installs.
fn install_stride(changes: &[Change]) -> usize {
    let mut bytes = 0;
    let within = changes.iter().take(APPLY_STRIDE_OPS).take_while(|change| {
        let is_within = bytes < INSTALL_STRIDE_BYTES;
        bytes += change.key.len();
        is_within
    });
    within.count()
}
