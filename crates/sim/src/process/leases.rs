//! The leader's clock of the leases.

use super::Process;
use crate::env::Env;
use crate::mutation::Mutation;
use crate::operation::Request;
use crate::trace::trace;
use api::Message;
use api::etcdserverpb::{InternalRaftRequest, LeaseRevokeRequest, RequestHeader};
use bytes::Bytes;
use replica::{Role, Status, Takeover};

/// Leases revoked in one turn.
const REVOKE_BATCH_MAX: usize = 16;
/// Leases that a new leader lets end in a second.
const EXPIRIES_PER_SECOND_MAX: usize = 3;
/// An expired lease is proposed again after this.
const REVOKE_RETRY_MS: u64 = 3_000;

impl Process {
    pub(super) fn change_leadership(&mut self, env: &mut Env, status: &Status) {
        let leads = status.role == Role::Leader;
        if leads == self.was_leader {
            return;
        }
        self.was_leader = leads;
        if leads {
            let leases = self.store.leases().list();
            let leases = leases.into_iter().map(|lease| (lease.id, lease.ttl, lease.remaining_ttl));
            let extension_ms = env.plan.tick_us * env.plan.election_ticks as u64 / 1000;
            let forgets = env.options.mutation == Some(Mutation::ForgetsRenewals);
            let now_ms = if forgets { 0 } else { env.now_us / 1000 };
            let extension_ms = if forgets { 0 } else { extension_ms };
            self.lessor.promote(leases, Takeover { extension_ms, per_second_max: EXPIRIES_PER_SECOND_MAX }, now_ms);
        } else {
            self.lessor.demote();
        }
    }

    pub(super) fn granted(&mut self, env: &Env, lease: i64, ttl_seconds: i64) {
        self.lessor.grant(lease, ttl_seconds, env.now_us / 1000);
    }

    pub(super) fn revoked(&mut self, lease: i64) {
        self.lessor.revoke(lease);
    }

    pub(super) fn revoke_expired(&mut self, env: &mut Env) {
        // What went on to the next leader could end a lease that is kept alive there.
        if !self.was_leader || self.member.status().role != Role::Leader {
            return;
        }
        for lease in self.lessor.expired(env.now_us / 1000, REVOKE_BATCH_MAX, REVOKE_RETRY_MS) {
            let id = env.request_id();
            let request = InternalRaftRequest {
                header: Some(RequestHeader { id, ..Default::default() }),
                lease_revoke: Some(LeaseRevokeRequest { id: lease }),
                ..Default::default()
            };
            trace!(env, "{} lets lease {lease} expire", self.host);
            let data: Bytes = request.encode_to_vec().into();
            env.history.begin(env.now_us, None, id, Request::Write(data.clone()));
            // Not taken while leadership is handed over: then it is the next leader's business.
            let _ = self.member.propose(vec![data]);
        }
    }
}
