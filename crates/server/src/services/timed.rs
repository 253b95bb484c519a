//! Reads of keys, which are timed from their beginning.

use super::reply::{decode, unreadable};
use crate::auth::rules::Keys;
use crate::auth::{CatchUp, Request, Rule};
use crate::metrics::Operation;
use crate::node::Node;
use api::etcdserverpb::{RangeRequest, TxnRequest, request_op};
use api::{Error, check};
use bytes::Bytes;
use contain::contain;
use rpc::Status;
use std::time::{Duration, Instant};
use store::Ask;

/// A read under way: its operation in the metrics, and the times of its stages.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    operation: Operation,
    began: Instant,
    /// When the read was allowed to look at the store.
    allowed: Instant,
}

impl Reading {
    fn new(operation: Operation) -> Reading {
        let now = Instant::now();
        Reading { operation, began: now, allowed: now }
    }

    /// How long the read waited for a read index.
    pub(super) fn waited(&self) -> Duration {
        self.allowed.duration_since(self.began)
    }

    /// Counts the time of the read, and returns it if it is worth a warning.
    pub(super) fn end(self, node: &Node, ok: bool) -> Option<Duration> {
        let (now, metrics) = (Instant::now(), &node.metrics);
        let (total, took) = (now.duration_since(self.began), now.duration_since(self.allowed));
        metrics.requests.observe(self.operation, ok, total);
        metrics.stages.read.observe(took);
        if self.allowed != self.began {
            metrics.stages.read_index.observe(self.waited());
        }
        if self.operation == Operation::RANGE {
            metrics.reads.range(ok, took);
        }
        (total > node.config.warning_unary_request).then_some(total)
    }

    /// Counts a read that failed before it looked at the store.
    fn fail(&self, node: &Node) {
        node.metrics.requests.observe(self.operation, false, self.waited());
    }
}

/// A range.
pub(super) struct TimedRange {
    pub(super) request: RangeRequest,
    pub(super) reading: Reading,
}

impl Rule<TimedRange> for Keys {
    fn ask(range: &TimedRange) -> Ask<'_> {
        Keys::ask(&range.request)
    }
}

impl Request for TimedRange {
    fn read(_: &Node, message: Bytes) -> Result<TimedRange, Status> {
        let request: RangeRequest = decode(message)?;
        check::range(&request)?;
        Ok(TimedRange { request, reading: Reading::new(Operation::RANGE) })
    }

    fn catch_up(&self) -> CatchUp {
        if self.request.serializable { CatchUp::Token } else { CatchUp::Read }
    }

    fn caught_up(&mut self) {
        self.reading.allowed = Instant::now();
    }

    fn count_refusal(&self, node: &Node) {
        self.reading.end(node, false);
    }

    fn count_unread(&self, node: &Node) {
        self.reading.fail(node);
    }
}

/// A transaction.
pub(super) struct TimedTxn {
    pub(super) request: TxnRequest,
    /// `None` if the transaction writes: then it is timed as a proposal.
    pub(super) reading: Option<Reading>,
}

impl Rule<TimedTxn> for Keys {
    fn ask(txn: &TimedTxn) -> Ask<'_> {
        Keys::ask(&txn.request)
    }
}

impl Request for TimedTxn {
    fn read(node: &Node, message: Bytes) -> Result<TimedTxn, Status> {
        let ops_max = check::txn_tree_ops_max(node.config.max_txn_ops);
        let request = contain(|| api::decode::txn(message, ops_max))?.map_err(|error| match error {
            api::decode::Error::TooDeep | api::decode::Error::TooManyOps => Error::TooManyOps.into(),
            api::decode::Error::Malformed(error) => unreadable(&error),
        })?;
        check::txn(&request, node.config.max_txn_ops)?;
        let reading = only_reads(&request).then(|| Reading::new(Operation::ReadonlyTxn));
        Ok(TimedTxn { request, reading })
    }

    fn catch_up(&self) -> CatchUp {
        match self.reading {
            None => CatchUp::Refusal,
            Some(_) if is_serializable(&self.request) => CatchUp::Token,
            Some(_) => CatchUp::Read,
        }
    }

    fn caught_up(&mut self) {
        if let Some(reading) = &mut self.reading {
            reading.allowed = Instant::now();
        }
    }

    fn count_refusal(&self, node: &Node) {
        if let Some(reading) = self.reading {
            reading.end(node, false);
        }
    }

    fn count_unread(&self, node: &Node) {
        if let Some(reading) = self.reading {
            reading.fail(node);
        }
    }
}

fn operations(request: &TxnRequest) -> impl Iterator<Item = Option<&request_op::Request>> {
    request.success.iter().chain(&request.failure).map(|op| op.request.as_ref())
}

/// Whether every operation is a range.
fn only_reads(request: &TxnRequest) -> bool {
    operations(request).all(|operation| matches!(operation, Some(request_op::Request::RequestRange(_))))
}

/// Whether all ranges are serializable reads.
fn is_serializable(request: &TxnRequest) -> bool {
    operations(request).all(|operation| match operation {
        Some(request_op::Request::RequestRange(range)) => range.serializable,
        _ => false,
    })
}
