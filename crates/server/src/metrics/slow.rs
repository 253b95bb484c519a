//! Log lines about slow requests: the request, and the time in each stage.
//!
//! Keys are shown, as etcd shows them; values and passwords never are. Few lines are written, however many requests are slow.

use super::stages::Written;
use api::Message;
use api::etcdserverpb::{InternalRaftRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, request_op::Request};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use telemetry::logging::{self, Value};

/// Lines in a second, at most.
const LINES_MAX: u64 = 10;
/// Of a request, no more is shown than about this.
const SHOWN_BYTES_MAX: usize = 1024;
/// Of a key.
const KEY_BYTES_MAX: usize = 128;

/// Bounds the lines.
#[derive(Default)]
pub(crate) struct SlowLines {
    /// The second of the last line, and the lines written in it in the lowest byte.
    written: AtomicU64,
    left_out: AtomicU64,
}

/// An answer: what etcd counts in it, and its size.
#[derive(Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) count: i64,
    pub(crate) bytes: usize,
}

impl SlowLines {
    /// Whether another line may be written; then how many were left out since the last one.
    fn admit(&self, second: u64) -> Option<u64> {
        let admitted = self.written.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |written| {
            match (written >> 8 == second, written & 0xff) {
                (false, _) => Some(second << 8 | 1),
                (true, lines) if lines < LINES_MAX => Some(written + 1),
                (true, _) => None,
            }
        });
        if admitted.is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }

    /// Writes a line about a write, given as the payload of its entry.
    pub(crate) fn wrote(&self, payload: &[u8], took: Duration, stages: &Written, answered: Answered) {
        let stages = [
            ("queue", stages.queue),
            ("log sync", stages.log_sync),
            ("replication", stages.replication),
            ("apply", stages.apply),
        ];
        self.line(took, &stages, answered, || {
            let request = InternalRaftRequest::decode(payload).unwrap_or_default();
            if let Some(put) = &request.put {
                ("/etcdserverpb.KV/Put", 1, put.encoded_len(), text(|out| put_text(out, put)))
            } else if let Some(delete) = &request.delete_range {
                let content = text(|out| keys_text(out, &delete.key, &delete.range_end));
                ("/etcdserverpb.KV/DeleteRange", 0, delete.encoded_len(), content)
            } else if let Some(txn) = &request.txn {
                let operations = txn.success.len().max(txn.failure.len()) as i64;
                ("/etcdserverpb.KV/Txn", operations, txn.encoded_len(), text(|out| txn_text(out, txn)))
            } else {
                // Others may hold passwords.
                (super::Operation::of_entry(payload).name(), -1, payload.len(), String::new())
            }
        });
    }

    /// Writes a line about a range.
    pub(crate) fn read(&self, request: &RangeRequest, took: Duration, index: Duration, answered: Answered) {
        let stages = [("read index", index), ("range", took.saturating_sub(index))];
        self.line(took, &stages, answered, || {
            ("/etcdserverpb.KV/Range", 0, request.encoded_len(), text(|out| range_text(out, request)))
        });
    }

    fn line(
        &self,
        took: Duration,
        stages: &[(&str, Duration)],
        answered: Answered,
        describe: impl FnOnce() -> (&'static str, i64, usize, String),
    ) {
        let now = SystemTime::now();
        let Some(left_out) = self.admit(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()) else { return };
        let (kind, count, bytes, content) = describe();
        let start = logging::timestamp(now.checked_sub(took).unwrap_or(now));
        let spent = format!("{took:?}");
        let stages: Vec<(&str, String)> = stages.iter().map(|(name, took)| (*name, format!("{took:?}"))).collect();
        let mut fields: Vec<(&str, Value<'_>)> = vec![
            ("start time", (&start).into()),
            ("time spent", (&spent).into()),
            ("response type", kind.into()),
            ("request count", count.into()),
            ("request size", bytes.into()),
            ("response count", answered.count.into()),
            ("response size", answered.bytes.into()),
            ("request content", (&content).into()),
        ];
        fields.extend(stages.iter().map(|(name, took)| (*name, Value::from(took))));
        if left_out > 0 {
            fields.push(("lines left out before", left_out.into()));
        }
        logging::warn("request stats", &fields);
    }
}

fn text(write: impl FnOnce(&mut String)) -> String {
    let mut out = String::new();
    write(&mut out);
    out
}

/// Bytes as a Go string literal shows them, and how many more there are.
fn key_text(out: &mut String, name: &str, key: &[u8]) {
    let shown = &key[..key.len().min(KEY_BYTES_MAX)];
    // Writing to a string cannot fail.
    let _ = write!(out, "{name}:\"{}\" ", shown.escape_ascii());
    if shown.len() < key.len() {
        let _ = write!(out, "{name}_size:{} ", key.len());
    }
}

fn keys_text(out: &mut String, key: &[u8], range_end: &[u8]) {
    key_text(out, "key", key);
    if !range_end.is_empty() {
        key_text(out, "range_end", range_end);
    }
}

fn put_text(out: &mut String, put: &PutRequest) {
    key_text(out, "key", &put.key);
    let _ = write!(out, "value_size:{} lease:{} ", put.value.len(), put.lease);
}

fn range_text(out: &mut String, range: &RangeRequest) {
    keys_text(out, &range.key, &range.range_end);
    for (name, value) in [("limit", range.limit), ("revision", range.revision)] {
        if value != 0 {
            let _ = write!(out, "{name}:{value} ");
        }
    }
    for (name, is_set) in
        [("serializable", range.serializable), ("keys_only", range.keys_only), ("count_only", range.count_only)]
    {
        if is_set {
            let _ = write!(out, "{name}:true ");
        }
    }
}

fn txn_text(out: &mut String, txn: &TxnRequest) {
    for compare in &txn.compare {
        out.push_str("compare:<");
        keys_text(out, &compare.key, &compare.range_end);
        out.push_str("> ");
        if out.len() >= SHOWN_BYTES_MAX {
            break;
        }
    }
    for (branch, operations) in [("success", &txn.success), ("failure", &txn.failure)] {
        for operation in operations {
            if out.len() >= SHOWN_BYTES_MAX {
                out.push_str("...");
                return;
            }
            let _ = write!(out, "{branch}:<");
            operation_text(out, operation);
            out.push_str("> ");
        }
    }
}

fn operation_text(out: &mut String, operation: &RequestOp) {
    match &operation.request {
        Some(Request::RequestPut(put)) => put_text(out, put),
        Some(Request::RequestRange(range)) => range_text(out, range),
        Some(Request::RequestDeleteRange(delete)) => keys_text(out, &delete.key, &delete.range_end),
        // Its own operations are not shown: they may be nested deeply.
        Some(Request::RequestTxn(txn)) => {
            let _ = write!(out, "txn of {} and {} operations", txn.success.len(), txn.failure.len());
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_few() {
        let lines = SlowLines::default();
        assert_eq!((0..30).filter(|_| lines.admit(7).is_some()).count(), 10);
        assert_eq!(lines.admit(8), Some(20));
        assert_eq!(lines.admit(8), Some(0));
    }

    #[test]
    fn values_are_not_shown() {
        let put = PutRequest { key: "k\n".into(), value: "secret".into(), ..Default::default() };
        let operation = RequestOp { request: Some(Request::RequestPut(put)) };
        let txn = TxnRequest { success: vec![operation; 1000], ..Default::default() };
        let shown = text(|out| txn_text(out, &txn));
        assert!(shown.starts_with("success:<key:\"k\\n\" value_size:6 lease:0 >"), "{shown}");
        assert!(!shown.contains("secret") && shown.len() < 2 * SHOWN_BYTES_MAX);
        let long = PutRequest { key: vec![b'x'; 5000].into(), ..Default::default() };
        let shown = text(|out| put_text(out, &long));
        assert!(shown.len() < 300 && shown.contains("key_size:5000"), "{shown}");
    }
}
