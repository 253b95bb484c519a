//! `mvcc put`: etcd's tool measures its storage engine in place, without a server.

use flags::{Parsed, int, switch, text};

use super::command::{Action, Command};
use super::failure::{Failure, Outcome};

pub(crate) const COMMAND: Command = Command {
    name: "mvcc",
    arguments: "",
    short: "Benchmark mvcc",
    long: "Benchmarks of the storage engine without a server; not for this one",
    flags: &[
        int("batch-interval", "100", "milliseconds of a batch"),
        int("batch-limit", "10000", "transactions of a batch"),
    ],
    action: Action::Group(&[PUT]),
};

const PUT: Command = Command {
    name: "put",
    arguments: "",
    short: "Benchmark put performance of storage",
    long: "Benchmark put performance of storage; not for this one",
    flags: &[
        int("batch-interval", "100", "milliseconds of a batch"),
        int("batch-limit", "10000", "transactions of a batch"),
        text("cpuprofile", "", "file of a CPU profile"),
        int("key-size", "64", "bytes of a key"),
        text("memprofile", "", "file of a heap profile"),
        int("total", "100", "keys altogether"),
        switch("txn", "put in transactions"),
        int("txn-ops", "1", "puts of a transaction"),
        int("value-size", "64", "bytes of a value"),
    ],
    action: Action::Run(run),
};

fn run(_: &Parsed) -> Outcome {
    Err(Failure::new(
        "`mvcc put` measures etcd's storage engine inside the tool, which Cairn does not have; `put` measures a server with its disk",
    ))
}
