//! The walk, against a member that a test scripts.

use super::*;
use api::Message;
use api::etcdserverpb::ResponseHeader;
use api::mvccpb::KeyValue;
use rpc::{Call, HttpResponder, Kind, Method, Reply, Responder, Server, Service, Status, StreamCall, StreamHandler};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// A member with keys of these lengths. It compacts its history after the first page.
struct Scripted {
    keys: Vec<Bytes>,
    /// Limit and revision of each page that was asked for, and its bytes.
    pages: Mutex<Vec<(i64, i64, usize)>>,
    /// Keys whose value was asked for.
    sampled: Mutex<usize>,
    compacts: bool,
}

impl Scripted {
    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Status> {
        if request.range_end.is_empty() {
            *self.sampled.lock().expect("no panic") += 1;
            let kv = KeyValue { key: request.key.clone(), value: "value".into(), ..KeyValue::default() };
            return Ok(RangeResponse { kvs: vec![kv], ..RangeResponse::default() });
        }
        let mut pages = self.pages.lock().expect("no panic");
        let revision = if self.compacts && !pages.is_empty() { 9 } else { 5 };
        let is_gone = request.revision != 0 && request.revision < revision;
        let found: Vec<&Bytes> = self.keys.iter().filter(|key| **key >= request.key).collect();
        let limit = usize::try_from(request.limit).expect("a limit");
        let kvs: Vec<KeyValue> =
            found.iter().take(limit).map(|key| KeyValue { key: (*key).clone(), ..KeyValue::default() }).collect();
        let bytes = kvs.iter().map(|kv| kv.key.len()).sum();
        pages.push((request.limit, request.revision, if is_gone { 0 } else { bytes }));
        if is_gone {
            return Err(api::Error::Compacted.into());
        }
        let header = Some(ResponseHeader { revision, ..ResponseHeader::default() });
        Ok(RangeResponse { header, more: found.len() > limit, kvs, ..RangeResponse::default() })
    }
}

impl Service for Scripted {
    fn methods(&self) -> &'static [Method] {
        &[Method { path: "/etcdserverpb.KV/Range", kind: Kind::Unary }]
    }

    fn unary(&self, _method: usize, call: Call, responder: Responder) {
        let request = RangeRequest::decode(call.message).expect("a range");
        responder.send(self.range(&request).map(|answer| Reply::Whole(answer.encode_to_vec().into())));
    }

    fn stream(&self, _method: usize, _call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        unreachable!("there is no such method")
    }

    fn http(&self, _request: http::Request<Bytes>, _responder: HttpResponder) {}
}

/// Walks through keys of these lengths.
fn walk(lengths: impl Iterator<Item = usize>, compacts: bool) -> (Walked, Tally, Arc<Scripted>) {
    let key = |(number, length)| format!("{number:06}{}", "k".repeat(length)).into();
    let keys = lengths.enumerate().map(key).collect();
    let member = Arc::new(Scripted { keys, pages: Mutex::default(), sampled: Mutex::default(), compacts });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint: Endpoint = listener.local_addr().expect("an address").to_string().parse().expect("an endpoint");
    let options = rpc::Options { threads: 1, ..rpc::Options::default() };
    let _server = Server::start(vec![listener], member.clone(), options).expect("a server");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut tally = Tally::new(Bytes::new(), "/".into(), 0, 1, None);
    let walked = runtime.block_on(async {
        let client = Client::new(client::Options { endpoints: vec![endpoint], ..client::Options::default() });
        let client = client.expect("an endpoint");
        let walk = Walk { client: &client, is_exact: false, pause: Duration::ZERO, revision: 0, moved: false, keys: 0 };
        walk.all(&Bytes::new(), &mut tally).await
    });
    (walked.expect("it is answered"), tally, member)
}

#[test]
fn a_compaction_on_the_way_is_told_and_passed() {
    let (walked, tally, member) = walk((0..40).map(|_| 1), true);
    assert_eq!((walked.moved, walked.revision, tally.total().keys), (true, 9, 40));
    let asked: Vec<_> = member.pages.lock().expect("no panic").iter().map(|page| (page.0, page.1)).collect();
    assert_eq!(asked, [(16, 0), (32, 5), (32, 0)], "the page that is gone is read anew");
    let (walked, tally, _) = walk((0..40).map(|_| 1), false);
    assert_eq!((walked.moved, walked.revision, tally.total().keys), (false, 5, 40));
}

#[test]
fn pages_of_long_keys_have_few() {
    // Some short ones, then such as hardly go into a request.
    let lengths = (0..40).map(|_| 10).chain((0..60).map(|_| 400 << 10));
    let (_, tally, member) = walk(lengths, false);
    assert_eq!(tally.total().keys, 100);
    let pages = member.pages.lock().expect("no panic");
    let largest: Vec<usize> = pages.iter().map(|page| page.2).filter(|bytes| *bytes > 2 * PAGE_BYTES).collect();
    assert!(largest.len() <= 2, "only the page in which they begin, and one after it: {pages:?}");
    assert!(*member.sampled.lock().expect("no panic") <= 2, "one of a hundred keys, whatever the pages");
    assert_eq!(next_limit(500, 500, 50 * 500), 500);
    assert_eq!(next_limit(500, 500, 500 * PAGE_BYTES), 1);
    assert_eq!(next_limit(1, 1, 2 * PAGE_BYTES), 1);
    assert_eq!(next_limit(1, 1, 1), 2);
    assert_eq!(next_limit(16, 0, 0), 1, "the last page");
}
