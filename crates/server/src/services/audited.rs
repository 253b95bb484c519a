//! Calls with a record in the audit log, which is written when they end.

use crate::audit::{Audit, Class, Named, Record};
use crate::auth::Caller;
use crate::node::{Node, Weight};
use api::Code;
use api::etcdserverpb::WatchCreateRequest;
use budget::Claim;
use bytes::Bytes;
use rpc::{Call, Outbound, Peer, Responder, StreamCall, StreamHandler};
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
    fn end(self, audit: &Audit, code: Code) {
        audit.write(self.record.end(&self.caller.user(&self.node), code));
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
    let responder = responder.notify(move |code| entry.end(&own, code));
    match refusal {
        None => Some(responder),
        Some(error) => {
            responder.send(Err(error.into()));
            None
        }
    }
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
            entry.end(&self.audit, self.code.unwrap_or(Code::Canceled));
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
        self.audit.write(record.end(&self.caller.user(node), code));
    }
}
