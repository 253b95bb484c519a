//! What a watcher asked for.

use api::etcdserverpb::WatchCreateRequest;
use api::etcdserverpb::watch_create_request::FilterType;
use api::{Error, KeyRange};
use bytes::Bytes;

use super::Kind;
use crate::mistake::Mistake;

/// How far beyond its key a watcher looks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reach {
    /// The key alone.
    One,
    /// Keys before this one.
    Until(Bytes),
    /// Every key from there on.
    Unbounded,
}

/// Everything that decides which events a watcher gets and how they are encoded. Watchers of a stream with equal specs get
/// equal bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spec {
    pub(super) key: Bytes,
    pub(super) reach: Reach,
    pub(super) no_put: bool,
    pub(super) no_delete: bool,
    pub(super) prev_kv: bool,
    pub(super) fragment: bool,
}

impl Spec {
    /// Reads a request. Keys are copied: a watcher lives long, the buffer its request came in should not.
    pub(super) fn new(request: &WatchCreateRequest) -> Result<Spec, Error> {
        let key: &[u8] = if request.key.is_empty() { b"\0" } else { &request.key };
        let reach = match KeyRange::new(key, &request.range_end) {
            range if range.is_empty() => return Err(Error::WatchEmptyRange),
            KeyRange::One(_) => Reach::One,
            KeyRange::Span(_, end) => Reach::Until(Bytes::copy_from_slice(end)),
            KeyRange::From(_) => Reach::Unbounded,
        };
        Ok(Spec {
            key: Bytes::copy_from_slice(key),
            reach,
            no_put: request.filters.contains(&(FilterType::Noput as i32)),
            no_delete: request.filters.contains(&(FilterType::Nodelete as i32)),
            prev_kv: request.prev_kv,
            fragment: request.fragment,
        })
    }

    /// Whether a change of this kind passes the filters.
    pub(super) fn accepts(&self, kind: Kind) -> bool {
        if Mistake::FiltersOtherKind.is_planted() {
            return match kind {
                Kind::Put => !self.no_delete,
                Kind::Delete => !self.no_put,
            };
        }
        match kind {
            Kind::Put => !self.no_put,
            Kind::Delete => !self.no_delete,
        }
    }
}
