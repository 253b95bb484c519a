//! Work to the log: write, sync, and what may only happen then.

use super::{PowerCut, Process, disk_result};
use crate::env::Env;
use crate::mutation::Mutation;
use crate::plan::Form;
use crate::schedule::Event;
use crate::trace::trace;
use replica::{Role, Work};
use wal::EntryRef;

impl Process {
    /// Queues work for the log, in order. Only what needs no sync and has nothing before it is done at once.
    pub(super) fn persist(&mut self, env: &mut Env, work: Work, changes_members: bool) -> Result<(), PowerCut> {
        if env.plan.form == Form::ByTurn && env.options.mutation != Some(Mutation::AcknowledgesBeforeSync) {
            self.to_log.push_back(work);
            return Ok(());
        }
        let log_is_idle = self.to_log.is_empty() && self.in_log.is_empty();
        if !work.must_sync && log_is_idle {
            self.append(env, &work);
            self.durable(env, work);
            return Ok(());
        }
        if env.options.mutation == Some(Mutation::AcknowledgesBeforeSync) {
            return self.persist_carelessly(env, work);
        }
        self.blocked = self.writes_in_place(env.plan.form) || changes_members;
        self.to_log.push_back(work);
        self.start_log(env);
        Ok(())
    }

    /// All the work of a turn goes to the log together, as the server's shell has it: only who leads others goes on meanwhile.
    /// Answers whether that is done already, because nothing needed a sync.
    pub(super) fn write_turn(&mut self, env: &mut Env) -> bool {
        if env.plan.form != Form::ByTurn || self.to_log.is_empty() || !self.in_log.is_empty() {
            return false;
        }
        if !self.to_log.iter().any(|work| work.must_sync) {
            for work in std::mem::take(&mut self.to_log) {
                self.append(env, &work);
                self.durable(env, work);
            }
            return true;
        }
        let status = self.member.status();
        self.blocked = status.role != Role::Leader || status.sole_voter;
        self.start_log(env);
        false
    }

    fn start_log(&mut self, env: &mut Env) {
        if !self.in_log.is_empty() || self.to_log.is_empty() {
            return;
        }
        for work in std::mem::take(&mut self.to_log) {
            self.append(env, &work);
            self.in_log.push(work);
        }
        self.syncing_since_us = env.now_us;
        let slow_us = if self.slow_disk.0 > env.now_us { self.slow_disk.1 } else { 0 };
        let sync_us = env.between(env.plan.sync_us) + slow_us;
        env.after(sync_us, Event::LogDone { host: self.host, boot: self.boot });
    }

    /// Into the log's buffer; nothing reaches the disk here.
    fn append(&mut self, env: &mut Env, work: &Work) {
        let mut entries = work.entries.iter().map(|entry| EntryRef {
            term: entry.term(),
            index: entry.index(),
            kind: entry.r#type() as i32,
            data: entry.data.as_deref().unwrap_or_default(),
        });
        let forgets = env.options.mutation == Some(Mutation::ForgetsVote);
        let hard_state = work.hard_state.as_ref().filter(|_| !forgets);
        if let Some(metadata) = work.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.clone()) {
            let (index, term) = (metadata.index, metadata.term);
            self.wal.save_snapshot(&api::walpb::Snapshot { index, term, conf_state: metadata.conf_state });
        }
        self.wal.append(&mut entries, hard_state);
    }

    /// Write and sync are over.
    pub(crate) fn log_done(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        disk_result(&self.disk, self.wal.commit(true))?;
        trace!(env, "{} synced {} pieces of work", self.host, self.in_log.len());
        for work in std::mem::take(&mut self.in_log) {
            self.durable(env, work);
        }
        self.release_log()?;
        if self.to_log.is_empty() || env.plan.form == Form::ByTurn {
            self.blocked = false;
        }
        if env.plan.form != Form::ByTurn {
            self.start_log(env);
        }
        if !self.blocked {
            self.apply_in_place(env)?;
            self.drain(env)?;
            self.wake(env);
        }
        Ok(())
    }

    fn durable(&mut self, env: &mut Env, work: Work) {
        let durable = env.ledger.durable.entry(self.id).or_default();
        if let Some(metadata) = work.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref()) {
            durable.log.restart(metadata.index(), metadata.term());
        }
        durable.log.append(work.entries.iter().map(|entry| (entry.index(), entry.term())));
        if let Some(state) = work.hard_state.filter(|_| work.must_sync) {
            (durable.term, durable.vote) = (state.term(), state.vote());
        }
        if let Some(state) = &work.hard_state {
            // What was only written is synced with whatever is synced next.
            durable.written_commit = durable.written_commit.max(state.commit());
        }
        if work.must_sync {
            durable.commit = durable.commit.max(durable.written_commit);
        }
        self.check_entries(env, &work);
        self.member.persisted(work.number);
        self.backlog.persisted(work.number);
        env.send(self.id, work.persisted_messages);
    }

    /// Entries that are on a disk are facts.
    fn check_entries(&self, env: &mut Env, work: &Work) {
        for entry in &work.entries {
            let log = &env.ledger.durable.entry(self.id).or_default().log;
            if let Some(before) = entry.index().checked_sub(1).and_then(|before| log.term(before)) {
                env.ledger.entry(before, entry);
            }
        }
    }

    /// The mistake: everybody hears of it before the disk has it.
    fn persist_carelessly(&mut self, env: &mut Env, work: Work) -> Result<(), PowerCut> {
        self.append(env, &work);
        self.member.persisted(work.number);
        env.send(self.id, work.persisted_messages);
        let careless = Work { persisted_messages: Vec::new(), must_sync: true, ..work };
        self.to_log.push_back(careless);
        if self.in_log.is_empty() {
            self.in_log.extend(self.to_log.drain(..));
            let sync_us = env.between(env.plan.sync_us) + 2_000;
            env.after(sync_us, Event::LogDone { host: self.host, boot: self.boot });
        }
        Ok(())
    }

    /// What a finished checkpoint allows, once nobody else writes.
    pub(super) fn release_log(&mut self) -> Result<(), PowerCut> {
        if self.in_log.is_empty()
            && let Some((snapshot, older_index)) = self.release.take()
        {
            self.wal.save_snapshot(&snapshot);
            disk_result(&self.disk, self.wal.release(older_index))?;
        }
        Ok(())
    }
}
