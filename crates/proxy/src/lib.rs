//! `cairn grpc-proxy`: serves the API by asking members.
//!
//! `settings` are the flags, `methods` the methods and which way each goes. `single` passes single calls on, on connections of the
//! client's own thread (`upstream`), within the memory that `held` grants; `stream` does it for streams. Clients with the same `identity`
//! share serializable `reads`, the stream of keep-alives of their `leases`, and their watches (`watch`); `places` bounds how many identities there are. `leasing` has reads of single keys
//! answered from memory. `order` keeps reads from going back,
//! `namespace` puts a prefix before keys, `txn` reads transactions, `tls` admits clients, `pages` are health and metrics (`question`), `logged` writes lines about calls. `upkeep` is
//! what the proxy asks members for itself.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

#[cfg(test)]
mod dice;
mod held;
mod identity;
mod leases;
mod leasing;
mod logged;
mod methods;
mod namespace;
mod on_way;
mod order;
mod pages;
mod places;
mod question;
mod reads;
mod service;
mod settings;
mod single;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod txn;
mod upkeep;
mod upstream;
mod watch;

use client::Endpoint;
use flags::{Page, Parsed};
use held::Held;
use leases::Leases;
use leasing::Leasing;
use namespace::Namespace;
use order::Order;
use rpc::{Acceptor, Gatekeeper, Listener, Server, Serves};
use service::{Common, Parts, Proxy};
use settings::Settings;
use std::net::TcpListener;
use std::sync::Arc;
use telemetry::logging::{self, Format, Level, Options, Output, Value};
use upstream::Upstream;
use watch::{Gauges, Live};

/// The largest request of a client, in bytes, as etcd's proxy has it.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{0}")]
    Value(String),
    #[error("{0}")]
    Discovery(#[from] client::DiscoveryError),
    #[error("{0}")]
    Endpoint(#[from] client::EndpointError),
    #[error("listen tcp {address}: {error}")]
    Listen { address: String, error: std::io::Error },
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
}

/// The page of `grpc-proxy`, for completions and man pages.
pub fn page() -> Page {
    settings::PROGRAM.page()
}

/// Runs a command line (the words behind `grpc-proxy`) of the program that was started as `called`; returns the exit code.
pub fn run(called: &str, words: &[String]) -> i32 {
    settings::PROGRAM.run(called, words, |_, parsed| start(parsed))
}

fn start(parsed: &Parsed) -> i32 {
    let served = Settings::read(parsed).and_then(|settings| {
        let level = if settings.debug { Level::Debug } else { Level::Info };
        let options = Options { level, format: Format::Json, outputs: vec![Output::Stderr], rotation: None };
        // Standard error needs no opening.
        let _ = logging::start(&options);
        contain::install(logging::panicked);
        serve(&settings)
    });
    let Err(error) = served else { return 0 };
    logging::flush();
    flags::say!("{error}");
    1
}

/// Serves until a signal ends the process.
fn serve(settings: &Settings) -> Result<(), StartError> {
    host::end_at_signals();
    host::raise_open_files();
    if !host::return_memory_soon() {
        logging::warn("freed memory goes back to the system late: the allocator has no thread for it", &[]);
    }
    if settings.security.skips_verification {
        logging::warn(
            "--insecure-skip-tls-verify was given: members are believed whoever they are; only for tests",
            &[],
        );
    }
    let gate = settings.tls.as_ref().map(tls::Gate::new).transpose().map_err(StartError::Value)?;
    let mut listeners = vec![listener(&settings.listen, gate.clone(), Serves::All)?];
    if let Some((address, is_secure)) = &settings.metrics {
        let gate = gate.filter(|_| *is_secure);
        if *is_secure && gate.is_none() {
            return Err(StartError::Value("--metrics-addr with https needs --cert-file and --key-file".into()));
        }
        listeners.push(listener(address, gate, Serves::Http)?);
        logging::info("gRPC proxy listening for metrics", &[("address", address.into())]);
    }
    logging::info("listening for gRPC proxy client requests", &[("address", (&settings.listen).into())]);
    // Files that cannot be used are told of now.
    let upstream = Upstream::new(settings.client(endpoints(settings)?));
    let upstream = Arc::new(upstream.map_err(|error| StartError::Value(error.to_string()))?);
    let common = Common {
        upstream,
        namespace: Namespace::new(&settings.namespace),
        held: Held::start(settings.held_bytes_max)?,
        live: Live::default(),
        gauges: Arc::<Gauges>::default(),
        reads: Arc::default(),
        leasing: settings.leasing_prefix.as_deref().map(Leasing::new).map(Arc::new),
        has_profiles: settings.has_profiles,
    };
    let order = settings.orders.then(Arc::<Order>::default);
    if let Some(order) = &order {
        upkeep::recover_order(&common.upstream, order)?;
    }
    if let Some(leasing) = &common.leasing {
        leasing::start(leasing.clone(), &common)?;
    }
    let parts = Parts {
        order,
        watches: watch::start(&common)?,
        leases: Leases::start(common.upstream.clone())?,
        proxies: upkeep::start(common.upstream.clone(), settings.sync_interval, settings.registration.clone())?,
        advertised: settings.advertised.clone(),
        logs_calls: settings.logs_calls,
    };
    let proxy = Proxy::new(common, parts);
    let server_options = rpc::Options {
        message_bytes_max: REQUEST_BYTES_MAX,
        concurrent_streams_max: settings.streams_max.min(api::limits::CONCURRENT_STREAMS_MAX),
        // What waits in connections, where no claim may be for it.
        held_bytes_max: usize::try_from(settings.held_bytes_max / 2).unwrap_or(usize::MAX),
        connections_max: host::connections_max(),
        gathered_bytes_max: usize::try_from(host::incomplete_bytes_max()).unwrap_or(usize::MAX),
        ping_interval_min: settings.keepalive.0,
        keepalive_interval: settings.keepalive.1,
        keepalive_timeout: settings.keepalive.2,
        ..rpc::Options::default()
    };
    let server = Server::start(listeners, Arc::new(proxy), server_options)?;
    logging::info("started gRPC proxy", &[("address", (&settings.listen).into())]);
    host::notify::ready();
    loop {
        // A signal ends the process; until then the threads of the server have everything.
        std::thread::park();
        let _ = &server;
    }
}

fn listener(address: &str, gate: Option<Arc<tls::Gate>>, serves: Serves) -> Result<Listener, StartError> {
    let listener = TcpListener::bind(address).map_err(|error| StartError::Listen { address: address.into(), error })?;
    let plaintext = gate.is_none();
    let gatekeeper = gate.map(|gate| gate as Arc<dyn Gatekeeper>);
    Ok(Listener { acceptor: Acceptor::Tcp(listener), gatekeeper, plaintext, serves })
}

/// The members: those that DNS names, and if it names none, those of `--endpoints`.
fn endpoints(settings: &Settings) -> Result<Vec<Endpoint>, StartError> {
    if let Some((domain, suffix, is_insecure)) = &settings.discovery {
        let mut found = client::discover_records(domain, suffix)?;
        let urls: Vec<String> = found.iter().map(client::Discovered::url).collect();
        let fields = [("srv-server", domain.into()), ("endpoints", Value::List(&urls))];
        logging::info("discovered cluster from SRV", &fields);
        if !is_insecure {
            let (good, wrong) = client::reachable(found, domain, settings.security.authorities.as_deref());
            if !wrong.is_empty() {
                let wrong = wrong.join(",");
                let fields = [("srv-server", domain.into()), ("error", (&wrong).into())];
                logging::warn("failed to validate discovered endpoints", &fields);
            }
            found = good;
        }
        if !found.is_empty() {
            return Ok(found.iter().map(|member| member.url().parse()).collect::<Result<_, _>>()?);
        }
    }
    Ok(settings.endpoints.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
}
