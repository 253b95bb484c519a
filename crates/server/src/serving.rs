//! The listeners of a member: metrics and health from the start, clients once the member is published or has waited for that a while.

use crate::config::{Config, IoPriority};
use crate::listening;
use crate::monitoring::Monitoring;
use crate::node::{self, Node};
use crate::services::{self, Services};
use crate::{system, tracing};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use telemetry::logging;

/// How long open calls and streams may take to end when the member stops; answers on their way get the time of a request.
const GRACE: Duration = Duration::from_millis(500);

/// What the transport of clients is bounded by.
pub(crate) fn transport_options(config: &Config) -> rpc::Options {
    let bounds = &config.transport;
    rpc::Options {
        threads: config.threads,
        message_bytes_max: config.max_request_bytes + api::limits::GRPC_OVERHEAD_BYTES,
        connections_max: bounds.connections_max.unwrap_or_else(system::connections_max),
        held_bytes_max: usize::try_from(bounds.held_bytes_max / 2).unwrap_or(usize::MAX),
        gathered_bytes_max: usize::try_from(config.incomplete_bytes_max()).unwrap_or(usize::MAX),
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

/// What serves clients, and who asks for metrics and health.
pub(crate) struct Serving {
    node: Arc<Node>,
    services: Arc<Services>,
    /// Until clients are served.
    listeners: Option<Vec<rpc::Listener>>,
    monitoring: Option<rpc::Server>,
    transport: Option<rpc::Server>,
    threads: Vec<JoinHandle<()>>,
}

impl Serving {
    /// Serves metrics and health at the addresses that have nothing else. A probe must be answered while the member waits for others:
    /// one that is not would have it killed.
    pub(crate) fn start(
        node: &Arc<Node>,
        metrics: Vec<rpc::Listener>,
        clients: Vec<rpc::Listener>,
    ) -> io::Result<Serving> {
        let services = Services::new(node.clone());
        let monitoring = match metrics.is_empty() {
            true => None,
            false => {
                let options = transport_options(&node.config);
                let connections_max = options.connections_max.min(system::monitoring_connections_max());
                let options = rpc::Options { threads: 1, connections_max, ..options };
                let server = rpc::Server::start(metrics, Arc::new(Monitoring(services.clone())), options)?;
                listening::announce_metrics(&node.config);
                Some(server)
            }
        };
        let (node, listeners) = (node.clone(), Some(clients));
        Ok(Serving { node, services, listeners, monitoring, transport: None, threads: Vec::new() })
    }

    /// Serves clients, if they are not served yet.
    pub(crate) fn open(&mut self, io_priority: Option<IoPriority>) -> io::Result<()> {
        let Some(listeners) = self.listeners.take() else { return Ok(()) };
        if let Some(priority) = io_priority {
            // Request threads take turns at the log; they have the priority of the thread that starts them.
            system::set_disk_priority(priority)?;
        }
        let transport = rpc::Server::start(listeners, self.services.clone(), transport_options(&self.node.config))?;
        self.services.set_stats(transport.stats());
        let (node, stats, held) = (self.node.clone(), transport.stats(), transport.held());
        self.transport = Some(transport);
        self.spawn("memory", move || node::memory::run(&node, &stats, &held))?;
        let node = self.node.clone();
        self.spawn("progress", move || services::run_progress(&node))?;
        if let Some(tracer) = self.node.tracer.clone() {
            self.spawn("traces", move || tracing::run(&tracer))?;
        }
        let own = self.services.clone();
        self.spawn("lock-queue", move || own.run_lock_queue())
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(body)?);
        Ok(())
    }

    /// Answers no more clients. The threads are waited for by [`Closed::join`], once the member has stopped.
    pub(crate) fn close(self) -> Closed {
        self.services.close_lock_queue();
        if let Some(shares) = &self.node.client_shares {
            shares.stop();
        }
        if let Some(transport) = self.transport {
            transport.shutdown(GRACE, self.node.config.request_timeout());
        }
        drop(self.monitoring);
        if let Some(audit) = &self.node.audit {
            audit.flush();
        }
        Closed { node: self.node, threads: self.threads }
    }
}

/// What is left of [`Serving`]: its threads end with the member.
pub(crate) struct Closed {
    node: Arc<Node>,
    threads: Vec<JoinHandle<()>>,
}

impl Closed {
    /// Waits for the threads.
    pub(crate) fn join(self) {
        if let Some(tracer) = &self.node.tracer {
            tracer.stop();
        }
        for thread in self.threads {
            // A panic has been reported by then.
            let _ = thread.join();
        }
    }
}

/// Says that clients are served before there is a quorum, and with what.
pub(crate) fn tell_early(config: &Config) {
    let urls: Vec<&str> = config.listen_client.iter().map(|listen| listen.url.as_str()).collect();
    logging::warn(
        "no quorum yet: serving health and metrics, and what a restarted member can answer alone (serializable reads, status, snapshots)",
        &[("address", (&urls.join(",")).into())],
    );
}
