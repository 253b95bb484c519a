//! The write side: committed entries in, answers out.
//!
//! Entries are applied in strides. A stride computes its results against the index and an overlay of what it wrote itself, and
//! appends its records to the log's buffer. Committing it writes the buffer, installs the versions in the index, publishes the
//! revision, tells the watch hub (under its lock, so that no watcher registers in between), and hands out the answers, in this order: no
//! answer is seen before its write.

use super::ahead::Ahead;
use super::answer::{Fatal, Outcome, Response, Sink};
use super::command::{Request, decode};
use super::counts::Counts;
use super::overlay::Overlay;
use super::publish::Change;
use super::staging::Staging;
use crate::index::Path;
use crate::log::{self, Log, write};
use crate::mistake::Mistake;
use crate::read::View;
use crate::state::Alarms;
use crate::store::Store;
use crate::types::Loc;
use api::Error;
use api::Message;
use api::etcdserverpb::AlarmType;
use api::limits::{APPLY_STRIDE_ANSWER_BYTES, APPLY_STRIDE_BYTES, APPLY_STRIDE_OPS, TXN_ANSWER_BYTES_MAX};
use api::raftpb;
use prost::DecodeError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Room for changes that is kept between strides. A deletion may have needed room for millions.
const CHANGES_KEPT: usize = 16 * 1024;

/// Applies committed entries. There is one, and nothing else changes what readers see.
pub struct Applier {
    pub(crate) store: Arc<Store>,
    pub(crate) log: Log,
    pub(crate) overlay: Overlay,
    pub(crate) changes: Vec<Change>,
    /// The ways to the keys of some changes, by their numbers, which ascend.
    pub(super) paths: Vec<(usize, Path)>,
    pub(super) outcomes: Vec<Outcome>,
    ahead: Ahead,
    /// The way to the key that the present entry puts, if it is nothing but a put.
    pub(super) path: Option<Path>,
    /// What the stride did.
    pub(super) counts: Counts,
    /// The last revision written, published or not.
    pub(crate) revision: i64,
    /// Changes of the present entry.
    pub(crate) sub: u32,
    pub(crate) compact_revision: i64,
    /// Compactions of the stride.
    pub(super) compactions: Vec<i64>,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) conf_state: raftpb::ConfState,
    /// The last entry of the snapshot from another member that was installed.
    pub(crate) installed_at: Option<u64>,
    /// Configuration changes that were handed out and whose effect Raft has not told yet.
    conf_changes_pending: usize,
    /// Bytes of pairs in the answer to the present entry, including those left out because they are too many.
    pub(super) answer_bytes: usize,
    /// Whether the answer to the present entry is built.
    pub(super) is_awaited: bool,
    /// Bytes of pairs in the answers to the stride.
    pub(super) stride_answer_bytes: usize,
    /// What the present entry took of the processor, where that is measured.
    pub(super) worked: Option<Duration>,
    pub(super) corrupt: bool,
    pub(super) no_space: bool,
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
            paths: Vec::new(),
            outcomes: Vec::new(),
            ahead: Ahead::default(),
            path: None,
            counts: Counts::default(),
            sub: 0,
            compactions: Vec::new(),
            index,
            term,
            conf_state,
            installed_at: None,
            conf_changes_pending: 0,
            answer_bytes: 0,
            is_awaited: true,
            stride_answer_bytes: 0,
            worked: None,
            corrupt: false,
            no_space: false,
            failed: false,
        };
        if !Mistake::StartIgnoresAlarms.is_planted() {
            applier.note_alarms();
        }
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
        failpoint::point!(BEFORE_START_DB_TXN);
        let mut ahead = std::mem::take(&mut self.ahead);
        for (at, entry) in entries.iter().enumerate() {
            let seen = ahead.seen(&self.store, entries, at);
            let found = entry.index();
            if found <= self.index {
                continue;
            }
            if found != self.index + 1 {
                return Err(Fatal::Gap { applied: self.index, found });
            }
            self.path = seen.path;
            self.stage_entry(entry, seen.request, sink)?;
            (self.index, self.term) = (found, entry.term());
            stride += 1;
            if stride == 1 {
                failpoint::point!(AFTER_START_DB_TXN);
            }
            let is_large =
                self.stride_answer_bytes >= APPLY_STRIDE_ANSWER_BYTES || self.log.pending_bytes() >= APPLY_STRIDE_BYTES;
            if stride >= APPLY_STRIDE_OPS || self.changes.len() >= APPLY_STRIDE_OPS || is_large {
                self.commit(sink)?;
                stride = 0;
            }
        }
        self.commit(sink)?;
        self.ahead = ahead;
        self.failed = false;
        Ok(())
    }

    fn stage_entry(
        &mut self,
        entry: &raftpb::Entry,
        request: Option<Result<Request, DecodeError>>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fatal> {
        let index = entry.index();
        let undecodable = |source| Fatal::Entry { index, source };
        let data = || entry.data.clone().unwrap_or_default();
        match entry.r#type() {
            // A new leader's first entry.
            raftpb::EntryType::EntryNormal if entry.data().is_empty() => {}
            raftpb::EntryType::EntryNormal => {
                failpoint::point!(BEFORE_APPLY_ONE_ENTRY_NORMAL);
                let Request { id: request_id, author, command } =
                    request.unwrap_or_else(|| decode(&data())).map_err(undecodable)?;
                let result = self.command((index, request_id), &author, command, sink)?;
                if self.sub > 0 {
                    self.revision += 1;
                    self.sub = 0;
                }
                self.outcomes.push(Outcome::Done { index, request_id, result, worked: self.worked.take() });
            }
            raftpb::EntryType::EntryConfChange => {
                let change = raftpb::ConfChange::decode(data()).map_err(undecodable)?;
                self.conf_change(index, change);
            }
            raftpb::EntryType::EntryConfChangeV2 => {
                let all = raftpb::ConfChangeV2::decode(data()).map_err(undecodable)?;
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
        failpoint::point!(BEFORE_APPLY_ONE_CONF_CHANGE);
        let request_id = change.id();
        let result = write(&self.store.members).change(&change, self.store.options.learners_max);
        if result.is_err() {
            change.node_id = Some(0);
        }
        self.conf_changes_pending += 1;
        self.outcomes.push(Outcome::ConfChange { index, change });
        let result = result.map(|()| Response::None);
        self.outcomes.push(Outcome::Done { index, request_id, result, worked: None });
    }

    /// Forgets what belongs to the state before an installed snapshot.
    pub(crate) fn begin_anew(&mut self) {
        assert!(self.outcomes.is_empty() && self.compactions.is_empty(), "a snapshot was installed within a stride");
        self.conf_changes_pending = 0;
        self.note_alarms();
    }

    pub(super) fn note_alarms(&mut self) {
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
    pub(super) fn commit(&mut self, sink: &mut dyn Sink) -> Result<(), Fatal> {
        failpoint::point!(BEFORE_COMMIT);
        self.log.flush()?;
        failpoint::point!(AFTER_COMMIT);
        if !self.changes.is_empty() {
            self.publish_changes();
            self.overlay.clear();
            self.paths.clear();
            self.changes.clear();
            self.changes.shrink_to(CHANGES_KEPT);
        }
        for revision in self.compactions.drain(..) {
            failpoint::point!(COMPACT_BEFORE_COMMIT_SCHEDULED_COMPACT);
            self.store.begin_compaction(revision);
            failpoint::point!(COMPACT_AFTER_COMMIT_SCHEDULED_COMPACT);
        }
        sink.counted(&std::mem::take(&mut self.counts));
        let is_large = std::mem::take(&mut self.stride_answer_bytes) >= APPLY_STRIDE_ANSWER_BYTES;
        for outcome in self.outcomes.drain(..) {
            match outcome {
                Outcome::Done { index, request_id, result, worked } => {
                    if let Some(time) = worked {
                        sink.worked(time);
                    }
                    sink.done(index, request_id, result);
                }
                Outcome::ConfChange { index, change } => sink.conf_change(index, change),
                Outcome::OverQuota(response) => sink.over_quota(&response),
            }
        }
        if is_large {
            sink.hand_out();
        }
        Ok(())
    }
}
