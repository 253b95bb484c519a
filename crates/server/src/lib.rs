//! The shell of a member: everything that blocks, sleeps, spawns or does I/O.
//!
//! The path of a put: [`rpc`] parses it on a request thread, `services/kv.rs` checks and proposes it, `node/consensus.rs` writes
//! it to the log and commits it, `node/apply.rs` applies it to [`store`], and the answer goes back to the request thread.

// `print!` and `eprint!` panic if the reader is gone.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(unreachable_pub, reason = "modules of the shell are private, their items are named as the crate sees them")]

mod auth;
mod cluster;
mod config;
mod door;
#[cfg(feature = "test-support")]
pub mod harness;
mod http;
mod listening;
mod local;
mod metrics;
mod monitoring;
mod node;
mod overload;
#[cfg(test)]
mod planted;
mod services;
mod system;
mod terminal;
#[cfg(test)]
mod test_support;
mod tls;
mod tracing;
mod yield_cpu;

pub use cluster::BootstrapError;
pub use config::{Asked, Config, ConfigError, Gate, TlsVersion, parse, usage};
pub use local::run_local;
pub use node::{Node, Running, StartError};

use disk::data_dir::DataDirError;
use listening::Listening;
use monitoring::Monitoring;
use services::Services;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use system::End;
use system::socket_file::SocketFile;
use telemetry::logging::{self, Value};

/// How long open calls and streams may take to end when the member stops; answers on their way get the time of a request.
const GRACE: Duration = Duration::from_millis(500);

/// The exit code of a member whose log is proven to have lost what it acknowledged: starting it again is of no use.
pub const LOG_LOST_EXIT_CODE: i32 = 65;

/// Runs the server with a command line (without the program's name); returns the exit code.
pub fn run(args: impl IntoIterator<Item = String>) -> i32 {
    let mut args = args.into_iter().peekable();
    if let Some(proxy) = args.peek().filter(|word| matches!(word.as_str(), "gateway" | "grpc-proxy")) {
        terminal::err(format_args!(
            "`{proxy}` is not part of this version: clients connect to the members themselves\n"
        ));
        return 1;
    }
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
    let signals = match system::Signals::block() {
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
    match serve(config, signals) {
        Ok(()) => 0,
        Err(error) => {
            logging::error("cannot start the member", &[("error", Value::Shown(&error))]);
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

/// Waits for a signal on a thread of its own. Before the member is ready it just ends the process: nothing was promised yet.
fn wait_for_signal(signals: system::Signals, ready: Arc<AtomicBool>, tell: Sender<End>) -> std::io::Result<()> {
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let signal = signals.wait();
        if !ready.load(Ordering::SeqCst) {
            logging::info("received signal before the member was ready", &[("signal", i64::from(signal).into())]);
            logging::flush();
            signals.reraise(signal);
        }
        // Received by the main thread, which waits for nothing else.
        let _ = tell.send(End::Signal(signals, signal));
    })?;
    Ok(())
}

/// What the transport of clients is bounded by.
fn transport_options(config: &Config) -> rpc::Options {
    let bounds = &config.transport;
    rpc::Options {
        threads: config.threads,
        message_bytes_max: config.max_request_bytes + api::limits::GRPC_OVERHEAD_BYTES,
        connections_max: bounds.connections_max.unwrap_or_else(system::connections_max),
        held_bytes_max: usize::try_from(bounds.held_bytes_max / 2).unwrap_or(usize::MAX),
        // Base64 makes bytes a third longer.
        body_bytes_max: 2 * (config.max_request_bytes + api::limits::GRPC_OVERHEAD_BYTES),
        concurrent_streams_max: config.max_concurrent_streams,
        header_list_bytes_max: bounds.header_bytes_max,
        rates: bounds.rates,
        handshake_timeout: bounds.handshake_timeout,
        header_timeout: bounds.header_timeout,
        body_timeout: bounds.body_timeout,
        write_timeout: bounds.write_timeout,
        ping_interval_min: config.keepalive_min_time,
        keepalive_interval: config.keepalive_interval,
        keepalive_timeout: config.keepalive_timeout,
        times: config.metrics_extensive,
        ..Default::default()
    }
}

fn serve(config: Config, signals: system::Signals) -> Result<(), Box<dyn std::error::Error>> {
    let ready = Arc::new(AtomicBool::new(false));
    let (tell, told) = channel();
    wait_for_signal(signals, ready.clone(), tell.clone())?;
    for note in &config.notes {
        logging::info(note, &[]);
    }
    for warning in &config.warnings {
        logging::warn(warning, &[]);
    }
    logging::info(
        "starting Cairn",
        &[
            ("version", api::version::CAIRN.into()),
            ("etcd-version", api::version::ETCD.into()),
            ("name", (&config.name).into()),
            ("data-dir", Value::Shown(&config.data_dir.display())),
            ("snapshot-catchup-entries", config.catchup_entries.into()),
            // There is no v2 store to do more with.
            ("v2-deprecation", "write-only".into()),
            ("threads", config.threads.into()),
        ],
    );
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
    if config.memory_lock {
        system::lock_memory()?;
    }
    let io_priority = config.io_priority;
    if let Some(priority) = io_priority {
        system::check_disk_priority(priority)?;
    }
    disk::sigbus::install();
    // Before the data is touched: a port in use and a wrong file are the most common mistakes.
    let tls = tls::Tls::start(&config)?;
    let mut listening = Listening::bind(&config, &tls)?;
    let socket_files = listening.take_files();
    let options = transport_options(&config);
    let urls = config.listen_client.iter().map(|listen| listen.url.clone()).collect::<Vec<_>>().join(",");
    let running = node::start(config, listening.peers, tls)?;
    // It is set nowhere else.
    let _ = running.node.retired.set(tell);
    if cluster::publish::publish(&running.node).is_err() {
        logging::info("stopped before the member was published", &[]);
        running.stop();
        logging::flush();
        return match told.try_recv() {
            Ok(End::Estranged(text)) => Err(text.into()),
            _ => Ok(()),
        };
    }
    let services = Services::new(running.node.clone());
    if let Some(priority) = io_priority {
        // Request threads take turns at the log; they have the priority of the thread that starts them.
        system::set_disk_priority(priority)?;
    }
    let monitoring = match listening.metrics.is_empty() {
        true => None,
        false => {
            let options = rpc::Options { threads: 1, ..options.clone() };
            Some(rpc::Server::start(listening.metrics, Arc::new(Monitoring(services.clone())), options)?)
        }
    };
    let transport = rpc::Server::start(listening.clients, services.clone(), options)?;
    services.set_stats(transport.stats());
    let node = running.node.clone();
    let progress = std::thread::Builder::new().name("progress".into()).spawn(move || services::run_progress(&node))?;
    let exporter = match running.node.tracer.clone() {
        Some(tracer) => Some(std::thread::Builder::new().name("traces".into()).spawn(move || tracing::run(&tracer))?),
        None => None,
    };
    let own = services.clone();
    let lock_queue = std::thread::Builder::new().name("lock-queue".into()).spawn(move || own.run_lock_queue())?;
    listening::announce(&running.node.config);
    logging::info("ready to serve client requests", &[("address", (&urls).into())]);
    ready.store(true, Ordering::SeqCst);
    system::notify::ready();
    let end = told.recv()?;
    system::notify::stopping();
    if let End::Signal(_, signal) = &end {
        logging::info("received signal; shutting down", &[("signal", i64::from(*signal).into())]);
        cluster::handover::before_stopping(&running.node);
    }
    services.close_lock_queue();
    let tracer = running.node.tracer.clone();
    transport.shutdown(GRACE, running.node.config.request_timeout());
    drop(monitoring);
    socket_files.into_iter().for_each(SocketFile::remove);
    running.stop();
    let _ = lock_queue.join();
    if let (Some(tracer), Some(exporter)) = (tracer, exporter) {
        tracer.stop();
        let _ = exporter.join();
    }
    let _ = progress.join();
    logging::info("closed the member", &[]);
    logging::flush();
    match end {
        End::Signal(signals, signal) => signals.reraise(signal),
        End::Removed => Ok(()),
        End::Estranged(text) => Err(text.into()),
    }
}
