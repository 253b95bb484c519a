//! What the consensus thread owns: the replica, and the process around it.
//!
//! It is behind a lock only because, while the consensus thread waits for the disk, the timer thread may have to stand in for it.
//! Nothing here waits for the log's disk, and no read is evaluated here.

use super::Node;
use super::apply::Apply;
use super::host::Host;
use super::inbox::{Arrived, Inputs, InstallAnswer, Read, Released};
use crate::overload::Class;
use api::{limits, raftpb};
use replica::{LogBatch, Member, Now, Replica, Stall};
use std::sync::Arc;
use std::time::Instant;

/// Applied entries that gather in memory before the replica trims them.
const TRIM_ENTRIES: u64 = 100;

pub(super) struct Core {
    replica: Replica<InstallAnswer>,
    host: Host,
    pub(super) release: Option<Released>,
    stop: bool,
}

impl Core {
    pub(super) fn new(node: Arc<Node>, raft: Member, apply: Apply) -> Self {
        let config = &node.config;
        let advances = config.pre_vote && config.election_tick_advance;
        let options = replica::Options {
            heartbeat: config.heartbeat,
            election_timeout: config.election_timeout,
            // The remaining ticks are enough to hear from an existing leader, and pre-vote keeps an early campaign from
            // disturbing it.
            election_head_start_ticks: if advances { config.election_ticks().saturating_sub(2) } else { 0 },
            catchup_entries: config.catchup_entries,
            trim_entries: TRIM_ENTRIES.min(config.snapshot_count),
            keeps_for_active: !config.catchup_is_given,
            log_bytes_max: limits::LOG_MEMORY_BYTES_MAX,
            log_sending_bytes_max: limits::LOG_MEMORY_SENDING_BYTES_MAX,
            reads_max: config.queues.of(Class::Read),
            lease_ends_max: limits::LEASE_ENDS_MAX,
            lease_ends_at_once: limits::LEASE_ENDS_AT_ONCE,
            lease_expiries_per_second_max: limits::LEASE_EXPIRIES_PER_SECOND_MAX,
            lease_takeover_piece_max: limits::LEASE_TAKEOVER_PIECE_MAX,
        };
        let replica = Replica::new(raft, options, node.clock.now());
        Core { replica, host: Host::new(node, apply), release: None, stop: false }
    }

    fn now(&self) -> Now {
        self.host.node.clock.now()
    }

    /// Handles the arrivals that are not for the replica, and returns those that are.
    fn take_rest(&mut self, arrived: Arrived) -> Inputs {
        let Arrived { inputs, progress, release_below, stop } = arrived;
        self.stop |= stop;
        for answer in progress {
            answer(self.replica.raft().progress());
        }
        if release_below.is_some() {
            self.release = release_below;
        }
        inputs
    }

    /// What the timer must do while the log is being synced.
    pub(super) fn stall(&self) -> Stall {
        self.replica.stall(self.now())
    }

    /// The Raft core, to be read.
    pub(super) fn raft(&self) -> &Member {
        self.replica.raft()
    }

    /// Whether others follow this member.
    pub(super) fn leads_others(&self) -> bool {
        self.replica.leads_others()
    }

    /// Ends the requests of clients in time while this member waits for the disk.
    pub(super) fn keep_time(&mut self, inputs: Inputs) {
        let now = self.now();
        self.replica.keep_time(&mut self.host, inputs, now);
    }

    /// Updates whose reports of headroom count, and releases the reservations that are settled.
    fn look_at_headroom(&self, now_ms: u64) {
        let (node, raft) = (&self.host.node, self.replica.raft());
        let conf_state: &raftpb::ConfState = raft.conf_state();
        let is_member = |id: u64| conf_state.voters.contains(&id) || conf_state.learners.contains(&id);
        let members = (conf_state.voters.len() + conf_state.learners.len()) as u64;
        let patience_ms = 2 * node.config.election_timeout.as_millis() as u64;
        node.headroom.look_around(members, is_member, now_ms.saturating_sub(patience_ms));
        let retry_ms = (raft.status().leader == 0).then_some(patience_ms);
        node.headroom.release(raft.last_index(), node.status.applied(), now_ms, retry_ms);
    }
}

impl handover::Core for Core {
    type Arrived = Arrived;
    type Batch = LogBatch;
    type Read = Read;

    fn begin(&mut self) {
        let now = self.now();
        self.replica.begin(&mut self.host, now);
    }

    fn accept(&mut self, arrived: Arrived) {
        let now = self.now();
        let inputs = self.take_rest(arrived);
        self.replica.accept(&mut self.host, inputs, now);
    }

    fn tick_if_due(&mut self) {
        let now = self.now();
        if self.replica.tick_if_due(&mut self.host, now) {
            self.look_at_headroom(now.ms);
            self.host.apply.tick();
        }
    }

    fn advance(&mut self) {
        let now = self.now();
        let Ok(()) = self.replica.advance(&mut self.host, now);
    }

    fn take_log_batch(&mut self) -> Option<LogBatch> {
        let now = self.now();
        let batch = self.replica.take_log_batch(now);
        (!batch.is_empty()).then_some(batch)
    }

    fn must_sync(batch: &LogBatch) -> bool {
        batch.must_sync()
    }

    fn persisted(&mut self, batch: LogBatch) {
        self.replica.persisted(&mut self.host, batch);
    }

    fn settle(&mut self) -> Vec<Read> {
        let now = self.now();
        self.replica.settle(&mut self.host, now)
    }

    fn stand_in(&mut self, arrived: Arrived) -> Vec<Read> {
        let now = self.now();
        let inputs = self.take_rest(arrived);
        let Ok(ticked) = self.replica.stand_in(&mut self.host, inputs, now);
        if ticked {
            self.look_at_headroom(now.ms);
        }
        self.settle()
    }

    fn deadline(&self) -> Instant {
        self.host.node.clock.at(self.replica.deadline())
    }

    fn is_stopping(&self) -> bool {
        self.stop
    }

    /// Ends applying and answers everyone who still waits.
    fn end(&mut self) {
        self.host.apply.stop();
        self.replica.end(&mut self.host);
    }
}
