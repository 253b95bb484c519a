//! Responses that wait to be polled.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::{Batch, EventForm, Origin, Sink, Wrote};
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

    /// Whether everything is written: then what it refers to is of no use any more.
    fn is_done(&self) -> bool {
        self.member >= self.members.len()
    }

    /// Writes responses, one after the other until `bytes_max` are reached; members that were cancelled meanwhile get none.
    fn encode(&mut self, watchers: &mut Watchers, origin: &Origin, bytes_max: usize, sink: &mut impl Sink) -> Sent {
        let mut form = EventForm::new(origin, self.header_revision);
        let mut sent = Sent::default();
        while let Some(&member) = self.members.get(self.member)
            && sent.bytes < bytes_max
        {
            match (watchers.get_mut(member), self.pieces.get(self.piece)) {
                (Some(watcher), Some(piece)) if watcher.min_rev <= self.newest_min_rev => {
                    self.piece = self.piece.saturating_add(1);
                    watcher.sent = true;
                    let is_last = self.piece >= self.pieces.len();
                    let bytes = form.encode(watcher.id, !is_last, &piece.events, sink);
                    if is_last {
                        self.member = self.member.saturating_add(1);
                        self.piece = 0;
                    }
                    sent.bytes = sent.bytes.saturating_add(bytes);
                    sent.events = sent.events.saturating_add(piece.count.into());
                    sent.responses = sent.responses.saturating_add(1);
                }
                _ => {
                    self.member = self.member.saturating_add(1);
                    self.piece = 0;
                }
            }
        }
        sent
    }
}

/// What was written.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) bytes: usize,
    pub(super) events: u64,
    responses: u64,
}

struct Progress {
    members: Vec<Member>,
    revision: i64,
}

impl Progress {
    /// Writes the next response.
    fn encode(&mut self, watchers: &Watchers, origin: &Origin, sink: &mut impl Sink) -> Sent {
        while let Some(member) = self.members.pop() {
            let Some(watcher) = watchers.get(member) else { continue };
            if watcher.live.is_some() && watcher.min_rev <= self.revision.saturating_add(1) {
                let batch = Batch { revision: self.revision, watch_id: watcher.id, ..Batch::default() };
                return Sent { bytes: batch.encode(origin, sink), ..Sent::default() };
            }
        }
        Sent::default()
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

    /// Answers and deliveries that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        let deliveries = self.queue.iter().filter_map(|out| match out {
            Out::Events(delivery) => Some(&delivery.pieces),
            Out::Reply(_) | Out::Progress(_) => None,
        });
        let chunks: std::collections::BTreeMap<usize, usize> = deliveries
            .flatten()
            .flat_map(|piece| piece.events.iter())
            .map(|chunk| (chunk.as_ptr() as usize, chunk.len()))
            .collect();
        chunks.values().sum()
    }

    /// Writes what comes next: one response, or as many with the same events as fit `bytes_max`. Nothing if there is none.
    pub(super) fn encode(
        &mut self,
        watchers: &mut Watchers,
        origin: &Origin,
        bytes_max: usize,
        sink: &mut impl Sink,
    ) -> Sent {
        while let Some(front) = self.queue.front_mut() {
            let sent = match front {
                Out::Reply(batch) => {
                    let sent = Sent { bytes: batch.encode(origin, sink), ..Sent::default() };
                    sink.wrote(if batch.created || batch.canceled { Wrote::Control } else { Wrote::Progress });
                    self.queue.pop_front();
                    return sent;
                }
                Out::Events(delivery) => delivery.encode(watchers, origin, bytes_max, sink),
                Out::Progress(progress) => progress.encode(watchers, origin, sink),
            };
            let is_done = matches!(front, Out::Events(delivery) if delivery.is_done());
            if sent.bytes > 0 {
                if is_done {
                    self.queue.pop_front();
                }
                sink.wrote(match sent.responses {
                    0 => Wrote::Progress,
                    responses => Wrote::Events { responses, events: sent.events },
                });
                return sent;
            }
            self.queue.pop_front();
        }
        Sent::default()
    }
}
