//! The service of the proxy: which way each call goes.

use api::Message as _;
use api::etcdserverpb::{Member, MemberListResponse};
use bytes::Bytes;
use contain::Contained;
use rpc::{
    Address, Call, HttpResponder, Kind, Metadata, Method, Origin, Reply, Responder, Service, Status, StreamCall,
    StreamHandler,
};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use telemetry::logging::{self, Pace, Value};
use tokio::sync::mpsc::UnboundedSender;

use crate::held::Held;
use crate::identity::Identity;
use crate::leases::Leases;
use crate::leasing::Leasing;
use crate::logged;
use crate::methods::{METHODS, WAYS, Way};
use crate::namespace::Namespace;
use crate::order::Order;
use crate::pages::Pages;
use crate::reads::Reads;
use crate::single::{Asked, Singles};
use crate::stream::{Passage, Passing};
use crate::upkeep::{Proxies, host_name};
use crate::upstream::Upstream;
use crate::watch::{Command, Gauges, Live, Mailbox, Watching};

/// The metadata of clients that members get. Everything else belongs to the connection to the proxy.
const PASSED_ON: [&[u8]; 7] =
    [b"token", b"authorization", b"hasleader", b"client-api-version", b"traceparent", b"tracestate", b"baggage"];
/// How often a call looks whether its client still waits.
const GONE_LOOK: Duration = Duration::from_millis(200);

/// What there is for all clients.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) namespace: Namespace,
    pub(crate) held: Held,
    pub(crate) live: Live,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) reads: Arc<Reads>,
    /// With `--experimental-leasing-prefix`.
    pub(crate) leasing: Option<Arc<Leasing>>,
    /// `/debug/pprof/` is answered.
    pub(crate) has_profiles: bool,
}

/// What only the service needs.
pub(crate) struct Parts {
    pub(crate) order: Option<Arc<Order>>,
    pub(crate) watches: UnboundedSender<Command>,
    pub(crate) leases: Leases,
    /// The proxies that the list of members shows, if there are any.
    pub(crate) proxies: Proxies,
    /// Shown by it otherwise; empty for the members.
    pub(crate) advertised: String,
    /// A line is written for each call.
    pub(crate) logs_calls: bool,
}

/// The proxy.
pub(crate) struct Proxy {
    common: Common,
    parts: Parts,
    singles: Singles,
    last_stream: AtomicU64,
    pages: Pages,
    turned_away: Pace,
}

impl Proxy {
    pub(crate) fn new(common: Common, parts: Parts) -> Proxy {
        let Common { upstream, namespace, held, reads, leasing, .. } = common.clone();
        let order = parts.order.clone();
        Proxy {
            parts,
            singles: Singles { upstream, namespace, held, reads, order, leasing },
            last_stream: AtomicU64::new(1),
            pages: Pages::new(common.clone()),
            common,
            turned_away: Pace::new(),
        }
    }

    /// The list of members as the proxy itself answers it: the proxies that have registered themselves, or this one.
    fn members(&self) -> Option<Bytes> {
        let advertised = &self.parts.advertised;
        if advertised.is_empty() {
            return None;
        }
        let mut members = self.parts.proxies.members();
        if members.is_empty() {
            let name = host_name();
            members.push(Member { name, client_ur_ls: vec![advertised.clone()], ..Member::default() });
        }
        Some(MemberListResponse { members, ..MemberListResponse::default() }.encode_to_vec().into())
    }
}

/// What members are sent of a call's metadata.
fn passed_on(metadata: &Metadata) -> Metadata {
    metadata.iter().filter(|(name, _)| PASSED_ON.contains(name)).collect()
}

impl Proxy {
    /// Begins a stream.
    fn begin(
        &self,
        path: &'static str,
        kind: Kind,
        way: Way,
        call: StreamCall,
    ) -> Result<Box<dyn StreamHandler>, Status> {
        let Common { upstream, namespace, held, live, .. } = self.common.clone();
        let client = call.peer.address;
        match way {
            Way::Watch => {
                let id = self.last_stream.fetch_add(1, Ordering::Relaxed);
                let waker = call.waker.clone();
                let mailbox = Arc::new(Mailbox::new(move || waker.wake(), live, held.stream(client)));
                let (identity, commands) = (Identity::of(&call.metadata), self.parts.watches.clone());
                let (own, origin) = (held.begun(identity.bytes(), client)?, Origin::of(client.ip()));
                // The thread of watches never ends before the process.
                let _ = commands.send(Command::Open(id, origin, identity, mailbox.clone(), own));
                let (claim, later) = (held.requests(client), VecDeque::new());
                Ok(Box::new(Watching { id, mailbox, commands, namespace, claim, later }))
            }
            Way::KeepAlive => {
                let identity = Identity::of(&call.metadata);
                let claims = (held.begun(identity.bytes(), client)?, held.requests(client));
                Ok(Box::new(self.parts.leases.open(identity, Origin::of(client.ip()), call.waker.clone(), claims)))
            }
            _ => {
                let namespace = if way == Way::KeysStream { namespace } else { Namespace::default() };
                let (metadata, is_single) = (passed_on(&call.metadata), kind == Kind::ServerStream);
                let passage = Passage { upstream, path, metadata, is_single, namespace };
                Ok(Box::new(Passing::begin(passage, &call, held.requests(client), held.stream(client))))
            }
        }
    }
}

impl Service for Proxy {
    fn methods(&self) -> &'static [Method] {
        METHODS
    }

    fn unary(&self, method: usize, call: Call, responder: Responder) {
        let (Some(Method { path, .. }), Some(way)) = (METHODS.get(method), WAYS.get(method)) else { return };
        let responder =
            if self.parts.logs_calls { logged::unary(responder, path, call.peer.address) } else { responder };
        if *way == Way::Members
            && let Some(list) = self.members()
        {
            return responder.send(Ok(Reply::Whole(list)));
        }
        let metadata = passed_on(&call.metadata);
        let (message, client) = (call.message, call.peer.address);
        let claim = self.common.held.call(message.len().saturating_add(metadata.held_bytes()), client);
        let timeout = call.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let asked = Asked { path, way: *way, message, metadata, timeout, client, claim };
        let singles = self.singles.clone();
        tokio::spawn(Contained::new(async move {
            let mut answering = std::pin::pin!(singles.answer(asked));
            let answer = loop {
                match tokio::time::timeout(GONE_LOOK, &mut answering).await {
                    Ok(answer) => break answer,
                    Err(_) if responder.is_canceled() => return,
                    Err(_) => {}
                }
            };
            responder.send(answer.map(Reply::Whole));
        }));
    }

    fn stream(&self, method: usize, call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        let (Some(Method { path, kind }), Some(way)) = (METHODS.get(method), WAYS.get(method)) else {
            return Err(Status::new(api::Code::Unimplemented, "unknown method"));
        };
        let client = call.peer.address;
        let handler = self.begin(path, *kind, *way, call)?;
        Ok(if self.parts.logs_calls { logged::stream(handler, path, client) } else { handler })
    }

    fn http(&self, request: http::Request<Bytes>, responder: HttpResponder) {
        match self.common.upstream.client() {
            Ok(upstream) => self.pages.answer(upstream, &request, responder),
            Err(_) => drop(responder),
        }
    }

    fn is_short_of_memory(&self, client: Address) -> bool {
        self.common.held.is_short(client)
    }

    fn turned_away(&self, why: &dyn fmt::Display) {
        if let Some(left_out) = self.turned_away.line() {
            let fields = [("error", Value::Shown(why)), ("lines-left-out", left_out.into())];
            logging::warn("turned client connections away", &fields);
        }
    }
}
