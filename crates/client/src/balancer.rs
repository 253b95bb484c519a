//! Choosing the member for the next call.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rpc::Status;
use rpc::client::Channel;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use crate::security::Guard;
use crate::{Endpoint, EndpointError, Options, OptionsError};
use crate::{backoff, retry};

/// How long a call waits at most before it looks again whether there is a connection.
const LOOK: Duration = Duration::from_secs(1);
/// How long a call that is passed on waits for a connection to some member: less than the five seconds that many clients give a call, so
/// that they hear why.
const REACH_MAX: Duration = Duration::from_secs(4);

/// The members that are connected, in turn. Connections are made beside the calls: a member that cannot be reached, or that does not
/// speak, holds nobody up for as long as there is another.
pub(crate) struct Balancer {
    members: Vec<Arc<Member>>,
    next: AtomicUsize,
    news: Arc<News>,
}

/// What those who wait for a connection are told.
#[derive(Default)]
struct News {
    /// Somebody was reached, or not.
    changed: Notify,
    /// Why a call failed that was made again since.
    failure: Mutex<Option<String>>,
    /// Why a member could not be reached. Of calls on another one that says nothing.
    unreached: Mutex<Option<String>>,
}

/// One endpoint and the connection to it.
pub(crate) struct Member {
    pub(crate) endpoint: Endpoint,
    pub(crate) channel: Channel,
    /// How that is encrypted.
    pub(crate) encryption: Option<rpc::client::Encryption>,
    /// Whether it runs in the zone of the client.
    is_near: AtomicBool,
    dialling: Mutex<Dialling>,
}

/// How a member's next connection comes along.
#[derive(Default)]
struct Dialling {
    is_under_way: bool,
    /// Failed attempts since the member was last reached.
    failures: u32,
    /// When the next attempt may begin, after one that failed.
    due: Option<Instant>,
}

impl Balancer {
    pub(crate) fn new(options: &Options) -> Result<Balancer, OptionsError> {
        if options.endpoints.is_empty() {
            return Err(EndpointError::None.into());
        }
        let security = &options.security;
        let guard = match options.endpoints.iter().any(|endpoint| security.covers(endpoint)) {
            true => Some(Guard::new(security).map_err(OptionsError::Security)?),
            false => None,
        };
        let defaults = rpc::client::Options::default();
        let channel_options = rpc::client::Options {
            stream_window_bytes: options.stream_window_bytes.unwrap_or(defaults.stream_window_bytes),
            connect_timeout: options.connect_timeout,
            keepalive_interval: options.keepalive_interval,
            keepalive_timeout: options.keepalive_timeout,
            pings_idle: options.pings_idle,
            message_bytes_max: options.answer_bytes_max,
            ..defaults
        };
        let members = options.endpoints.iter().map(|endpoint| {
            let mut channel_options = channel_options.clone();
            if let Some(guard) = guard.as_ref().filter(|_| security.covers(endpoint)) {
                channel_options.tls = Some(guard.clone().encryption(endpoint).map_err(OptionsError::Security)?);
            }
            let encryption = channel_options.tls.clone();
            let channel = Channel::new(endpoint.address(), channel_options);
            Ok(Arc::new(Member {
                endpoint: endpoint.clone(),
                channel,
                encryption,
                is_near: false.into(),
                dialling: Mutex::default(),
            }))
        });
        let members = members.collect::<Result<_, OptionsError>>()?;
        // Clients that each make one call go to all members, too.
        let first = RandomState::new().hash_one(0_u8) as usize;
        Ok(Balancer { members, next: AtomicUsize::new(first), news: Arc::default() })
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// Why the last attempt failed that was followed by another: a call, or a connection as long as there is none.
    pub(crate) fn failure(&self) -> Option<String> {
        let unreached = || self.news.unreached.lock().clone();
        let is_connected = self.members.iter().any(|member| member.channel.is_connected());
        if is_connected {
            self.news.failure.lock().clone()
        } else {
            unreached().or_else(|| self.news.failure.lock().clone())
        }
    }

    /// Keeps why an attempt failed that is followed by another.
    pub(crate) fn failed(&self, why: &str) {
        *self.news.failure.lock() = Some(why.into());
    }

    /// Connects to this member, however early that is for another attempt. Calls that wait for a connection are told.
    pub(crate) async fn connect(&self, member: &Member) -> Result<(), Status> {
        member.channel.connect().await?;
        if member.reached() {
            self.news.reached();
            self.news.changed.notify_waiters();
        }
        Ok(())
    }

    /// The member of this turn among those that are connected, if any is. Those that are not are dialled.
    fn connected(&self, turn: usize, prefers_near: bool) -> Option<Arc<Member>> {
        let connected = || self.members.iter().filter(|member| member.channel.is_connected());
        if prefers_near {
            let near = || connected().filter(|member| member.is_near.load(Ordering::Relaxed));
            let place = turn.checked_rem(near().count());
            if let Some(member) = place.and_then(|place| near().cycle().nth(place)) {
                return Some(member.clone());
            }
        }
        let count = connected().count();
        if count < self.members.len() {
            let now = Instant::now();
            let (before, after) = self.members.split_at(turn.wrapping_rem(self.members.len()));
            after.iter().chain(before).for_each(|member| member.dial(now, &self.news));
        }
        // One may have gone since they were counted; then the next one is as good.
        connected().cycle().nth(turn.checked_rem(count)?).cloned()
    }

    /// A member that is connected, the next in turn. Waits for as long as there is none.
    pub(crate) async fn pick(&self) -> Arc<Member> {
        self.pick_among(false).await
    }

    /// The same for a call that is passed on.
    ///
    /// # Errors
    /// If none is connected within [`REACH_MAX`]: its client may know somebody else who can be reached.
    pub(crate) async fn pick_soon(&self) -> Result<Arc<Member>, Status> {
        match timeout(REACH_MAX, self.pick()).await {
            Ok(member) => Ok(member),
            Err(_) => Err(retry::unreached(self.news.unreached.lock().as_deref())),
        }
    }

    /// The same as [`Balancer::pick`], of those in the client's zone if any of these is connected.
    pub(crate) async fn pick_near(&self) -> Arc<Member> {
        self.pick_among(true).await
    }

    async fn pick_among(&self, prefers_near: bool) -> Arc<Member> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        loop {
            if let Some(member) = self.connected(turn, prefers_near) {
                return member;
            }
            let mut changed = std::pin::pin!(self.news.changed.notified());
            // What happens from here on is heard of.
            changed.as_mut().enable();
            if let Some(member) = self.connected(turn, prefers_near) {
                return member;
            }
            let now = Instant::now();
            // Then some member may be dialled again.
            let due = self.members.iter().filter_map(|member| member.due()).min();
            let _ = timeout_at(due.unwrap_or(now + LOOK).min(now + LOOK), changed).await;
        }
    }
}

impl News {
    fn reached(&self) {
        *self.failure.lock() = None;
        *self.unreached.lock() = None;
    }
}

impl Member {
    /// Notes whether it runs in the zone of the client.
    pub(crate) fn set_near(&self, is_near: bool) {
        self.is_near.store(is_near, Ordering::Relaxed);
    }

    /// It is connected: attempts that failed before are forgotten. Tells whether there were any.
    fn reached(&self) -> bool {
        let mut dialling = self.dialling.lock();
        let failures = std::mem::take(&mut dialling.failures);
        dialling.due = None;
        failures > 0
    }

    /// Has the connection made, unless there is one, or it is too early for another attempt.
    fn dial(self: &Arc<Self>, now: Instant, news: &Arc<News>) {
        {
            let mut dialling = self.dialling.lock();
            let is_early = dialling.due.is_some_and(|due| now < due);
            if dialling.is_under_way || is_early || self.channel.is_connected() {
                return;
            }
            dialling.is_under_way = true;
        }
        let attempt = Attempt { member: self.clone(), news: news.clone() };
        tokio::spawn(async move {
            match attempt.member.channel.connect().await {
                Ok(()) => {
                    attempt.member.reached();
                    attempt.news.reached();
                }
                Err(status) => {
                    let mut dialling = attempt.member.dialling.lock();
                    dialling.failures = dialling.failures.saturating_add(1);
                    dialling.due = Some(Instant::now() + backoff::after(dialling.failures));
                    *attempt.news.unreached.lock() = Some(status.message.to_string());
                }
            }
        });
    }

    /// When another attempt to reach it may begin, unless one is under way.
    fn due(&self) -> Option<Instant> {
        let dialling = self.dialling.lock();
        dialling.due.filter(|_| !dialling.is_under_way)
    }
}

/// An attempt to reach a member. Its end is told however it came, even with the runtime that it was made on.
struct Attempt {
    member: Arc<Member>,
    news: Arc<News>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.member.dialling.lock().is_under_way = false;
        self.news.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use api::etcdserverpb::StatusRequest;
    use bytes::Bytes;
    use rpc::{Call, HttpResponder, Kind, Method, Reply, Responder, Server, Service, StreamCall, StreamHandler};
    use std::net::TcpListener;

    /// A member that tells how it is.
    struct Told;

    impl Service for Told {
        fn methods(&self) -> &'static [Method] {
            &[Method { path: "/etcdserverpb.Maintenance/Status", kind: Kind::Unary }]
        }

        fn unary(&self, _method: usize, _call: Call, responder: Responder) {
            responder.send(Ok(Reply::Whole(Bytes::new())));
        }

        fn stream(&self, _method: usize, _call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
            unreachable!("there is no such method")
        }

        fn http(&self, _request: http::Request<Bytes>, _responder: HttpResponder) {}
    }

    #[tokio::test]
    async fn a_call_that_is_passed_on_ends_if_nobody_can_be_reached() {
        // Nobody listens at port 1. A port that was free a moment ago may be another test's by now.
        let endpoints = vec!["127.0.0.1:1".parse().expect("an endpoint")];
        let client = Client::new(Options { endpoints, ..Options::default() }).expect("options");
        let metadata = rpc::Metadata::default();
        let call = client.forward("/etcdserverpb.KV/Range", &metadata, Bytes::new(), None, true, None);
        let stream = client.forward_stream("/etcdserverpb.Watch/Watch", &metadata, None);
        let patience = Instant::now() + Duration::from_secs(60);
        let (call, stream) = timeout_at(patience, async { tokio::join!(call, stream) }).await.expect("both end");
        for status in [call.map(drop).unwrap_err(), stream.map(drop).unwrap_err()] {
            assert!(retry::is_unreached(&status), "{status:?}");
            assert!(status.message.contains("refused"), "{status:?}");
        }
    }

    #[tokio::test]
    async fn a_member_that_was_asked_by_name_is_there_for_all() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint: Endpoint = listener.local_addr().expect("an address").to_string().parse().expect("an endpoint");
        let options = rpc::Options { threads: 1, ..rpc::Options::default() };
        let _server = Server::start(vec![listener], Arc::new(Told), options).expect("a server");
        let client = Client::new(Options { endpoints: vec![endpoint.clone()], ..Options::default() }).expect("options");
        let balancer = &client.inner.balancer;
        let member = balancer.members()[0].clone();
        {
            let mut dialling = member.dialling.lock();
            dialling.failures = 10;
            dialling.due = Some(Instant::now() + Duration::from_secs(3600));
        }
        let mut picked = std::pin::pin!(balancer.pick());
        assert!(timeout_at(Instant::now(), &mut picked).await.is_err(), "it is too early for another attempt");
        client.status(&endpoint, StatusRequest {}).await.expect("it is up");
        assert_eq!(member.due(), None);
        assert_eq!(member.dialling.lock().failures, 0);
        assert!(timeout_at(Instant::now(), &mut picked).await.is_ok(), "told at once, not at the next look");
    }
}
