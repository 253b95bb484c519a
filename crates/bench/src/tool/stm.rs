//! `stm`: transactions that are tried again until nobody was in the way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use api::Message;
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op::Request as Operation;
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::{Compare, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest};
use api::v3lockpb::{LockRequest, LockResponse, UnlockRequest};
use client::{Client, Error};
use flags::{Parsed, int, text};
use rpc::{Metadata, Status};
use tokio::task::JoinSet;

use super::command::{Action, Command};
use super::failure::{Failure, Outcome};
use super::keys::{Keys, Random, length, noise};
use super::say;
use super::session::{GRACE, Pace, Session};
use super::watching::listen;
use crate::BenchError;
use crate::interrupt::is_interrupted;
use crate::link::block_on;
use crate::meter::{Cost, Meter};
use crate::progress::Bar;

pub(crate) const COMMAND: Command = Command {
    name: "stm",
    arguments: "",
    short: "Benchmark STM",
    long: "Benchmark STM: transactions that read keys, write some of them, and are tried again when others have changed what they read",
    flags: &[
        text("isolation", "r", "read committed (c), repeatable reads (r), serializable (s) or snapshot (ss)"),
        int("keys", "1", "different keys"),
        int("keys-per-txn", "1", "keys of a transaction"),
        int(
            "rate",
            "0",
            "transactions per second, begun whatever the answers do (0: each client goes on when it is done)",
        ),
        text(
            "stm-locker",
            "stm",
            "what keeps transactions apart: nothing else (stm), a lock of the client (lock-client) or of the server (lock-rpc)",
        ),
        int("total", "10000", "transactions altogether"),
        int("txn-wr-percent", "50", "percentage of a transaction's keys that it writes"),
        int("val-size", "8", "bytes of a value"),
    ],
    action: Action::Run(run),
};

/// Bytes of a key.
const KEY_BYTES: i64 = 16;
/// Limit of keys per transaction.
const KEYS_MAX: i64 = 1 << 16;
/// The lock's name.
const LOCK: &str = "stmlock";
/// How long the lease of a lock lives without its holder.
const LOCK_TTL: Duration = Duration::from_secs(60);

/// How long a client that has lost its session waits for another.
const PAUSE: Duration = Duration::from_millis(100);

/// Which concurrent changes make a transaction fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isolation {
    /// None.
    ReadCommitted,
    /// Changes of keys that were read.
    RepeatableReads,
    /// Changes of keys that were read; all reads have the same revision.
    Serializable,
    /// Changes of keys that were read, all at the same revision, or that are written.
    Snapshot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locker {
    Stm,
    Client,
    Rpc,
}

fn run(parsed: &Parsed) -> Outcome {
    let (keys, each, percent) = (parsed.int("keys"), parsed.int("keys-per-txn"), parsed.int("txn-wr-percent"));
    if keys <= 0 {
        return Err(Failure::new(format!("expected positive --keys, got ({keys})")));
    }
    if !(0..=100).contains(&percent) {
        return Err(Failure::new(format!("expected [0, 100] --txn-wr-percent, got ({percent})")));
    }
    if !(0..=keys.min(KEYS_MAX)).contains(&each) {
        let most = keys.min(KEYS_MAX);
        return Err(Failure::new(format!("expected --keys-per-txn between 0 and {most}, got ({each})")));
    }
    let isolation = match parsed.text("isolation") {
        "c" => Isolation::ReadCommitted,
        "r" => Isolation::RepeatableReads,
        "s" => Isolation::Serializable,
        "ss" => Isolation::Snapshot,
        _ => return Err(Failure::usage()),
    };
    let locker = match parsed.text("stm-locker") {
        "stm" => Locker::Stm,
        "lock-client" => Locker::Client,
        "lock-rpc" => Locker::Rpc,
        other => return Err(Failure::new(format!("unexpected stm locker {other:?}"))),
    };
    let value_bytes = length("val-size", parsed.int("val-size"))?;
    let session = Session::open(parsed)?;
    let pace = session.pace()?;
    let shared = Rc::new(Shared {
        isolation,
        keys: RefCell::new(Keys::new("", KEY_BYTES, keys)?),
        space: keys as u64,
        random: RefCell::new(Random::new()),
        keys_each: each as usize,
        writes: (each * percent / 100) as usize,
        value_bytes,
        begun: Cell::new(0),
        under_way: Cell::new(0),
        began: Cell::new(Instant::now()),
        ended: Cell::new(Instant::now()),
        meter: RefCell::new(session.meter()),
    });
    if pace.total != Some(0) && session.has_work() {
        let outcome = block_on(async { Ok::<_, BenchError>(transact(&session, &shared, pace, locker).await) });
        let outcome = outcome.map_err(Failure::from).flatten();
        let began = shared.began.get();
        let mut meter = shared.meter.borrow_mut();
        let under_way = shared.under_way.get();
        meter.lose(under_way);
        let due = due(pace, shared.ended.get().saturating_duration_since(began));
        let unsent = due.saturating_sub(meter.sent);
        meter.miss(unsent);
        // If answers are missing, the time of waiting for them belongs to the run.
        let is_complete = under_way == 0 && Some(meter.sent) >= pace.total;
        let last = if is_complete { meter.last } else { meter.last.max(Some(shared.ended.get())) };
        let time = last.map_or(Duration::ZERO, |last| last.saturating_duration_since(began));
        say(&session.tell("stm", &meter, Cost { time, ..Cost::default() }));
        // The measurements have been printed; only now an error is returned.
        outcome?;
    }
    session.end()
}

/// The state that the clients share.
struct Shared {
    isolation: Isolation,
    keys: RefCell<Keys>,
    space: u64,
    random: RefCell<Random>,
    keys_each: usize,
    writes: usize,
    value_bytes: usize,
    /// Transactions that were begun.
    begun: Cell<u64>,
    /// Transactions that are under way.
    under_way: Cell<u64>,
    began: Cell<Instant>,
    /// When the run was over: all transactions were done, the time had passed, or the user pressed Ctrl-C.
    ended: Cell<Instant>,
    meter: RefCell<Meter>,
}

impl Shared {
    /// Draws the keys of a transaction, and the values that it writes to some of them.
    fn draw(&self) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let (mut keys, mut random) = (self.keys.borrow_mut(), self.random.borrow_mut());
        let mut drawn = BTreeMap::new();
        // If most keys are needed, drawing the last ones at random would take long.
        let first = random.below(self.space);
        let in_a_row = self.keys_each as u64 * 2 > self.space;
        for number in 0.. {
            if drawn.len() == self.keys_each {
                break;
            }
            let number = if in_a_row { first + number } else { random.below(self.space) };
            // A key without bytes that a longer number has left behind.
            let key = keys.fresh(number % self.space);
            let value = (drawn.len() < self.writes).then(|| noise(self.value_bytes));
            drawn.entry(key).or_insert(value);
        }
        drawn
    }
}

/// Runs the clients.
async fn transact(session: &Session<'_>, shared: &Rc<Shared>, pace: Pace, locker: Locker) -> Outcome {
    let connections = session.connections().min(session.clients());
    let clients: Vec<Client> = (0..connections).map(|number| session.client(number)).collect::<Outcome<_>>()?;
    let channels: Vec<_> = (0..connections).map(|number| session.channel(number)).collect();
    let total = pace.total.unwrap_or(u64::MAX);
    session.reach().await;
    let mut running = JoinSet::new();
    let began = Instant::now();
    shared.began.set(began);
    let until = session.time().map(|time| began + time);
    for number in 0..session.clients() {
        let client = clients[number % connections].clone();
        let lock = Lock { locker, channel: channels[number % connections].clone(), metadata: session.metadata() };
        let shared = shared.clone();
        running.spawn_local(async move { one_client(&client, lock, &shared, total, until, pace.rate, began).await });
    }
    let mut interruptions = listen()?;
    let mut bar = Bar::new(pace.total);
    let work = async {
        while let Some(joined) = running.join_next().await {
            joined.map_err(|error| Failure::new(error.to_string()))??;
        }
        if !is_interrupted() {
            shared.ended.set(until.map_or(Instant::now(), |until| until.min(Instant::now())));
        }
        Ok::<_, Failure>(())
    };
    let drawing = async {
        // Clients that wait for the time of their next transaction have none under way.
        while !is_interrupted() || shared.under_way.get() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            bar.draw(shared.meter.borrow().done());
        }
    };
    let over = async {
        tokio::select! {
            () = sleep_until(until) => {}
            () = interruptions.next() => {}
        }
        let now = Instant::now();
        shared.ended.set(now);
        tokio::select! {
            () = sleep_until(Some(now + GRACE)) => {}
            () = interruptions.next() => {}
        }
    };
    tokio::select! {
        outcome = work => outcome?,
        () = drawing => {}
        () = over => {}
    }
    bar.end(shared.meter.borrow().done());
    Ok(())
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        None => std::future::pending().await,
        Some(time) => tokio::time::sleep_until(time.into()).await,
    }
}

async fn one_client(
    client: &Client,
    lock: Lock,
    shared: &Shared,
    total: u64,
    until: Option<Instant>,
    rate: i64,
    began: Instant,
) -> Outcome {
    let failed = |error: Error| Failure::new(format!("stm: {}", told(&error)));
    let mut holder = lock.clone().prepare(client).await.map_err(failed)?;
    while !is_interrupted() && shared.begun.get() < total && until.is_none_or(|until| Instant::now() < until) {
        let number = shared.begun.replace(shared.begun.get() + 1);
        let mut since = Instant::now();
        if rate > 0 {
            since = began + Duration::from_secs_f64((number as f64 / rate as f64).min(1e9));
            if until.is_some_and(|until| since >= until) {
                break;
            }
            tokio::time::sleep_until(since.into()).await;
            if is_interrupted() {
                break;
            }
        }
        shared.under_way.set(shared.under_way.get() + 1);
        shared.meter.borrow_mut().sent += 1;
        let (outcome, free) = transaction(client, holder, shared).await;
        shared.under_way.set(shared.under_way.get() - 1);
        let status = match outcome {
            Ok(()) => Status::OK,
            Err(Error::Status(status)) => status,
            Err(other) => Status::new(api::Code::Unknown, other.to_string()),
        };
        shared.meter.borrow_mut().count(&status, Ok(()), since, Instant::now());
        holder = match free {
            Some(free) => free,
            // The state of the lock is unknown, so the client continues with a new session.
            None => {
                tokio::time::sleep(PAUSE).await;
                lock.clone().prepare(client).await.map_err(failed)?
            }
        };
    }
    Ok(())
}

/// Runs a transaction under its lock. Also returns the holder for the next one; `None` if the lock was lost.
async fn transaction(client: &Client, holder: Holder, shared: &Shared) -> (Result<(), Error>, Option<Holder>) {
    let held = match holder.lock().await {
        Ok(held) => held,
        Err(error) => return (Err(error), None),
    };
    let outcome = apply(client, shared.isolation, &shared.draw()).await;
    match held.unlock().await {
        Ok(free) => (outcome, Some(free)),
        Err(error) => (outcome.and(Err(error)), None),
    }
}

/// How many transactions of an open loop are due in `time`.
fn due(pace: Pace, time: Duration) -> u64 {
    if pace.rate <= 0 {
        return 0;
    }
    let due = (time.as_secs_f64() * pace.rate as f64).ceil() as u64;
    pace.total.map_or(due, |total| due.min(total))
}

fn told(error: &Error) -> String {
    match error {
        Error::Status(status) => crate::meter::told(status),
        other => other.to_string(),
    }
}

/// One transaction with all its attempts.
async fn apply(client: &Client, isolation: Isolation, keys: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<(), Error> {
    // Values that came with a failed attempt are not read again.
    let mut known = BTreeMap::<Vec<u8>, (i64, i64)>::new();
    loop {
        let mut seen = BTreeMap::new();
        let mut at_revision = 0;
        for key in keys.keys() {
            let found = match known.remove(key) {
                Some(found) => found,
                None => {
                    // As in etcd's clients, a read is a transaction too.
                    let read = range(key, at_revision);
                    let txn = TxnRequest { success: vec![read], ..TxnRequest::default() };
                    let answer = client.txn(txn).await?;
                    let revision = answer.header.map_or(0, |header| header.revision);
                    let Some(Response::ResponseRange(found)) =
                        answer.responses.into_iter().next().and_then(|op| op.response)
                    else {
                        let text = "a transaction was answered without what it read";
                        return Err(Status::new(api::Code::Internal, text).into());
                    };
                    (changed(&found), revision)
                }
            };
            if matches!(isolation, Isolation::Serializable | Isolation::Snapshot) && at_revision == 0 {
                at_revision = found.1;
            }
            seen.insert(key, found);
        }
        let txn = commit(isolation, keys, &seen);
        let is_kept = !txn.failure.is_empty();
        let answer = client.txn(txn).await?;
        if answer.succeeded {
            return Ok(());
        }
        let revision = answer.header.map_or(0, |header| header.revision);
        for (key, response) in keys.keys().zip(answer.responses).filter(|_| is_kept) {
            if let Some(Response::ResponseRange(range)) = response.response {
                known.insert(key.clone(), (changed(&range), revision));
            }
        }
    }
}

/// The revision of a key's last change, 0 if the key does not exist.
fn changed(answer: &RangeResponse) -> i64 {
    answer.kvs.first().map_or(0, |kv| kv.mod_revision)
}

/// Reads a key. With a revision other than 0, the read is at that revision and serializable.
fn range(key: &[u8], revision: i64) -> RequestOp {
    let key = key.to_vec().into();
    let range = RangeRequest { key, revision, serializable: revision > 0, ..RangeRequest::default() };
    RequestOp { request: Some(Operation::RequestRange(range)) }
}

fn commit(
    isolation: Isolation,
    keys: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    seen: &BTreeMap<&Vec<u8>, (i64, i64)>,
) -> TxnRequest {
    let compared = |key: &Vec<u8>, result: CompareResult, revision| Compare {
        result: result.into(),
        target: CompareTarget::Mod.into(),
        key: key.clone().into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..Compare::default()
    };
    let mut compare = Vec::new();
    if isolation != Isolation::ReadCommitted {
        compare.extend(seen.iter().map(|(key, (revision, _))| compared(key, CompareResult::Equal, *revision)));
    }
    let first = seen.values().map(|(_, revision)| *revision).min().unwrap_or(0);
    let written = keys.iter().filter_map(|(key, value)| value.as_ref().map(|value| (key, value)));
    let mut success = Vec::new();
    for (key, value) in written {
        if isolation == Isolation::Snapshot {
            compare.push(compared(key, CompareResult::Less, first + 1));
        }
        let put = PutRequest { key: key.clone().into(), value: value.clone().into(), ..PutRequest::default() };
        success.push(RequestOp { request: Some(Operation::RequestPut(put)) });
    }
    let mut failure = Vec::new();
    if matches!(isolation, Isolation::Serializable | Isolation::Snapshot) {
        failure.extend(keys.keys().map(|key| range(key, 0)));
    }
    TxnRequest { compare, success, failure }
}

/// How a client excludes others.
#[derive(Clone)]
struct Lock {
    locker: Locker,
    channel: rpc::client::Channel,
    metadata: Metadata,
}

/// A client that holds no lock.
enum Holder {
    Nothing,
    Client(client::Session),
    Rpc(Lock, client::Session),
}

/// A client that holds its lock, if it wants one.
enum Held {
    Nothing,
    Client(client::Lock),
    Rpc(Lock, client::Session, bytes::Bytes),
}

impl Lock {
    async fn prepare(self, client: &Client) -> Result<Holder, Error> {
        Ok(match self.locker {
            Locker::Stm => Holder::Nothing,
            Locker::Client => Holder::Client(client.session(LOCK_TTL).await?),
            Locker::Rpc => Holder::Rpc(self, client.session(LOCK_TTL).await?),
        })
    }
}

impl Holder {
    async fn lock(self) -> Result<Held, Error> {
        Ok(match self {
            Holder::Nothing => Held::Nothing,
            Holder::Client(session) => Held::Client(session.lock(LOCK).await?),
            Holder::Rpc(lock, session) => {
                let request = LockRequest { name: LOCK.into(), lease: session.lease() }.encode_to_vec();
                let answer = lock.channel.unary("/v3lockpb.Lock/Lock", &lock.metadata, request.into(), None).await?;
                let answer = LockResponse::decode(answer)
                    .map_err(|error| Status::new(api::Code::Internal, format!("the answer to Lock: {error}")))?;
                Held::Rpc(lock, session, answer.key)
            }
        })
    }
}

impl Held {
    async fn unlock(self) -> Result<Holder, Error> {
        Ok(match self {
            Held::Nothing => Holder::Nothing,
            Held::Client(lock) => Holder::Client(lock.unlock().await?),
            Held::Rpc(lock, session, key) => {
                let request = UnlockRequest { key }.encode_to_vec();
                lock.channel.unary("/v3lockpb.Lock/Unlock", &lock.metadata, request.into(), None).await?;
                Holder::Rpc(lock, session)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        [(b"a".to_vec(), Some(b"v".to_vec())), (b"b".to_vec(), None)].into_iter().collect()
    }

    #[test]
    fn isolation_is_what_a_transaction_compares() {
        let keys = keys();
        let seen: BTreeMap<&Vec<u8>, (i64, i64)> = keys.keys().map(|key| (key, (3, 9))).collect();
        let counts = |isolation| {
            let txn = commit(isolation, &keys, &seen);
            (txn.compare.len(), txn.success.len(), txn.failure.len())
        };
        assert_eq!(counts(Isolation::ReadCommitted), (0, 1, 0));
        assert_eq!(counts(Isolation::RepeatableReads), (2, 1, 0));
        assert_eq!(counts(Isolation::Serializable), (2, 1, 2));
        assert_eq!(counts(Isolation::Snapshot), (3, 1, 2));
        let snapshot = commit(Isolation::Snapshot, &keys, &seen);
        assert_eq!(snapshot.compare[2].target_union, Some(TargetUnion::ModRevision(10)));
    }
}
