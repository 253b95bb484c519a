//! The client against members that a test scripts.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::etcdserverpb::watch_request::RequestUnion;
use api::etcdserverpb::*;
use api::mvccpb::{Event, KeyValue};
use api::{Code, Message};
use bytes::Bytes;
use client::{Client, Endpoint, Error, Options};
use rpc::{
    Call, HttpResponder, Kind, Metadata, Method, Outbound, Reply, Responder, Server, Service, Status, StreamCall,
    StreamHandler,
};
use tokio::net::TcpSocket;

const METHODS: &[Method] = &[
    Method { path: "/etcdserverpb.KV/Range", kind: Kind::Unary },
    Method { path: "/etcdserverpb.KV/Put", kind: Kind::Unary },
    Method { path: "/etcdserverpb.Auth/Authenticate", kind: Kind::Unary },
    Method { path: "/etcdserverpb.Watch/Watch", kind: Kind::Bidi },
];

/// Revisions of a store in which each revision is one put.
const REVISION: i64 = 10;
/// Events after which a stream breaks.
const STREAM_EVENTS: i64 = 7;
/// How long a busy machine may take until a client has connected to a second member.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a member is asked, and how it behaves.
#[derive(Default)]
struct Script {
    ranges: AtomicUsize,
    puts: AtomicUsize,
    tokens: AtomicUsize,
    streams: AtomicUsize,
    /// It answers that it has no leader.
    is_ill: AtomicBool,
    /// It does nothing that voters do.
    is_learner: AtomicBool,
    /// It answers to ranges that it has no leader.
    is_unread: AtomicBool,
    /// It wants the newest token.
    wants_token: AtomicBool,
    /// What a watch asks for before this is compacted.
    compacted: AtomicUsize,
    /// Watches tell of events before they are created.
    is_hasty: AtomicBool,
    /// Watches are told in an answer that their token is of no use, as etcd does it.
    cancels: AtomicBool,
    /// Those who ask for a token wait.
    is_slow: AtomicBool,
    waiting: Mutex<Vec<Responder>>,
}

struct Scripted(Arc<Script>);

impl Scripted {
    fn admit(&self, metadata: &Metadata) -> Result<(), Status> {
        if self.0.is_ill.load(Ordering::SeqCst) {
            return Err(api::Error::NoLeader.into());
        }
        if self.0.is_learner.load(Ordering::SeqCst) {
            return Err(api::Error::NotSupportedForLearner.into());
        }
        let newest = format!("token.{}", self.0.tokens.load(Ordering::SeqCst));
        if self.0.wants_token.load(Ordering::SeqCst) && metadata.get("token") != Some(newest.as_bytes()) {
            return Err(api::Error::InvalidAuthToken.into());
        }
        Ok(())
    }
}

impl Service for Scripted {
    fn methods(&self) -> &'static [Method] {
        METHODS
    }

    fn unary(&self, method: usize, call: Call, responder: Responder) {
        let counter = [&self.0.ranges, &self.0.puts, &self.0.tokens][method];
        counter.fetch_add(1, Ordering::SeqCst);
        if method == 2 && self.0.is_slow.load(Ordering::SeqCst) {
            return self.0.waiting.lock().expect("no panic").push(responder);
        }
        if method == 2 {
            let token = format!("token.{}", self.0.tokens.load(Ordering::SeqCst));
            let answer = AuthenticateResponse { header: None, token };
            return responder.send(Ok(Reply::Whole(answer.encode_to_vec().into())));
        }
        if method == 0 && self.0.is_unread.load(Ordering::SeqCst) {
            return responder.send(Err(api::Error::NoLeader.into()));
        }
        responder.send(self.admit(&call.metadata).map(|()| Reply::Whole(Bytes::new())));
    }

    fn stream(&self, _method: usize, call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        self.0.streams.fetch_add(1, Ordering::SeqCst);
        match self.admit(&call.metadata) {
            Err(status) if self.0.cancels.load(Ordering::SeqCst) => {
                Ok(Box::new(Watch(self.0.clone(), status.message.to_string())))
            }
            admitted => admitted.map(|()| -> Box<dyn StreamHandler> { Box::new(Watch(self.0.clone(), String::new())) }),
        }
    }

    fn http(&self, _request: http::Request<Bytes>, _responder: HttpResponder) {}
}

/// Tells of a few events, then breaks; or is cancelled for a reason.
struct Watch(Arc<Script>, String);

impl StreamHandler for Watch {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        let request = WatchRequest::decode(message).expect("a watch request");
        let Some(RequestUnion::CreateRequest(create)) = request.request_union else { panic!("no creation") };
        let mut send = |response: WatchResponse| out.send(response.encode_to_vec().into());
        let header = |revision| Some(ResponseHeader { revision, ..Default::default() });
        if !self.1.is_empty() {
            let cancel_reason = self.1.clone();
            return send(WatchResponse { created: true, canceled: true, cancel_reason, ..Default::default() });
        }
        let compacted = self.0.compacted.load(Ordering::SeqCst) as i64;
        if create.start_revision < compacted {
            send(WatchResponse { canceled: true, compact_revision: compacted, ..Default::default() });
            return;
        }
        if !self.0.is_hasty.load(Ordering::SeqCst) {
            send(WatchResponse { header: header(REVISION), created: true, ..Default::default() });
        }
        for revision in create.start_revision..create.start_revision + STREAM_EVENTS {
            let kv = KeyValue { key: "key".into(), mod_revision: revision, ..Default::default() };
            let events = vec![Event { kv: Some(kv), ..Default::default() }];
            // Each revision has two events, which come in two pieces.
            let fragment =
                |fragment, events| WatchResponse { header: header(revision), fragment, events, ..Default::default() };
            send(fragment(true, events.clone()));
            // The last revision of a stream is cut in half.
            if revision + 1 < create.start_revision + STREAM_EVENTS {
                send(fragment(false, events));
            }
        }
        out.finish(Status::new(Code::Unavailable, "the member goes"));
    }

    fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

    fn ready(&mut self, _out: &mut Outbound<'_>) {}
}

struct Member {
    script: Arc<Script>,
    endpoint: Endpoint,
    _server: Server,
}

fn member() -> Member {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = listener.local_addr().expect("an address").to_string().parse().expect("an endpoint");
    let script = Arc::new(Script::default());
    let options = rpc::Options { threads: 1, ..rpc::Options::default() };
    let server = Server::start(vec![listener], Arc::new(Scripted(script.clone())), options).expect("a server");
    Member { script, endpoint, _server: server }
}

fn client(endpoints: &[Endpoint]) -> Client {
    let user = Some(("root".into(), "secret".into()));
    let call_timeout = Some(Duration::from_secs(2));
    Client::new(Options { endpoints: endpoints.to_vec(), user, call_timeout, ..Options::default() }).expect("endpoints")
}

/// An endpoint where nobody is.
fn nobody() -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string().parse().expect("an endpoint")
}

#[tokio::test]
async fn reads_go_to_members_that_are_well_and_writes_are_not_done_twice() {
    let (well, ill) = (member(), member());
    ill.script.is_ill.store(true, Ordering::SeqCst);
    let client = client(&[nobody(), ill.endpoint.clone(), well.endpoint.clone()]);
    // Members are asked as soon as they are connected, and which one that is first is chance.
    let mut reads = 0;
    let end = Instant::now() + PATIENCE;
    while reads < 10 || (ill.script.ranges.load(Ordering::SeqCst) == 0 && Instant::now() < end) {
        client.range(RangeRequest::default()).await.expect("an answer of the one that is well");
        reads += 1;
    }
    assert_eq!(well.script.ranges.load(Ordering::SeqCst), reads);
    assert!(ill.script.ranges.load(Ordering::SeqCst) > 0);
    let mut refused = 0;
    for _ in 0..10 {
        match client.put(PutRequest::default()).await {
            Ok(_) => {}
            Err(error) if error.is(api::Error::NoLeader) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let asked = [&well, &ill].map(|member| member.script.puts.load(Ordering::SeqCst));
    assert_eq!(asked, [10 - refused, refused], "each put was sent once");
}

#[tokio::test]
async fn what_a_learner_refuses_goes_to_a_voter() {
    let (voter, learner) = (member(), member());
    learner.script.is_learner.store(true, Ordering::SeqCst);
    let both = client(&[learner.endpoint.clone(), voter.endpoint.clone()]);
    let is_unasked =
        |learner: &Script| learner.puts.load(Ordering::SeqCst) == 0 || learner.streams.load(Ordering::SeqCst) == 0;
    let mut puts = 0;
    let end = Instant::now() + PATIENCE;
    while puts < 10 || (is_unasked(&learner.script) && Instant::now() < end) {
        both.put(PutRequest::default()).await.expect("an answer of the voter");
        let mut watcher = both.watch(WatchCreateRequest { start_revision: 1, ..Default::default() });
        watcher.next().await.expect("events of the voter");
        puts += 1;
    }
    assert_eq!(voter.script.puts.load(Ordering::SeqCst), puts);
    assert!(!is_unasked(&learner.script));
    // With nobody else to ask that is the answer, and among learners alone after a while.
    let alone = client(std::slice::from_ref(&learner.endpoint));
    let error = alone.put(PutRequest::default()).await.expect_err("a learner");
    assert!(error.is(api::Error::NotSupportedForLearner), "{error}");
    voter.script.is_learner.store(true, Ordering::SeqCst);
    let error = both.put(PutRequest::default()).await.expect_err("learners");
    assert!(error.is(api::Error::NotSupportedForLearner) || error.code() == Some(Code::DeadlineExceeded), "{error}");
}

#[tokio::test]
async fn calls_end_in_time_and_say_why() {
    let client = client(&[nobody()]);
    let error = client.range(RangeRequest::default()).await.expect_err("nobody is there");
    assert_eq!(error.code(), Some(Code::DeadlineExceeded));
    assert!(error.to_string().contains("cannot connect to"), "{error}");
}

#[tokio::test]
async fn a_member_that_is_away_is_no_reason_for_one_that_is_slow() {
    let slow = member();
    slow.script.is_slow.store(true, Ordering::SeqCst);
    let client = client(&[nobody(), slow.endpoint.clone()]);
    for _ in 0..3 {
        let error = client.range(RangeRequest::default()).await.expect_err("nobody gives a token");
        assert_eq!(error.code(), Some(Code::DeadlineExceeded));
        assert!(!error.to_string().contains("cannot connect to"), "{error}");
    }
}

/// An endpoint that takes connections and never speaks.
fn hung() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = listener.local_addr().expect("an address").to_string().parse().expect("an endpoint");
    (listener, endpoint)
}

#[tokio::test]
async fn a_member_that_never_speaks_holds_nobody_up() {
    let (_listener, hung) = hung();
    let well = member();
    let endpoints = vec![hung, nobody(), well.endpoint.clone()];
    // The call is over long before the connection would be given up.
    let (connect_timeout, call_timeout) = (Duration::from_secs(600), Some(PATIENCE));
    let client =
        Client::new(Options { endpoints, connect_timeout, call_timeout, ..Options::default() }).expect("a client");
    let begun = Instant::now();
    for _ in 0..10 {
        client.put(PutRequest::default()).await.expect("an answer of the one that is well");
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert_eq!(well.script.puts.load(Ordering::SeqCst), 10);
}

#[tokio::test]
async fn a_call_without_a_deadline_waits_for_a_member_to_come() {
    // Taken, so that no other test gets the port, but not listened at.
    let late = TcpSocket::new_v4().expect("a socket");
    late.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let address = late.local_addr().expect("an address");
    let endpoint: Endpoint = address.to_string().parse().expect("an endpoint");
    // No time to connect is too long to be reckoned with.
    let options = Options { call_timeout: None, connect_timeout: Duration::MAX, ..Options::default() };
    let client = Client::new(Options { endpoints: vec![endpoint], ..options }).expect("a client");
    let put = tokio::spawn(async move { client.put(PutRequest::default()).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!put.is_finished(), "nobody was there to answer");
    let script = Arc::new(Script::default());
    let options = rpc::Options { threads: 1, ..rpc::Options::default() };
    let listener = late.listen(8).and_then(tokio::net::TcpListener::into_std).expect("the same port");
    let _server = Server::start(vec![listener], Arc::new(Scripted(script.clone())), options).expect("a server");
    let answer = tokio::time::timeout(PATIENCE, put).await.expect("an answer soon");
    answer.expect("the task ends").expect("an answer");
    assert_eq!(script.puts.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn one_token_serves_all_calls_until_it_is_refused() {
    let member = member();
    member.script.wants_token.store(true, Ordering::SeqCst);
    let client = client(std::slice::from_ref(&member.endpoint));
    let calls: Vec<_> = (0..20).map(|_| client.clone()).collect();
    let calls: Vec<_> = calls
        .into_iter()
        .map(|client| tokio::spawn(async move { client.range(RangeRequest::default()).await }))
        .collect();
    for call in calls {
        call.await.expect("no panic").expect("an answer");
    }
    assert_eq!(member.script.tokens.load(Ordering::SeqCst), 1);
    // The member forgets the token: a write is made again, since it was refused before anything was done.
    member.script.tokens.fetch_add(1, Ordering::SeqCst);
    client.put(PutRequest::default()).await.expect("an answer with another token");
    assert_eq!(member.script.tokens.load(Ordering::SeqCst), 3);
    assert_eq!(member.script.puts.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_watch_goes_on_elsewhere_without_gap_or_repeat() {
    let members = [member(), member()];
    let client = client(&[members[0].endpoint.clone(), nobody(), members[1].endpoint.clone()]);
    let mut watcher = client.watch(WatchCreateRequest { key: "key".into(), start_revision: 3, ..Default::default() });
    let are_asked = || members.iter().all(|member| member.script.streams.load(Ordering::SeqCst) > 2);
    let end = Instant::now() + PATIENCE;
    for wanted in 3.. {
        if wanted >= 60 && (are_asked() || Instant::now() > end) {
            break;
        }
        let watched = watcher.next().await.expect("events");
        let revisions: Vec<_> =
            watched.events.iter().filter_map(|event| Some(event.kv.as_ref()?.mod_revision)).collect();
        assert_eq!(revisions, [wanted, wanted], "both events of one revision, together and once");
    }
    assert!(are_asked(), "both members were asked");
    for member in &members {
        member.script.compacted.store(1000, Ordering::SeqCst);
    }
    let error = loop {
        match watcher.next().await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::Compacted { revision: 1000 });
    assert_eq!(watcher.next().await, Err(error), "it stays so");
}

#[tokio::test]
async fn a_cached_prefix_outlives_a_list_that_cannot_be_had() {
    let member = member();
    // Every watch has to list again.
    member.script.compacted.store(1000, Ordering::SeqCst);
    let endpoints = vec![member.endpoint.clone()];
    let call_timeout = Some(Duration::from_secs(2));
    let client = Client::new(Options { endpoints, call_timeout, ..Options::default() }).expect("a client");
    let cached = client.cached_prefix("key").await.expect("a list");
    member.script.is_unread.store(true, Ordering::SeqCst);
    // With 50 ms between its attempts, a list makes no more than 41 of them in its time. After more than that, one has failed.
    let attempts = || member.script.ranges.load(Ordering::SeqCst);
    let (before, end) = (attempts(), Instant::now() + PATIENCE);
    while attempts() < before + 50 {
        assert!(Instant::now() < end, "it does not list again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    member.script.compacted.store(0, Ordering::SeqCst);
    member.script.is_unread.store(false, Ordering::SeqCst);
    let reached = tokio::time::timeout(PATIENCE, cached.reached(STREAM_EVENTS - 1)).await;
    reached.expect("it follows again").expect("it has not ended");
}

#[tokio::test]
async fn a_member_that_tells_of_a_watch_that_is_not_there_is_an_error() {
    let member = member();
    member.script.is_hasty.store(true, Ordering::SeqCst);
    let client = client(std::slice::from_ref(&member.endpoint));
    let mut watcher = client.watch(WatchCreateRequest { key: "key".into(), start_revision: 3, ..Default::default() });
    assert!(matches!(watcher.created().await, Err(Error::Unreadable { .. })));
    assert!(watcher.next().await.is_err());
}

/// Reads on until revision `to`, and checks that none is left out.
async fn follow(watcher: &mut client::Watcher, to: i64) {
    while watcher.next_revision() <= to {
        let wanted = watcher.next_revision();
        let watched = watcher.next().await.expect("events");
        assert_eq!(watched.revision, wanted);
    }
}

#[tokio::test]
async fn a_watch_survives_a_member_that_breaks_it_and_forgets_its_token() {
    for cancels in [false, true] {
        let member = member();
        member.script.wants_token.store(true, Ordering::SeqCst);
        member.script.cancels.store(cancels, Ordering::SeqCst);
        let client = client(std::slice::from_ref(&member.endpoint));
        let request = WatchCreateRequest { key: "key".into(), start_revision: 3, ..Default::default() };
        let mut watcher = client.watch(request);
        for round in 1..4 {
            // The last events of a stream: then it breaks, and the token is worth nothing to the next one.
            follow(&mut watcher, 2 + round * (STREAM_EVENTS - 1)).await;
            member.script.tokens.fetch_add(1, Ordering::SeqCst);
        }
        follow(&mut watcher, 4 + 3 * (STREAM_EVENTS - 1)).await;
        assert_eq!(member.script.tokens.load(Ordering::SeqCst), 7, "a token for each that was forgotten");
    }
}

#[tokio::test]
async fn a_watch_that_is_given_up_while_it_gets_a_token_goes_on() {
    let member = member();
    member.script.wants_token.store(true, Ordering::SeqCst);
    let client = client(std::slice::from_ref(&member.endpoint));
    let request = WatchCreateRequest { key: "key".into(), start_revision: 3, ..Default::default() };
    let mut watcher = client.watch(request);
    follow(&mut watcher, 4).await;
    member.script.is_slow.store(true, Ordering::SeqCst);
    member.script.tokens.fetch_add(1, Ordering::SeqCst);
    // The rest of this stream, then nothing for want of a token.
    while member.script.waiting.lock().expect("no panic").is_empty() {
        let _ = tokio::time::timeout(Duration::from_millis(20), watcher.next()).await;
    }
    member.script.is_slow.store(false, Ordering::SeqCst);
    let to = watcher.next_revision() + STREAM_EVENTS;
    follow(&mut watcher, to).await;
}
