//! Responses that wait to be polled.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::Batch;
use super::block::Piece;
use super::watchers::{Member, Watchers};

enum Out {
    Reply(Batch),
    Events(Delivery),
    Progress(Progress),
}

/// The same events for several watchers. Turned into one response per watcher only as they are polled.
pub(super) struct Delivery {
    members: Arc<Vec<Member>>,
    pieces: Vec<Piece>,
    header_revision: i64,
    newest_min_rev: i64,
    member: usize,
    piece: usize,
}

impl Delivery {
    /// Events of one revision, just published: for members whose `min_rev` is not after it.
    pub(super) fn live(members: Arc<Vec<Member>>, pieces: Vec<Piece>, revision: i64) -> Self {
        Delivery { members, pieces, header_revision: revision, newest_min_rev: revision, member: 0, piece: 0 }
    }

    /// Events read from the log: for all members, which share the cursor.
    pub(super) fn caught_up(members: Arc<Vec<Member>>, pieces: Vec<Piece>, current: i64) -> Self {
        Delivery { members, pieces, header_revision: current, newest_min_rev: i64::MAX, member: 0, piece: 0 }
    }

    /// The next response; members that were cancelled meanwhile get nothing.
    fn next(&mut self, watchers: &mut Watchers) -> Option<Batch> {
        loop {
            let member = *self.members.get(self.member)?;
            match (watchers.get_mut(member), self.pieces.get(self.piece)) {
                (Some(watcher), Some(piece)) if watcher.min_rev <= self.newest_min_rev => {
                    self.piece += 1;
                    watcher.sent = true;
                    return Some(Batch {
                        revision: self.header_revision,
                        watch_id: watcher.id,
                        fragment: self.piece < self.pieces.len(),
                        events: piece.bytes.clone(),
                        event_count: piece.count,
                        ..Batch::default()
                    });
                }
                _ => {
                    self.member += 1;
                    self.piece = 0;
                }
            }
        }
    }
}

struct Progress {
    members: Vec<Member>,
    revision: i64,
}

impl Progress {
    fn next(&mut self, watchers: &Watchers) -> Option<Batch> {
        while let Some(member) = self.members.pop() {
            let Some(watcher) = watchers.get(member) else { continue };
            if watcher.live.is_some() && watcher.min_rev <= self.revision + 1 {
                return Some(Batch { revision: self.revision, watch_id: watcher.id, ..Batch::default() });
            }
        }
        None
    }
}

/// A queue in the order of sending.
#[derive(Default)]
pub(super) struct Outbox {
    queue: VecDeque<Out>,
}

impl Outbox {
    pub(super) fn reply(&mut self, batch: Batch) {
        self.queue.push_back(Out::Reply(batch));
    }

    pub(super) fn events(&mut self, delivery: Delivery) {
        self.queue.push_back(Out::Events(delivery));
    }

    /// Periodic progress: everything up to `revision` was delivered to these members.
    pub(super) fn progress(&mut self, members: Vec<Member>, revision: i64) {
        self.queue.push_back(Out::Progress(Progress { members, revision }));
    }

    pub(super) fn next(&mut self, watchers: &mut Watchers) -> Option<Batch> {
        loop {
            let batch = match self.queue.front_mut()? {
                Out::Reply(batch) => {
                    let batch = std::mem::take(batch);
                    self.queue.pop_front();
                    return Some(batch);
                }
                Out::Events(delivery) => delivery.next(watchers),
                Out::Progress(progress) => progress.next(watchers),
            };
            if batch.is_some() {
                return batch;
            }
            self.queue.pop_front();
        }
    }
}
