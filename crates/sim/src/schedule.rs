//! Future events, in the order of the virtual clock.

use crate::operation::Answer;
use api::raftpb;
use std::collections::BTreeMap;

/// Everything that can happen next. Events that name a `boot` are void once that process is gone.
#[derive(Debug)]
pub(crate) enum Event {
    /// A member's clock ticks.
    Tick { host: usize, boot: u64 },
    /// A member looks at what has arrived.
    Turn { host: usize, boot: u64 },
    /// A message reaches a member, whichever process of it runs then.
    Deliver { from: u64, to: usize, message: Box<raftpb::Message> },
    /// The log's write and sync are over.
    LogDone { host: usize, boot: u64 },
    /// The apply thread has got to the next batch.
    Apply { host: usize, boot: u64 },
    /// The thread that writes a captured checkpoint gets to run.
    Checkpoint { host: usize, boot: u64 },
    /// Slices of compaction and rewriting, spare segments.
    Maintain { host: usize, boot: u64 },
    /// A piece of a snapshot arrives, or does not.
    Transfer { number: u64 },
    /// A client begins its next operation.
    Client { client: usize },
    /// A request reaches a member.
    Request { host: usize, operation: usize },
    /// An answer reaches its client.
    Answered { operation: usize, answer: Box<Answer> },
    /// A client gives up waiting.
    GiveUp { operation: usize },
    /// Something goes wrong.
    Fault,
    /// A fault with this number is over.
    Heal { number: u64 },
    /// A stopped member is started.
    Start { host: usize },
    /// A removed member ends.
    Leave { host: usize, boot: u64 },
    /// A directory is copied, or the copy is put back.
    SetBack,
    /// A member whose log was lost is to be removed.
    RemoveLost,
    /// The end is checked again.
    Finale,
}

/// Events by time; those of one moment in the order in which they were added.
#[derive(Default)]
pub(crate) struct Schedule {
    events: BTreeMap<(u64, u64), Event>,
    next: u64,
}

impl Schedule {
    pub(crate) fn at(&mut self, time_us: u64, event: Event) {
        self.events.insert((time_us, self.next), event);
        self.next += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.events.pop_first().map(|((time_us, _), event)| (time_us, event))
    }
}
