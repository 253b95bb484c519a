//! Large bodies, and the memory that all of them may take together.

use crate::body::Body;
use crate::fault::Fault;
use crate::head::{Framing, RequestHead};
use crate::sender::member;
use crate::shared::Shared;
use crate::timeouts::after;
use crate::wire::Wire;
use bytes::BytesMut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes of bodies that may be received at once, on all connections of members together and on all of non-members.
const BODIES_BYTES_MAX: usize = 256 << 20;
/// Bodies of at most this many bytes do not count.
const SMALL_BODY_BYTES: usize = 256 << 10;
/// How long a body may take to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A body and its share of the memory of all bodies.
pub(crate) struct LargeBody<'a> {
    pub(crate) bytes: BytesMut,
    all: &'a AtomicUsize,
    counted: usize,
}

impl Drop for LargeBody<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Ordering::SeqCst);
    }
}

/// Receives a body that may be large. Its memory grows with the bytes that have arrived, not with the announced length.
pub(crate) fn large_body<'a>(
    shared: &'a Shared,
    wire: &mut Wire,
    head: &RequestHead,
    bytes_max: usize,
) -> Result<LargeBody<'a>, Fault> {
    let all = shared.body_bytes(member(shared, head.request.headers()).is_some());
    let mut large = LargeBody { bytes: BytesMut::new(), all, counted: 0 };
    if matches!(head.framing, Framing::Length(length) if length > bytes_max as u64) {
        return Err(Fault::TooLong { what: "a body", bytes_max });
    }
    let mut body = Body::new(head.framing);
    let deadline = after(BODY_TIMEOUT);
    while wire.receive(&mut body, &mut large.bytes, Some(deadline))? {
        if large.bytes.len() > bytes_max {
            return Err(Fault::TooLong { what: "a body", bytes_max });
        }
        if large.bytes.len() > SMALL_BODY_BYTES.max(large.counted) {
            // The buffer doubles when it grows, so twice its length is counted.
            let more = large.bytes.len().saturating_mul(2).saturating_sub(large.counted);
            large.counted = large.counted.saturating_add(more);
            if all.fetch_add(more, Ordering::SeqCst).saturating_add(more) > BODIES_BYTES_MAX {
                return Err(Fault::Busy);
            }
        }
    }
    Ok(large)
}
