//! Calls with a record in the audit log, which is written when they end.

use crate::audit::{Audit, Class, Named, Record};
use crate::auth::Caller;
use crate::node::{Node, Weight};
use api::Code;
use api::etcdserverpb::WatchCreateRequest;
use api::varint;
use budget::Claim;
use bytes::Bytes;
use rpc::{Call, Outbound, Peer, Reply, Responder, StreamCall, StreamHandler};
use std::sync::Arc;

/// A record, and who it is about.
struct Entry {
    node: Arc<Node>,
    record: Record,
    caller: Caller,
    /// Counts a record of a long request; short ones are counted with their requests.
    _held: Option<Claim>,
}

impl Entry {
    fn end(self, audit: &Audit, code: Code, succeeded: Option<bool>) {
        audit.write(self.record.end(&self.caller.user(&self.node), code, succeeded));
    }
}

/// Has the answer to a unary call recorded. A call whose record finds no room in memory is refused: none goes unrecorded.
pub(super) fn unary(node: &Arc<Node>, path: &str, call: &Call, responder: Responder) -> Option<Responder> {
    // A message can only turn out to be less than its method says.
    let Some(audit) = node.audit.as_ref().filter(|audit| audit.wants(Class::of(path))) else { return Some(responder) };
    let (class, named) = audit.names(path, &call.message);
    if !audit.wants(class) {
        return Some(responder);
    }
    let record = audit.begin(node.member_id, &call.peer, path, class, &named);
    let held = Weight::of(record.held_bytes(), call.peer.address).claim(&node.budget);
    let (held, refusal) = held.map_or_else(|error| (None, Some(error)), |held| (held, None));
    let entry = Entry { node: node.clone(), record, caller: Caller::of(node, call), _held: held };
    let own = audit.clone();
    let is_txn = path == TXN;
    let responder = responder.notify(move |answer| {
        let succeeded = answer.ok().filter(|_| is_txn).and_then(succeeded);
        entry.end(&own, answer.err().unwrap_or(Code::Ok), succeeded);
    });
    match refusal {
        None => Some(responder),
        Some(error) => {
            responder.send(Err(error.into()));
            None
        }
    }
}

const TXN: &str = "/etcdserverpb.KV/Txn";

/// Whether the comparisons of a transaction held, of its answer. One that is made while it is sent does not tell; only answers of
/// transactions that write nothing are.
fn succeeded(reply: &Reply) -> Option<bool> {
    const HEADER: u64 = 1 << 3 | 2;
    const SUCCEEDED: u64 = 2 << 3;
    let Reply::Whole(message) = reply else { return None };
    let mut rest = message.as_ref();
    let mut key = varint::take(&mut rest);
    if key == Some(HEADER) {
        let len = usize::try_from(varint::take(&mut rest)?).ok()?;
        rest = rest.get(len..)?;
        key = varint::take(&mut rest);
    }
    // What is false is left out.
    Some(key == Some(SUCCEEDED) && varint::take(&mut rest) == Some(1))
}

/// The record of a stream.
pub(super) struct Stream {
    audit: Arc<Audit>,
    /// Until the stream has ended.
    entry: Option<Entry>,
    path: &'static str,
    has_message: bool,
    /// The status that the stream has ended with.
    code: Option<Code>,
}

/// Begins the record of a stream, if streams of this method are recorded. Watches are recorded one by one: see [`Watches`].
pub(super) fn stream(node: &Arc<Node>, path: &'static str, call: &StreamCall) -> Option<Stream> {
    let (audit, class) = (node.audit.as_ref()?, Class::of(path));
    if !audit.wants(class) || path == WATCH {
        return None;
    }
    let record = audit.begin(node.member_id, &call.peer, path, class, &Named::default());
    let entry = Entry { node: node.clone(), record, caller: Caller::of_stream(node, call), _held: None };
    Some(Stream { audit: audit.clone(), entry: Some(entry), path, has_message: false, code: None })
}

impl Stream {
    /// The stream was refused before it began.
    pub(super) fn refused(mut self, code: Code) {
        self.code = Some(code);
    }

    fn message(&mut self, message: &Bytes) {
        if !std::mem::replace(&mut self.has_message, true)
            && let Some(entry) = &mut self.entry
        {
            entry.record.add(&self.audit.names(self.path, message).1);
        }
    }
}

/// A stream that ends without a status was given up by its client.
impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            entry.end(&self.audit, self.code.unwrap_or(Code::Canceled), None);
        }
    }
}

/// The handler of a recorded stream.
pub(super) struct Audited {
    pub(super) inner: Box<dyn StreamHandler>,
    pub(super) stream: Stream,
}

impl StreamHandler for Audited {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        self.stream.message(&message);
        self.inner.message(message, out);
        self.stream.code = out.end_code();
    }

    fn half_closed(&mut self, out: &mut Outbound<'_>) {
        self.inner.half_closed(out);
        self.stream.code = out.end_code();
    }

    fn ready(&mut self, out: &mut Outbound<'_>) {
        self.inner.ready(out);
        self.stream.code = out.end_code();
    }

    fn answers_in_a_crowd(&self) -> bool {
        self.inner.answers_in_a_crowd()
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes()
    }
}

const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// Records the watches of a stream.
pub(super) struct Watches {
    audit: Arc<Audit>,
    peer: Peer,
    caller: Caller,
}

impl Watches {
    pub(super) fn of(node: &Node, call: &StreamCall) -> Option<Watches> {
        let audit = node.audit.as_ref().filter(|audit| audit.wants(Class::Read))?.clone();
        Some(Watches { audit, peer: call.peer.clone(), caller: Caller::of_stream(node, call) })
    }

    /// A watch was created, or refused.
    pub(super) fn record(&self, node: &Node, request: &WatchCreateRequest, code: Code) {
        let record = self.audit.begin(node.member_id, &self.peer, WATCH, Class::Read, &Named::watch(request));
        self.audit.write(record.end(&self.caller.user(node), code, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use api::etcdserverpb::{ResponseHeader, ResponseOp, TxnResponse};

    #[test]
    fn which_branch_ran_is_read_from_the_answer() {
        let header = ResponseHeader { revision: 1 << 40, ..Default::default() };
        for header in [None, Some(ResponseHeader::default()), Some(header)] {
            for succeeded in [false, true] {
                let answer = TxnResponse { header, succeeded, responses: vec![ResponseOp::default()] };
                let message: Bytes = answer.encode_to_vec().into();
                assert_eq!(super::succeeded(&Reply::Whole(message)), Some(succeeded), "{header:?}");
            }
        }
        assert_eq!(succeeded(&Reply::Whole(Bytes::new())), Some(false));
        assert_eq!(succeeded(&Reply::Whole(Bytes::from_static(&[0x0a, 9, 0]))), None);
    }
}
