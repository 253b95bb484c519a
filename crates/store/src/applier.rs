//! The write side: committed entries in, answers out.
//!
//! Entries are applied in strides. A stride computes its results against the index and an overlay of what it wrote itself, and
//! appends its records to the log's buffer. Committing it writes the buffer, installs the versions in the index, publishes the
//! revision, tells the watch hub (under its lock, so that no watcher registers in between), and hands out the answers, in this order: no
//! answer is seen before its write.

use crate::alarms::Alarms;
use crate::auth::{Ask, AuthEvent, Author, Change as AuthChange};
use crate::command::{Command, Request, decode};
use crate::leases::Lease;
use crate::log::{self, Log, write};
use crate::overlay::Overlay;
use crate::quota;
use crate::range::read_revision;
use crate::staging::Staging;
use crate::store::Store;
use crate::txn::newest_revision_named;
use crate::types::{Loc, Version};
use crate::unpublished::KeySpan;
use crate::view::View;
use crate::watch::{Event, Kind, Publication};
use api::Error;
use api::Message;
use api::etcdserverpb::*;
use api::limits::{APPLY_STRIDE_OPS, INSTALL_STRIDE_BYTES, TXN_ANSWER_BYTES_MAX};
use api::raftpb;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What an entry is answered with. Headers carry the revision; the server fills in ids and term.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Response {
    Put(PutResponse),
    DeleteRange(DeleteRangeResponse),
    Txn(TxnResponse),
    Range(RangeResponse),
    Compaction(CompactionResponse),
    LeaseGrant(LeaseGrantResponse),
    /// With the lease.
    LeaseRevoke(i64, LeaseRevokeResponse),
    LeaseCheckpoint(LeaseCheckpointResponse),
    Alarm(AlarmResponse),
    /// A change of users or roles, and what follows from it. Every answer to one is a header and, for an authentication, a token.
    Auth(AuthenticateResponse, AuthEvent),
    /// Applied; there is nothing to say about it.
    None,
}

/// Where the results of entries go. Called in entry order, once their effects are visible to readers.
pub trait Sink {
    /// The request with this id was applied, by the entry at `index`.
    fn done(&mut self, index: u64, request_id: u64, result: Result<Response, Error>);
    /// A configuration change was recorded, and Raft must be told. One that the cluster refuses comes with node id 0, which
    /// changes nothing.
    fn conf_change(&mut self, index: u64, change: raftpb::ConfChange);
    /// An entry that passed the quota was applied: the NOSPACE alarm is due.
    fn raise_no_space(&mut self);
}

/// Applying stopped for good: the member must end.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// The revision log failed.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// A committed entry is no request.
    #[error("cannot decode the committed entry {index}: {source}")]
    Entry {
        /// Of the entry.
        index: u64,
        /// What is wrong with it.
        source: prost::DecodeError,
    },
    /// Entries are missing.
    #[error("entry {found} follows entry {applied}")]
    Gap {
        /// The last entry applied.
        applied: u64,
        /// The entry that came next.
        found: u64,
    },
    /// A snapshot to be installed is older than what was applied.
    #[error(
        "a snapshot of entry {found}, revision {at}, is to replace a state of entry {applied}, revision {revision}"
    )]
    Backwards {
        /// The last entry applied.
        applied: u64,
        /// The revision it left.
        revision: i64,
        /// The last entry of the snapshot to be installed.
        found: u64,
        /// Its revision.
        at: i64,
    },
    /// An earlier entry failed.
    #[error("an earlier entry could not be applied")]
    Failed,
}

/// A version that is in the log's buffer and not yet in the index.
pub(crate) struct Change {
    pub(crate) key: Bytes,
    pub(crate) version: Version,
    /// What it replaces.
    pub(crate) prev: Option<Loc>,
}

enum Outcome {
    Done { index: u64, request_id: u64, result: Result<Response, Error> },
    ConfChange { index: u64, change: raftpb::ConfChange },
    NoSpace,
}

/// Applies committed entries. There is one, and nothing else changes what readers see.
pub struct Applier {
    pub(crate) store: Arc<Store>,
    pub(crate) log: Log,
    pub(crate) overlay: Overlay,
    pub(crate) changes: Vec<Change>,
    outcomes: Vec<Outcome>,
    /// The last revision written, published or not.
    pub(crate) revision: i64,
    /// Changes of the present entry.
    pub(crate) sub: u32,
    pub(crate) compact_revision: i64,
    /// Compactions of the stride.
    compactions: Vec<i64>,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) conf_state: raftpb::ConfState,
    /// The last entry of the snapshot from another member that was installed.
    pub(crate) installed_at: Option<u64>,
    /// Configuration changes that were handed out and whose effect Raft has not told yet.
    conf_changes_pending: usize,
    /// Bytes of pairs in the answer to the present entry, including those left out because they are too many.
    answer_bytes: usize,
    corrupt: bool,
    no_space: bool,
    pub(crate) failed: bool,
}

impl Applier {
    pub(crate) fn new(store: Arc<Store>, log: Log, index: u64, term: u64, conf_state: raftpb::ConfState) -> Applier {
        let mut applier = Applier {
            revision: store.revision(),
            compact_revision: store.compact_revision(),
            store,
            log,
            overlay: Overlay::default(),
            changes: Vec::new(),
            outcomes: Vec::new(),
            sub: 0,
            compactions: Vec::new(),
            index,
            term,
            conf_state,
            installed_at: None,
            conf_changes_pending: 0,
            answer_bytes: 0,
            corrupt: false,
            no_space: false,
            failed: false,
        };
        applier.note_alarms();
        applier
    }

    /// Index of the last entry applied.
    pub fn applied_index(&self) -> u64 {
        self.index
    }

    /// Term of the last entry applied.
    pub fn applied_term(&self) -> u64 {
        self.term
    }

    /// Notes what Raft made of a configuration change, for the next checkpoint. Once per change.
    pub fn set_conf_state(&mut self, conf_state: raftpb::ConfState) {
        self.conf_state = conf_state;
        self.keep_conf_state();
    }

    /// Notes that a configuration change had no effect on Raft.
    pub fn keep_conf_state(&mut self) {
        self.conf_changes_pending = self.conf_changes_pending.saturating_sub(1);
    }

    /// Whether the state can be captured. Not between a configuration change and what Raft made of it: the capture would have the
    /// change as applied, and the members from before it.
    pub fn can_capture(&self) -> bool {
        self.conf_changes_pending == 0
    }

    /// The store it writes to.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// A handle for the thread that keeps the log's next segment ready.
    pub fn spare(&self) -> log::Spare {
        self.log.spare()
    }

    /// Applies committed entries, which must follow the last one applied without a gap. Those applied before are skipped.
    pub fn apply(&mut self, entries: &[raftpb::Entry], sink: &mut dyn Sink) -> Result<(), Fatal> {
        if std::mem::replace(&mut self.failed, true) {
            return Err(Fatal::Failed);
        }
        let mut stride = 0;
        for entry in entries {
            let found = entry.index();
            if found <= self.index {
                continue;
            }
            if found != self.index + 1 {
                return Err(Fatal::Gap { applied: self.index, found });
            }
            self.stage_entry(entry, sink)?;
            (self.index, self.term) = (found, entry.term());
            stride += 1;
            if stride >= APPLY_STRIDE_OPS || self.changes.len() >= APPLY_STRIDE_OPS {
                self.commit(sink)?;
                stride = 0;
            }
        }
        self.commit(sink)?;
        self.failed = false;
        Ok(())
    }

    fn stage_entry(&mut self, entry: &raftpb::Entry, sink: &mut dyn Sink) -> Result<(), Fatal> {
        let index = entry.index();
        let undecodable = |source| Fatal::Entry { index, source };
        let data = entry.data.clone().unwrap_or_default();
        match entry.r#type() {
            // A new leader's first entry.
            raftpb::EntryType::EntryNormal if data.is_empty() => {}
            raftpb::EntryType::EntryNormal => {
                let Request { id: request_id, author, command } = decode(&data).map_err(undecodable)?;
                let result = self.command(index, &author, command, sink)?;
                if self.sub > 0 {
                    self.revision += 1;
                    self.sub = 0;
                }
                self.outcomes.push(Outcome::Done { index, request_id, result });
            }
            raftpb::EntryType::EntryConfChange => {
                let change = raftpb::ConfChange::decode(data).map_err(undecodable)?;
                self.conf_change(index, change);
            }
            raftpb::EntryType::EntryConfChangeV2 => {
                let all = raftpb::ConfChangeV2::decode(data).map_err(undecodable)?;
                for single in all.changes {
                    let context = all.context.clone();
                    self.conf_change(
                        index,
                        raftpb::ConfChange { r#type: single.r#type, node_id: single.node_id, context, id: None },
                    );
                }
            }
        }
        Ok(())
    }

    fn conf_change(&mut self, index: u64, mut change: raftpb::ConfChange) {
        let request_id = change.id();
        let result = write(&self.store.members).change(&change, self.store.options.learners_max);
        if result.is_err() {
            change.node_id = Some(0);
        }
        self.conf_changes_pending += 1;
        self.outcomes.push(Outcome::ConfChange { index, change });
        self.outcomes.push(Outcome::Done { index, request_id, result: result.map(|()| Response::None) });
    }

    /// Applies one request. What it answers is an error of the request; only the log can fail the store.
    fn command(
        &mut self,
        index: u64,
        author: &Author,
        command: Command,
        sink: &mut dyn Sink,
    ) -> Result<Result<Response, Error>, Fatal> {
        if self.corrupt && is_refused_when_corrupt(&command) {
            return Ok(Err(Error::Corrupt));
        }
        self.answer_bytes = 0;
        let cost = cost(&command);
        if self.no_space && cost > 0 {
            return Ok(Err(Error::NoSpace));
        }
        if let Err(error) = self.permit(author, &command) {
            return Ok(Err(error));
        }
        // Members differ in what they have left. So the entry is applied, and only the replicated alarm refuses the next ones.
        let over = self.store.over_quota(if cost > 0 { cost + self.log.pending_bytes() } else { 0 });
        let result = match command {
            Command::Put(request) => self.put(request).map(Response::Put),
            Command::DeleteRange(request) => {
                let response = self.delete_range(&request);
                self.check_answer().map(|()| Response::DeleteRange(response))
            }
            Command::Txn(request) => {
                if newest_revision_named(&request) > self.store.revision() {
                    self.commit(sink)?;
                }
                self.txn(request)?.map(Response::Txn)
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
        if over && result.is_ok() {
            self.outcomes.push(Outcome::NoSpace);
            return Ok(Err(Error::NoSpace));
        }
        Ok(result)
    }

    /// Whether the author of an entry may have what it asks for. Asked before it was proposed too, but users and permissions may
    /// have changed since.
    fn permit(&self, author: &Author, command: &Command) -> Result<(), Error> {
        if !self.store.auth.is_enabled() {
            return Ok(());
        }
        let ask = match command {
            Command::Range(request) => Ask::Range(request),
            Command::Put(request) => Ask::Put(request),
            Command::DeleteRange(request) => Ask::DeleteRange(request),
            Command::Txn(request) => Ask::Txn(request),
            Command::Compaction(_) => Ask::Root,
            Command::LeaseRevoke(request) => Ask::Lease(request.id),
            // Its password was checked under this revision.
            Command::Auth(AuthChange::Authenticate(_)) if author.revision < self.store.auth.revision() => {
                return Err(Error::AuthOldRevision);
            }
            Command::Auth(AuthChange::Authenticate(_)) => return Ok(()),
            Command::Auth(_) => Ask::Root,
            // Members ask for these themselves, or permit them before.
            Command::LeaseGrant { .. }
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
        Ok(CompactionResponse { header: header(self.revision) })
    }

    fn grant(&mut self, request: &LeaseGrantRequest, ttl_is_final: bool) -> Result<LeaseGrantResponse, Error> {
        // Members with other flags raise what etcd's members propose by other figures, as those do among themselves.
        let ttl_min = if ttl_is_final { 1 } else { self.store.options.lease_ttl_seconds_min };
        let ttl = self.store.leases.grant(request.id, request.ttl, ttl_min)?;
        Ok(LeaseGrantResponse { header: header(self.revision), id: request.id, ttl, error: String::new() })
    }

    /// Deletes the keys of a lease, in key order so that all members agree on the sub revisions, and the lease.
    fn revoke(&mut self, id: i64) -> Result<LeaseRevokeResponse, Error> {
        let Some(Lease { id, .. }) = self.store.leases.get(id) else { return Err(Error::LeaseNotFound) };
        for key in self.store.leases.keys(id) {
            self.delete(key);
        }
        self.store.leases.revoke(id);
        Ok(LeaseRevokeResponse { header: header(self.current()) })
    }

    /// Forgets what belongs to the state before an installed snapshot.
    pub(crate) fn begin_anew(&mut self) {
        assert!(self.outcomes.is_empty() && self.compactions.is_empty(), "a snapshot was installed within a stride");
        self.conf_changes_pending = 0;
        self.note_alarms();
    }

    fn note_alarms(&mut self) {
        let alarms: &Alarms = &log::read(&self.store.alarms);
        self.corrupt = alarms.is_on(AlarmType::Corrupt);
        self.no_space = alarms.is_on(AlarmType::Nospace);
        self.store.alarm_count.store(alarms.count(), Ordering::Relaxed);
    }

    /// The view that the present entry reads.
    pub(crate) fn staging(&self) -> Staging<'_> {
        Staging {
            store: &self.store,
            overlay: &self.overlay,
            log: &self.log,
            current: self.current(),
            compact: self.compact_revision,
        }
    }

    /// The revision of the present entry if it has written something, or the one before it.
    pub(crate) fn current(&self) -> i64 {
        self.revision + i64::from(self.sub > 0)
    }

    /// Stored bytes, flushed or not.
    pub(crate) fn stored<R>(&self, loc: Loc, read: impl FnOnce(&[u8]) -> R) -> R {
        self.staging().stored(loc, read)
    }

    /// Counts pairs towards the answer. False when they are too many for it; they must not be copied then.
    pub(crate) fn fits_answer(&mut self, bytes: usize) -> bool {
        self.answer_bytes = self.answer_bytes.saturating_add(bytes);
        self.check_answer().is_ok()
    }

    /// Whether the answer is whole. If not, what the entry has written stands, as it does on every member: how long an answer gets
    /// is known only once the writes it shows were made.
    pub(crate) fn check_answer(&self) -> Result<(), Error> {
        if self.answer_bytes > TXN_ANSWER_BYTES_MAX { Err(Error::TxnAnswerTooLarge) } else { Ok(()) }
    }

    /// Ends a stride.
    fn commit(&mut self, sink: &mut dyn Sink) -> Result<(), Fatal> {
        self.log.flush()?;
        if !self.changes.is_empty() {
            self.publish_changes();
            self.overlay.clear();
            self.changes.clear();
        }
        for revision in self.compactions.drain(..) {
            self.store.begin_compaction(revision);
        }
        for outcome in self.outcomes.drain(..) {
            match outcome {
                Outcome::Done { index, request_id, result } => sink.done(index, request_id, result),
                Outcome::ConfChange { index, change } => sink.conf_change(index, change),
                Outcome::NoSpace => sink.raise_no_space(),
            }
        }
        Ok(())
    }

    /// Puts the stride's versions into the index, in short holds of its lock, and publishes each revision with its last version. Watchers
    /// hear of a revision before a client that has read it can ask them for progress.
    fn publish_changes(&self) {
        // Built before anything is locked. If a watcher registers later, they are built under the lock.
        let events: Option<Vec<Event>> =
            (!self.store.hub.is_idle()).then(|| self.changes.iter().map(Change::event).collect());
        let mut rest = &self.changes[..];
        let mut told = 0;
        while let Some(first) = rest.first() {
            let (chunk, behind) = rest.split_at(install_stride(rest));
            let last = chunk[chunk.len() - 1].version.rev.main;
            // Further chunks may have more changes of the last revision.
            let is_split = behind.first().is_some_and(|next| next.version.rev.main == last);
            let began_here = first.version.rev.main != last;
            let begins_split = is_split && (began_here || !self.store.unpublished.is_any());
            // Looks at every key of the revision: not while readers wait.
            let span = begins_split.then(|| self.span_of(last));
            let published = if is_split { last - 1 } else { last };
            let publication = (published > self.store.revision()).then(|| self.store.hub.begin());
            let mut index = write(&self.store.index);
            for change in chunk {
                index.push(&change.key, change.version);
            }
            if begins_split {
                self.store.unpublished.set(span);
            } else if !is_split && self.store.unpublished.is_any() {
                self.store.unpublished.set(None);
            }
            self.store.revision.store(published, Ordering::Release);
            drop(index);
            if let Some(publication) = publication {
                let end = self.changes.partition_point(|change| change.version.rev.main <= published);
                let built = events.as_ref().and_then(|events| events.get(told..end));
                tell(publication, published, &self.changes[told..end], built);
                told = end;
            }
            rest = behind;
        }
    }

    /// The keys that a revision of the stride changes, as a span.
    fn span_of(&self, main: i64) -> KeySpan {
        let from = self.changes.partition_point(|change| change.version.rev.main < main);
        let mut span = KeySpan { first: self.changes[from].key.clone(), last: self.changes[from].key.clone() };
        for change in self.changes[from..].iter().take_while(|change| change.version.rev.main == main) {
            if change.key < span.first {
                span.first = change.key.clone();
            } else if change.key > span.last {
                span.last = change.key.clone();
            }
        }
        span
    }
}

impl Change {
    fn event(&self) -> Event {
        Event {
            kind: if self.version.is_tombstone() { Kind::Delete } else { Kind::Put },
            key: self.key.clone(),
            rev: self.version.rev,
            loc: self.version.loc,
            prev: self.prev,
        }
    }
}

/// Pushes to watchers what readers see now. `events` are those of the changes, if they were built.
fn tell(publication: Publication<'_>, published: i64, changes: &[Change], events: Option<&[Event]>) {
    if publication.is_idle() {
        return publication.skip_to(published);
    }
    let built: Vec<Event>;
    let events = match events {
        Some(events) => events,
        None => {
            built = changes.iter().map(Change::event).collect();
            &built
        }
    };
    let revisions: Vec<(i64, &[Event])> = events
        .chunk_by(|a, b| a.rev.main == b.rev.main)
        .filter_map(|chunk| Some((chunk.first()?.rev.main, chunk)))
        .collect();
    publication.publish(&revisions);
}

/// How many of the changes one hold of the index lock installs.
fn install_stride(changes: &[Change]) -> usize {
    let mut bytes = 0;
    let within = changes.iter().take(APPLY_STRIDE_OPS).take_while(|change| {
        let is_within = bytes < INSTALL_STRIDE_BYTES;
        bytes += change.key.len();
        is_within
    });
    within.count()
}

/// A header that carries a revision.
pub(crate) fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, ..ResponseHeader::default() })
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

fn cost(command: &Command) -> u64 {
    match command {
        Command::Put(request) => quota::put(request),
        Command::Txn(request) => quota::txn(request),
        Command::LeaseGrant { .. } => quota::lease_grant(),
        _ => 0,
    }
}
