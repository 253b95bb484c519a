//! A member within the process of a test: on a simulated disk and without listeners. Tests call its services as the transport does.

use crate::cluster;
use crate::config::{self, Asked};
use crate::node::{self, Node, Running};
use crate::services::{METHODS, Services};
use crate::tls::Tls;
use api::Message;
use api::etcdserverpb::{
    AuthEnableRequest, AuthEnableResponse, AuthRoleAddRequest, AuthRoleAddResponse, AuthUserAddRequest,
    AuthUserAddResponse, AuthUserGrantRoleRequest, AuthUserGrantRoleResponse, AuthenticateRequest,
    AuthenticateResponse, MemberAddRequest,
};
use bytes::Bytes;
use disk::sim::SimDisk;
use rpc::{Address, LocalCall, LocalStream, Metadata, Peer, Responder, Service, Status};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use telemetry::logging;

/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running member, the only one of its cluster. Ends when dropped.
pub(crate) struct Rig {
    running: Option<Running>,
    services: Arc<Services>,
    lock_queue: Option<JoinHandle<()>>,
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// An answer to come.
pub(crate) struct Pending(rpc::LocalReply);

impl Pending {
    /// The answer of a call that may wait in vain if the member is at fault: the test fails then.
    pub(crate) fn take_in_time<A: Message + Default>(self, rig: &Rig) -> Result<A, Status> {
        let mut answer = Box::pin(self.0.answer());
        let mut taken = None;
        rig.wait_for("an answer", || {
            if let Poll::Ready(answered) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                taken = Some(answered);
            }
            taken.is_some()
        });
        let whole = taken.expect("it was waited for")?.into_whole().expect("as long as it says");
        Ok(A::decode(whole).expect("an answer of this kind"))
    }

    /// The answer, once it is there.
    pub(crate) fn take<A: Message + Default>(self) -> Result<A, Status> {
        let whole = block_on(self.0.answer())?.into_whole().expect("as long as it says");
        Ok(A::decode(whole).expect("an answer of this kind"))
    }
}

impl Rig {
    /// Starts it with these flags too; returns once it leads.
    pub(crate) fn start(flags: &[&str]) -> Rig {
        Rig::start_on(SimDisk::new(), flags)
    }

    /// The same on a disk that may have its files already.
    pub(crate) fn start_on(disk: SimDisk, flags: &[&str]) -> Rig {
        let args = [
            "--name=m",
            "--data-dir=/simulated",
            "--initial-advertise-peer-urls=http://127.0.0.1:1",
            "--initial-cluster=m=http://127.0.0.1:1",
            "--heartbeat-interval=20",
            "--election-timeout=100",
            "--bcrypt-cost=4",
            "--strict-reconfig-check=false",
            "--log-level=fatal",
        ];
        let args = args.iter().chain(flags).map(|flag| flag.to_string());
        let Ok(Asked::Serve(config)) = config::parse(args, []) else { panic!("these are flags") };
        logging::start(&config.logs).expect("standard error");
        let tls = Tls::start(&config).expect("no files");
        let running = node::start_on(Arc::new(disk), *config, Vec::new(), tls, None).expect("a member");
        assert!(cluster::publish::publish(&running.node).is_ok(), "nobody stops it");
        let services = Services::new(running.node.clone());
        let own = services.clone();
        let lock_queue = std::thread::spawn(move || own.run_lock_queue());
        let rig = Rig { running: Some(running), services, lock_queue: Some(lock_queue) };
        rig.wait_for("a leader", || rig.node().status.serves_local_reads());
        rig
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.running.as_ref().expect("it runs until it is dropped").node
    }

    /// Waits until something is so.
    pub(crate) fn wait_for(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn local(path: &str, token: Option<&str>) -> LocalCall {
        let method = METHODS.iter().position(|method| method.path == path).expect("a method");
        let metadata: Metadata = token.iter().map(|token| ("token", token)).collect();
        LocalCall { method, metadata, deadline: None, peer: Peer::unknown(Address::Unix) }
    }

    /// Begins a unary call.
    pub(crate) fn begin(&self, path: &str, token: Option<&str>, request: &impl Message) -> Pending {
        self.begin_raw(path, token, request.encode_to_vec().into())
    }

    /// The same with an encoded request.
    pub(crate) fn begin_raw(&self, path: &str, token: Option<&str>, message: Bytes) -> Pending {
        let LocalCall { method, metadata, deadline, peer } = Rig::local(path, token);
        let (responder, reply) = Responder::local();
        let call = rpc::Call { message, metadata, deadline, peer, is_alone: false };
        self.services.unary(method, call, responder);
        Pending(reply)
    }

    /// Begins a unary call of a client at another address, which ends in `host`.
    pub(crate) fn begin_from(&self, host: u8, path: &str, request: &impl Message) -> Pending {
        let LocalCall { method, metadata, deadline, .. } = Rig::local(path, None);
        let (responder, reply) = Responder::local();
        let peer = Peer::unknown(Address::Tcp(([10, 0, 0, host], 1).into()));
        let call = rpc::Call { message: request.encode_to_vec().into(), metadata, deadline, peer, is_alone: false };
        self.services.unary(method, call, responder);
        Pending(reply)
    }

    /// Makes a unary call.
    pub(crate) fn call<A: Message + Default>(
        &self,
        path: &str,
        token: Option<&str>,
        request: &impl Message,
    ) -> Result<A, Status> {
        self.begin(path, token, request).take()
    }

    /// Begins a stream, with its first message.
    pub(crate) fn stream(&self, path: &str, token: Option<&str>, request: &impl Message) -> LocalStream {
        self.stream_raw(path, token, request.encode_to_vec().into())
    }

    /// The same with an encoded message.
    pub(crate) fn stream_raw(&self, path: &str, token: Option<&str>, message: Bytes) -> LocalStream {
        let mut stream = Rig::local(path, token).stream(&*self.services).expect("a stream");
        stream.send(message);
        stream
    }

    /// Switches authentication on; the token of `root`, whose password is `pw`.
    pub(crate) fn enable_auth(&self) -> String {
        let add = AuthUserAddRequest { name: "root".into(), password: "pw".into(), ..Default::default() };
        let _: AuthUserAddResponse = self.call("/etcdserverpb.Auth/UserAdd", None, &add).expect("a user");
        let role = AuthRoleAddRequest { name: "root".into() };
        let _: AuthRoleAddResponse = self.call("/etcdserverpb.Auth/RoleAdd", None, &role).expect("a role");
        let grant = AuthUserGrantRoleRequest { user: "root".into(), role: "root".into() };
        let _: AuthUserGrantRoleResponse =
            self.call("/etcdserverpb.Auth/UserGrantRole", None, &grant).expect("granted");
        let _: AuthEnableResponse =
            self.call("/etcdserverpb.Auth/AuthEnable", None, &AuthEnableRequest::default()).expect("enabled");
        self.log_in("root", "pw").expect("a token")
    }

    /// A token.
    pub(crate) fn log_in(&self, name: &str, password: &str) -> Result<String, Status> {
        let request = AuthenticateRequest { name: name.into(), password: password.into() };
        let answer: AuthenticateResponse = self.call("/etcdserverpb.Auth/Authenticate", None, &request)?;
        Ok(answer.token)
    }

    /// Adds a voter that is not there: from now on no read index is answered, and nothing is committed.
    pub(crate) fn cut_off(&self, token: Option<&str>) {
        let request = MemberAddRequest { peer_ur_ls: vec!["http://127.0.0.1:2".into()], is_learner: false };
        let mut answer = Box::pin(self.begin("/etcdserverpb.Cluster/MemberAdd", token, &request).0.answer());
        self.wait_for("a second voter", || {
            if let Poll::Ready(Err(refused)) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                panic!("no member is added: {refused:?}");
            }
            !self.node().status.serves_local_reads()
        });
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.services.close_lock_queue();
        if let Some(running) = self.running.take() {
            running.stop();
        }
        if let Some(lock_queue) = self.lock_queue.take() {
            lock_queue.join().expect("no panic");
        }
    }
}
