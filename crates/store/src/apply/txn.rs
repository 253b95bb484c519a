//! Transactions: conditions first, then every check that could fail, then the operations of the branches taken.
//!
//! Functions over nested transactions, here and in `compare`, `quota`, `delete_reserve` and `auth`, recurse by level. Nothing deeper than
//! [`TXN_NESTING_MAX`](api::limits::TXN_NESTING_MAX) is decoded, whether a client or a log sends it.

use super::answer::header;
use super::applier::Applier;
use super::compare::{Path, branch};
use crate::log::Error as LogError;
use crate::mistake::Mistake;
use crate::read::{Allowance, Plan, RangeAnswer, ReadView, Selected, Unread, View, read_revision};
use crate::store::Store;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::{
    PutRequest, RangeRequest, RangeResponse, RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use api::limits::TXN_ANSWER_BYTES_MAX;
use api::{Error, KeyRange};

/// Whether a transaction cannot write: every operation of both branches is a range. Such a one is answered without the Raft log.
pub fn is_read_only(request: &TxnRequest) -> bool {
    let mut ops = request.success.iter().chain(&request.failure);
    ops.all(|op| matches!(op.request, Some(Request::RequestRange(_))))
}

impl Store {
    /// Answers a read-only transaction (see [`is_read_only`]) at one revision. Operations that are no ranges are left out.
    pub fn read_txn(&self, request: &TxnRequest) -> Result<TxnResponse, Error> {
        let answer = self.read_txn_within(request, Allowance::UNBOUNDED);
        answer.map(TxnAnswer::into_message).map_err(Unread::of_unbounded)
    }

    /// The same within an allowance.
    pub fn read_txn_within(&self, request: &TxnRequest, allowance: Allowance<'_>) -> Result<TxnAnswer, Unread> {
        loop {
            let live = ReadView::open_while(self, allowance.wanted);
            let answer = self.try_read_txn(&live, request, allowance.bytes_max);
            if live.is_given_up() {
                return Err(Unread::Unwanted);
            }
            if !live.is_overtaken() {
                // Values are read without the index.
                drop(live);
                return answer?.finish(allowance.wanted);
            }
        }
    }

    /// Memory that the places of a transaction's pairs are likely to take, in the longer of its branches.
    pub fn txn_places_bytes(&self, request: &TxnRequest) -> u64 {
        let of_branch = |ops: &[RequestOp]| {
            let ranges = ops.iter().filter_map(|op| match &op.request {
                Some(Request::RequestRange(range)) => Some(self.places_bytes(range)),
                _ => None,
            });
            ranges.fold(0, u64::saturating_add)
        };
        of_branch(&request.success).max(of_branch(&request.failure))
    }

    /// Chooses the branch and selects its pairs.
    fn try_read_txn<'a>(
        &self,
        live: &ReadView<'_>,
        request: &'a TxnRequest,
        bytes_max: usize,
    ) -> Result<SelectedTxn<'a>, Unread> {
        let ranges = |succeeded| {
            branch(request, succeeded).iter().filter_map(|op| match &op.request {
                Some(Request::RequestRange(range)) => Some(range),
                _ => None,
            })
        };
        // Whichever branch is taken, the revisions it names stay until it has read them.
        for range in ranges(true).chain(ranges(false)) {
            if range.revision > 0 && range.revision >= live.compact_revision() {
                live.pin(range.revision);
            }
        }
        let mut path = Path::choose(live, request);
        let succeeded = path.step();
        ranges(succeeded).try_for_each(|range| check_range(live, range))?;
        let mut selected = Vec::new();
        let mut left = bytes_max;
        for range in ranges(succeeded) {
            let at = read_revision(range.revision, live.current(), live.compact_revision())?;
            let found = Plan::new(range).select(live, &self.segments, at, left).ok_or(Unread::TooMuch)?;
            left = left.saturating_sub(found.bytes());
            selected.push(found);
        }
        Ok(SelectedTxn { revision: live.current(), succeeded, compared: path.compared(), selected })
    }
}

/// A read-only transaction whose pairs are found and not read yet.
struct SelectedTxn<'a> {
    revision: i64,
    succeeded: bool,
    compared: u64,
    selected: Vec<Selected<'a>>,
}

impl SelectedTxn<'_> {
    /// Gives up between two ranges once the answer is not `wanted`.
    fn finish(self, wanted: &dyn Fn() -> bool) -> Result<TxnAnswer, Unread> {
        let mut ranges: Vec<RangeAnswer> = Vec::with_capacity(self.selected.len());
        for selected in self.selected {
            if !wanted() {
                return Err(Unread::Unwanted);
            }
            ranges.push(selected.finish());
        }
        if ranges.iter().map(|answer| answer.kvs.encoded_len()).fold(0, usize::saturating_add) > TXN_ANSWER_BYTES_MAX {
            return Err(Error::TxnAnswerTooLarge.into());
        }
        Ok(TxnAnswer { revision: self.revision, succeeded: self.succeeded, compared: self.compared, ranges })
    }
}

/// The answer to a read-only transaction. Like those of ranges it refers to the log: values are copied when it is encoded.
#[derive(Debug)]
pub struct TxnAnswer {
    /// The store's revision when it was read.
    pub revision: i64,
    /// Whether the conditions held.
    pub succeeded: bool,
    /// How many conditions were looked at.
    pub compared: u64,
    /// What the ranges of the branch taken have found, in their order.
    pub ranges: Vec<RangeAnswer>,
}

impl TxnAnswer {
    /// The response message, values copied.
    pub fn into_message(self) -> TxnResponse {
        let response =
            |range: RangeAnswer| ResponseOp { response: Some(Response::ResponseRange(range.into_message())) };
        let responses = self.ranges.into_iter().map(response).collect();
        TxnResponse { header: header(self.revision), succeeded: self.succeeded, responses }
    }
}

impl RangeAnswer {
    /// The response message, values copied.
    pub fn into_message(self) -> RangeResponse {
        RangeResponse { header: header(self.revision), kvs: self.kvs.to_messages(), more: self.more, count: self.count }
    }
}

/// What a range in a transaction may read. Unlike in a range of its own, a negative revision is an old one.
fn check_range(view: &impl View, request: &RangeRequest) -> Result<(), Error> {
    match request.revision {
        0 => Ok(()),
        revision if revision > view.current() => Err(Error::FutureRev),
        revision if revision < view.compact_revision() && !Mistake::ReadsCompactedInTxn.is_planted() => {
            Err(Error::Compacted)
        }
        _ => Ok(()),
    }
}

impl Applier {
    /// Applies a transaction. An error changes nothing.
    pub(crate) fn txn(&mut self, request: TxnRequest) -> Result<Result<TxnResponse, Error>, LogError> {
        let mut path = Path::choose(&self.staging(), &request);
        self.counts.ranges_read(path.compared());
        if let Err(error) = self.check(&request, &mut path) {
            return Ok(Err(error));
        }
        self.counts.end_step();
        path.rewind();
        let mut response = self.execute(request, &mut path)?;
        response.header = header(self.current());
        Ok(self.check_answer().map(|()| response))
    }

    /// Checks the branches that will be taken, against the state before the transaction.
    fn check(&mut self, request: &TxnRequest, path: &mut Path) -> Result<(), Error> {
        let succeeded = path.step();
        for op in branch(request, succeeded) {
            match &op.request {
                Some(Request::RequestRange(range)) => check_range(&self.staging(), range)?,
                Some(Request::RequestPut(put)) => self.check_put(put)?,
                Some(Request::RequestTxn(nested)) => self.check(nested, path)?,
                Some(Request::RequestDeleteRange(_)) | None => {}
            }
        }
        Ok(())
    }

    fn check_put(&mut self, request: &PutRequest) -> Result<(), Error> {
        if request.prev_kv || request.ignore_value || request.ignore_lease {
            self.counts.range();
        }
        if request.key.is_empty() {
            return Err(Error::EmptyKey);
        }
        if request.lease != 0 && !self.store.leases.exists(request.lease) {
            return Err(Error::LeaseNotFound);
        }
        let missing = || self.staging().latest(&request.key).is_none_or(|latest| latest.is_tombstone());
        if (request.ignore_value || request.ignore_lease) && missing() { Err(Error::KeyNotFound) } else { Ok(()) }
    }

    /// Runs a checked transaction. Inner responses carry only a revision in their headers, those of nested transactions not even
    /// that.
    fn execute(&mut self, request: TxnRequest, path: &mut Path) -> Result<TxnResponse, LogError> {
        let succeeded = path.step();
        let ops = if succeeded { request.success } else { request.failure };
        let mut responses = Vec::with_capacity(ops.len());
        for RequestOp { request } in ops {
            let response = match request {
                Some(Request::RequestRange(range)) => Some(Response::ResponseRange(self.staged_range(&range)?)),
                Some(Request::RequestPut(put)) => {
                    let previous = self.staging().latest(&put.key);
                    Some(Response::ResponsePut(self.write_put(put, previous)))
                }
                Some(Request::RequestDeleteRange(delete)) => {
                    Some(Response::ResponseDeleteRange(self.delete_range(&delete)))
                }
                Some(Request::RequestTxn(nested)) => {
                    let nested = self.execute(nested, path)?;
                    Some(Response::ResponseTxn(nested))
                }
                None => None,
            };
            responses.push(ResponseOp { response });
        }
        Ok(TxnResponse { header: Some(ResponseHeader::default()), succeeded, responses })
    }

    /// A range that sees what the stride wrote before it.
    pub(crate) fn staged_range(&mut self, request: &RangeRequest) -> Result<RangeResponse, LogError> {
        self.counts.range();
        if !self.is_awaited {
            return Ok(RangeResponse::default());
        }
        let range = KeyRange::new(&request.key, &request.range_end);
        if self.overlay.range(range).next().is_some() {
            // Answers refer to flushed bytes.
            self.log.flush()?;
        }
        let view = self.staging();
        // Checked before the transaction began; a range that is no part of one is answered as if it named the nearest revision.
        let at = match request.revision {
            revision if revision <= 0 => view.current,
            revision if Mistake::ReadsCompactedInTxn.is_planted() => revision,
            revision => revision.clamp(view.compact.max(1), view.current),
        };
        // Nothing bounds it: what an entry does must not depend on a member's memory.
        let selected = Plan::new(request).select(&view, &self.store.segments, at, usize::MAX);
        let Some(answer) = selected.map(Selected::finish) else { return Ok(RangeResponse::default()) };
        let fits = self.fits_answer(answer.kvs.encoded_len());
        Ok(if fits { answer.into_message() } else { RangeResponse::default() })
    }
}

/// The newest revision that the ranges of a transaction name.
pub(crate) fn newest_revision_named(request: &TxnRequest) -> i64 {
    let ops = request.success.iter().chain(&request.failure).filter_map(|op| op.request.as_ref());
    let named = ops.map(|op| match op {
        Request::RequestRange(range) => range.revision,
        Request::RequestTxn(nested) => newest_revision_named(nested),
        Request::RequestPut(_) | Request::RequestDeleteRange(_) => 0,
    });
    named.max().unwrap_or(0)
}
