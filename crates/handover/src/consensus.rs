//! Whose turn of consensus it is. What a turn decides, and in which order, is the crate `replica`'s.
//!
//! The consensus thread takes turns ([`Consensus::run`]). A request thread that has nothing else to do takes one itself
//! ([`Consensus::turn_for`]). While whoever has the turn waits for the disk of the log, it holds the turn but not the core; if that takes
//! long, the timer does a leader's work in its place ([`Consensus::stand_in`]), and what that brings for the log is written in the turn
//! under way. Reads run when nothing is locked.

use crate::mistake::Mistake;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, lock, try_lock};
use std::collections::VecDeque;
use std::time::Instant;

/// What decides: used by one thread at a time, and never while the disk of the log is waited for.
pub trait Core {
    /// What has arrived for it.
    type Arrived;
    /// What is to be written to the log.
    type Batch;
    /// A read that waits for its answer.
    type Read;

    /// Before the first turn.
    fn begin(&mut self);
    /// Takes in what has arrived.
    fn accept(&mut self, arrived: Self::Arrived);
    /// Does what the clock brings.
    fn tick_if_due(&mut self);
    /// Does all the work there is but that of the disk.
    fn advance(&mut self);
    /// What is to be written to the log, if anything is.
    fn take_log_batch(&mut self) -> Option<Self::Batch>;
    /// Whether writing it waits for the disk.
    fn must_sync(batch: &Self::Batch) -> bool;
    /// It is in the log.
    fn persisted(&mut self, batch: Self::Batch);
    /// Ends a turn; the reads that may be answered.
    #[must_use]
    fn settle(&mut self) -> Vec<Self::Read>;
    /// A turn without the log: while that waits for the disk, or the consensus thread answers reads.
    #[must_use]
    fn stand_in(&mut self, arrived: Self::Arrived) -> Vec<Self::Read>;
    /// When there is something to do even if nothing arrives.
    fn deadline(&self) -> Instant;
    /// Whether it was told to end.
    fn is_stopping(&self) -> bool;
    /// After the last turn.
    fn end(&mut self);
}

/// What is around the core.
pub trait Shell {
    /// The core.
    type Core: Core;

    /// Takes what has arrived, waiting until `deadline` if that is nothing.
    fn take(&self, deadline: Instant) -> <Self::Core as Core>::Arrived;
    /// Writes to the log, and waits for the disk if that must be. Called by who has the turn.
    fn write(&self, batch: &<Self::Core as Core>::Batch);
    /// Whether a request thread may wait for the disk.
    fn is_disk_quick(&self) -> bool;
    /// Ends the wait of [`Shell::take`]: there is something to do earlier than at the deadline it was given.
    fn nudge(&self);
    /// The consensus thread has the turn.
    fn turn_begins(&self);
    /// The consensus thread's turn ends.
    fn turn_ends(&self, core: &mut Self::Core);
    /// Answers reads on the consensus thread, some at least.
    fn answer_some(&self, reads: &mut VecDeque<<Self::Core as Core>::Read>);
    /// Answers a read.
    fn answer(read: <Self::Core as Core>::Read);
    /// What the timer has to do in place of who has the turn. The core is free, so that one waits for the disk or answers reads.
    fn look(&self, core: &mut Self::Core) -> StandIn;
    /// Nobody takes what arrives: its time goes on.
    fn keep_queued_in_time(&self);
}

/// What the timer does in the consensus thread's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandIn {
    /// Nothing.
    No,
    /// It sees to it that what is queued ends in time.
    KeepTime,
    /// It takes a turn without the log.
    TakeTurn,
}

/// The core, and whose turn it is.
pub struct Consensus<S: Shell> {
    shell: S,
    /// Held for a whole turn, so that work reaches the log in the order in which it was made. The consensus thread gives it away while
    /// it waits for something to arrive.
    turn: Mutex<()>,
    /// The consensus thread waits for `turn`; request threads leave it alone meanwhile, so that they cannot starve it.
    is_wanted: AtomicBool,
    pub(crate) core: Mutex<S::Core>,
}

impl<S: Shell> Consensus<S> {
    /// Consensus that nobody has a turn of.
    pub fn new(shell: S, core: S::Core) -> Consensus<S> {
        Consensus { shell, turn: Mutex::new(()), is_wanted: AtomicBool::new(false), core: Mutex::new(core) }
    }

    /// What is around the core.
    pub fn shell(&self) -> &S {
        &self.shell
    }

    /// Looks at the core, which no thread keeps for long.
    pub fn look<T>(&self, look: impl FnOnce(&S::Core) -> T) -> T {
        look(&lock(&self.core))
    }

    /// The consensus thread: runs until the core is told to end.
    pub fn run(&self) {
        let mut turn = lock(&self.turn);
        let (mut core, reads) = self.drain(lock(&self.core));
        reads.into_iter().for_each(S::answer);
        core.begin();
        let mut waiting = VecDeque::new();
        loop {
            let (mut drained, reads) = self.drain(core);
            waiting.extend(reads);
            self.shell.turn_ends(&mut drained);
            if drained.is_stopping() {
                core = drained;
                waiting.into_iter().for_each(S::answer);
                break;
            }
            let deadline = drained.deadline();
            drop(drained);
            drop(turn);
            if !waiting.is_empty() {
                self.shell.answer_some(&mut waiting);
            }
            let deadline = if waiting.is_empty() { deadline } else { Instant::now() };
            let arrived = self.shell.take(deadline);
            self.is_wanted.store(true, Ordering::Relaxed);
            turn = lock(&self.turn);
            self.is_wanted.store(false, Ordering::Relaxed);
            self.shell.turn_begins();
            core = lock(&self.core);
            core.accept(arrived);
            core.tick_if_due();
        }
        core.end();
    }

    /// Takes a turn on the caller's thread for `arrival`, which `arrive` makes an arrival of, if nobody else has the turn and the disk
    /// is quick. Otherwise gives it back.
    pub fn turn_for<P>(&self, arrival: P, arrive: impl FnOnce(P) -> <S::Core as Core>::Arrived) -> Option<P> {
        if !self.shell.is_disk_quick() || self.is_wanted.load(Ordering::Relaxed) {
            return Some(arrival);
        }
        let mut turn = try_lock(&self.turn);
        if turn.is_none() {
            return Some(arrival);
        }
        let mut core = lock(&self.core);
        if core.is_stopping() {
            return Some(arrival);
        }
        // Until then the consensus thread waits, or less.
        let deadline = core.deadline();
        core.accept(arrive(arrival));
        if Mistake::LeavesTurnBeforeLog.is_planted() {
            turn = None;
        }
        let (core, reads) = self.drain(core);
        let is_sooner = core.deadline() < deadline;
        drop(core);
        drop(turn);
        if is_sooner {
            self.shell.nudge();
        }
        reads.into_iter().for_each(S::answer);
        None
    }

    /// Does all the work there is; gives back the reads that may be answered, for when nothing is locked. Only for who has the turn.
    fn drain<'a>(
        &'a self,
        mut core: MutexGuard<'a, S::Core>,
    ) -> (MutexGuard<'a, S::Core>, Vec<<S::Core as Core>::Read>) {
        loop {
            core.advance();
            let Some(batch) = core.take_log_batch() else { break };
            if S::Core::must_sync(&batch) {
                drop(core);
                self.shell.write(&batch);
                core = lock(&self.core);
            } else {
                self.shell.write(&batch);
            }
            core.persisted(batch);
            if Mistake::ForgetsStandIn.is_planted() {
                break;
            }
        }
        let reads = core.settle();
        (core, reads)
    }

    /// Takes a turn for the consensus thread if the shell finds that it must be. Never waits.
    pub fn stand_in(&self) {
        // Held for long by who is stuck within a turn, in the store most likely.
        let Some(mut core) = try_lock(&self.core) else { return self.shell.keep_queued_in_time() };
        match self.shell.look(&mut core) {
            StandIn::No => {}
            StandIn::KeepTime => {
                drop(core);
                self.shell.keep_queued_in_time();
            }
            StandIn::TakeTurn => {
                let arrived = self.shell.take(Instant::now());
                let reads = core.stand_in(arrived);
                drop(core);
                reads.into_iter().for_each(S::answer);
            }
        }
    }
}

#[cfg(all(test, not(feature = "schedules")))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    /// A core with something to do at a time, which each arrival sets.
    struct Timed(Instant);

    /// Counts how often its thread was woken.
    #[derive(Default)]
    struct Around {
        nudges: Mutex<u32>,
    }

    impl Core for Timed {
        type Arrived = Instant;
        type Batch = ();
        type Read = ();

        fn begin(&mut self) {}
        fn accept(&mut self, arrived: Instant) {
            self.0 = arrived;
        }
        fn tick_if_due(&mut self) {}
        fn advance(&mut self) {}
        fn take_log_batch(&mut self) -> Option<()> {
            None
        }
        fn must_sync((): &()) -> bool {
            false
        }
        fn persisted(&mut self, (): ()) {}
        fn settle(&mut self) -> Vec<()> {
            Vec::new()
        }
        fn stand_in(&mut self, _arrived: Instant) -> Vec<()> {
            Vec::new()
        }
        fn deadline(&self) -> Instant {
            self.0
        }
        fn is_stopping(&self) -> bool {
            false
        }
        fn end(&mut self) {}
    }

    impl Shell for Arc<Around> {
        type Core = Timed;

        fn take(&self, deadline: Instant) -> Instant {
            deadline
        }
        fn write(&self, (): &()) {}
        fn is_disk_quick(&self) -> bool {
            true
        }
        fn nudge(&self) {
            *lock(&self.nudges) += 1;
        }
        fn turn_begins(&self) {}
        fn turn_ends(&self, _core: &mut Timed) {}
        fn answer_some(&self, reads: &mut VecDeque<()>) {
            reads.clear();
        }
        fn answer((): ()) {}
        fn look(&self, _core: &mut Timed) -> StandIn {
            StandIn::No
        }
        fn keep_queued_in_time(&self) {}
    }

    #[test]
    fn the_consensus_thread_is_woken_for_what_is_due_sooner_than_it_knows() {
        let around = Arc::new(Around::default());
        let now = Instant::now();
        let consensus = Consensus::new(around.clone(), Timed(now + Duration::from_secs(10)));
        for (seconds, nudges) in [(11, 0), (5, 1), (5, 1), (8, 1), (7, 2)] {
            assert_eq!(consensus.turn_for(now + Duration::from_secs(seconds), |at| at), None);
            assert_eq!(*lock(&around.nudges), nudges, "due in {seconds} s");
        }
    }
}
