//! What was asked of the store, and how long it took.

use api::RaftRequest;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use telemetry::metrics::{Histogram, Page};

/// Operations on the store.
#[derive(Default)]
pub struct Operations {
    /// Puts, those inside transactions included.
    pub puts: AtomicU64,
    /// Bytes of the keys and values put.
    pub put_bytes: AtomicU64,
    /// Range deletions, those inside transactions included.
    pub deletes: AtomicU64,
    /// Ranges, those inside transactions included.
    pub ranges: AtomicU64,
    /// Transactions of more than one operation.
    pub txns: AtomicU64,
    /// Leases granted.
    pub leases_granted: AtomicU64,
    /// Leases revoked.
    pub leases_revoked: AtomicU64,
    /// Seconds that leases were granted for.
    pub lease_ttls: Histogram<24, 1, 1>,
}

impl Operations {
    /// Counts what applied entries did.
    pub(crate) fn applied(&self, counts: &store::Counts) {
        let adds = [
            (&self.puts, counts.puts),
            (&self.put_bytes, counts.put_bytes),
            (&self.deletes, counts.deletes),
            (&self.ranges, counts.ranges),
            (&self.txns, counts.txns),
        ];
        for (counter, more) in adds {
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// Counts the leases that an applied request began or ended.
    pub(crate) fn count(&self, response: &store::Response) {
        match response {
            store::Response::LeaseGrant(grant) => {
                self.lease_ttls.count(grant.ttl.max(0) as u64, 1);
                self.leases_granted.fetch_add(1, Ordering::Relaxed);
            }
            store::Response::LeaseRevoke(..) => {
                self.leases_revoked.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Counts a transaction that went through no log. Its conditions count as ranges, as etcd counts them.
    pub(crate) fn count_read_txn(&self, answer: &store::TxnAnswer) {
        let ranges = answer.compared.saturating_add(answer.ranges.len() as u64);
        self.ranges.fetch_add(ranges, Ordering::Relaxed);
        self.txns.fetch_add(u64::from(ranges > 1), Ordering::Relaxed);
    }
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// One that goes through the log, or a range, which does not.
    Request(RaftRequest),
    /// A transaction that only reads, without the log.
    ReadonlyTxn,
    /// What this version does not know.
    Other,
}

impl Operation {
    pub(crate) const RANGE: Operation = Operation::Request(RaftRequest::Range);

    const COUNT: usize = RaftRequest::ALL.len() + 2;

    /// All of them, in the order of their places.
    fn all() -> impl Iterator<Item = Operation> {
        let requests = RaftRequest::ALL.iter().map(|request| Operation::Request(*request));
        requests.chain([Operation::ReadonlyTxn, Operation::Other])
    }

    fn place(self) -> usize {
        match self {
            Operation::Request(request) => request as usize,
            Operation::ReadonlyTxn => Operation::COUNT - 2,
            Operation::Other => Operation::COUNT - 1,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Request(request) => request.name(),
            Operation::ReadonlyTxn => "ReadonlyTxn",
            Operation::Other => "Other",
        }
    }

    /// What the payload of a log entry asks for, from its first bytes.
    pub(crate) fn of_entry(data: &[u8]) -> Operation {
        RaftRequest::of_entry(data).map_or(Operation::Other, Operation::Request)
    }
}

/// Durations by kind of request and success.
pub(crate) struct ByOperation<const BUCKETS: usize, const FIRST: u64> {
    histograms: [[Histogram<BUCKETS, FIRST>; 2]; Operation::COUNT],
}

impl<const BUCKETS: usize, const FIRST: u64> Default for ByOperation<BUCKETS, FIRST> {
    fn default() -> Self {
        ByOperation { histograms: std::array::from_fn(|_| Default::default()) }
    }
}

impl<const BUCKETS: usize, const FIRST: u64> ByOperation<BUCKETS, FIRST> {
    pub(crate) fn observe(&self, operation: Operation, ok: bool, took: Duration) {
        self.histograms[operation.place()][usize::from(ok)].observe(took);
    }

    /// Appends the lines of all kinds that there were. `label` names the kind, `fixed` comes with every line.
    pub(super) fn write(&self, page: &mut Page, name: &str, help: &str, label: &str, fixed: &[(&str, &str)]) {
        page.family(name, "histogram", help);
        for (operation, pair) in Operation::all().zip(&self.histograms) {
            for (success, histogram) in ["false", "true"].into_iter().zip(pair) {
                if !histogram.is_empty() {
                    let labels: Vec<(&str, &str)> =
                        [(label, operation.name()), ("success", success)].iter().chain(fixed).copied().collect();
                    histogram.write_labelled(page, name, &labels);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_place() {
        assert_eq!(
            Operation::all().map(Operation::place).collect::<Vec<_>>(),
            (0..Operation::COUNT).collect::<Vec<_>>()
        );
        assert_eq!(Operation::of_entry(&[0xff; 12]), Operation::Other);
        assert_eq!(Operation::of_entry(&[0x22, 0]).name(), "Put");
    }
}
