//! Runs of seeds: one, or many on all cores.

use crate::fault_kind::Kind;
use crate::happened::Happened;
use crate::history::Counts;
use crate::mutation::Mutation;
use crate::observers::ObserverCounts;
use crate::plan::Options;
use crate::trace::Trace;
use crate::watches::WatchCounts;
use crate::world::World;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The figures of a run without a violation.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Client operations.
    pub counts: Counts,
    /// What watches were sent, each response compared with the model.
    pub watches: WatchCounts,
    /// Entries about users and roles.
    pub user_changes: u64,
    /// Requests that were refused by permissions.
    pub denied: u64,
    /// Runs with a space quota.
    pub quotas: u64,
    /// Entries that an alarm for lack of space has refused.
    pub no_space: u64,
    /// Alarms that the operator has disarmed.
    pub disarmed: u64,
    /// What only some runs have.
    pub happened: Happened,
    /// Faults, by kind.
    pub faults: BTreeMap<Kind, u64>,
    /// Members of the run, including those that were removed.
    pub members: u64,
    /// Observers beside them.
    pub observers: ObserverCounts,
    /// Entries committed.
    pub entries: u64,
    /// Snapshots that were installed.
    pub installs: u64,
    /// Starts of processes after the first of each.
    pub restarts: u64,
    /// Starts that used a key file.
    pub key_file_starts: u64,
    /// Members that were set back to an older copy of their directory.
    pub set_back: u64,
    /// Members that ended because of that.
    pub ended_lost: u64,
    /// Members that ended because a heartbeat named a term other than that of the copy's entry at its commit index.
    pub ended_replaced: u64,
    /// Steps.
    pub events: u64,
    /// Virtual time.
    pub simulated_us: u64,
    /// Time from the repair of all faults to the first acknowledged write.
    pub recovery_us: u64,
}

/// A violation that a seed has found.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The violated rule, and the place of its check.
    pub message: String,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of runs from the terminal; they are reported as failures. Call once per process.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("a panic without words");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        PANIC.with(|last| *last.borrow_mut() = Some(format!("{message} ({place})")));
    }));
}

/// Runs one seed.
pub fn run(seed: u64, options: Options, trace: Trace) -> Result<Report, Failure> {
    Mutation::plant(options.mutation);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed, options, trace);
        world.run();
        world.report()
    }));
    Mutation::plant(None);
    outcome.map_err(|panic| {
        let noted = PANIC.with(|last| last.borrow_mut().take());
        let text = panic.downcast_ref::<String>().cloned().or(panic.downcast_ref::<&str>().map(ToString::to_string));
        Failure { seed, message: noted.or(text).unwrap_or_default() }
    })
}

impl World {
    fn report(&self) -> Report {
        let counts = self.env.history.counts;
        let faults = self.faults.counts.clone();
        let total: u64 = faults.values().sum();
        assert!(counts.begun >= 300 && total >= 5 && faults.len() >= 2, "too little happened: {counts:?} {faults:?}");
        assert!(!self.env.options.long || self.is_long(), "too little for a long run: {counts:?} {faults:?}");
        let (set_back, ended_lost, ended_replaced) = self.set_back_outcome();
        Report {
            set_back,
            ended_lost,
            ended_replaced,
            counts,
            watches: self.watches.counts,
            user_changes: self.env.history.model().user_changes(),
            denied: self.env.history.model().denied(),
            quotas: u64::from(self.env.plan.quota_bytes.is_some()),
            no_space: self.env.history.model().no_space(),
            disarmed: self.operator.disarmed,
            happened: Happened {
                compactions: self.env.history.model().compactions(),
                full_houses: u64::from(self.env.ledger.had_members(5, 2)),
                ..self.env.happened
            },
            faults,
            members: (self.hosts.len() - self.env.plan.extras.observers) as u64,
            observers: self.observers.counts,
            entries: self.env.ledger.last_committed(),
            installs: self.installs(),
            restarts: self.restarts(),
            key_file_starts: self.hosts.iter().map(|host| host.key_file_starts).sum(),
            events: self.events,
            simulated_us: self.env.now_us,
            recovery_us: self.finale.first_write_us.unwrap_or_default(),
        }
    }
}

impl Report {
    /// Adds another run's figures.
    pub fn add(&mut self, other: &Report) {
        let (mine, more) = (&mut self.counts, &other.counts);
        mine.begun += more.begun;
        mine.done += more.done;
        mine.refused += more.refused;
        mine.unknown += more.unknown;
        mine.reads += more.reads;
        mine.writes += more.writes;
        self.watches.add(&other.watches);
        self.user_changes += other.user_changes;
        self.denied += other.denied;
        self.quotas += other.quotas;
        self.no_space += other.no_space;
        self.disarmed += other.disarmed;
        self.happened.add(&other.happened);
        for (kind, count) in &other.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
        self.members += other.members;
        self.observers.add(&other.observers);
        self.entries += other.entries;
        self.installs += other.installs;
        self.restarts += other.restarts;
        self.key_file_starts += other.key_file_starts;
        self.set_back += other.set_back;
        self.ended_lost += other.ended_lost;
        self.ended_replaced += other.ended_replaced;
        self.events += other.events;
        self.simulated_us += other.simulated_us;
        self.recovery_us = self.recovery_us.max(other.recovery_us);
    }
}
