//! A machine: a disk that outlives the processes on it.

use crate::env::Env;
use crate::mutation::Mutation;
use crate::operation::State;
use crate::outbox::Outbox;
use crate::process::{Parts, PowerCut, Process, disk_result};
use crate::schedule::Event;
use crate::settings::Settings;
use crate::shadow::Shadow;
use crate::trace::trace;
use api::Message;
use api::etcdserverpb::Metadata;
use disk::sim::SimDisk;
use disk::{Disk, Mode};
use replica::{Bootstrap, Member, Restored};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wal::{EntryRef, Wal};

const TOKEN: &str = "sim";
const STORE: &str = "/data/store";
const LOG: &str = "/data/wal";

/// One machine and the member it was made for.
pub(crate) struct Host {
    pub(crate) index: usize,
    pub(crate) id: u64,
    pub(crate) url: String,
    pub(crate) disk: SimDisk,
    /// The first entries of a founder's log; a member that joins has none.
    founding: Option<Bootstrap>,
    cluster_id: u64,
    pub(crate) boots: u64,
    /// Starts that used a key file.
    pub(crate) key_file_starts: u64,
    pub(crate) process: Option<Process>,
    /// Whether its member was removed and has ended.
    pub(crate) is_gone: bool,
    /// Whether a start is scheduled.
    pub(crate) is_starting: bool,
    /// What it knows as an observer; `None` on the machine of a member.
    pub(crate) observing: Option<Observing>,
}

/// What the machine of an observer keeps beside its data.
#[derive(Default)]
pub(crate) struct Observing {
    /// It had everything at some time: from then on a start shows what is there.
    pub(crate) was_level: bool,
}

/// The machines of a new cluster.
pub(crate) fn founders(count: usize) -> Vec<Host> {
    let members: Vec<_> = (0..count).map(|index| (format!("m{index}"), vec![url(index)])).collect();
    let found = |(index, (name, _)): (usize, &(String, Vec<String>))| {
        let Some(founding) = replica::bootstrap(&members, name, TOKEN) else { unreachable!("a founder") };
        Host {
            id: founding.member_id,
            cluster_id: founding.cluster_id,
            founding: Some(founding),
            ..Host::joining(index, 0)
        }
    };
    members.iter().enumerate().map(found).collect()
}

fn url(index: usize) -> String {
    format!("http://m{index}:2380")
}

impl Host {
    /// The machine of a member that is to be added.
    pub(crate) fn joining(index: usize, cluster_id: u64) -> Host {
        let url = url(index);
        Host {
            index,
            id: replica::member_id(std::slice::from_ref(&url), TOKEN, Some(index as i64)),
            url,
            disk: SimDisk::new(),
            founding: None,
            cluster_id,
            boots: 0,
            key_file_starts: 0,
            process: None,
            is_gone: false,
            is_starting: false,
            observing: None,
        }
    }

    /// The machine of an observer.
    pub(crate) fn observing(index: usize, cluster_id: u64) -> Host {
        Host { observing: Some(Observing::default()), ..Host::joining(index, cluster_id) }
    }

    /// Whether clients that watch may connect: an observer has them wait until it is level.
    pub(crate) fn serves_watches(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.machine.outbox.as_ref().is_none_or(|outbox| outbox.is_published))
    }

    pub(crate) fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// The running process, if it is still the one with this `boot`.
    pub(crate) fn process(&mut self, boot: u64) -> Option<&mut Process> {
        self.process.as_mut().filter(|process| process.boot == boot)
    }

    /// Starts a process on the contents of the disk.
    pub(crate) fn start(&mut self, env: &mut Env) {
        self.is_starting = false;
        if self.process.is_some() || self.is_gone {
            return;
        }
        if self.disk.is_cut() {
            self.disk = self.disk.after_cut(env.random.next_u64());
        }
        self.disk.forget_errors();
        // A file that is cut while a reader has it mapped would end the process.
        self.disk.guard_mappings();
        self.boots += 1;
        match self.open(env) {
            Ok(process) => self.process = Some(process),
            Err(PowerCut) => return self.end(env),
        }
        let (host, boot) = (self.index, self.boots);
        let offset_us = env.random.below(env.plan.tick_us);
        env.after(offset_us, Event::Tick { host, boot });
        env.after(offset_us + 20_000, Event::Maintain { host, boot });
        let begun = self.process.as_mut().map(|process| process.begin(env));
        if matches!(begun, Some(Err(PowerCut))) {
            self.end(env);
        }
    }

    /// Kills the process. Its unsynced writes survive, since the operating system has them.
    pub(crate) fn kill(&mut self, env: &mut Env) {
        if let Some(process) = self.process.take() {
            trace!(env, "{} is killed", self.index);
            process.abandon(env);
        }
    }

    /// Ends the process because its disk has lost power, or has failed.
    pub(crate) fn end(&mut self, env: &mut Env) {
        if self.disk.is_cut() || self.disk.errors() == 0 {
            return self.lose_power(env);
        }
        trace!(env, "{} ends: its disk has failed", self.index);
        self.kill(env);
        self.start_after(env, 50_000);
    }

    /// Cuts the power, if that has not happened yet, and starts again later.
    pub(crate) fn lose_power(&mut self, env: &mut Env) {
        trace!(env, "{} loses power", self.index);
        self.disk.cut();
        if let Some(process) = self.process.take() {
            process.abandon(env);
        }
        self.disk = self.disk.after_cut(env.random.next_u64());
        let delay_us = env.between((20_000, 1_500_000));
        self.start_after(env, delay_us);
    }

    pub(crate) fn start_after(&mut self, env: &mut Env, delay_us: u64) {
        if !std::mem::replace(&mut self.is_starting, true) {
            env.after(delay_us, Event::Start { host: self.index });
        }
    }

    fn open(&mut self, env: &mut Env) -> Result<Process, PowerCut> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let check = |what: Result<(), std::io::Error>| disk_result(&self.disk, what);
        for path in ["/data", STORE, LOG] {
            check(disk.create_dir(Path::new(path)))?;
        }
        for path in ["/", "/data"] {
            check(disk.sync_dir(Path::new(path)))?;
        }
        let lock = disk.open(Path::new("/data/lock"), Mode::Create);
        drop(lock);
        let log_dir = PathBuf::from(LOG);
        let settings = Settings::of(&env.plan, self.index);
        let log_options = wal::Options { segment_bytes: settings.wal_segment_bytes, segments_min: 2, rest: || {} };
        if !disk_result(&self.disk, Wal::exists(&*disk, &log_dir))? {
            let metadata = Metadata { node_id: Some(self.id), cluster_id: Some(self.cluster_id) }.encode_to_vec();
            disk_result(&self.disk, Wal::create(disk.clone(), &log_dir, &metadata, log_options))?;
        }
        let options = store::Options {
            log: store::log::Options { segment_bytes: settings.store_segment_bytes },
            quota_bytes: settings.quota_bytes,
            lease_ttl_seconds_min: 1,
            learners_max: 2,
            watch: env.plan.watch,
            ..Default::default()
        };
        let opened = disk_result(&self.disk, store::open(disk.clone(), Path::new(STORE), options))?;
        assert!(opened.passed_over.is_empty(), "a checkpoint is damaged: {:?}", opened.passed_over);
        self.key_file_starts += u64::from(opened.used_keys > 0);
        let applied = opened.applied;
        let from = api::walpb::Snapshot {
            index: Some(applied.index),
            term: Some(applied.term),
            conf_state: Some(applied.conf_state.clone()),
        };
        let (mut wal, recovered) = disk_result(
            &self.disk,
            // An observer has acknowledged nothing: what its log lacks comes again.
            match applied.installed || self.observing.is_some() {
                true => Wal::open_installed(disk, &log_dir, &from, log_options),
                false => Wal::open(disk, &log_dir, &from, log_options),
            },
        )?;
        let mut restored = Restored {
            hard_state: recovered.hard_state,
            entries: recovered.entries,
            newest_applied: if self.observing.is_some() { recovered.applied } else { Vec::new() },
            applied: applied.index,
            applied_term: applied.term,
            conf_state: applied.conf_state.clone(),
            joined: Vec::new(),
            observes: self.observing.is_some(),
        };
        if let Some(first) = self.founding.as_ref().filter(|_| applied.index == 0 && restored.entries.is_empty()) {
            let mut entries = first.entries.iter().map(|entry| EntryRef {
                term: entry.term(),
                index: entry.index(),
                kind: entry.r#type() as i32,
                data: entry.data.as_deref().unwrap_or_default(),
            });
            wal.append(&mut entries, Some(&first.hard_state));
            disk_result(&self.disk, wal.commit(true))?;
            restored.hard_state = first.hard_state;
            restored.entries = first.entries.clone();
        }
        self.restore(env, &restored);
        let log = env.ledger.durable.entry(self.id).or_default().log.clone();
        let nonce = if env.options.mutation == Some(Mutation::ReusesReadContext) { 1 } else { self.boots };
        let config = replica::Config {
            id: self.id,
            election_ticks: env.plan.election_ticks,
            heartbeat_ticks: 1,
            pre_vote: settings.pre_vote,
            seed: env.random.next_u64(),
            boot_nonce: nonce,
            // Small, so that followers that were away for a moment are sent entries little by little.
            near_entries: 4 + settings.catchup_entries,
            unsafe_ignore_lost_log: false,
        };
        let raft = match Member::new(&config, restored) {
            Ok(raft) => raft,
            Err(error) => panic!("{:x} cannot start: {error}", self.id),
        };
        let (host, boot, id, disk) = (self.index, self.boots, self.id, self.disk.clone());
        let outbox = self.observing.as_ref().map(|observing| Outbox::new(observing.was_level, &raft));
        Ok(Process::new(env, Parts { host, boot, id, raft, applier: opened.applier, wal, disk, log, outbox }))
    }

    /// Checks that the state restored from the disk has everything that was durable.
    fn restore(&self, env: &mut Env, restored: &Restored) {
        let base = (restored.applied, restored.applied_term);
        let places = restored.entries.iter().map(|entry| (entry.index(), entry.term()));
        let log = Shadow::new(base, places);
        trace!(
            env,
            "{} starts at {base:?} with a log up to {:?} in term {} with {} unanswered operations",
            self.index,
            log.last(),
            restored.hard_state.term(),
            env.history.operations.iter().filter(|operation| operation.state == State::Pending).count()
        );
        let mut before = base.1;
        for entry in &restored.entries {
            env.ledger.entry(before, entry);
            before = entry.term();
        }
        env.ledger.restores(self.id, &log, restored);
        env.ledger.restored_members(self.id, restored.applied, &restored.conf_state);
    }
}
