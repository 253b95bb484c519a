//! `/metrics`, in the format of Prometheus.

use super::page as response;
use crate::metrics;
use crate::node::Node;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use std::io::Write;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

pub(super) fn page(node: &Node, stats: Option<&rpc::Stats>, headers: &HeaderMap) -> Response<Bytes> {
    let text = metrics::render(node, stats);
    if !takes_gzip(headers) {
        return response(StatusCode::OK, CONTENT_TYPE, text);
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    // Writing to memory cannot fail; if it does, the text goes as it is.
    match encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()) {
        Ok(packed) => {
            let mut packed = response(StatusCode::OK, CONTENT_TYPE, packed);
            packed.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            packed
        }
        Err(_) => response(StatusCode::OK, CONTENT_TYPE, text),
    }
}

/// Whether the client has asked for gzip, and not with a weight of zero.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|entry| {
        let (coding, weight) = entry.split_once(';').unwrap_or((entry, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        coding.trim().eq_ignore_ascii_case("gzip") && weight != Some(0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_for_those_who_ask() {
        for (accepted, wanted) in
            [("gzip, deflate, br", true), ("deflate;q=0.5, GZIP;q=0.1", true), ("gzip;q=0", false), ("identity", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            assert_eq!(takes_gzip(&headers), wanted, "{accepted}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
