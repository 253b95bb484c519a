//! The shell of a member: everything that blocks, sleeps, spawns or does I/O.
//!
//! The path of a put: [`rpc`] parses it on a request thread, `services/kv.rs` checks and proposes it, `node/consensus.rs` writes
//! it to the log and commits it, `node/apply.rs` applies it to [`store`], and the answer goes back to the request thread.

// `print!` and `eprint!` panic if the reader is gone.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(unreachable_pub, reason = "modules of the shell are private, their items are named as the crate sees them")]

mod announce;
mod audit;
mod auth;
mod client_share;
mod cluster;
mod config;
mod door;
mod hangup;
#[cfg(feature = "test-support")]
pub mod harness;
mod http;
mod listening;
mod local;
mod metrics;
mod monitoring;
mod node;
mod observer;
mod overload;
#[cfg(test)]
mod planted;
mod services;
mod serving;
mod system;
mod terminal;
#[cfg(test)]
mod test_support;
mod tls;
mod tracing;
mod turns;
mod yield_cpu;

pub use cluster::BootstrapError;
pub use config::{Asked, Config, ConfigError, Gate, TlsVersion, page, parse, usage};
pub use local::{page as local_page, run_local};
pub use node::{Node, Running, StartError};

use audit::Audit;
use disk::data_dir::DataDirError;
use hangup::Hangup;
use listening::Listening;
use serving::Serving;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use system::End;
use system::socket_file::SocketFile;
use telemetry::logging::{self, Value};

// Tests plant mistakes in these crates (feature `mistakes`). No server may have them.
const _: () = assert!(!store::CAN_BE_MISTAKEN && !wal::CAN_BE_MISTAKEN, "a server is built with planted mistakes");

/// The exit code of a member whose log is proven to have lost what it acknowledged: starting it again is of no use.
pub const LOG_LOST_EXIT_CODE: i32 = 65;

/// Runs the server with a command line (without the program's name); returns the exit code.
pub fn run(args: impl IntoIterator<Item = String>) -> i32 {
    let config = match config::parse(args, environment()) {
        Ok(Asked::Help) => {
            terminal::out(format_args!("{}", usage()));
            return 0;
        }
        Ok(Asked::Version) => {
            print_version();
            return 0;
        }
        Ok(Asked::Serve(config)) => *config,
        Err(ConfigError::Flag(error)) => {
            terminal::err(format_args!("Usage: cairn serve [flags]; `cairn help` shows all flags.\n{error}\n"));
            return 2;
        }
        Err(ConfigError::Value(error)) => {
            logging::start_plain();
            logging::warn("failed to verify flags", &[("error", (&error).into())]);
            logging::flush();
            return 1;
        }
    };
    // Before the first thread: one that does not hold the signals back would be ended by them, and the process with it.
    let signals = match system::Signals::block(&[libc::SIGHUP]) {
        Ok(signals) => signals,
        Err(error) => {
            terminal::err(format_args!("cannot hold back signals: {error}\n"));
            return 1;
        }
    };
    // It starts a thread.
    failpoint::start();
    if let Err(error) = logging::start(&config.logs) {
        logging::start_plain();
        logging::warn("failed to verify flags", &[("error", (&error).into())]);
        logging::flush();
        return 1;
    }
    contain::install(logging::panicked);
    let data_dir = config.data_dir.clone();
    match serve(config, signals) {
        Ok(()) => 0,
        Err(error) => {
            let way_back = error.downcast_ref().and_then(|error: &StartError| error.way_back(&data_dir));
            let mut fields = vec![("error", Value::Shown(&error))];
            fields.extend(way_back.as_ref().map(|text| ("what-to-do", text.into())));
            logging::error("cannot start the member", &fields);
            logging::flush();
            match error.downcast_ref() {
                Some(StartError::DataDir(DataDirError::LogLost { .. }) | StartError::LogLost(_)) => LOG_LOST_EXIT_CODE,
                _ => 1,
            }
        }
    }
}

/// Variables whose name and value are text; others cannot be meant for us.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// The version, in the form that tools read off `etcd --version`.
pub fn print_version() {
    terminal::out(format_args!(
        "etcd Version: {}\nGit SHA: cairn-{cairn}\nGo Version: none (Cairn {cairn}, Rust)\nGo OS/Arch: {}/{}\n",
        api::version::ETCD,
        std::env::consts::OS,
        arch(),
        cairn = api::version::CAIRN,
    ));
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// How far the start of a member is.
#[derive(Default)]
struct Start {
    ready: AtomicBool,
    /// Set when clients are served before the member is ready.
    early: OnceLock<Arc<Node>>,
}

/// Waits for signals on a thread of its own. Before clients are served one that ends the member just ends the process: nothing was
/// promised yet. SIGHUP ends a member that was started in a terminal, since the terminal is gone then; but not one whose parent had it
/// ignore the signal, as nohup does.
fn wait_for_signal(
    signals: system::Signals,
    start: Arc<Start>,
    hangup: Arc<Hangup>,
    tell: Sender<End>,
) -> std::io::Result<()> {
    let ends_with_terminal = std::io::stdin().is_terminal() && !system::is_ignored(libc::SIGHUP);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let signal = loop {
            match signals.wait() {
                libc::SIGHUP if !ends_with_terminal => hangup.received(),
                signal => break signal,
            }
        };
        if !start.ready.load(Ordering::SeqCst) {
            logging::info("received signal before the member was ready", &[("signal", i64::from(signal).into())]);
            match start.early.get() {
                // The main thread waits for the member to be published; it closes what is open.
                Some(node) => node.stopping.store(true, Ordering::Relaxed),
                None => {
                    hangup.flush();
                    logging::flush();
                    signals.reraise(signal);
                }
            }
        }
        // Received by the main thread, which waits for nothing else.
        let _ = tell.send(End::Signal(signals, signal));
    })?;
    Ok(())
}

/// Publishes the member on a thread of its own, and calls `early` once if that takes longer than an election: then there is no quorum.
/// Returns whether the member is published; it is not if it has to stop before.
fn publish(node: &Arc<Node>, early: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<bool> {
    let (tell, told) = channel();
    let own = node.clone();
    std::thread::Builder::new().name("publish".into()).spawn(move || {
        // Received by the thread that started this one.
        let _ = tell.send(cluster::publish::publish(&own).is_ok());
    })?;
    match told.recv_timeout(node.config.election_timeout) {
        Ok(published) => return Ok(published),
        Err(_) => {
            early()?;
            if !node.opening.is_published() {
                serving::tell_early(&node.config);
            }
        }
    }
    Ok(told.recv().unwrap_or(false))
}

fn serve(config: Config, signals: system::Signals) -> Result<(), Box<dyn std::error::Error>> {
    let start = Arc::<Start>::default();
    let (tell, told) = channel();
    let hangup = Arc::new(Hangup::default());
    wait_for_signal(signals, start.clone(), hangup.clone(), tell.clone())?;
    announce::sources(&config);
    let is_initialized =
        disk::data_dir::has_member(&disk::OsDisk::default(), &config.data_dir, config.wal_dir.as_deref());
    announce::starting(&config, is_initialized);
    if config.unsafe_no_fsync {
        logging::warn("--unsafe-no-fsync: acknowledged writes are lost on a power cut", &[]);
    }
    if config.unsafe_ignore_lost_log {
        logging::warn(
            "--unsafe-ignore-lost-log: acknowledged writes may be lost if this member's log is not what it was",
            &[],
        );
    }
    system::raise_open_files();
    if !host::return_memory_soon() {
        logging::warn("freed memory goes back to the system late: the allocator has no thread for it", &[]);
    }
    if config.memory_lock {
        system::lock_memory()?;
    }
    let io_priority = config.io_priority;
    if let Some(priority) = io_priority {
        system::check_disk_priority(priority)?;
    }
    disk::sigbus::install();
    announce::listeners(&config);
    // Before the data is touched: a port in use and a wrong file are the most common mistakes.
    let tls = tls::Tls::start(&config)?;
    hangup.set_tls(&tls);
    let mut listening = Listening::bind(&config, &tls)?;
    let socket_files = listening.take_files();
    let urls = config.listen_client.iter().map(|listen| listen.url.clone()).collect::<Vec<_>>().join(",");
    // A start can take long, and the file may be moved away meanwhile.
    let txn_ops_max = api::check::txn_tree_ops_max(config.max_txn_ops);
    let audit = config.audit.as_ref().map(|audit| Audit::open(audit, txn_ops_max)).transpose()?.map(Arc::new);
    if let Some(audit) = &audit {
        hangup.set_audit(audit);
    }
    let running = node::start(config, listening.peers, tls, audit)?;
    // It is set nowhere else.
    let _ = running.node.retired.set(tell);
    let mut serving = Serving::start(&running.node, listening.metrics, listening.clients)?;
    announce::serving(&running.node.config, running.node.member_id);
    let open_early = || {
        // Set once, before the first client.
        let _ = start.early.set(running.node.clone());
        serving.open(io_priority)
    };
    if !publish(&running.node, open_early)? {
        logging::info("stopped before the member was published", &[]);
        let closed = serving.close();
        running.stop();
        closed.join();
        logging::flush();
        return match told.try_recv() {
            Ok(End::Estranged(text)) => Err(text.into()),
            Ok(End::Signal(signals, signal)) => signals.reraise(signal),
            _ => Ok(()),
        };
    }
    serving.open(io_priority)?;
    listening::announce(&running.node.config);
    logging::info("ready to serve client requests", &[("address", (&urls).into())]);
    start.ready.store(true, Ordering::SeqCst);
    system::notify::ready();
    let end = told.recv()?;
    system::notify::stopping();
    if let End::Signal(_, signal) = &end {
        logging::info("received signal; shutting down", &[("signal", i64::from(*signal).into())]);
        cluster::handover::before_stopping(&running.node);
    }
    let node = running.node.clone();
    announce::closing(&node.config, "closing etcd server");
    let closed = serving.close();
    socket_files.into_iter().for_each(SocketFile::remove);
    running.stop();
    closed.join();
    announce::closing(&node.config, "closed etcd server");
    logging::flush();
    match end {
        End::Signal(signals, signal) => signals.reraise(signal),
        End::Removed => Ok(()),
        End::Estranged(text) => Err(text.into()),
    }
}
