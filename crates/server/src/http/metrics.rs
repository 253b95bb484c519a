//! `/metrics`, in the format of Prometheus.

use super::page as response;
use crate::metrics;
use crate::node::Node;
use bytes::Bytes;
use contain::lock;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// Pages that are made in a second; further requests get the last one again.
const PAGES_MAX: u32 = 50;
const SECOND: Duration = Duration::from_secs(1);

/// The last page.
pub(super) struct Pages(Mutex<Last>);

struct Last {
    /// When the second began in which pages are counted, and how many there are.
    since: Instant,
    made: u32,
    text: Bytes,
    /// The same compressed, if anybody has asked for that.
    packed: Option<Bytes>,
}

impl Default for Pages {
    fn default() -> Pages {
        Pages(Mutex::new(Last { since: Instant::now(), made: 0, text: Bytes::new(), packed: None }))
    }
}

impl Pages {
    /// The page, as things are now unless it was asked for too often.
    pub(super) fn page(&self, node: &Node, stats: Option<&rpc::Stats>, headers: &HeaderMap) -> Response<Bytes> {
        self.get(takes_gzip(headers), || metrics::render(node, stats))
    }

    fn get(&self, as_gzip: bool, render: impl FnOnce() -> String) -> Response<Bytes> {
        let mut last = lock(&self.0);
        if last.since.elapsed() >= SECOND {
            (last.since, last.made) = (Instant::now(), 0);
        }
        if last.made < PAGES_MAX {
            last.text = Bytes::from(render());
            last.packed = None;
            last.made = last.made.saturating_add(1);
        }
        if as_gzip && last.packed.is_none() {
            last.packed = pack(&last.text);
        }
        let (text, packed) = (last.text.clone(), last.packed.clone().filter(|_| as_gzip));
        drop(last);
        let Some(packed) = packed else { return response(StatusCode::OK, CONTENT_TYPE, text) };
        let mut packed = response(StatusCode::OK, CONTENT_TYPE, packed);
        packed.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        packed
    }
}

/// Writing to memory cannot fail; if it does, the text goes as it is.
fn pack(text: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).ok().map(Bytes::from)
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
    fn pages_that_are_asked_for_too_often_are_not_made() {
        let pages = Pages::default();
        let made = std::cell::Cell::new(0);
        let get = |as_gzip| {
            pages.get(as_gzip, || {
                made.set(made.get() + 1);
                format!("page {}", made.get())
            })
        };
        for number in 1..=PAGES_MAX {
            assert_eq!(get(false).body(), &format!("page {number}"));
        }
        let last = format!("page {PAGES_MAX}");
        assert_eq!(get(false).body(), &last);
        let packed = get(true);
        assert!(packed.headers().contains_key(header::CONTENT_ENCODING) && packed.body() != &last);
        assert_eq!(made.get(), PAGES_MAX);
        lock(&pages.0).since -= SECOND;
        assert_eq!(get(false).body(), &format!("page {}", PAGES_MAX + 1));
    }

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
