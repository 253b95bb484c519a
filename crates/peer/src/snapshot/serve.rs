//! The sender's side of fetching.

use super::{Export, PIECE_BYTES};
use crate::answers::{Next, answer, refusal, require};
use crate::fault::Fault;
use crate::head::{self, RequestHead};
use crate::identity::{CLUSTER_ID, hex};
use crate::sender::check;
use crate::shared::Shared;
use crate::wire::Wire;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use std::sync::Arc;
use std::time::Instant;

/// `GET /cairn/snapshot/<export>/segment/<id>?from=<offset>&length=<bytes>&left=<bytes>`; `left` is the number of bytes
/// that the receiver still needs.
pub(crate) fn serve(shared: &Arc<Shared>, wire: &mut Wire, head: &RequestHead, piece: &str) -> Result<Next, Fault> {
    let allowed = require(Method::GET, "GET", &head.request).and_then(|()| check(shared, head.request.headers()));
    if let Err(refusal) = allowed {
        return answer(shared, wire, head, *refusal);
    }
    let Some(asked) = Asked::parse(piece, head.request.uri().query().unwrap_or_default()) else {
        return answer(shared, wire, head, refusal(StatusCode::BAD_REQUEST, "invalid piece of a snapshot"));
    };
    let Some(export) = shared.exports.get(asked.export) else {
        return answer(shared, wire, head, refusal(StatusCode::NOT_FOUND, "this snapshot is not offered (any more)"));
    };
    (shared.yield_cpu)();
    // The first read precedes the head, so that its failure can still be answered.
    let mut bytes = match asked.read(&*export, 0) {
        Ok(bytes) => bytes,
        Err(error) => return answer(shared, wire, head, refusal(StatusCode::INTERNAL_SERVER_ERROR, error)),
    };
    let mut headers = HeaderMap::new();
    headers.insert(CLUSTER_ID, hex(shared.identity.cluster_id));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(asked.length));
    wire.write_all(&head::write_response(StatusCode::OK, &headers))?;
    let mut sent = 0_u64;
    while sent < asked.length {
        if bytes.is_empty() || shared.is_stopping() {
            // The connection is closed: there is no other way to report that the rest is missing.
            return Ok(Next::End);
        }
        let (length, left) = (bytes.len() as u64, asked.left.saturating_sub(sent));
        let wait = shared.exports.wait(length, left, shared.handler.log_usage(), Instant::now());
        if !wait.is_zero() {
            shared.pause(wait);
        }
        wire.write_all(&bytes)?;
        sent = sent.saturating_add(bytes.len() as u64);
        bytes = asked.read(&*export, sent).map_err(|error| Fault::Io(std::io::Error::other(error)))?;
    }
    Ok(if head.keep_alive { Next::Request } else { Next::End })
}

/// The requested piece.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    export: u64,
    segment: u32,
    from: u64,
    length: u64,
    /// Bytes that the receiver still needs, including this piece.
    left: u64,
}

impl Asked {
    fn parse(piece: &str, query: &str) -> Option<Asked> {
        let (export, segment) = piece.split_once("/segment/")?;
        let value = |name: &str| {
            let pair = query.split('&').find_map(|pair| pair.split_once('=').filter(|pair| pair.0 == name));
            pair.and_then(|(_, value)| value.parse::<u64>().ok())
        };
        let (from, length) = (value("from")?, value("length")?);
        from.checked_add(length)?;
        let left = value("left").unwrap_or(length);
        let (export, segment) = (u64::from_str_radix(export, 16).ok()?, segment.parse().ok()?);
        Some(Asked { export, segment, from, length, left })
    }

    /// Reads the bytes that follow the first `sent` ones.
    fn read(&self, export: &dyn Export, sent: u64) -> Result<bytes::Bytes, String> {
        let length = usize::try_from(self.length.saturating_sub(sent)).unwrap_or(usize::MAX).min(PIECE_BYTES);
        if length == 0 {
            return Ok(bytes::Bytes::new());
        }
        let from = self.from.checked_add(sent).ok_or("beyond the end of any segment")?;
        export.read(self.segment, from, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let all = Asked { export: 255, segment: 7, from: 10, length: 20, left: 30 };
        assert_eq!(Asked::parse("ff/segment/7", "from=10&length=20&left=30"), Some(all));
        let asked = Asked::parse("ff/segment/7", "from=10&length=20");
        assert_eq!(asked, Some(Asked { export: 255, segment: 7, from: 10, length: 20, left: 20 }));
        for (piece, query) in [
            ("ff/segment/7", "from=10"),
            ("ff/segment/7", "from=-1&length=2"),
            ("ff/segment/7", "from=18446744073709551615&length=1"),
            ("ff/segment/x", "from=1&length=1"),
            ("/segment/1", "from=1&length=1"),
            ("ff", "from=1&length=1"),
        ] {
            assert_eq!(Asked::parse(piece, query), None, "{piece}?{query}");
        }
    }
}
