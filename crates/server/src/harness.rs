//! A member as a value, for tests that attack it from outside in their own process: on any disk, at free ports of loopback, and with a
//! clock that can be put forward. Between the sockets and the disk it runs the same code as the binary.

pub use crate::auth::{JsonWebTokens, TokenHolder};

use crate::cluster;
use crate::config::{self, Asked};
use crate::listening::Listening;
use crate::node::{self, Node, Running};
use crate::services::{self, METHODS, Services};
use crate::serving::transport_options;
use crate::system::End;
use crate::tls::Tls;
use api::schema;
use disk::Disk;
use rpc::{Acceptor, Kind};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long open calls may take to end when the member stops.
const GRACE: Duration = Duration::from_millis(20);

/// A method of the client port, from the table that the services have.
pub struct Method {
    /// `/etcdserverpb.KV/Range`.
    pub path: &'static str,
    /// How many messages go each way.
    pub kind: Kind,
    /// What a request is made of, if the schema knows it.
    pub request: Option<&'static schema::Message>,
    /// Its paths in the JSON gateway.
    pub http: Vec<&'static str>,
}

/// Every method there is.
pub fn methods() -> Vec<Method> {
    let method = |method: &rpc::Method| {
        let rows: Vec<_> = gateway::rows_of(method.path).collect();
        let request = rows.first().and_then(|(_, request)| *request);
        let streamed =
            method.path.ends_with("/RangeStream").then(|| schema::Message::find("etcdserverpb.RangeRequest"));
        Method {
            path: method.path,
            kind: method.kind,
            request: request.or_else(|| streamed.flatten()),
            http: rows.iter().map(|(path, _)| *path).collect(),
        }
    };
    METHODS.iter().map(method).collect()
}

/// A running member. Dropped without [`Member::stop`] it leaves its threads behind.
pub struct Member {
    running: Running,
    services: Arc<Services>,
    transport: rpc::Server,
    background: Vec<JoinHandle<()>>,
    told: Receiver<End>,
    ended: OnceLock<()>,
    clients: Vec<SocketAddr>,
    peers: Vec<SocketAddr>,
}

impl Member {
    /// Starts a member with a command line; returns once it serves. From then on no member of this process connects to peers outside of
    /// loopback.
    pub fn start(args: Vec<String>, disk: Arc<dyn Disk>) -> Result<Member, Box<dyn Error>> {
        let Ok(Asked::Serve(config)) = config::parse(args, []) else { return Err("this is no configuration".into()) };
        peer::LOOPBACK_ONLY.store(true, Ordering::Relaxed);
        telemetry::logging::start(&config.logs)?;
        let tls = Tls::start(&config)?;
        let listening = Listening::bind(&config, &tls)?;
        let address = |listener: &rpc::Listener| match &listener.acceptor {
            Acceptor::Tcp(socket) => socket.local_addr().ok(),
            Acceptor::Unix(_) => None,
        };
        let clients = listening.clients.iter().filter_map(address).collect();
        let peers = listening.peers.iter().filter_map(peer::Listener::address).collect();
        let options = transport_options(&config);
        let running = node::start_on(disk, *config, listening.peers, tls, None)?;
        let (tell, told) = channel();
        // It is set nowhere else.
        let _ = running.node.retired.set(tell);
        if cluster::publish::publish(&running.node).is_err() {
            running.stop();
            return Err("stopped before the member was published".into());
        }
        let services = Services::new(running.node.clone());
        let transport = rpc::Server::start(listening.clients, services.clone(), options)?;
        services.set_stats(transport.stats());
        let (progress, own) = (running.node.clone(), services.clone());
        let background = vec![
            std::thread::Builder::new().name("progress".into()).spawn(move || services::run_progress(&progress))?,
            std::thread::Builder::new().name("lock-queue".into()).spawn(move || own.run_lock_queue())?,
        ];
        Ok(Member { running, services, transport, background, told, ended: OnceLock::new(), clients, peers })
    }

    /// Ends it as a signal would, without handing leadership over.
    pub fn stop(self) {
        self.services.close_lock_queue();
        self.transport.shutdown(GRACE, GRACE);
        self.running.stop();
        for thread in self.background {
            // A panic has been reported by then.
            let _ = thread.join();
        }
    }

    fn node(&self) -> &Arc<Node> {
        &self.running.node
    }

    /// Where clients are served, in the order of `--listen-client-urls`.
    pub fn clients(&self) -> &[SocketAddr] {
        &self.clients
    }

    /// Where peers are served, in the order of `--listen-peer-urls`.
    pub fn peers(&self) -> &[SocketAddr] {
        &self.peers
    }

    /// This member's id, and its cluster's.
    pub fn ids(&self) -> (u64, u64) {
        (self.node().member_id, self.node().cluster_id)
    }

    /// The term, and what is committed in the Raft log.
    pub fn position(&self) -> (u64, u64) {
        (self.node().status.term(), self.node().status.committed())
    }

    /// The revision of the store.
    pub fn revision(&self) -> i64 {
        self.node().store.revision()
    }

    /// The revision of users and roles, and whether they count.
    pub fn auth(&self) -> (u64, bool) {
        let auth = self.node().store.auth();
        (auth.revision(), auth.is_enabled())
    }

    /// Alarms that are up.
    pub fn alarms(&self) -> usize {
        self.node().store.alarms().len()
    }

    /// The ids of the members, and whether each is a learner.
    pub fn members(&self) -> Vec<(u64, bool)> {
        self.node().store.members().members.values().map(|member| (member.id, member.is_learner)).collect()
    }

    /// Lets time pass at once, as far as leases, tokens and time-outs of requests are concerned.
    pub fn advance_clock(&self, ms: u64) {
        self.node().advance_clock(ms);
    }

    /// Whether its cluster has removed it.
    pub fn has_ended(&self) -> bool {
        if !matches!(self.told.try_recv(), Err(TryRecvError::Empty)) {
            self.ended.get_or_init(|| ());
        }
        self.ended.get().is_some()
    }
}
