//! What was asked of the store, and how long it took.

use api::etcdserverpb::{TxnResponse, response_op::Response};
use api::varint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use telemetry::metrics::{Histogram, Page};

/// Operations on the store.
#[derive(Default)]
pub struct Operations {
    /// Puts, those inside transactions included.
    pub puts: AtomicU64,
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
    /// Counts what an applied request did.
    pub(crate) fn count(&self, response: &store::Response) {
        let counter = match response {
            store::Response::Put(_) => &self.puts,
            store::Response::DeleteRange(_) => &self.deletes,
            store::Response::Range(_) => &self.ranges,
            store::Response::LeaseGrant(grant) => {
                self.lease_ttls.count(grant.ttl.max(0) as u64, 1);
                &self.leases_granted
            }
            store::Response::LeaseRevoke(..) => &self.leases_revoked,
            store::Response::Txn(txn) => return self.count_txn(txn),
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a transaction of so many ranges that went through no log.
    pub(crate) fn count_read_txn(&self, ranges: usize) {
        self.ranges.fetch_add(ranges as u64, Ordering::Relaxed);
        self.txns.fetch_add(u64::from(ranges > 1), Ordering::Relaxed);
    }

    /// Counts the operations of a transaction, read-only ones included.
    pub(crate) fn count_txn(&self, txn: &TxnResponse) {
        let mut operations = 0;
        let mut open = vec![txn];
        while let Some(txn) = open.pop() {
            for op in txn.responses.iter().filter_map(|op| op.response.as_ref()) {
                let counter = match op {
                    Response::ResponsePut(_) => &self.puts,
                    Response::ResponseDeleteRange(_) => &self.deletes,
                    Response::ResponseRange(_) => &self.ranges,
                    Response::ResponseTxn(nested) => {
                        open.push(nested);
                        continue;
                    }
                };
                counter.fetch_add(1, Ordering::Relaxed);
                operations += 1;
            }
        }
        self.txns.fetch_add(u64::from(operations > 1), Ordering::Relaxed);
    }
}

macro_rules! operations {
    ($($name:ident = $field:literal)*) => {
        /// A kind of request, by its field in `InternalRaftRequest`; the reads, which are in no log, have none.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Operation { $($name,)* Other }

        impl Operation {
            const ALL: [Operation; 1 + [$($field),*].len()] = [$(Operation::$name,)* Operation::Other];

            /// The request in this field.
            pub(crate) fn of_field(field: u32) -> Operation {
                match field { $($field => Operation::$name,)* _ => Operation::Other }
            }

            pub(super) fn name(self) -> &'static str {
                match self { $(Operation::$name => stringify!($name),)* Operation::Other => "Other" }
            }
        }
    };
}

operations! {
    Range = 3
    Put = 4
    DeleteRange = 5
    Txn = 6
    Compaction = 7
    LeaseGrant = 8
    LeaseRevoke = 9
    Alarm = 10
    LeaseCheckpoint = 11
    AuthEnable = 1000
    AuthDisable = 1011
    Authenticate = 1012
    AuthStatus = 1013
    AuthUserAdd = 1100
    AuthUserDelete = 1101
    AuthUserGet = 1102
    AuthUserChangePassword = 1103
    AuthUserGrantRole = 1104
    AuthUserRevokeRole = 1105
    AuthUserList = 1106
    AuthRoleList = 1107
    AuthRoleAdd = 1200
    AuthRoleDelete = 1201
    AuthRoleGet = 1202
    AuthRoleGrantPermission = 1203
    AuthRoleRevokePermission = 1204
    ClusterVersionSet = 1300
    ClusterMemberAttrSet = 1301
    DowngradeInfoSet = 1302
    ReadonlyTxn = 4_000_000
}

impl Operation {
    /// What the payload of a log entry asks for, from its first bytes.
    pub(crate) fn of_entry(mut data: &[u8]) -> Operation {
        const HEADER: u64 = 100;
        // Two fields at most: the header may come first.
        for _ in 0..2 {
            let Some(tag) = varint::take(&mut data) else { break };
            let field = tag >> 3;
            if field != HEADER {
                return Operation::of_field(u32::try_from(field).unwrap_or(0));
            }
            let Some(len) = varint::take(&mut data) else { break };
            let Some(rest) = usize::try_from(len).ok().and_then(|len| data.get(len..)) else { break };
            data = rest;
        }
        Operation::Other
    }
}

/// Durations by kind of request and success.
pub(crate) struct ByOperation<const BUCKETS: usize, const FIRST: u64> {
    histograms: [[Histogram<BUCKETS, FIRST>; 2]; Operation::ALL.len()],
}

impl<const BUCKETS: usize, const FIRST: u64> Default for ByOperation<BUCKETS, FIRST> {
    fn default() -> Self {
        ByOperation { histograms: std::array::from_fn(|_| Default::default()) }
    }
}

impl<const BUCKETS: usize, const FIRST: u64> ByOperation<BUCKETS, FIRST> {
    pub(crate) fn observe(&self, operation: Operation, ok: bool, took: Duration) {
        self.histograms[operation as usize][usize::from(ok)].observe(took);
    }

    /// Appends the lines of all kinds that there were. `label` names the kind, `fixed` comes with every line.
    pub(super) fn write(&self, page: &mut Page, name: &str, help: &str, label: &str, fixed: &[(&str, &str)]) {
        page.family(name, "histogram", help);
        for (operation, pair) in Operation::ALL.iter().zip(&self.histograms) {
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
    use api::Message;
    use api::etcdserverpb::{AuthUserListRequest, InternalRaftRequest, RequestHeader, TxnRequest};

    #[test]
    fn entries_say_what_they_ask_for() {
        let header = Some(RequestHeader { id: u64::MAX, ..Default::default() });
        let txn =
            InternalRaftRequest { header: header.clone(), txn: Some(TxnRequest::default()), ..Default::default() };
        assert_eq!(Operation::of_entry(&txn.encode_to_vec()), Operation::Txn);
        let list = AuthUserListRequest::default();
        let list = InternalRaftRequest { header, auth_user_list: Some(list), ..Default::default() };
        assert_eq!(Operation::of_entry(&list.encode_to_vec()), Operation::AuthUserList);
        for bad in [&[][..], &[0xff; 12], &[0xa2, 0x06, 0x7f], &[0xa2, 0x06]] {
            assert_eq!(Operation::of_entry(bad), Operation::Other);
        }
    }
}
