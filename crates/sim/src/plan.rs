//! The plan of a run: everything that the seed decides before the first step.

use crate::extras::Extras;
use crate::fault_kind::{KINDS, Kind};
use crate::mutation::Mutation;
use crate::watch_options;
use api::etcdserverpb::PutRequest;
use disk::sim::Random;

/// The options of a run besides its seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A mistake that every member makes.
    pub mutation: Option<Mutation>,
    /// Leaves out the checks inside the members: only clients and the final check find violations.
    pub clients_only: bool,
    /// Leaves out what only some runs have beside the plan (`extras`): a seed from before there was any of it means what it did.
    pub plain: bool,
    /// Sets a member back to an older copy of its directory, whatever the seed says, if there are enough others.
    pub sets_back: bool,
    /// Five founders, whatever the seed says, and changes of members that add two learners first.
    pub two_learners: bool,
    /// The number of observers, whatever the seed says.
    pub observers: Option<usize>,
    /// At least 500 operations, a minute of virtual time, ten faults of three kinds, a crash and a compaction. A seed means another run with it.
    pub long: bool,
}

/// Which members take turns while the log is being synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// None. Only the timer stands in for a leader whose disk has not answered for a heartbeat, as in the server.
    Inline,
    /// A leader that others follow, at once.
    ByTurn,
    /// All: as in a shell with a separate thread for the log.
    Threaded,
}

/// Sizes, speeds and faults of one run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) founders: usize,
    pub(crate) hosts_max: usize,
    pub(crate) clients: usize,
    pub(crate) operations: u64,
    pub(crate) keys: u64,
    pub(crate) value_bytes_max: u64,
    pub(crate) think_us: (u64, u64),
    pub(crate) tick_us: u64,
    pub(crate) election_ticks: usize,
    pub(crate) pre_vote: bool,
    pub(crate) delay_us: (u64, u64),
    pub(crate) ordered: bool,
    pub(crate) sync_us: (u64, u64),
    pub(crate) form: Form,
    /// How long the apply thread takes to start a batch; with 0, small batches are applied in place.
    pub(crate) apply_us: u64,
    pub(crate) catchup_entries: u64,
    pub(crate) checkpoint_entries: u64,
    pub(crate) wal_segment_bytes: u64,
    pub(crate) store_segment_bytes: u64,
    pub(crate) faults: u64,
    pub(crate) fault_gap_us: (u64, u64),
    /// Faults that this run may have, as indexes of [`crate::fault_kind::KINDS`].
    pub(crate) kinds: Vec<usize>,
    pub(crate) request_timeout_us: u64,
    /// The space quota of every member, or the least one where they differ.
    pub(crate) quota_bytes: Option<i64>,
    pub(crate) extras: Extras,
    /// Bounds of the members' watch machinery.
    pub(crate) watch: store::watch::Options,
}

impl Plan {
    pub(crate) fn draw(seed: u64, options: Options, random: &mut Random) -> Plan {
        let drawn = [1, 2, 3, 3, 3, 3, 4, 5, 5][random.below(9) as usize];
        let founders = if options.two_learners { 5 } else { drawn };
        let slow_network = random.chance(25);
        let kinds = crate::fault_kind::draw(random, founders);
        let mut extras = if options.plain { Extras::default() } else { Extras::draw(seed) };
        let drawn = match options.mutation {
            None if options.sets_back => 0,
            None => extras.observers,
            Some(mutation) => usize::from(mutation.is_about_observers()),
        };
        extras.observers = options.observers.unwrap_or(drawn);
        // Also wherever somebody wants to have observers.
        extras.applies_in_strides |= options.observers.is_some() || options.mutation.is_some();
        extras.applies_in_strides &= extras.observers > 0;
        extras.has_two_learners |= options.two_learners;
        let mut plan = Plan {
            seed,
            founders,
            hosts_max: if extras.has_two_learners { 7 } else { 5 },
            clients: 3 + random.below(6) as usize,
            operations: 300 + random.below(150),
            keys: 1 + random.below(8),
            value_bytes_max: [40, 40, 400, 4000][random.below(4) as usize],
            think_us: (0, [2_000, 20_000, 60_000][random.below(3) as usize]),
            tick_us: 100_000,
            election_ticks: 10,
            pre_vote: random.chance(75),
            delay_us: if slow_network { (5_000, 40_000) } else { (100, 1_500) },
            ordered: random.chance(60),
            sync_us: [(50, 200), (100, 3_000), (1_000, 20_000)][random.below(3) as usize],
            form: [Form::ByTurn, Form::ByTurn, Form::Inline, Form::Inline, Form::Inline, Form::Threaded]
                [random.below(6) as usize],
            apply_us: [0, 0, 500, 5_000, 50_000][random.below(5) as usize],
            catchup_entries: [0, 5, 20, 100][random.below(4) as usize],
            checkpoint_entries: 10 + random.below(90),
            wal_segment_bytes: [4, 16, 64][random.below(3) as usize] * 1024,
            store_segment_bytes: [16, 16, 64][random.below(3) as usize] * 1024,
            faults: 6 + random.below(10),
            fault_gap_us: (20_000, [300_000, 1_000_000, 2_500_000][random.below(3) as usize]),
            kinds,
            request_timeout_us: 3_000_000,
            quota_bytes: None,
            extras,
            watch: watch_options::draw(seed),
        };
        let largest = store::put_cost(&PutRequest::default()) + plan.value_bytes_max;
        plan.quota_bytes = plan.extras.quota_puts.map(|puts| (largest * puts) as i64);
        if options.two_learners {
            plan.have_one_of(&[Kind::Membership]);
        }
        if options.long {
            plan.lengthen();
        }
        plan
    }

    /// Adds a kind of fault, if the run has none of these.
    pub(crate) fn have_one_of(&mut self, kinds: &[Kind]) {
        if !self.kinds.iter().any(|kind| kinds.contains(&KINDS[*kind])) {
            let added = kinds[(self.seed % kinds.len() as u64) as usize];
            self.kinds.extend(KINDS.iter().position(|kind| *kind == added));
        }
    }

    /// Whether members may run out of space in this run: there is a quota, or disks are full for a moment.
    pub(crate) fn may_fill(&self) -> bool {
        self.quota_bytes.is_some() || (self.extras.disks_fail && self.extras.is_varied)
    }

    /// Whether this run has configuration changes.
    pub(crate) fn changes_members(&self) -> bool {
        self.kinds.iter().any(|kind| KINDS[*kind] == Kind::Membership)
    }

    /// Whether machines lose power in the middle of writes in this run.
    pub(crate) fn cuts_in_write(&self) -> bool {
        self.kinds.iter().any(|kind| KINDS[*kind] == Kind::PowerCutInWrite)
    }
}
