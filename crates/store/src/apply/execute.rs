//! What each command does to the store.

use super::answer::{Fatal, Outcome, Response, Sink, header};
use super::applier::Applier;
use super::command::Command;
use super::quota;
use super::txn::newest_revision_named;
use crate::log::write;
use crate::mistake::Mistake;
use crate::read::read_revision;
use crate::state::Lease;
use crate::state::auth::{Ask, AuthEvent, Author, Change as AuthChange};
use api::Error;
use api::etcdserverpb::*;
use api::limits::TXN_ANSWER_BYTES_MAX;

impl Applier {
    /// Applies one request. What it answers is an error of the request; only the log can fail the store.
    pub(super) fn command(
        &mut self,
        (index, request_id): (u64, u64),
        author: &Author,
        command: Command,
        sink: &mut dyn Sink,
    ) -> Result<Result<Response, Error>, Fatal> {
        if self.corrupt && is_refused_when_corrupt(&command) {
            return Ok(Err(Error::Corrupt));
        }
        self.answer_bytes = 0;
        self.is_awaited = !shows_pairs(&command) || sink.is_awaited(request_id);
        let cost = cost(&command);
        if self.no_space && cost > 0 {
            return Ok(Err(Error::NoSpace));
        }
        if let Err(error) = self.permit(author, &command) {
            return Ok(Err(error));
        }
        // Members differ in what they have left. So the entry is applied, and only the replicated alarm refuses the next ones.
        let over = self.store.over_quota(if cost > 0 { cost + self.log.pending_bytes() } else { 0 });
        if over && Mistake::OverQuotaIsNotApplied.is_planted() {
            return Ok(Err(Error::NoSpace));
        }
        let result = match command {
            Command::Put(request) => self.put(request).map(Response::Put),
            Command::DeleteRange(request) => {
                let response = self.measured(|applier| applier.delete_range(&request));
                self.check_answer().map(|()| Response::DeleteRange(response))
            }
            Command::Txn(request) => {
                if newest_revision_named(&request) > self.store.revision() {
                    self.commit(sink)?;
                }
                self.measured(|applier| applier.txn(request))?.map(Response::Txn)
            }
            Command::Range(request) => self.logged_range(&request, sink)?.map(Response::Range),
            Command::Compaction(request) => self.compact(request.revision).map(Response::Compaction),
            Command::LeaseGrant { request, ttl_is_final } => {
                self.grant(&request, ttl_is_final).map(Response::LeaseGrant)
            }
            Command::LeaseRevoke(request) => {
                self.revoke(request.id).map(|response| Response::LeaseRevoke(request.id, response))
            }
            Command::LeaseCheckpoint(request) => {
                for lease in &request.checkpoints {
                    self.store.leases.checkpoint(lease.id, lease.remaining_ttl);
                }
                Ok(Response::LeaseCheckpoint(LeaseCheckpointResponse { header: header(self.revision) }))
            }
            Command::Alarm(request) => {
                let mut response = write(&self.store.alarms).apply(&request);
                self.note_alarms();
                response.header = header(self.revision);
                Ok(Response::Alarm(response))
            }
            Command::ClusterVersion(request) => {
                write(&self.store.members).cluster_version = request.ver;
                Ok(Response::None)
            }
            Command::MemberAttributes(request) => {
                write(&self.store.members).set_attributes(request);
                Ok(Response::None)
            }
            Command::Downgrade(request) => {
                write(&self.store.members).set_downgrade(request);
                Ok(Response::None)
            }
            Command::Auth(change) => self.store.auth.change(index, change).map(|event| self.changed_auth(event)),
            Command::Other => Ok(Response::None),
        };
        self.counts.end_step();
        self.stride_answer_bytes += self.answer_bytes.min(TXN_ANSWER_BYTES_MAX);
        match result {
            Ok(response) if over => {
                self.outcomes.push(Outcome::OverQuota(response));
                Ok(Err(Error::NoSpace))
            }
            result => Ok(result),
        }
    }

    /// Does what may take long, and notes how long it took, where that is to be told.
    fn measured<T>(&mut self, work: impl FnOnce(&mut Applier) -> T) -> T {
        let Some(thread_time) = self.store.options.thread_time else { return work(self) };
        let since = thread_time();
        let done = work(self);
        self.worked = Some(thread_time().saturating_sub(since));
        done
    }

    /// Whether the author of an entry may have what it asks for. Asked before it was proposed too, but users and permissions may
    /// have changed since. This is exactly what etcd's members ask when they apply an entry: members of both kinds apply one log.
    fn permit(&self, author: &Author, command: &Command) -> Result<(), Error> {
        if !self.store.auth.is_enabled() {
            return Ok(());
        }
        let ask = match command {
            Command::Range(request) => Ask::Range(request),
            Command::Put(request) => Ask::Put(request),
            Command::DeleteRange(request) => Ask::DeleteRange(request),
            Command::Txn(request) => Ask::Txn(request),
            Command::LeaseRevoke(_) if Mistake::RevokeAsksNobody.is_planted() => return Ok(()),
            Command::LeaseRevoke(request) => Ask::Lease(request.id),
            // Its password was checked under this revision. etcd's members do not write one.
            Command::Auth(AuthChange::Authenticate(_))
                if author.revision != 0 && author.revision < self.store.auth.revision() =>
            {
                return Err(Error::AuthOldRevision);
            }
            Command::Auth(AuthChange::Authenticate(_)) => return Ok(()),
            Command::Auth(_) => Ask::Root,
            // Members ask for these themselves, or permit them before. A member of etcd that compacts by itself names no user.
            Command::Compaction(_)
            | Command::LeaseGrant { .. }
            | Command::LeaseCheckpoint(_)
            | Command::Alarm(_)
            | Command::ClusterVersion(_)
            | Command::MemberAttributes(_)
            | Command::Downgrade(_)
            | Command::Other => return Ok(()),
        };
        self.store.auth.decide(author, ask, &self.store.leases)
    }

    fn changed_auth(&self, event: AuthEvent) -> Response {
        let token = if let AuthEvent::Token { token, .. } = &event { token.clone() } else { String::new() };
        Response::Auth(AuthenticateResponse { header: header(self.revision), token }, event)
    }

    fn logged_range(
        &mut self,
        request: &RangeRequest,
        sink: &mut dyn Sink,
    ) -> Result<Result<RangeResponse, Error>, Fatal> {
        if let Err(error) = read_revision(request.revision, self.revision, self.compact_revision) {
            return Ok(Err(error));
        }
        if request.revision > self.store.revision() {
            self.commit(sink)?;
        }
        Ok(Ok(self.staged_range(request)?))
    }

    fn compact(&mut self, revision: i64) -> Result<CompactionResponse, Error> {
        if revision <= self.compact_revision {
            return Err(Error::Compacted);
        }
        if revision > self.revision {
            return Err(Error::FutureRev);
        }
        self.compact_revision = revision;
        self.compactions.push(revision);
        self.counts.range();
        Ok(CompactionResponse { header: header(self.revision) })
    }

    fn grant(&mut self, request: &LeaseGrantRequest, ttl_is_final: bool) -> Result<LeaseGrantResponse, Error> {
        // Members with other flags raise what etcd's members propose by other figures, as those do among themselves.
        let ttl_min = if ttl_is_final { 1 } else { self.store.options.lease_ttl_seconds_min };
        failpoint::point!(LEASE_BEFORE_GRANT);
        let ttl = self.store.leases.grant(request.id, request.ttl, ttl_min)?;
        Ok(LeaseGrantResponse { header: header(self.revision), id: request.id, ttl, error: String::new() })
    }

    /// Deletes the keys of a lease, in key order so that all members agree on the sub revisions, and the lease.
    fn revoke(&mut self, id: i64) -> Result<LeaseRevokeResponse, Error> {
        let Some(Lease { id, .. }) = self.store.leases.get(id) else { return Err(Error::LeaseNotFound) };
        failpoint::point!(LEASE_BEFORE_REVOKE);
        for key in self.store.leases.keys(id) {
            if Mistake::RevokeLeavesKeys.is_planted() {
                self.store.leases.attach(&key, 0);
            } else {
                self.delete(key);
            }
        }
        self.store.leases.revoke(id);
        Ok(LeaseRevokeResponse { header: header(self.current()) })
    }
}

fn is_refused_when_corrupt(command: &Command) -> bool {
    matches!(
        command,
        Command::Range(_)
            | Command::Put(_)
            | Command::DeleteRange(_)
            | Command::Txn(_)
            | Command::Compaction(_)
            | Command::LeaseGrant { .. }
            | Command::LeaseRevoke(_)
    )
}

/// Whether its answer may show pairs.
fn shows_pairs(command: &Command) -> bool {
    match command {
        Command::Put(request) => request.prev_kv,
        Command::DeleteRange(request) => request.prev_kv,
        Command::Txn(_) | Command::Range(_) => true,
        _ => false,
    }
}

fn cost(command: &Command) -> u64 {
    match command {
        Command::Put(request) => quota::put(request),
        Command::Txn(request) => quota::txn(request),
        Command::LeaseGrant { .. } => quota::lease_grant(),
        _ => 0,
    }
}
