//! Taking the snapshot of a leader that is etcd: its message and a database image, in one body.

use super::receive::{Answered, PROGRESS, busy, carry_out, checked, urls};
use crate::answers::{forbidden, refusal};
use crate::body::Body;
use crate::fault::Fault;
use crate::head::RequestHead;
use crate::identity::{self, CAIRN, SERVER_FROM};
use crate::rejection::rejected;
use crate::sender::note_sender;
use crate::shared::Shared;
use crate::timeouts::after;
use crate::wire::Wire;
use bytes::{Buf, Bytes, BytesMut};
use http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// Bytes of the message: the membership is in it.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Bytes that gather before they are written.
const BATCH_BYTES: usize = 1 << 20;
/// How long the message may take, and each batch.
const PATIENCE: Duration = Duration::from_secs(30);

/// Receives and installs it; an error is a refusal before anything was received.
pub(super) fn receive(
    shared: &Arc<Shared>,
    wire: &mut Wire,
    head: &RequestHead,
    address: &str,
) -> Result<Answered, Fault> {
    let headers = head.request.headers();
    note_sender(shared, headers);
    let from = identity::text(headers, &SERVER_FROM).and_then(identity::parse_id).unwrap_or_default();
    // A member that was down may not know yet who leads now: whoever can be reached may send one, but a member's goes first.
    let Some(peer) = shared.peer(from) else {
        rejected(address, &"a database image of a sender that is no member");
        return Ok(Err(forbidden("cannot process a snapshot of an unknown member").into()));
    };
    let mut body = ImageBody { wire, body: Body::new(head.framing), bytes: BytesMut::new() };
    let message = match body.message()? {
        Some(message) => message,
        None => {
            let text = "failed to decode raft message (its length is impossible)";
            rejected(address, &text);
            return Ok(Err(refusal(StatusCode::BAD_REQUEST, text).into()));
        }
    };
    let mut message = match checked(shared, message, address) {
        Ok(message) if message.from() == from => message,
        Ok(_) => {
            let text = "the message is from another member than its sender";
            return Ok(Err(refusal(StatusCode::BAD_REQUEST, text).into()));
        }
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let Some(snapshot) = &mut message.snapshot {
        // etcd's old store; the image has it all.
        snapshot.data = None;
    }
    let Some(turn) = shared.receiving.begin(peer.is_dialled.load(Ordering::SeqCst)) else { return Ok(Ok(busy())) };
    logging::info(
        "receiving database snapshot",
        &[("remote-snapshot-sender-id", Value::Shown(&format_args!("{from:x}")))],
    );
    let failed = |error: String| {
        logging::warn("failed to save incoming database snapshot", &[("error", (&error).into())]);
        Ok(Ok(refusal(StatusCode::INTERNAL_SERVER_ERROR, format!("failed to save KV snapshot ({error})"))))
    };
    let metadata = message.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.clone()).unwrap_or_default();
    let mut image = match shared.handler.image(from, urls(shared, headers, from), &metadata) {
        Ok(image) => image,
        Err(error) => return failed(error),
    };
    while let Some(bytes) = body.next(&turn.cancelled)? {
        if turn.cancelled.load(Ordering::SeqCst) {
            return failed("a newer one is offered".into());
        }
        if let Err(error) = image.write(&bytes) {
            return failed(error);
        }
    }
    let yield_cpu = shared.yield_cpu;
    let ImageBody { wire, .. } = body;
    let is_cairn = headers.contains_key(&CAIRN);
    let tell_progress = move || {
        // A member of etcd is told nothing: clients of Go take five interim answers at most.
        if is_cairn {
            // If the sender is gone, the image is installed all the same.
            let _ = wire.write_all(PROGRESS);
        }
    };
    Ok(Ok(carry_out(
        shared,
        from,
        turn,
        move || {
            yield_cpu();
            image.install(message)
        },
        tell_progress,
    )))
}

/// The body as it comes.
struct ImageBody<'a> {
    wire: &'a mut Wire,
    body: Body,
    bytes: BytesMut,
}

impl ImageBody<'_> {
    /// Eight bytes of length, and the message. None: it is too long, or cut off.
    fn message(&mut self) -> Result<Option<Bytes>, Fault> {
        let deadline = after(PATIENCE);
        while self.bytes.len() < 8 {
            if !self.more(deadline)? {
                return Ok(None);
            }
        }
        let length = self.bytes.get_u64();
        if length > MESSAGE_BYTES_MAX {
            return Ok(None);
        }
        let length = length as usize;
        while self.bytes.len() < length {
            if !self.more(deadline)? {
                return Ok(None);
            }
        }
        Ok(Some(self.bytes.split_to(length).freeze()))
    }

    /// The next bytes of the image; none at its end. Fewer once they are not wanted any more.
    fn next(&mut self, cancelled: &AtomicBool) -> Result<Option<BytesMut>, Fault> {
        let deadline = after(PATIENCE);
        while self.bytes.len() < BATCH_BYTES && !cancelled.load(Ordering::SeqCst) && self.more(deadline)? {}
        Ok(Some(self.bytes.split()).filter(|bytes| !bytes.is_empty()))
    }

    fn more(&mut self, deadline: Instant) -> Result<bool, Fault> {
        self.wire.receive(&mut self.body, &mut self.bytes, Some(deadline))
    }
}
