//! The whole proxy before a member that the test plays.

use api::Message as _;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest};
use api::mvccpb::KeyValue;
use bytes::Bytes;
use parking_lot::Mutex;
use rpc::{
    Address, Call, HttpResponder, LocalCall, Metadata, Method, Outbound, Peer, Reply, Responder, Server, Service,
    Status, StreamCall, StreamHandler,
};
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::held::Held;
use crate::leases::Leases;
use crate::leasing::Leasing;
use crate::methods::METHODS;
use crate::namespace::Namespace;
use crate::order::Order;
use crate::reads::Reads;
use crate::service::{Common, Parts, Proxy};
use crate::single::TXN;
use crate::upkeep::Proxies;
use crate::upstream::Upstream;
use crate::watch;

/// The value that every read brings.
const VALUE_BYTES: usize = 600 << 10;
const FLOOD_BYTES: usize = 32 << 10;

/// Calls that are not answered yet.
type Kept = Vec<(Bytes, Responder)>;

/// A member that answers all calls as reads, and sends as much as it may on every stream.
#[derive(Clone, Default)]
struct Member {
    /// Bytes that it has sent on streams, as it believes.
    flooded: Arc<AtomicUsize>,
    /// Single calls that have come.
    asked: Arc<AtomicUsize>,
    /// Those that it keeps unanswered for now, if it does.
    kept: Arc<Mutex<Option<Kept>>>,
}

impl Member {
    /// From now on it answers no single call.
    fn keep(&self) {
        *self.kept.lock() = Some(Vec::new());
    }

    /// Answers those that it has kept.
    fn answer(&self) {
        let kept = self.kept.lock().take();
        kept.into_iter().flatten().for_each(|(message, responder)| answer(message, responder));
    }

    /// Waits until so many calls have come.
    async fn has_come(&self, calls: usize) {
        while self.asked.load(Ordering::SeqCst) < calls {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn answer(message: Bytes, responder: Responder) {
    let key = RangeRequest::decode(message).unwrap_or_default().key;
    let kvs = vec![KeyValue { key, value: vec![7; VALUE_BYTES].into(), ..KeyValue::default() }];
    let answer = RangeResponse { kvs, ..RangeResponse::default() };
    responder.send(Ok(Reply::Whole(answer.encode_to_vec().into())));
}

impl Service for Member {
    fn methods(&self) -> &'static [Method] {
        METHODS
    }

    fn unary(&self, _method: usize, call: Call, responder: Responder) {
        let mut kept = self.kept.lock();
        match &mut *kept {
            Some(kept) => kept.push((call.message, responder)),
            None => answer(call.message, responder),
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
    }

    fn stream(&self, _method: usize, _call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        Ok(Box::new(Flood(self.flooded.clone())))
    }

    fn http(&self, _request: http::Request<Bytes>, responder: HttpResponder) {
        drop(responder);
    }
}

struct Flood(Arc<AtomicUsize>);

impl StreamHandler for Flood {
    fn message(&mut self, _message: Bytes, out: &mut Outbound<'_>) {
        self.ready(out);
    }

    fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

    fn ready(&mut self, out: &mut Outbound<'_>) {
        while out.has_room() {
            self.0.fetch_add(FLOOD_BYTES, Ordering::SeqCst);
            out.send(vec![7; FLOOD_BYTES].into());
        }
    }
}

struct Fixture {
    proxy: Proxy,
    held: Held,
    reads: Arc<Reads>,
    member: Member,
    _server: Server,
}

fn fixture(namespace: &str) -> Fixture {
    fixture_with(namespace, None, None)
}

fn fixture_with(namespace: &str, leasing: Option<Leasing>, order: Option<Order>) -> Fixture {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = listener.local_addr().expect("bound").to_string().parse().expect("an endpoint");
    let member = Member::default();
    let server = Server::start(vec![listener], Arc::new(member.clone()), rpc::Options::default()).expect("a server");
    let options = client::Options { endpoints: vec![endpoint], call_timeout: None, ..client::Options::default() };
    let upstream = Arc::new(Upstream::new(options).expect("options"));
    let held = Held::start(64 << 20).expect("a thread");
    let reads = Arc::new(Reads::default());
    let common = Common {
        upstream: upstream.clone(),
        namespace: Namespace::new(namespace),
        held: held.clone(),
        live: Default::default(),
        gauges: Default::default(),
        reads: reads.clone(),
        leasing: leasing.map(Arc::new),
        has_profiles: false,
    };
    let parts = Parts {
        order: order.map(Arc::new),
        watches: watch::start(&common).expect("a thread"),
        leases: Leases::start(upstream).expect("a thread"),
        proxies: Proxies::default(),
        advertised: String::new(),
        logs_calls: false,
    };
    Fixture { proxy: Proxy::new(common, parts), held, reads, member, _server: server }
}

impl Fixture {
    fn held_bytes(&self) -> usize {
        self.held.usage().map(|pool| pool.held_bytes as usize).sum()
    }
}

fn call(path: &str) -> LocalCall {
    let method = METHODS.iter().position(|method| method.path == path).expect("a method");
    let client = Address::Tcp(([10, 0, 0, 1], 1).into());
    LocalCall { method, metadata: Metadata::default(), deadline: None, peer: Peer::unknown(client) }
}

#[tokio::test]
async fn answers_in_a_namespace_are_held_until_their_client_has_them() {
    for namespace in ["", "ns/"] {
        let fixture = fixture(namespace);
        let request = RangeRequest { key: "a".into(), ..RangeRequest::default() };
        let answer = call("/etcdserverpb.KV/Range").unary(&fixture.proxy, request.encode_to_vec().into()).await;
        let Ok(Reply::Whole(answer)) = answer else { panic!("no whole answer") };
        assert_eq!(RangeResponse::decode(answer.clone()).expect("an answer").kvs[0].key, "a");
        let held = fixture.held_bytes();
        assert!((VALUE_BYTES..VALUE_BYTES + 8192).contains(&held), "{held} with namespace {namespace:?}");
        drop(answer);
        // The request's own claim is dropped by a task.
        while fixture.held_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Answers are not waited for here: those of two addresses that are not taken leave no room for others, who are refused at once.
#[tokio::test]
async fn answers_that_are_refused_show_that_memory_is_short() {
    let fixture = fixture("");
    let range = async |host: u8, port: u16| {
        let mut call = call("/etcdserverpb.KV/Range");
        call.peer = Peer::unknown(Address::Tcp(([10, 0, 0, host], port).into()));
        let request = RangeRequest { key: "a".into(), ..RangeRequest::default() };
        call.unary(&fixture.proxy, request.encode_to_vec().into()).await
    };
    let is_short = |host: u8| fixture.proxy.is_short_of_memory(Address::Tcp(([10, 0, 0, host], 9).into()));
    let mut untaken = Vec::new();
    for (host, port) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        while let Ok(answer) = range(host, port).await {
            untaken.push(answer);
        }
    }
    assert!(untaken.len() * VALUE_BYTES > 28 << 20, "{} answers", untaken.len());
    assert!(![1, 2, 3].into_iter().any(is_short), "each connection has its share, and was refused for that");
    // And what is left, which is less than a share.
    let refused = loop {
        match range(3, 1).await {
            Ok(answer) => untaken.push(answer),
            Err(status) => break status.message,
        }
    };
    assert_eq!(refused, api::Error::TooManyRequests.message());
    assert!([1, 2, 3].into_iter().all(is_short));
}

#[tokio::test]
async fn streams_without_room_show_that_memory_is_short() {
    let fixture = fixture("");
    let client = |host: u8, port: u16| Address::Tcp(([10, 0, 0, host], port).into());
    let all = [(1, 1), (1, 2), (2, 1), (2, 2)]
        .map(|(host, port)| fixture.held.answers(client(host, port))(8 << 20).expect("room").expect("a claim"));
    assert!(!fixture.held.is_short(client(1, 1)));
    let mut observe = call("/v3electionpb.Election/Observe");
    observe.peer = Peer::unknown(client(3, 1));
    let _stream = observe.stream(&fixture.proxy).expect("a stream");
    let short = async {
        while !fixture.held.is_short(client(1, 1)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), short).await.expect("its stream needs room");
    drop(all);
}

#[tokio::test]
async fn what_a_member_sends_to_a_client_that_does_not_read_is_claimed() {
    let fixture = fixture("");
    let mut silent = call("/v3electionpb.Election/Observe").stream(&fixture.proxy).expect("a stream");
    silent.send(Bytes::new());
    silent.half_close();
    let (mut flooded, mut still) = (0, 0);
    while flooded == 0 || still < 100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = fixture.member.flooded.load(Ordering::SeqCst);
        still = if std::mem::replace(&mut flooded, now) == now { still + 1 } else { 0 };
    }
    // The member itself has as much waiting as it lets wait for a stream whose window is used up, and the kernel may have some.
    let sent = flooded - api::limits::STREAM_AHEAD_BYTES_MAX;
    let held = fixture.held_bytes();
    assert!(sent <= held + 2 * FLOOD_BYTES, "{sent} bytes are on their way to the client, and {held} are claimed");
    drop(silent);
    while fixture.held_bytes() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_transaction_that_waits_is_held_as_it_is_in_memory() {
    const OPS: usize = 10_000;
    let fixture = fixture_with("", Some(Leasing::new("l/")), None);
    fixture.member.keep();
    let put = PutRequest { key: "k".into(), ..PutRequest::default() };
    let mut success = vec![RequestOp { request: Some(Request::RequestPut(put)) }];
    success.resize(OPS, RequestOp::default());
    let message: Bytes = TxnRequest { success, ..TxnRequest::default() }.encode_to_vec().into();
    assert!(message.len() < 3 * OPS);
    let mut answer = pin!(call(TXN).unary(&fixture.proxy, message));
    tokio::select! {
        _ = &mut answer => panic!("nobody has answered it"),
        () = fixture.member.has_come(1) => {}
    }
    let held = fixture.held_bytes();
    assert!(held > OPS * size_of::<RequestOp>() * 2, "{held} bytes are held of {OPS} operations and their copy");
    fixture.member.answer();
    assert!(answer.await.is_err(), "it is not answered as a transaction is");
    while fixture.held_bytes() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_transaction_that_may_write_is_made_once_however_old_its_answer_is() {
    let order = Order::default();
    // The member's answers have revision 0.
    order.shows_revision(100);
    let fixture = fixture_with("", None, Some(order));
    let asked = async |request: Request| {
        let before = fixture.member.asked.load(Ordering::SeqCst);
        let inner = TxnRequest { failure: vec![RequestOp { request: Some(request) }], ..TxnRequest::default() };
        let success = vec![RequestOp { request: Some(Request::RequestTxn(inner)) }];
        let message = TxnRequest { success, ..TxnRequest::default() }.encode_to_vec();
        let answer = call(TXN).unary(&fixture.proxy, message.into()).await;
        (fixture.member.asked.load(Ordering::SeqCst) - before, answer.is_ok())
    };
    let (key, range_end) = (Bytes::from("a"), Bytes::from("b"));
    let put = PutRequest { key: key.clone(), ..PutRequest::default() };
    assert_eq!(asked(Request::RequestPut(put)).await, (1, true));
    let delete = DeleteRangeRequest { key: key.clone(), ..DeleteRangeRequest::default() };
    assert_eq!(asked(Request::RequestDeleteRange(delete.clone())).await, (1, true));
    assert_eq!(asked(Request::RequestDeleteRange(DeleteRangeRequest { range_end, ..delete })).await, (1, true));
    let range = RangeRequest { key, ..RangeRequest::default() };
    assert_eq!(asked(Request::RequestRange(range)).await, (5, false), "reads must not go back");
}

#[tokio::test]
async fn what_a_stream_sends_is_claimed_until_it_has_left() {
    let fixture = fixture("");
    let mut stream = call("/v3electionpb.Election/Observe").stream(&fixture.proxy).expect("a stream");
    stream.send(Bytes::new());
    stream.half_close();
    // Many more than wait beside those that are sent.
    let mut sent = Vec::new();
    while sent.len() * FLOOD_BYTES < 2 << 20 {
        let Ok(Reply::Whole(message)) = stream.next().await else { panic!("a message") };
        sent.push(message);
    }
    let held = fixture.held_bytes();
    assert!(held >= 2 << 20, "{held}");
    drop((stream, sent));
    while fixture.held_bytes() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Has the first client read something, and the second one the same while that is under way.
async fn read_at_once(fixture: &Fixture, key: Bytes, clients: [Address; 2]) -> [Result<Bytes, String>; 2] {
    let (asked, hits) = (fixture.member.asked.load(Ordering::SeqCst), fixture.reads.hits.load(Ordering::SeqCst));
    let message = RangeRequest { key, serializable: true, ..RangeRequest::default() }.encode_to_vec();
    let read = async |client: Address| {
        let mut call = call("/etcdserverpb.KV/Range");
        call.peer = Peer::unknown(client);
        match call.unary(&fixture.proxy, message.clone().into()).await {
            Ok(Reply::Whole(answer)) => Ok(answer),
            Ok(_) => panic!("no whole answer"),
            Err(status) => Err(status.message.into_owned()),
        }
    };
    fixture.member.keep();
    // However long the machine takes: an answer is shared for a second.
    fixture.reads.stands.lock().get_or_insert_with(std::time::Instant::now);
    let (first, second) = tokio::join!(read(clients[0]), async {
        fixture.member.has_come(asked + 1).await;
        let joined = async {
            while fixture.reads.hits.load(Ordering::SeqCst) == hits {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            fixture.member.answer();
        };
        tokio::join!(read(clients[1]), joined).0
    });
    [first, second]
}

#[tokio::test]
async fn an_answer_that_is_shared_is_on_the_account_of_each_that_has_not_read_it() {
    for namespace in ["", "ns/"] {
        let fixture = fixture(namespace);
        let client = |host: u8| Address::Tcp(([10, 0, 0, host], 1).into());
        let mut unread = Vec::new();
        // More than one client may hold.
        for number in 0..20_u8 {
            let key = vec![b'a' + number].into();
            let [first, second] = read_at_once(&fixture, key, [client(1), client(10 + number)]).await;
            assert!(first.is_ok(), "{number}: {first:?}");
            unread.push(second.expect("it has read nothing else"));
        }
        let held = fixture.held_bytes();
        assert!(held >= 20 * VALUE_BYTES, "{held}");
        // One that is answered from memory has it on its account as well.
        let message = RangeRequest { key: vec![b'a' + 19].into(), serializable: true, ..RangeRequest::default() };
        let asked = fixture.member.asked.load(Ordering::SeqCst);
        let again = call("/etcdserverpb.KV/Range").unary(&fixture.proxy, message.encode_to_vec().into()).await;
        assert_eq!((again.is_ok(), fixture.member.asked.load(Ordering::SeqCst)), (true, asked));
        assert!(fixture.held_bytes() >= held + VALUE_BYTES, "{held}");
        drop((unread, again));
        while fixture.held_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn who_joins_a_read_is_not_refused_for_want_of_room_of_the_first() {
    let fixture = fixture("");
    let client = |host: u8| Address::Tcp(([10, 0, 0, host], 1).into());
    let _share = fixture.held.answers(client(1))(8 << 20).expect("room").expect("a claim");
    let [first, second] = read_at_once(&fixture, "a".into(), [client(1), client(2)]).await;
    assert_eq!(first.map(drop), Err(api::Error::TooManyRequests.message().to_string()));
    assert!(second.is_ok(), "{second:?}");
    assert_eq!(fixture.member.asked.load(Ordering::SeqCst), 2, "it asks for itself");
}
