//! The consensus thread, request threads that take turns themselves, and the timer that stands in.
//!
//! Whatever the schedule, proposals reach the log once, in the order in which the core took them, and are answered once, after that; reads
//! are answered once, by a thread that holds nothing; and nobody waits for ever for an answer.

use super::join;
use crate::mistake::Mistake;
use crate::sync::{Condvar, Mutex, lock};
use crate::{Consensus, Core, Inbox, Shell, StandIn};
use schedules::sync::atomic::{AtomicBool, Ordering};
use schedules::{explore, finds, roll, thread};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

const REQUEST_THREADS: u64 = 2;
const REQUESTS: u64 = 2;
const STAND_INS: usize = 3;

/// Answers that requests have got.
#[derive(Default)]
struct Answers {
    /// One bit for each request.
    given: Mutex<u64>,
    more: Condvar,
}

impl Answers {
    fn give(&self, request: u64) {
        let mut given = lock(&self.given);
        assert_eq!(*given & (1 << request), 0, "request {request} is answered twice");
        *given |= 1 << request;
        self.more.notify_all();
    }

    fn wait(&self, request: u64) {
        let mut given = lock(&self.given);
        while *given & (1 << request) == 0 {
            given = self.more.wait(given).unwrap();
        }
    }
}

#[derive(Default)]
struct Arrived {
    proposals: Vec<u64>,
    reads: Vec<u64>,
    stop: bool,
}

/// Entries with their requests.
struct Batch {
    entries: Vec<(u64, u64)>,
    must_sync: bool,
}

/// A sole voter: what is in its log is committed.
struct Sole {
    around: Arc<Around>,
    last_index: u64,
    unsynced: Vec<(u64, u64)>,
    reads: Vec<u64>,
    is_syncing: bool,
    stop: bool,
}

/// What the core, the shell and the test share.
#[derive(Default)]
struct Around {
    inbox: Inbox<Arrived>,
    answers: Answers,
    /// The requests, by index.
    log: Mutex<Vec<u64>>,
    consensus: OnceLock<Weak<Consensus<Member>>>,
    /// The consensus thread answers reads, for longer than a heartbeat.
    is_reading: AtomicBool,
    /// Its deadline is over then, until its next turn.
    is_late: AtomicBool,
}

struct Member(Arc<Around>);

/// A read, which must not run while its thread holds anything.
struct Read(Arc<Around>, u64);

impl Core for Sole {
    type Arrived = Arrived;
    type Batch = Batch;
    type Read = Read;

    fn begin(&mut self) {}

    fn accept(&mut self, arrived: Arrived) {
        for request in arrived.proposals {
            self.last_index += 1;
            self.unsynced.push((self.last_index, request));
        }
        self.reads.extend(arrived.reads);
        self.stop |= arrived.stop;
    }

    fn tick_if_due(&mut self) {}

    fn advance(&mut self) {}

    fn take_log_batch(&mut self) -> Option<Batch> {
        let entries = std::mem::take(&mut self.unsynced);
        let must_sync = roll(4) > 0;
        self.is_syncing = must_sync && !entries.is_empty();
        (!entries.is_empty()).then_some(Batch { entries, must_sync })
    }

    fn must_sync(batch: &Batch) -> bool {
        batch.must_sync
    }

    fn persisted(&mut self, batch: Batch) {
        self.is_syncing = false;
        for (index, request) in batch.entries {
            assert_eq!(lock(&self.around.log).get(index as usize - 1), Some(&request), "an answer before the log");
            self.around.answers.give(request);
        }
    }

    fn settle(&mut self) -> Vec<Read> {
        std::mem::take(&mut self.reads).into_iter().map(|request| Read(self.around.clone(), request)).collect()
    }

    fn stand_in(&mut self, arrived: Arrived) -> Vec<Read> {
        self.accept(arrived);
        self.settle()
    }

    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    fn is_stopping(&self) -> bool {
        self.stop
    }

    fn end(&mut self) {
        assert!(self.unsynced.is_empty() && self.reads.is_empty());
    }
}

impl Shell for Member {
    type Core = Sole;

    fn take(&self, deadline: Instant) -> Arrived {
        let is_late = self.0.is_late.load(Ordering::SeqCst);
        self.0.inbox.take(if is_late { Instant::now() } else { deadline }, std::mem::take)
    }

    fn write(&self, batch: &Batch) {
        for (index, request) in &batch.entries {
            thread::yield_now();
            let mut log = lock(&self.0.log);
            assert_eq!(log.len() as u64 + 1, *index, "the log has its entries in order");
            log.push(*request);
        }
    }

    fn is_disk_quick(&self) -> bool {
        roll(8) > 0
    }

    fn nudge(&self) {
        self.0.inbox.push(|_| ());
    }

    fn turn_begins(&self) {
        self.0.is_late.store(false, Ordering::SeqCst);
    }

    fn turn_ends(&self, _core: &mut Sole) {}

    fn answer_some(&self, reads: &mut VecDeque<Read>) {
        let is_long = roll(2) == 0;
        self.0.is_reading.store(is_long, Ordering::SeqCst);
        self.0.is_late.store(is_long, Ordering::SeqCst);
        for _ in 0..=roll(2) {
            let Some(read) = reads.pop_front() else { break };
            Member::answer(read);
        }
        self.0.is_reading.store(false, Ordering::SeqCst);
    }

    fn answer(Read(around, request): Read) {
        if let Some(consensus) = around.consensus.get().and_then(Weak::upgrade) {
            // Who held it would wait for itself.
            drop(lock(&consensus.core));
        }
        around.answers.give(request);
    }

    fn look(&self, core: &mut Sole) -> StandIn {
        match core.is_syncing || self.0.is_reading.load(Ordering::SeqCst) {
            true if roll(8) == 0 => StandIn::KeepTime,
            true => StandIn::TakeTurn,
            false => StandIn::No,
        }
    }

    fn keep_queued_in_time(&self) {
        let late = self.0.inbox.with(|arrived| std::mem::take(&mut arrived.reads));
        late.into_iter().for_each(|request| self.0.answers.give(request));
    }
}

/// A request thread: each request is a proposal or a read, and the next comes when it is answered.
fn ask(consensus: &Consensus<Member>, around: &Around, requests: std::ops::Range<u64>) {
    for request in requests {
        if roll(3) == 0 {
            around.inbox.push(|arrived| arrived.reads.push(request));
        } else {
            let arrive = |request| Arrived { proposals: vec![request], ..Arrived::default() };
            if let Some(request) = consensus.turn_for(request, arrive) {
                around.inbox.push(|arrived| arrived.proposals.push(request));
            }
        }
        around.answers.wait(request);
    }
}

fn turns_of_many() {
    let around = Arc::new(Around::default());
    let core = Sole {
        around: around.clone(),
        last_index: 0,
        unsynced: Vec::new(),
        reads: Vec::new(),
        is_syncing: false,
        stop: false,
    };
    let consensus = Arc::new(Consensus::new(Member(around.clone()), core));
    let _ = around.consensus.set(Arc::downgrade(&consensus));
    let own = consensus.clone();
    let runs = thread::spawn(move || own.run());
    let threads = (0..REQUEST_THREADS).map(|number| {
        let (consensus, around) = (consensus.clone(), around.clone());
        thread::spawn(move || ask(&consensus, &around, number * REQUESTS..(number + 1) * REQUESTS))
    });
    let mut threads: Vec<_> = threads.collect();
    let own = consensus.clone();
    threads.push(thread::spawn(move || (0..STAND_INS).for_each(|_| own.stand_in())));
    join(threads);
    around.inbox.push(|arrived| arrived.stop = true);
    runs.join().unwrap();
    assert_eq!(*lock(&around.answers.given), (1 << (REQUEST_THREADS * REQUESTS)) - 1);
}

#[test]
fn everything_is_answered_once_and_after_the_log() {
    explore(turns_of_many);
}

#[test]
fn planted_races_are_found() {
    let mistakes = [
        Mistake::ReaderSleepsAfterLook,
        Mistake::TakerWakesReader,
        Mistake::LeavesTurnBeforeLog,
        Mistake::ForgetsStandIn,
    ];
    for mistake in mistakes {
        finds(mistake as u8, turns_of_many);
    }
}
