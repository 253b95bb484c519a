//! Lease checkpoints, as the server writes them: the leader puts the remaining time of leases into the log, and takes it back before a
//! renewal is answered.

use super::machine::{Machine, Waiter};
use crate::env::Env;
use crate::operation::{Answer, Request};
use crate::trace::trace;
use api::Message;
use api::etcdserverpb::{InternalRaftRequest, LeaseCheckpoint, LeaseCheckpointRequest};
use bytes::Bytes;
use replica::{Proposal, Role};

/// Time between two checkpoints; the server has minutes.
const EVERY_US: u64 = 700_000;

/// A renewal that waits for its lease's checkpoint to be taken back.
pub(crate) struct Renewal {
    pub(super) operation: usize,
    pub(super) lease: i64,
    pub(super) ttl_seconds: i64,
}

impl Machine {
    /// Proposes a checkpoint if one is due, in this term only: a later leader may have renewed leases without this member's knowledge.
    pub(super) fn checkpoint_leases(&mut self, env: &mut Env) {
        let is_due = env.now_us >= self.checkpointed_us + EVERY_US;
        let leads = self.published.role == Role::Leader && self.lessor.is_primary();
        if !env.plan.extras.checkpoints_leases || !is_due || !leads {
            return;
        }
        self.checkpointed_us = env.now_us;
        let mut long = self.lessor.long_leases(1);
        // They come in the order of a map, which is another in each run; the trace and the entry must not be.
        long.sort_unstable();
        let left = self.lessor.note(&long, self.clock.now_ms(env));
        let checkpoints: Vec<LeaseCheckpoint> =
            left.into_iter().map(|(id, remaining_ttl)| LeaseCheckpoint { id, remaining_ttl }).collect();
        if !checkpoints.is_empty() {
            trace!(env, "{} writes lease checkpoints {checkpoints:?}", self.host);
            env.happened.lease_checkpoints += checkpoints.len() as u64;
            self.propose_checkpoints(env, checkpoints);
        }
    }

    /// Whether a checkpoint of the lease is in effect or on its way.
    pub(super) fn is_noted(&self, lease: i64) -> bool {
        let granted = self.store.leases().get(lease);
        self.lessor.noted(lease).is_some() || granted.is_some_and(|granted| granted.remaining_ttl > 0)
    }

    /// Takes the checkpoint of a renewed lease back, by an entry behind it. The client is answered when that is applied, and in no other
    /// case: it gives up.
    pub(super) fn forget_checkpoint(&mut self, env: &mut Env, renewal: Renewal) {
        let noted = self.lessor.noted(renewal.lease);
        let id = self.propose_checkpoints(env, vec![LeaseCheckpoint { id: renewal.lease, remaining_ttl: 0 }]);
        self.taken_back.insert(id, (renewal, noted));
    }

    /// Notes that an entry was applied, which may have taken a checkpoint back.
    pub(super) fn forgotten(&mut self, env: &mut Env, request_id: u64) {
        let Some((Renewal { operation, lease, ttl_seconds }, noted)) = self.taken_back.remove(&request_id) else {
            return;
        };
        if let Some(number) = noted {
            self.lessor.forgotten(lease, number);
        }
        env.happened.lease_checkpoints_taken_back += 1;
        env.answer(operation, Answer::Renewed { lease, ttl_seconds });
    }

    fn propose_checkpoints(&mut self, env: &mut Env, checkpoints: Vec<LeaseCheckpoint>) -> u64 {
        let id = env.request_id();
        let request = InternalRaftRequest {
            header: Some(self.as_member(id)),
            lease_checkpoint: Some(LeaseCheckpointRequest { checkpoints }),
            ..Default::default()
        };
        let data: Bytes = request.encode_to_vec().into();
        let operation = env.history.begin(env.now_us, None, id, Request::Write(data.clone()));
        let term = Some(self.published.term);
        env.ledger.proposes(id, self.published.term);
        self.inputs.urgent.push(Proposal { id, data, waiter: Waiter::new(operation), term });
        id
    }
}
