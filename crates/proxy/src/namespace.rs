//! `--namespace`: a prefix that clients do not see, before every key of theirs.

use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, LeaseTimeToLiveResponse, PutRequest, PutResponse, RangeRequest,
    RangeResponse, RangeStreamResponse, TxnRequest, TxnResponse, WatchCreateRequest, WatchResponse,
};
use api::mvccpb::KeyValue;
use api::{Code, Message, decode};
use bytes::{Bytes, BytesMut};
use rpc::Status;

use crate::txn;

/// The prefix; empty for none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Namespace(Bytes);

impl Namespace {
    pub(crate) fn new(prefix: &str) -> Namespace {
        Namespace(Bytes::copy_from_slice(prefix.as_bytes()))
    }

    /// Whether keys are the same on both sides.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A key of the proxy's own as members know it.
    pub(crate) fn inside(&self, key: &[u8]) -> Bytes {
        self.joined(key)
    }

    fn joined(&self, key: &[u8]) -> Bytes {
        let mut joined = BytesMut::with_capacity(self.0.len().saturating_add(key.len()));
        joined.extend_from_slice(&self.0);
        joined.extend_from_slice(key);
        joined.freeze()
    }

    /// Puts a key into the namespace.
    fn enter(&self, key: &mut Bytes) -> Result<(), Status> {
        if key.is_empty() {
            return Err(api::Error::EmptyKey.into());
        }
        *key = self.joined(key);
        Ok(())
    }

    /// Puts the end of a range into it: that of all keys behind one is the end of the namespace.
    fn enter_end(&self, end: &mut Bytes) {
        if end.as_ref() == b"\0" {
            *end = client::prefix_end(&self.0);
        } else if !end.is_empty() {
            *end = self.joined(end);
        }
    }

    fn enter_range(&self, request: &mut RangeRequest) -> Result<(), Status> {
        self.enter_end(&mut request.range_end);
        self.enter(&mut request.key)
    }

    fn enter_delete(&self, request: &mut DeleteRangeRequest) -> Result<(), Status> {
        self.enter_end(&mut request.range_end);
        self.enter(&mut request.key)
    }

    fn enter_txn(&self, request: &mut TxnRequest) -> Result<(), Status> {
        // A list instead of calls inside each other: clients choose how deep transactions are.
        let mut open = vec![request];
        while let Some(txn) = open.pop() {
            for compare in &mut txn.compare {
                self.enter_end(&mut compare.range_end);
                self.enter(&mut compare.key)?;
            }
            for op in txn.success.iter_mut().chain(&mut txn.failure) {
                match &mut op.request {
                    Some(Request::RequestRange(request)) => self.enter_range(request)?,
                    Some(Request::RequestPut(request)) => self.enter(&mut request.key)?,
                    Some(Request::RequestDeleteRange(request)) => self.enter_delete(request)?,
                    Some(Request::RequestTxn(request)) => open.push(request),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// The request of a method, in the namespace.
    pub(crate) fn request(&self, path: &str, message: Bytes) -> Result<Bytes, Status> {
        if self.0.is_empty() {
            return Ok(message);
        }
        match path {
            "/etcdserverpb.KV/Range" | "/etcdserverpb.KV/RangeStream" => {
                rewritten(message, |request: &mut RangeRequest| self.enter_range(request))
            }
            "/etcdserverpb.KV/Put" => rewritten(message, |request: &mut PutRequest| self.enter(&mut request.key)),
            "/etcdserverpb.KV/DeleteRange" => {
                rewritten(message, |request: &mut DeleteRangeRequest| self.enter_delete(request))
            }
            "/etcdserverpb.KV/Txn" => {
                let mut request = txn::decode(message).map_err(|error| match error {
                    // As a member refuses it.
                    decode::Error::TooManyOps => api::Error::TooManyOps.into(),
                    _ => Status::new(Code::Internal, format!("grpc: error unmarshalling request: {error}")),
                })?;
                self.enter_txn(&mut request)?;
                Ok(request.encode_to_vec().into())
            }
            _ => Ok(message),
        }
    }

    /// The answer of a method, without the prefix.
    pub(crate) fn response(&self, path: &str, message: Bytes) -> Result<Bytes, Status> {
        if self.0.is_empty() {
            return Ok(message);
        }
        match path {
            "/etcdserverpb.KV/Range" => rewritten(message, |response: &mut RangeResponse| {
                self.leave_all(&mut response.kvs);
                Ok(())
            }),
            "/etcdserverpb.KV/RangeStream" => rewritten(message, |response: &mut RangeStreamResponse| {
                response.range_response.iter_mut().for_each(|response| self.leave_all(&mut response.kvs));
                Ok(())
            }),
            "/etcdserverpb.KV/Put" => rewritten(message, |response: &mut PutResponse| {
                response.prev_kv.iter_mut().for_each(|kv| self.leave(&mut kv.key));
                Ok(())
            }),
            "/etcdserverpb.KV/DeleteRange" => rewritten(message, |response: &mut DeleteRangeResponse| {
                self.leave_all(&mut response.prev_kvs);
                Ok(())
            }),
            "/etcdserverpb.KV/Txn" => rewritten(message, |response: &mut TxnResponse| {
                self.leave_txn(response);
                Ok(())
            }),
            "/etcdserverpb.Lease/LeaseTimeToLive" => rewritten(message, |response: &mut LeaseTimeToLiveResponse| {
                response.keys.retain(|key| key.starts_with(&self.0));
                response.keys.iter_mut().for_each(|key| self.leave(key));
                Ok(())
            }),
            _ => Ok(message),
        }
    }

    fn leave_txn(&self, response: &mut TxnResponse) {
        let mut open = vec![response];
        while let Some(txn) = open.pop() {
            for op in &mut txn.responses {
                match &mut op.response {
                    Some(Response::ResponseRange(response)) => self.leave_all(&mut response.kvs),
                    Some(Response::ResponsePut(response)) => {
                        response.prev_kv.iter_mut().for_each(|kv| self.leave(&mut kv.key));
                    }
                    Some(Response::ResponseDeleteRange(response)) => self.leave_all(&mut response.prev_kvs),
                    Some(Response::ResponseTxn(response)) => open.push(response),
                    None => {}
                }
            }
        }
    }

    fn leave_all(&self, kvs: &mut [KeyValue]) {
        kvs.iter_mut().for_each(|kv| self.leave(&mut kv.key));
    }

    /// Takes the prefix off a key, which has it: members were asked for no other.
    fn leave(&self, key: &mut Bytes) {
        if key.starts_with(&self.0) {
            *key = key.slice(self.0.len()..);
        }
    }

    /// Puts the keys of a watch into the namespace.
    pub(crate) fn watch(&self, request: &mut WatchCreateRequest) {
        if self.0.is_empty() {
            return;
        }
        // Without a key, a member takes the smallest there is.
        let key = if request.key.is_empty() { Bytes::from_static(b"\0") } else { std::mem::take(&mut request.key) };
        request.key = self.joined(&key);
        self.enter_end(&mut request.range_end);
    }

    /// Takes the prefix off the keys of events.
    pub(crate) fn events(&self, response: &mut WatchResponse) {
        if self.0.is_empty() {
            return;
        }
        for kv in response.events.iter_mut().flat_map(|event| event.kv.iter_mut().chain(&mut event.prev_kv)) {
            self.leave(&mut kv.key);
        }
    }
}

fn rewritten<M: Message + Default>(
    message: Bytes,
    rewrite: impl FnOnce(&mut M) -> Result<(), Status>,
) -> Result<Bytes, Status> {
    let unreadable = |error| Status::new(Code::Internal, format!("grpc: error unmarshalling request: {error}"));
    let mut message = M::decode(message).map_err(unreadable)?;
    rewrite(&mut message)?;
    Ok(message.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::{Compare, RequestOp, ResponseOp};

    #[test]
    fn keys_go_in_and_come_out() {
        let space = Namespace::new("ns/");
        let range = |key: &'static str, end: &'static [u8]| {
            let (key, range_end) = (Bytes::from_static(key.as_bytes()), Bytes::from_static(end));
            RangeRequest { key, range_end, ..RangeRequest::default() }
        };
        for (key, end, in_key, in_end) in [
            ("a", &b""[..], "ns/a", &b""[..]),
            ("a", b"b", "ns/a", b"ns/b"),
            ("a", b"\0", "ns/a", b"ns0"),
            ("\0", b"\0", "ns/\0", b"ns0"),
        ] {
            let message = space.request("/etcdserverpb.KV/Range", range(key, end).encode_to_vec().into()).expect("in");
            let request = RangeRequest::decode(message).expect("a request");
            assert_eq!((&request.key[..], &request.range_end[..]), (in_key.as_bytes(), in_end), "{key}");
        }
        let refused = space.request("/etcdserverpb.KV/Range", range("", b"\0").encode_to_vec().into());
        assert_eq!(refused.map_err(|status| status.message), Err("etcdserver: key is not provided".into()));
        let kv = KeyValue { key: Bytes::from_static(b"ns/a"), ..KeyValue::default() };
        let response = RangeResponse { kvs: vec![kv], ..RangeResponse::default() };
        let message = space.response("/etcdserverpb.KV/Range", response.encode_to_vec().into()).expect("out");
        assert_eq!(RangeResponse::decode(message).expect("a response").kvs[0].key, "a");
    }

    #[test]
    fn transactions_are_rewritten_however_deep() {
        let space = Namespace::new("n");
        let put = PutRequest { key: Bytes::from_static(b"k"), ..PutRequest::default() };
        let op = |request| RequestOp { request: Some(request) };
        let compare = Compare { key: Bytes::from_static(b"c"), ..Compare::default() };
        let mut txn =
            TxnRequest { compare: vec![compare], success: vec![op(Request::RequestPut(put))], failure: vec![] };
        for _ in 0..20 {
            txn = TxnRequest { failure: vec![op(Request::RequestTxn(txn))], ..TxnRequest::default() };
        }
        let message = space.request("/etcdserverpb.KV/Txn", txn.encode_to_vec().into()).expect("in");
        let mut txn = api::decode::txn(message, usize::MAX).expect("a transaction");
        while let Some(Request::RequestTxn(inner)) = txn.failure.first_mut().and_then(|op| op.request.take()) {
            txn = inner;
        }
        assert_eq!(txn.compare[0].key, "nc");
        let Some(Request::RequestPut(put)) = &txn.success[0].request else { panic!("no put") };
        assert_eq!(put.key, "nk");
        let kv = KeyValue { key: Bytes::from_static(b"nk"), ..KeyValue::default() };
        let response = Response::ResponsePut(PutResponse { prev_kv: Some(kv), ..PutResponse::default() });
        let answer = TxnResponse { responses: vec![ResponseOp { response: Some(response) }], ..TxnResponse::default() };
        let message = space.response("/etcdserverpb.KV/Txn", answer.encode_to_vec().into()).expect("out");
        let answer = TxnResponse::decode(message).expect("an answer");
        let Some(Response::ResponsePut(put)) = &answer.responses[0].response else { panic!("no put") };
        assert_eq!(put.prev_kv.as_ref().map(|kv| &kv.key[..]), Some(&b"k"[..]));
    }
}
