//! Starting a member from its configuration.

use super::apply::Apply;
use super::clock::Clock;
use super::inbox::Inbox;
use super::pending::Pending;
use super::{Node, Opening, SlowPool, compactor, consensus, maintenance, memory, peer_handler, reaper, restore, timer};
use crate::audit::Audit;
use crate::auth::Auth;
use crate::client_share::ClientShares;
use crate::cluster::force::RemovedForGood;
use crate::cluster::forward_pool::ForwardPool;
use crate::cluster::{self, BootstrapError};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::observer::{self, Link};
use crate::overload::Class;
use crate::services::{ClientSnapshots, Shares};
use crate::system::thread_time;
use crate::tls::Tls;
use crate::yield_cpu;
use budget::Budget;
use disk::data_dir::{self, DataDir, DataDirError, ObserverMark};
use disk::{Disk, OsDisk};
use peer::{Connector, Listener};
use replica::Member;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use telemetry::logging::{self, Value};
use telemetry::tracing::Tracer;
use wal::Wal;

/// Size of a segment, unless a sixteenth of the free disk space is less.
const SEGMENT_BYTES_MAX: u64 = 64_000_000;
const SEGMENT_BYTES_MIN: u64 = 4 << 20;
/// A follower that lacks at most this many entries is sent all of them at once.
const NEAR_ENTRIES: u64 = 1_000;

/// Why a member does not start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum StartError {
    #[error("cannot take over etcd's data: {0}")]
    Adopt(#[from] etcd_import::Error),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("cannot open the Raft log: {0}")]
    Wal(#[from] wal::Error),
    #[error(
        "{0}. This member may have voted, and acknowledged entries, of which it does not know any more. The way back: put the whole data \
         directory back as it was at one time, or remove this member from the cluster (`etcdctl member remove`), empty its data \
         directory, and add it again as a learner. `--unsafe-ignore-lost-log` goes on with what the store has, and may cost writes \
         that the cluster has acknowledged"
    )]
    LogLost(wal::Error),
    #[error("cannot open the store: {0}")]
    Store(#[from] store::OpenError),
    #[error("{0}")]
    Auth(String),
    #[error(transparent)]
    WalDir(etcd_import::Error),
    #[error("cannot start consensus: {0}")]
    Member(#[from] replica::Error),
    #[error("the identity record of the Raft log cannot be read: {0}")]
    Metadata(String),
    #[error(transparent)]
    Begin(#[from] BootstrapError),
    #[error(transparent)]
    Force(#[from] RemovedForGood),
    #[error(
        "--force-new-cluster goes on with the data of a member, and there is none in `{}`: look at --data-dir and --wal-dir, or leave \
         the flag out to begin a new cluster",
        dir.display()
    )]
    NothingToForce { dir: PathBuf },
    #[error(
        "the data directory was begun by a member with other URLs or another token; start with those, or remove it"
    )]
    OtherMember,
    #[error(
        "`{}` is the data directory of an observer: start it with --observer and --follow. A member of the cluster needs an empty \
         directory, and is announced by `etcdctl member add`",
        dir.display()
    )]
    OfObserver { dir: PathBuf },
    #[error("`{}` is the data directory of a member, and --observer makes none: give the observer a directory of its own", dir.display())]
    OfMember { dir: PathBuf },
    #[error(transparent)]
    Inconsistent(#[from] cluster::Inconsistent),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl StartError {
    /// What an operator can do about files that are damaged or gone; none for other errors.
    pub(crate) fn way_back(&self, dir: &Path) -> Option<String> {
        let is_damage = match self {
            StartError::Wal(error) => !matches!(error, wal::Error::Io { .. } | wal::Error::Exists(_)),
            StartError::Store(store::OpenError::Corrupt { .. })
            | StartError::Metadata(_)
            | StartError::Member(_)
            | StartError::DataDir(DataDirError::Half { .. }) => true,
            _ => false,
        };
        is_damage.then(|| {
            format!(
                "keep a copy of `{dir}`. If the other members have a quorum, join again: `etcdctl member remove` this member, empty the \
                 directory, `etcdctl member add` it, and start it with --initial-cluster-state=existing. If this was the only member, or no \
                 other one can be started: restore the last snapshot into another directory with `etcdutl snapshot restore`. See \
                 docs/operations.md, \"When a file is damaged\"",
                dir = dir.display()
            )
        })
    }
}

/// A started member; stops when told to.
pub struct Running {
    /// What its threads share.
    pub node: Arc<Node>,
    consensus: JoinHandle<()>,
    /// Keeps the data directory locked until the last write is done.
    dir: DataDir,
    background: Vec<JoinHandle<()>>,
}

impl Running {
    /// Ends consensus, writes a last checkpoint and waits for the threads.
    pub fn stop(self) {
        self.node.stopping.store(true, Ordering::Relaxed);
        self.node.wake_maintenance();
        self.node.budget.stop();
        if let Some(shares) = &self.node.client_shares {
            shares.stop();
        }
        if let Some(link) = &self.node.link {
            link.stop();
        }
        for thread in self.background {
            let _ = thread.join();
        }
        self.node.inbox.stop();
        let _ = self.consensus.join();
        if let Some(peers) = self.node.peers.get() {
            peers.stop();
        }
        drop(self.dir);
    }
}

/// The shares of clients, if they have any bound.
fn client_shares(config: &Config) -> Option<Arc<ClientShares>> {
    let percent = config.transport.client_share;
    let waiting_max = config.queues.of(Class::Share);
    (percent > 0).then(|| Arc::new(ClientShares::new(percent, config.threads, waiting_max)))
}

/// How long an etcd that is about to stop may still use its data.
const ADOPT_PATIENCE: Duration = Duration::from_secs(10);

/// Starts a member. It serves once its name is published (`cluster::publish`).
pub(crate) fn start(
    config: Config,
    listeners: Vec<Listener>,
    tls: Tls,
    audit: Option<Arc<Audit>>,
) -> Result<Running, StartError> {
    etcd_import::check_wal_dir(&config.data_dir, config.wal_dir.as_deref()).map_err(StartError::WalDir)?;
    adopt(&config)?;
    let disk = Arc::new(OsDisk { unsafe_no_sync: config.unsafe_no_fsync });
    start_on(disk, config, listeners, tls, audit)
}

/// Takes over the data of an etcd, if the flag says so, or an earlier start has begun to.
fn adopt(config: &Config) -> Result<(), StartError> {
    let began = Instant::now();
    let wal_dir = config.wal_dir.as_deref();
    let adopted = etcd_import::adopt(&config.data_dir, wal_dir, config.adopt_etcd_data, ADOPT_PATIENCE)?;
    let Some(etcd_import::Adopted { migrated, backup }) = adopted else { return Ok(()) };
    let backup = Value::Shown(&backup.display());
    match migrated {
        Some(migrated) => logging::info(
            "took over the data of etcd",
            &[
                ("member-id", Value::Shown(&format_args!("{:x}", migrated.member_id))),
                ("cluster-id", Value::Shown(&format_args!("{:x}", migrated.cluster_id))),
                ("revision", migrated.revision.into()),
                ("applied-index", migrated.index.into()),
                ("entries-to-replay", migrated.entries.into()),
                ("backup", backup),
                ("took", Value::Shown(&format_args!("{:?}", began.elapsed()))),
            ],
        ),
        None => logging::info(
            "finished taking over the data of etcd, which an earlier start had begun",
            &[("backup", backup)],
        ),
    }
    Ok(())
}

/// Starts a member on the given disk.
pub(crate) fn start_on(
    disk: Arc<dyn Disk>,
    config: Config,
    listeners: Vec<Listener>,
    tls: Tls,
    audit: Option<Arc<Audit>>,
) -> Result<Running, StartError> {
    let auth = Auth::start(&config).map_err(|error| StartError::Auth(error.to_string()))?;
    let server_name = config.srv.as_ref().filter(|_| config.tls_peer.trusted_ca_file.is_none());
    let connector =
        Connector::new(tls.peer.clone(), server_name.map(|srv| srv.domain.as_str())).bound_to(config.local_address());
    if config.force_new_cluster && !data_dir::has_member(&*disk, &config.data_dir, config.wal_dir.as_deref()) {
        return Err(StartError::NothingToForce { dir: config.data_dir });
    }
    let dir = DataDir::open(&*disk, &config.data_dir, config.wal_dir.as_deref())?;
    if let Some(mode) = dir.open_to_others {
        logging::warn(
            "others can enter the data directory: its permissions should be 0700",
            &[
                ("dir", Value::Shown(&config.data_dir.display())),
                ("permissions", Value::Shown(&format_args!("{mode:04o}"))),
            ],
        );
    }
    let was_level = check_observer(&*disk, &config, &dir)?;
    if let Some(mark) = data_dir::check_lost_log(&*disk, &config.data_dir, config.unsafe_ignore_lost_log)? {
        logging::warn(
            "this member goes on with a log that lost what it had acknowledged; the mark in its data directory is removed",
            &[("file", Value::Shown(&mark.path.display())), ("mark", (&mark.text).into())],
        );
    }
    let segment_bytes = segment_bytes(&*disk, &config, &dir)?;
    let began = Instant::now();
    let wal_options = wal::Options { segment_bytes, segments_min: config.max_wals, rest: yield_cpu::rest };
    let mut first_start = None;
    if !dir.initialised {
        // The log is created before the store, so a directory that has a checkpoint but no log has lost its log.
        let begun = cluster::begin(&config, &connector)?;
        Wal::create(disk.clone(), &dir.wal, &restore::metadata(&begun), wal_options)?;
        first_start = Some(begun);
    }
    let options = store::Options {
        log: store::log::Options { segment_bytes },
        watch: store::watch::Options {
            fragment_bytes: config.max_request_bytes + api::limits::GRPC_OVERHEAD_BYTES,
            ..Default::default()
        },
        quota_bytes: config.quota_bytes,
        lease_ttl_seconds_min: config.lease_ttl_seconds_min(),
        stream_chunk_bytes: config.max_request_bytes,
        // The store enforces no limit of learners: the flag may differ between members. It is checked before a change
        // is proposed.
        learners_max: usize::MAX,
        // One segment of the Raft log, and a checkpoint.
        reserve_bytes: segment_bytes + (1 << 20),
        compaction_batch_versions: config.compaction_batch_versions,
        rest: yield_cpu::rest,
        pause: yield_cpu::pause,
        uses_key_files: true,
        thread_time: (config.transport.client_share > 0).then_some(thread_time::now),
    };
    let opened = store::open(disk.clone(), &dir.store, options)?;
    for damage in &opened.passed_over {
        logging::warn(
            "passed over a damaged checkpoint; its files are kept for you to look at",
            &[("damage", logging::Value::Shown(damage))],
        );
    }
    for (file, reason) in &opened.refused_keys {
        logging::warn(
            "a key file was not used; its segment was read instead, and it is made anew",
            &[("file", Value::Shown(&file.display())), ("reason", (*reason).into())],
        );
    }
    let kept_disk = disk.clone();
    let log = restore::open(
        &config,
        disk,
        &dir,
        &opened.applied,
        wal_options,
        || first_start.map_or_else(|| cluster::begin(&config, &connector), Ok),
        &opened.store.members().removed,
    )?;
    let restore::Opened { wal, identity, restored, remotes } = log;
    let opening = Opening::new(restored.hard_state.commit(), &restored.entries);
    let (what, dir_type) = if dir.initialised {
        ("restored the member", "member")
    } else {
        ("began with an empty data directory", "empty")
    };
    logging::info(
        what,
        &[
            ("dir-type", dir_type.into()),
            ("applied-index", restored.applied.into()),
            ("entries-to-replay", restored.entries.len().into()),
            ("revision", opened.store.revision().into()),
            ("took", logging::Value::Shown(&format_args!("{:?}", began.elapsed()))),
        ],
    );
    if dir.initialised && config.corruption.initial {
        cluster::corruption::check_initial(
            &config,
            &connector,
            (identity.node_id(), identity.cluster_id()),
            &opened.store,
        )
        .inspect_err(|error| logging::error("checkInitialHashKV failed", &[("error", Value::Shown(error))]))?;
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let member = Member::new(
        &replica::Config {
            id: identity.node_id(),
            election_ticks: config.election_ticks(),
            heartbeat_ticks: 1,
            pre_vote: config.pre_vote,
            seed: identity.node_id() ^ since_epoch.as_nanos() as u64,
            boot_nonce: since_epoch.as_nanos() as u64,
            near_entries: NEAR_ENTRIES,
            unsafe_ignore_lost_log: config.unsafe_ignore_lost_log,
        },
        restored,
    )?;
    let link = (!config.follow.is_empty()).then(|| Arc::new(Link::new(config.follow.clone())));
    let spare = wal.spare();
    let log_reaper = wal.reaper();
    opened.store.segments().reaper().share_disk_with(&log_reaper);
    let log_spare = opened.applier.spare();
    let node = Arc::new(Node {
        member_id: identity.node_id(),
        cluster_id: identity.cluster_id(),
        store: opened.store,
        status: Default::default(),
        metrics: Metrics::default(),
        lessor: Default::default(),
        slow: SlowPool::start("slow", 2, config.queues.of(Class::Slow))?,
        short: SlowPool::start("short", 2, api::limits::SHORT_QUEUE_MAX)?,
        forwards: ForwardPool::start(config.queues.of(Class::Forward))?,
        peers: OnceLock::new(),
        connector: match &link {
            Some(_) => connector.of_observer(identity.node_id(), identity.cluster_id()),
            None => connector.of_member(identity.node_id(), identity.cluster_id(), &config.advertise_peer_urls),
        },
        link: link.clone(),
        followers: Arc::default(),
        was_level: AtomicBool::new(was_level),
        disk: kept_disk,
        tls,
        leaderless: Default::default(),
        progress_streams: Default::default(),
        late_rooms: Default::default(),
        watches: Shares::new(config.transport.watches_max, config.transport.connection_watches_max),
        client_shares: client_shares(&config),
        tracer: config.tracing.clone().map(|options| Arc::new(Tracer::new(options))),
        retired: OnceLock::new(),
        retiring: AtomicBool::new(false),
        cluster_mismatch: Mutex::default(),
        stopping: AtomicBool::new(false),
        opening,
        budget: Budget::new(config.transport.held_bytes_max, config.request_timeout()),
        snapshots: ClientSnapshots::new(config.transport.write_timeout),
        auth,
        audit,
        inbox: Inbox::default(),
        reads: Default::default(),
        reads_told_ms: AtomicU64::new(0),
        reads_posted: Arc::default(),
        headroom: Default::default(),
        refusals: Default::default(),
        looks: Arc::default(),
        pending: Pending::default(),
        next_request: AtomicU64::new(first_request_id(identity.node_id(), since_epoch)),
        clock: Clock::start(),
        checkpoint_wanted: AtomicBool::new(false),
        no_space: store::NoSpaceAlarm::default(),
        raising: Mutex::default(),
        applying: OnceLock::new(),
        consensus: OnceLock::new(),
        compactions: Mutex::default(),
        parting: Mutex::default(),
        maintenance: (Mutex::new(false), Condvar::new()),
        config,
    });
    node.status.set_applied(opened.applied.index);
    let room = node.config.transport.held_bytes_max;
    let (flag, incomplete) = (node.config.memory_budget_bytes, node.config.incomplete_bytes_max());
    let memory_budget = memory::budget(flag, host::memory_limit_bytes(), room, incomplete);
    node.metrics.memory.budget_bytes.store(memory_budget, Ordering::Relaxed);
    // The metrics that are served from now on have what is free.
    node.store.look_at_disk();
    peer_handler::start(&node, listeners, remotes)?;
    let apply = Apply::start(node.clone(), opened.applier)?;
    let core = Arc::new(consensus::new(node.clone(), member, wal, apply));
    // Set once. The reference is weak because consensus owns the node.
    let _ = node.consensus.set(Arc::downgrade(&core));
    let driven = core.clone();
    let consensus = spawn("consensus", move || consensus::run(&driven))?;
    let mut background = Vec::new();
    let own = node.clone();
    background.push(spawn("timer", move || timer::run(&own, &core))?);
    let budget = node.budget.clone();
    background.push(spawn("budget", move || budget.run())?);
    if let Some(shares) = node.client_shares.clone() {
        background.push(spawn("client-share", move || shares.run())?);
    }
    let own = node.clone();
    background.push(spawn("maintenance", move || maintenance::run(&own))?);
    let own = node.clone();
    background.push(spawn("compactor", move || compactor::run(&own))?);
    let own = node.clone();
    background.push(spawn("reaper", move || reaper::run(&own, &log_reaper))?);
    let own = node.clone();
    background.push(spawn("spares", move || prepare_spares(&own, &spare, &log_spare))?);
    let own = node.clone();
    background.push(spawn("versions", move || cluster::versions::run(&own))?);
    let own = node.clone();
    background.push(spawn("leaderless", move || cluster::leader_watch::run(&own))?);
    let own = node.clone();
    background.push(spawn("checkpoints", move || cluster::checkpoints::run(&own))?);
    let own = node.clone();
    background.push(spawn("corruption", move || cluster::corruption::run(&own))?);
    if let Some(link) = &link {
        observer::start(&node, link)?;
    }
    Ok(Running { node, consensus, dir, background })
}

/// Refuses the directory of an observer to a member, and that of a member to an observer. A new observer marks its own, before there is a
/// log in it. Returns whether an observer was level at some time.
fn check_observer(disk: &dyn Disk, config: &Config, dir: &DataDir) -> Result<bool, StartError> {
    let path = &config.data_dir;
    match (data_dir::check_observer(disk, path, ObserverMark::Observer)?, !config.follow.is_empty()) {
        (true, true) => Ok(data_dir::check_observer(disk, path, ObserverMark::Level)?),
        (true, false) => Err(StartError::OfObserver { dir: path.clone() }),
        (false, true) if dir.initialised => Err(StartError::OfMember { dir: path.clone() }),
        (false, true) => {
            data_dir::mark_observer(disk, path, ObserverMark::Observer)?;
            Ok(false)
        }
        (false, false) => Ok(false),
    }
}

/// The size of segments, by what is free and what this member's own leftovers take: those are given back.
fn segment_bytes(disk: &dyn Disk, config: &Config, dir: &DataDir) -> io::Result<u64> {
    // A log elsewhere may be on another disk.
    let of_log = if config.wal_dir.is_none() { wal::leftover_bytes(disk, &dir.wal) } else { 0 };
    let leftovers = store::leftover_bytes(disk, &dir.store).saturating_add(of_log);
    let free_bytes = disk.free_bytes(&dir.store)?.saturating_add(leftovers);
    // Whole pages.
    Ok((free_bytes / 16).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX) & !4095)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(body)
}

/// Bits of a request id below those of the member's id.
const REQUEST_TIME_BITS: u32 = 48;

/// Request ids must not repeat over restarts and members, since the waiter of an entry is found by its id alone. As in etcd's they begin with two
/// bytes of the member's id; then comes the time in 256ths of a millisecond, from where they are counted up. The time is shifted by a hash of the
/// whole id: members that agree in the two bytes and were started together would otherwise count up through the same numbers.
fn first_request_id(member_id: u64, since_epoch: Duration) -> u64 {
    let time = (since_epoch.as_millis() as u64) << 8;
    let shifted = time.wrapping_add(spread(member_id)) & ((1 << REQUEST_TIME_BITS) - 1);
    member_id << REQUEST_TIME_BITS | shifted
}

/// The last steps of splitmix64: ids that differ in one bit lead to numbers that have nothing in common.
fn spread(id: u64) -> u64 {
    let id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    id ^ (id >> 31)
}

/// Keeps the next segment of both logs ready, so that no write waits for space to be allocated, and has the commit index of an idle
/// member written.
fn prepare_spares(node: &Arc<Node>, log: &wal::Spare, store: &store::log::Spare) {
    // Small segments are full within a few milliseconds.
    log.wake_preparer(std::thread::current());
    while !node.stopping.load(Ordering::Relaxed) {
        let prepared = log
            .prepare()
            .map_err(|error| error.to_string())
            .and_then(|()| store.prepare().map_err(|error| error.to_string()));
        // The maintenance thread looks at the disk less often than this one, and a fast disk could fill the reserve in
        // between.
        let applied = node.status.applied();
        node.store.look_at_disk();
        node.headroom.note_own(node.store.headroom_bytes(), applied);
        if node.store.disk_is_low() {
            node.raise_no_space(0);
        }
        if let Some(consensus) = node.consensus.get().and_then(Weak::upgrade) {
            consensus.shell().write_commit();
        }
        if let Err(error) = prepared {
            // A write that needs the segment tries again, and ends the member if that fails.
            logging::warn("cannot prepare a log segment", &[("error", (&error).into())]);
            std::thread::sleep(Duration::from_secs(1));
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_start_together_give_out_other_request_ids() {
        // More than a member proposes in a day.
        const APART: u64 = 1 << 33;
        let since_epoch = Duration::from_millis(1_795_000_000_000);
        let firsts: Vec<_> = (0..64).map(|high| first_request_id(high << 16 | 0xbeef, since_epoch)).collect();
        for (at, first) in firsts.iter().enumerate() {
            assert_eq!(first >> 48, 0xbeef);
            for other in &firsts[..at] {
                assert!(first.abs_diff(*other) > APART, "{first:x} and {other:x}");
            }
        }
        let again = first_request_id(0xbeef, since_epoch + Duration::from_millis(1));
        assert_eq!(again - firsts[0], 256, "a later start goes on behind");
    }
}
