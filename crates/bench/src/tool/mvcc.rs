//! `mvcc put`: the storage engine in place, without a server, a network or a Raft log.
//!
//! As in etcd's tool nothing waits for the disk but the end of a batch, which a checkpoint makes durable here.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::etcdserverpb::{InternalRaftRequest, PutRequest, RequestOp, TxnRequest, request_op};
use api::{Error, Message, raftpb};
use flags::{Flag, Parsed, int, switch, text};
use rpc::Status;
use store::{Applier, Response, Sink};

use super::command::{Action, Command};
use super::failure::{Failure, Outcome};
use super::keys::{length, noise};
use super::watching::listen;
use super::{say, summary};
use crate::link::block_on;
use crate::meter::Meter;

/// The directory of the store, in the working directory. It is deleted at the end.
const DIR: &str = "mvcc-bench";
/// How often interruptions are checked.
const TICK: Duration = Duration::from_millis(50);

/// These flags may also precede `put`.
const BATCH: [Flag; 2] = [
    int("batch-interval", "100", "milliseconds until a batch is made durable"),
    int("batch-limit", "10000", "transactions after which a batch is made durable"),
];

pub(crate) const COMMAND: Command = Command {
    name: "mvcc",
    arguments: "",
    short: "Benchmark mvcc",
    long: "Benchmarks of the storage engine in place, without a server",
    flags: &BATCH,
    action: Action::Group(&[PUT]),
};

const PUT: Command = Command {
    name: "put",
    arguments: "",
    short: "Benchmark put performance of storage",
    long: "Benchmark put performance of storage: puts into a store in `mvcc-bench/`, which is removed at the end. No request waits for \
           the disk; a checkpoint makes each batch durable.",
    flags: &[
        BATCH[0],
        BATCH[1],
        text("cpuprofile", "", "not here: `perf record` makes profiles of this program"),
        int("key-size", "64", "bytes of a key"),
        text("memprofile", "", "not here: `heaptrack` makes profiles of this program"),
        int("total", "100", "transactions altogether"),
        switch("txn", "put in transactions"),
        int("txn-ops", "1", "puts of a transaction"),
        int("value-size", "64", "bytes of a value"),
    ],
    action: Action::Run(run),
};

fn run(parsed: &Parsed) -> Outcome {
    if ["cpuprofile", "memprofile"].iter().any(|name| parsed.is_given(name)) {
        return Err(Failure::new("this program writes no profiles of Go; use `perf record` or `heaptrack` on it"));
    }
    if let Some(name) = ["duration", "json"].into_iter().find(|name| parsed.is_given(name)) {
        return Err(Failure::new(format!("mvcc put has no --{name}: it is for loads on a server")));
    }
    let load = Load {
        total: at_least(parsed, "total", 0)?,
        key_bytes: length("key-size", parsed.int("key-size"))?,
        value_bytes: length("value-size", parsed.int("value-size"))?,
        puts: if parsed.switch("txn") { Some(at_least(parsed, "txn-ops", 1)?) } else { None },
        batch: at_least(parsed, "batch-limit", 1)?,
        interval: Duration::from_millis(at_least(parsed, "batch-interval", 1)?),
    };
    if load.key_bytes == 0 {
        return Err(Failure::new("expected positive --key-size, got (0)"));
    }
    let dir = Path::new(DIR);
    std::fs::create_dir(dir).map_err(|error| Failure::new(format!("cannot create `{DIR}`: {error}")))?;
    let measured = measure(dir, &load);
    let removed = std::fs::remove_dir_all(dir);
    let Measured { meter, time } = measured?;
    say(&summary::weighted(&meter, time, load.weight(), parsed.switch("precise")));
    removed.map_err(|error| Failure::new(format!("cannot remove `{DIR}`: {error}")))
}

fn at_least(parsed: &Parsed, flag: &str, least: i64) -> Outcome<u64> {
    let number = parsed.int(flag);
    if number < least {
        return Err(Failure::new(format!("expected --{flag} of {least} or more, got ({number})")));
    }
    Ok(number as u64)
}

struct Load {
    total: u64,
    key_bytes: usize,
    value_bytes: usize,
    /// Puts per transaction; `None` if each put is an entry of its own.
    puts: Option<u64>,
    batch: u64,
    interval: Duration,
}

impl Load {
    fn weight(&self) -> u64 {
        self.puts.unwrap_or(1)
    }

    fn put(&self) -> PutRequest {
        PutRequest { key: noise(self.key_bytes).into(), value: noise(self.value_bytes).into(), ..PutRequest::default() }
    }

    /// The request of one entry.
    fn request(&self) -> InternalRaftRequest {
        let Some(puts) = self.puts else {
            return InternalRaftRequest { put: Some(self.put()), ..InternalRaftRequest::default() };
        };
        let put = |_| RequestOp { request: Some(request_op::Request::RequestPut(self.put())) };
        let txn = TxnRequest { success: (0..puts).map(put).collect(), ..TxnRequest::default() };
        InternalRaftRequest { txn: Some(txn), ..InternalRaftRequest::default() }
    }
}

#[derive(Default)]
struct Measured {
    meter: Meter,
    /// The time of the run without making keys and values.
    time: Duration,
}

impl Measured {
    fn count(&mut self, status: &Status, weight: u64, since: Instant, now: Instant) {
        let took = now.duration_since(since);
        self.time += took;
        self.meter.count(status, Ok(()), now - took.div_f64(weight as f64), now);
    }
}

/// Puts into a new store in `dir`.
fn measure(dir: &Path, load: &Load) -> Outcome<Measured> {
    let options = store::Options { quota_bytes: -1, ..store::Options::default() };
    let opened = store::open(Arc::new(disk::OsDisk::default()), dir, options);
    let mut applier = opened.map_err(|error| Failure::new(error.to_string()))?.applier;
    let measured = RefCell::default();
    let mut interruptions = listen()?;
    let outcome = block_on(async {
        Ok(tokio::select! {
            outcome = puts(&mut applier, load, &measured) => outcome,
            () = interruptions.next() => Ok(()),
        })
    })?;
    outcome.map(|()| measured.into_inner())
}

async fn puts(applier: &mut Applier, load: &Load, measured: &RefCell<Measured>) -> Outcome {
    let failed = |error: &dyn std::error::Error| Failure::new(error.to_string());
    let (mut looked, mut batch_began, mut batch) = (Instant::now(), Instant::now(), 0);
    for number in 1..=load.total {
        let data = load.request().encode_to_vec();
        let entry = raftpb::Entry { term: Some(1), index: Some(number), r#type: None, data: Some(data.into()) };
        let mut answer = Answer(None);
        let since = Instant::now();
        applier.apply(&[entry], &mut answer).map_err(|error| failed(&error))?;
        batch += 1;
        if batch >= load.batch || since.duration_since(batch_began) >= load.interval {
            applier.checkpoint().write().map_err(|error| failed(&error))?;
            (batch_began, batch) = (Instant::now(), 0);
        }
        let now = Instant::now();
        let status = match answer.0 {
            Some(Err(error)) => Status::from(error),
            _ => Status::OK,
        };
        measured.borrow_mut().count(&status, load.weight(), since, now);
        if now.duration_since(looked) >= TICK {
            looked = now;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// The result of the current entry.
struct Answer(Option<Result<(), Error>>);

impl Sink for Answer {
    fn done(&mut self, _: u64, _: u64, result: Result<Response, Error>) {
        self.0 = Some(result.map(|_| ()));
    }

    fn conf_change(&mut self, _: u64, _: raftpb::ConfChange) {}

    fn over_quota(&mut self, _response: &Response) {}
}
