//! Future events, in the order of the virtual clock.

use crate::operation::Answer;
use api::raftpb;
use disk::sim::Random;
use std::collections::BTreeMap;

/// An event that can happen next. Events with a `boot` are void once that process is gone.
#[derive(Debug)]
pub(crate) enum Event {
    /// A member's clock ticks.
    Tick { host: usize, boot: u64 },
    /// A member takes a turn of consensus.
    Turn { host: usize, boot: u64 },
    /// A message reaches a member, in any process of it that runs then.
    Deliver { from: u64, to: usize, message: Box<raftpb::Message> },
    /// The log's write and sync are done.
    LogDone { host: usize, boot: u64 },
    /// The apply thread starts the next batch.
    Apply { host: usize, boot: u64 },
    /// The thread of a captured checkpoint writes it.
    Checkpoint { host: usize, boot: u64 },
    /// Slices of compaction and rewriting, spare segments.
    Maintain { host: usize, boot: u64 },
    /// A piece of a snapshot arrives or is lost.
    Transfer { number: u64 },
    /// A client begins its next operation.
    Client { client: usize },
    /// A client that watches does something, and reads.
    Watch { client: usize },
    /// The administrator changes users and roles.
    Administer,
    /// The operator looks for alarms, and makes room.
    Operate,
    /// A disk is to fail.
    DiskFault { random: Random },
    /// A member's clock jumps ahead.
    ClockJump { random: Random },
    /// A request reaches a member.
    Request { host: usize, operation: usize },
    /// An answer reaches its client.
    Answered { operation: usize, answer: Box<Answer> },
    /// A client gives up waiting.
    GiveUp { operation: usize },
    /// A fault begins.
    Fault,
    /// The fault with this number ends.
    Heal { number: u64 },
    /// A stopped member is started.
    Start { host: usize },
    /// An observer looks at what it follows, and that at what the observer lacks.
    Observe { number: usize },
    /// A message reaches an observer on the stream with this number.
    Fed { number: usize, stream: u64, message: Box<raftpb::Message> },
    /// A removed member ends.
    Leave { host: usize, boot: u64 },
    /// A disk is copied, or the copy is put back.
    SetBack,
    /// A member whose log was lost is removed.
    RemoveLost,
    /// The final check is repeated.
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
