//! A long range in chunks, at one revision.

use super::allowance::Unread;
use super::kvs::{Encoded, Held, Kvs};
use super::range::{read_revision, walk};
use super::read_view::ReadView;
use super::view::View;
use crate::index::Scan;
use crate::log::{KvView, read};
use crate::store::Store;
use crate::types::Loc;
use api::etcdserverpb::RangeRequest;
use api::etcdserverpb::range_request::{SortOrder, SortTarget};
use api::limits::READ_STRIDE_KEYS;
use api::{Error, KeyRange};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Pairs in the first chunk. The next ones have twice as many each, for as long as their bytes allow.
const FIRST_CHUNK_KEYS: usize = 10;
/// Strides of one chunk. Where keys were deleted since, many have no pair; the thread that makes chunks has others waiting.
const CHUNK_STRIDES: usize = 128;

/// A range that is answered in chunks. It pins nothing: a compaction past its revision ends it.
pub struct RangeStream {
    store: Arc<Store>,
    request: RangeRequest,
    at: i64,
    revision: i64,
    count: i64,
    /// Pairs still to come.
    left: usize,
    chunk_keys: usize,
    after: Option<Box<[u8]>>,
    done: bool,
}

/// One message of the stream.
#[derive(Debug)]
pub struct RangeChunk {
    /// Pairs, in key order.
    pub kvs: Kvs,
    /// What only the last message carries.
    pub end: Option<RangeEnd>,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeEnd {
    /// The store's revision when the stream began.
    pub revision: i64,
    /// Keys in the range, whatever the limit says.
    pub count: i64,
    /// The limit cut the answer short.
    pub more: bool,
}

impl Store {
    /// Begins a range stream. At an old revision this counts the keys of the range: for the slow pool if
    /// [`Store::is_heavy`] says so.
    pub fn range_stream(self: &Arc<Self>, request: RangeRequest) -> Result<RangeStream, Error> {
        self.range_stream_while(request, &|| true).map_err(Unread::of_unbounded)
    }

    /// The same, given up once it is not `wanted`.
    pub fn range_stream_while(
        self: &Arc<Self>,
        request: RangeRequest,
        wanted: &dyn Fn() -> bool,
    ) -> Result<RangeStream, Unread> {
        api::check::range(&request)?;
        let natural = match request.sort_order() {
            SortOrder::None => true,
            SortOrder::Ascend => request.sort_target() == SortTarget::Key,
            SortOrder::Descend => false,
        };
        if !natural {
            return Err(Error::StreamSort.into());
        }
        let bounds = [
            request.min_mod_revision,
            request.max_mod_revision,
            request.min_create_revision,
            request.max_create_revision,
        ];
        if bounds.iter().any(|&bound| bound != 0) {
            return Err(Error::StreamFilter.into());
        }
        let range = KeyRange::new(&request.key, &request.range_end);
        let (revision, at, count) = loop {
            let live = ReadView::open_while(self, wanted);
            let revision = live.current();
            let at = read_revision(request.revision, revision, live.compact_revision())?;
            let count = live.count(range, at).unwrap_or_else(|| walk(&live, range, at));
            if live.is_given_up() {
                return Err(Unread::Unwanted);
            }
            if !live.is_overtaken() {
                break (revision, at, count);
            }
        };
        let all = usize::try_from(count).unwrap_or(usize::MAX);
        let limit = usize::try_from(request.limit).ok().filter(|&limit| limit > 0);
        let left = if request.count_only { 0 } else { limit.map_or(all, |limit| all.min(limit)) };
        Ok(RangeStream {
            store: Arc::clone(self),
            request,
            at,
            revision,
            count: count.cast_signed(),
            left,
            chunk_keys: FIRST_CHUNK_KEYS,
            after: None,
            done: false,
        })
    }
}

impl RangeStream {
    /// The next message; `None` after the last one. One without pairs and without an end is none: it has only come further.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<RangeChunk, Error>> {
        if self.done {
            return None;
        }
        let chunk = self.chunk();
        self.done = !matches!(chunk, Ok(RangeChunk { end: None, .. }));
        Some(chunk)
    }

    fn chunk(&mut self) -> Result<RangeChunk, Error> {
        failpoint::point!(BEFORE_RANGE_STREAM_CHUNK);
        let wanted = self.left.min(self.chunk_keys);
        let kvs = match wanted {
            0 => Kvs::none(),
            _ if self.is_small_and_sorted() => {
                let kvs = self.store.range(&RangeRequest { revision: self.at, ..self.request.clone() })?.kvs;
                if kvs.len() == wanted { kvs } else { return Err(Error::Corrupt) }
            }
            _ => self.collect(wanted)?,
        };
        self.left = self.left.saturating_sub(kvs.len());
        self.chunk_keys = self.chunk_keys.saturating_mul(2);
        let more = !self.request.count_only
            && usize::try_from(self.request.limit).is_ok_and(|limit| limit > 0 && self.count > limit as i64);
        let end = RangeEnd { revision: self.revision, count: self.count, more };
        Ok(RangeChunk { kvs, end: (self.left == 0).then_some(end) })
    }

    /// A target without an order sorts ascending, as in an unary range: where one chunk holds the whole answer. etcd sorts each
    /// chunk by itself, so there a longer one is in no order at all; here it is in that of the keys.
    fn is_small_and_sorted(&self) -> bool {
        let whole = self.after.is_none() && self.left as i64 == self.count && self.left <= FIRST_CHUNK_KEYS;
        whole && self.request.sort_target() != SortTarget::Key
    }

    /// The next pairs: `wanted` of them, or fewer once they have the bytes that a chunk aims at, so a chunk is at most one pair larger, or
    /// were looked for long enough. How large the pairs before were says nothing of those that come.
    fn collect(&mut self, wanted: usize) -> Result<Kvs, Error> {
        let target = self.store.options.stream_chunk_bytes;
        let (mut bytes, mut is_full) = (0usize, false);
        let range = KeyRange::new(&self.request.key, &self.request.range_end);
        let (mut held, mut encoded, mut locs) = (Held::default(), Encoded::default(), Vec::<Loc>::new());
        let mut last = Vec::new();
        let mut strides = 0..CHUNK_STRIDES;
        while locs.len() < wanted && !is_full && strides.next().is_some() {
            let index = read(&self.store.index);
            // Pruning follows the compact revision and needs the write lock: what is read now is all there.
            if self.at < self.store.compact_revision() {
                return Err(Error::Compacted);
            }
            let at = self.store.index_revision(range, self.at);
            let end = index.scan(range, at, self.after.as_deref(), READ_STRIDE_KEYS, &mut |key, version| {
                let loc = if self.request.keys_only {
                    encoded.push(&KvView {
                        key,
                        create: version.create,
                        modified: version.rev.main,
                        version: version.version,
                        ..KvView::default()
                    })
                } else {
                    held.hold(&self.store.segments, version.loc);
                    version.loc
                };
                locs.push(loc);
                bytes = bytes.saturating_add(loc.len as usize);
                is_full = bytes >= target;
                if locs.len() == wanted || is_full {
                    last = key.to_vec();
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
            drop(index);
            match end {
                Scan::More(key) => self.after = Some(key),
                Scan::Stopped => self.after = Some(std::mem::take(&mut last).into()),
                // What a revision holds never changes, unless another member has sent a snapshot that differs from this store.
                Scan::Done if locs.len() < wanted => return Err(Error::Corrupt),
                Scan::Done => break,
            }
        }
        Ok(if self.request.keys_only { Kvs::encoded(encoded, locs) } else { Kvs::stored(held, locs) })
    }
}
