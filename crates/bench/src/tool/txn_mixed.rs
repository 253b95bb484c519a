//! `txn-mixed`: reads and writes in transactions.

use flags::{Parsed, float, int, text};

use super::command::{Action, Command};
use super::failure::Outcome;
use super::keys::{Keys, Random, length, noise};
use super::say;
use super::session::Session;
use super::single::Simple;
use super::{range, txn_put};
use crate::work::Request;
use api::varint::{put_nonempty, put_nonzero};

pub(crate) const COMMAND: Command = Command {
    name: "txn-mixed",
    arguments: " key [end-range]",
    short: "Benchmark a mixed load of txn-put & txn-range.",
    long: "Benchmark a mixed load of txn-put & txn-range: as with etcd's tool, reads are of all keys, up to --limit. With --rate \
           requests are sent at times that are fixed beforehand, and latency counts from those times.",
    flags: &[
        text("consistency", "l", "linearizable (l) or serializable (s)"),
        text("end-key", "", "taken for compatibility: reads are of all keys"),
        int("key-size", "8", "bytes of a key"),
        int("key-space-size", "1", "different keys"),
        int("limit", "1000", "keys that a read returns at most"),
        int(
            "rate",
            "0",
            "transactions per second, sent whatever the answers do (0: each client sends when it has its answer)",
        ),
        float("rw-ratio", "1", "reads for each write"),
        int("total", "10000", "transactions altogether"),
        int("val-size", "8", "bytes of a value"),
    ],
    action: Action::Run(run),
};

/// The groups that are counted separately.
const READS: usize = 0;
const WRITES: usize = 1;

fn run(parsed: &Parsed) -> Outcome {
    let keys = Keys::new("", parsed.int("key-size"), parsed.int("key-space-size"))?;
    let value = noise(length("val-size", parsed.int("val-size"))?);
    let mut mixed = Mixed {
        keys,
        value,
        read: Vec::new(),
        share: share(parsed.float("rw-ratio")),
        random: Random::new(),
        next: 0,
        operation: Vec::new(),
    };
    let is_serializable = range::consistency(parsed)?;
    mixed.read = read(parsed.int("limit"), is_serializable);
    let session = Session::open(parsed)?;
    let (mut meters, cost) = session.measure(session.pace()?, 2, || mixed.clone())?;
    // It is unknown which of the unsent requests would have been reads.
    let missed = meters[READS].take_missed();
    for (name, load, group) in [("Read", "txn-mixed-read", READS), ("Write", "txn-mixed-write", WRITES)] {
        let meter = &meters[group];
        say(&format!("Total {name} Ops: {}\nDetails:{}\n", meter.sent, session.tell(load, meter, cost)));
    }
    if let Some((text, count)) = missed {
        say(&format!("[{count}]\t{text}\n"));
    }
    session.end()
}

/// The share of reads when there are `ratio` for each write.
fn share(ratio: f64) -> f64 {
    if ratio.is_infinite() && ratio > 0.0 { 1.0 } else { ratio / (1.0 + ratio) }
}

/// A transaction that reads all keys.
fn read(limit: i64, is_serializable: bool) -> Vec<u8> {
    let (mut range, mut message) = (Vec::new(), Vec::new());
    put_nonempty(&mut range, 1, &[0]);
    put_nonempty(&mut range, 2, &[0]);
    put_nonzero(&mut range, 3, limit as u64);
    put_nonzero(&mut range, 7, u64::from(is_serializable));
    txn_put::add(&mut message, 1, &range);
    message
}

#[derive(Clone)]
struct Mixed {
    keys: Keys,
    value: Vec<u8>,
    /// The request of all reads.
    read: Vec<u8>,
    share: f64,
    random: Random,
    next: u64,
    operation: Vec<u8>,
}

impl Simple for Mixed {
    const METHODS: &'static [&'static str] = &["/etcdserverpb.KV/Txn"];

    fn make(&mut self, message: &mut Vec<u8>) -> Request {
        message.clear();
        let number = self.next;
        self.next += 1;
        if self.random.share() < self.share {
            message.extend_from_slice(&self.read);
            return Request { group: READS, ..Request::default() };
        }
        txn_put::add_put(message, self.keys.at(number), &self.value, &mut self.operation);
        Request { group: WRITES, ..Request::default() }
    }

    fn check(&mut self, _: Request, message: &[u8]) -> Result<(), &'static str> {
        txn_put::check(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use api::etcdserverpb::TxnRequest;
    use api::etcdserverpb::request_op::Request as Operation;

    #[test]
    fn reads_are_of_all_keys() {
        let txn = TxnRequest::decode(&read(1000, true)[..]).expect("a transaction");
        let [operation] = &txn.success[..] else { panic!("{txn:?}") };
        let Some(Operation::RequestRange(range)) = &operation.request else { panic!("{txn:?}") };
        assert_eq!((&range.key[..], &range.range_end[..]), (&b"\0"[..], &b"\0"[..]));
        assert_eq!((range.limit, range.serializable), (1000, true));
    }

    #[test]
    fn ratios_are_shares() {
        assert_eq!((share(1.0), share(3.0), share(0.0), share(f64::INFINITY)), (0.5, 0.75, 0.0, 1.0));
        // As with etcd's tool, nothing is read with such a ratio.
        assert!(share(-1.0) < 0.0 && share(f64::NAN).is_nan());
    }
}
