//! `cairn gateway`: accepts TCP connections and passes each on to one of the members, byte by byte. It knows nothing of what is said in
//! them, TLS included.
//!
//! `settings` are the flags. `endpoints` finds the members: by name, or in DNS. `balancer` decides which member a connection goes to, and
//! leaves those out that do not answer; `probes` asks them again. `listener` accepts connections and gives them to a `worker`, which
//! dials (`dial`, with the addresses of `names`) and moves the bytes (`forward`), through the kernel alone where there are many (`pipe`).

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod balancer;
mod dial;
mod endpoints;
mod forward;
mod limits;
mod listener;
mod names;
mod pipe;
mod probes;
mod settings;
mod worker;

use dial::Dialer;
use flags::{Page, Parsed};
use listener::{Accepting, bind};
use settings::Settings;
use std::io::Write as _;
use std::sync::Arc;
use telemetry::logging::{self, Value};

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{0}")]
    Discovery(#[from] client::DiscoveryError),
    #[error("{0}")]
    Endpoints(#[from] endpoints::EndpointsError),
    #[error("listen tcp {address}: {error}")]
    Listen { address: String, error: std::io::Error },
    #[error("cannot start its threads: {0}")]
    Threads(std::io::Error),
}

/// The page of `gateway`, for completions and man pages.
pub fn page() -> Page {
    settings::PROGRAM.page()
}

/// Runs a command line (the words behind `gateway`) of the program that was started as `called`; returns the exit code.
pub fn run(called: &str, words: &[String]) -> i32 {
    settings::PROGRAM.run(called, words, |_, parsed| start(parsed))
}

fn start(parsed: &Parsed) -> i32 {
    logging::start_plain();
    contain::install(logging::panicked);
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    logging::info("Running: ", &[("args", Value::List(&words))]);
    let Err(error) = serve(&Settings::read(parsed));
    logging::flush();
    // What is wrong with an endpoint or the address goes where etcd has it.
    let text = format!("{error}\n");
    match error {
        StartError::Endpoints(_) => {
            let mut stdout = std::io::stdout().lock();
            // Nobody can be told that nobody reads this.
            let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        }
        _ => flags::say_bytes(text.as_bytes()),
    }
    1
}

/// Serves until a signal ends the process.
fn serve(settings: &Settings) -> Result<std::convert::Infallible, StartError> {
    host::end_at_signals();
    let targets = endpoints::find(settings)?;
    endpoints::check(&targets, &settings.listen)?;
    host::raise_open_files();
    if !host::return_memory_soon() {
        logging::warn("freed memory goes back to the system late: the allocator has no thread for it", &[]);
    }
    let listener =
        bind(&settings.listen).map_err(|error| StartError::Listen { address: settings.listen.clone(), error })?;
    let addresses: Vec<String> = targets.iter().map(ToString::to_string).collect();
    let count = worker::count();
    let limits = limits::Limits::of(host::open_files_limit(), count, targets.len());
    let dialer = Arc::new(Dialer::new(targets, settings.retry_delay));
    let workers = worker::start(count, &dialer, &limits).map_err(StartError::Threads)?;
    probes::start(dialer).map_err(StartError::Threads)?;
    logging::info("ready to proxy client requests", &[("endpoints", Value::List(&addresses))]);
    host::notify::ready();
    Accepting { listener, workers, connections_max: limits.connections }.run()
}
