//! `txn-put`: writes several keys in a transaction.

use flags::{Parsed, int};

use super::command::{Action, Command};
use super::failure::{Failure, Outcome};
use super::keys::{Keys, length, noise};
use super::say;
use super::session::Session;
use super::single::Simple;
use crate::wire::{self, Value};
use crate::work::Request;
use api::varint::{put_bytes, put_nonempty};

pub(crate) const COMMAND: Command = Command {
    name: "txn-put",
    arguments: "",
    short: "Benchmark txn-put",
    long: "Benchmark txn-put: writes keys in order, several in each transaction. With --rate requests are sent at times that are \
           fixed beforehand, and latency counts from those times.",
    flags: &[
        int("key-size", "8", "bytes of a key"),
        int("key-space-size", "1", "different keys"),
        int(
            "rate",
            "0",
            "transactions per second, sent whatever the answers do (0: each client sends when it has its answer)",
        ),
        int("total", "10000", "transactions altogether"),
        int("txn-ops", "1", "puts of a transaction"),
        int("val-size", "8", "bytes of a value"),
    ],
    action: Action::Run(run),
};

fn run(parsed: &Parsed) -> Outcome {
    let (operations, space) = (parsed.int("txn-ops"), parsed.int("key-space-size"));
    let keys = Keys::new("", parsed.int("key-size"), space)?;
    if operations > space {
        let text = "expected --txn-ops no larger than --key-space-size";
        return Err(Failure::new(format!("{text}, got txn-ops({operations}) key-space-size({space})")));
    }
    let value = noise(length("val-size", parsed.int("val-size"))?);
    let txns = Txns { keys, value, operations: length("txn-ops", operations)? as u64, next: 0, operation: Vec::new() };
    let session = Session::open(parsed)?;
    let (meters, cost) = session.measure(session.pace()?, 1, || txns.clone())?;
    say(&format!("{}\n", session.tell("txn-put", &meters[0], cost)));
    session.end()
}

#[derive(Clone)]
struct Txns {
    keys: Keys,
    value: Vec<u8>,
    operations: u64,
    next: u64,
    operation: Vec<u8>,
}

/// Adds a put to the operations of a transaction. `room` is a buffer for that.
pub(crate) fn add_put(message: &mut Vec<u8>, key: &[u8], value: &[u8], room: &mut Vec<u8>) {
    room.clear();
    put_nonempty(room, 1, key);
    put_nonempty(room, 2, value);
    add(message, 2, room);
}

/// Adds an operation of the kind `field` to those that run if the transaction succeeds.
pub(crate) fn add(message: &mut Vec<u8>, field: u32, request: &[u8]) {
    let mut operation = Vec::with_capacity(request.len() + 8);
    put_bytes(&mut operation, field, request);
    put_bytes(message, 2, &operation);
}

/// Checks a TxnResponse: the transaction must have succeeded, as it does without conditions.
pub(crate) fn check(message: &[u8]) -> Result<(), &'static str> {
    let (mut revision, mut has_succeeded) = (None, false);
    let whole = wire::fields(message, |field, value| match (field, value) {
        (1, Value::Bytes(header)) => revision = wire::number(header, 3),
        (2, Value::Number(flag)) => has_succeeded = flag != 0,
        _ => {}
    });
    match whole && revision.is_some_and(|revision| revision > 0) {
        false => Err("an answer without a revision"),
        true if has_succeeded => Ok(()),
        true => Err("a transaction that was not done"),
    }
}

impl Simple for Txns {
    const METHODS: &'static [&'static str] = &["/etcdserverpb.KV/Txn"];

    fn make(&mut self, message: &mut Vec<u8>) -> Request {
        message.clear();
        for _ in 0..self.operations {
            add_put(message, self.keys.at(self.next), &self.value, &mut self.operation);
            self.next = self.next.wrapping_add(1);
        }
        Request::default()
    }

    fn check(&mut self, _: Request, message: &[u8]) -> Result<(), &'static str> {
        check(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use api::etcdserverpb::request_op::Request as Operation;
    use api::etcdserverpb::{ResponseHeader, TxnRequest, TxnResponse};

    #[test]
    fn transactions_are_etcds() {
        let keys = Keys::new("", 8, 10).expect("keys");
        let mut txns = Txns { keys, value: b"v".to_vec(), operations: 3, next: 9, operation: Vec::new() };
        let mut message = Vec::new();
        txns.make(&mut message);
        let txn = TxnRequest::decode(&message[..]).expect("a transaction");
        let keys: Vec<u8> = txn
            .success
            .iter()
            .filter_map(|operation| match &operation.request {
                Some(Operation::RequestPut(put)) if put.value == "v" => Some(put.key[0]),
                _ => None,
            })
            .collect();
        assert_eq!((keys, txn.compare.len(), txn.failure.len()), (vec![18, 0, 2], 0, 0));
        let header = Some(ResponseHeader { revision: 7, ..ResponseHeader::default() });
        let answer = |header, succeeded| TxnResponse { header, succeeded, responses: Vec::new() }.encode_to_vec();
        assert_eq!(check(&answer(header, true)), Ok(()));
        assert!(check(&answer(header, false)).is_err() && check(&answer(None, true)).is_err());
    }
}
