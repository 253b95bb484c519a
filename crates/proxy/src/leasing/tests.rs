//! Proxies with the same prefix before members, under schedules from a seed: what a proxy serves from memory is what members have at that
//! moment, and every write ends.

mod store;

use super::book::{Acquired, Acquisition, Book, News, Wrote};
use super::change::{Attempt, Change, Settled};
use super::claim;
use super::mistake::Mistake;
use super::*;
use crate::dice::Dice;
use crate::single::TXN;
use api::Message;
use api::etcdserverpb::compare::CompareResult;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::{
    DeleteRangeRequest, PutRequest, PutResponse, RangeResponse, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use api::mvccpb::KeyValue;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use store::Store;

/// Schedules of one run, and steps of each.
const SCHEDULES: u64 = 1_000;
const STEPS: usize = 600;
const PREFIX: &[u8] = b"l/";
const KEYS: [&str; 5] = ["a", "b", "c", "d", "l"];
const TTL_MS: u64 = 60_000;
/// The lease that clients hang keys on.
const CLIENTS_LEASE: i64 = 9_999;

/// What a call is for.
#[derive(Debug)]
enum Purpose {
    Acquire(Acquisition),
    /// A try of the write with this number.
    Write(u64, Attempt),
    Revoke,
    Release,
}

/// A call that is under way.
#[derive(Debug)]
struct Call {
    /// The proxy waits for its answer.
    purpose: Option<Purpose>,
    txn: TxnRequest,
    answer: Option<Option<TxnResponse>>,
}

/// A write of a client.
struct Write {
    number: u64,
    path: &'static str,
    change: Change,
    is_waiting: bool,
    bars: Vec<u64>,
}

#[derive(Default)]
struct Proxy {
    book: Book,
    calls: Vec<Call>,
    writes: Vec<Write>,
    last_write: u64,
    /// Events of members that it has learned of.
    learned: usize,
    /// When it asked for its lease to be kept alive.
    lease: i64,
}

struct World {
    store: Store,
    proxies: Vec<Proxy>,
    dice: Dice,
    now_ms: u64,
    last_lease: i64,
    served: u64,
    done: u64,
}

type Outcome = Result<(), String>;

fn key(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            store: Store::default(),
            proxies: (0..3).map(|_| Proxy::default()).collect(),
            dice: Dice(seed),
            now_ms: 1,
            last_lease: 0,
            served: 0,
            done: 0,
        };
        world.store.leases.insert(CLIENTS_LEASE, u64::MAX);
        for name in KEYS {
            let put = PutRequest { key: key(name), value: "first".into(), ..PutRequest::default() };
            let success = vec![claim::op(Request::RequestPut(put))];
            world.store.txn(&TxnRequest { success, ..TxnRequest::default() });
        }
        world
    }

    fn some_key(&mut self) -> Bytes {
        key(KEYS[self.dice.below(KEYS.len() as u64) as usize])
    }

    fn put(&mut self) -> PutRequest {
        let lease = if self.dice.one_in(8) { CLIENTS_LEASE } else { 0 };
        let value = Bytes::from(format!("{}-{}", self.now_ms, self.dice.below(1 << 20)));
        PutRequest { key: self.some_key(), value, lease, ..PutRequest::default() }
    }

    fn write(&mut self, who: usize) {
        let (path, message): (_, Bytes) = match self.dice.below(8) {
            0 => {
                let delete = DeleteRangeRequest { key: self.some_key(), ..DeleteRangeRequest::default() };
                ("/etcdserverpb.KV/DeleteRange", delete.encode_to_vec().into())
            }
            1 => {
                // Some, and all with the lease keys.
                let (start, end) = [("a", "c"), ("b", "e"), ("\0", "\0"), ("l", "m")][self.dice.below(4) as usize];
                let delete = DeleteRangeRequest { key: key(start), range_end: key(end), ..Default::default() };
                ("/etcdserverpb.KV/DeleteRange", delete.encode_to_vec().into())
            }
            2 | 3 => {
                let (one, other) = (self.put(), self.put());
                let (if_there, delete) = (one.key.clone(), self.some_key());
                let delete = DeleteRangeRequest { key: delete, ..DeleteRangeRequest::default() };
                let failure = vec![if other.key == delete.key {
                    claim::op(Request::RequestPut(other))
                } else {
                    let inner = TxnRequest {
                        success: vec![
                            claim::op(Request::RequestPut(other)),
                            claim::op(Request::RequestDeleteRange(delete)),
                        ],
                        ..TxnRequest::default()
                    };
                    claim::op(Request::RequestTxn(inner))
                }];
                let txn = TxnRequest {
                    compare: vec![claim::created(if_there, CompareResult::Greater, self.dice.below(3) as i64 * 20)],
                    success: vec![claim::op(Request::RequestPut(one))],
                    failure,
                };
                (TXN, txn.encode_to_vec().into())
            }
            _ => ("/etcdserverpb.KV/Put", self.put().encode_to_vec().into()),
        };
        let change = Change::of(path, &message, PREFIX, false).expect("read").expect("a write");
        let proxy = &mut self.proxies[who];
        proxy.last_write += 1;
        let number = proxy.last_write;
        proxy.writes.push(Write { number, path, change, is_waiting: false, bars: Vec::new() });
        self.attempt(who, number);
    }

    fn attempt(&mut self, who: usize, number: u64) {
        let proxy = &mut self.proxies[who];
        let Some(write) = proxy.writes.iter_mut().find(|write| write.number == number) else { return };
        write.is_waiting = false;
        let attempt = write.change.attempt(&mut proxy.book, PREFIX, self.now_ms);
        let txn = attempt.txn.clone();
        proxy.calls.push(Call { purpose: Some(Purpose::Write(number, attempt)), txn, answer: None });
    }

    fn ask(&mut self, who: usize, purpose: Purpose, txn: TxnRequest) {
        self.proxies[who].calls.push(Call { purpose: Some(purpose), txn, answer: None });
    }

    /// A client reads a key.
    fn read(&mut self, who: usize) -> Outcome {
        let key = self.some_key();
        let book = &mut self.proxies[who].book;
        if let Some((kv, header)) = book.get(&key, self.now_ms) {
            self.served += 1;
            let now = self.store.pairs.get(&key);
            if now != Some(&kv) || header.revision > self.store.revision || header.revision < kv.mod_revision {
                return Err(format!("proxy {who} serves {kv:?} at {} and not {now:?}", header.revision));
            }
        } else if let Some(acquisition) = book.acquire(&key, self.now_ms) {
            let txn = claim::acquiring(PREFIX, &acquisition);
            self.ask(who, Purpose::Acquire(acquisition), txn);
        }
        Ok(())
    }

    /// Members carry out some call.
    fn execute(&mut self, who: usize) {
        let open: Vec<usize> =
            (0..self.proxies[who].calls.len()).filter(|at| self.proxies[who].calls[*at].answer.is_none()).collect();
        if open.is_empty() {
            return;
        }
        let at = open[self.dice.below(open.len() as u64) as usize];
        let call = &mut self.proxies[who].calls[at];
        call.answer = Some(self.store.txn(&call.txn));
        if call.purpose.is_none() {
            self.proxies[who].calls.remove(at);
        }
    }

    /// A proxy gives a call up: members may carry it out later, or never.
    fn lose(&mut self, who: usize) -> Outcome {
        if self.proxies[who].calls.is_empty() {
            return Ok(());
        }
        let at = self.dice.below(self.proxies[who].calls.len() as u64) as usize;
        let purpose = self.proxies[who].calls[at].purpose.take();
        if self.proxies[who].calls[at].answer.is_some() || self.dice.one_in(2) {
            self.proxies[who].calls.remove(at);
        }
        match purpose {
            Some(purpose) => self.settle(who, purpose, None),
            None => Ok(()),
        }
    }

    /// A proxy gets the answer of some call.
    fn answer(&mut self, who: usize) -> Outcome {
        let done = |call: &Call| call.answer.is_some() && call.purpose.is_some();
        let ready: Vec<usize> =
            (0..self.proxies[who].calls.len()).filter(|at| done(&self.proxies[who].calls[*at])).collect();
        if ready.is_empty() {
            return Ok(());
        }
        let at = ready[self.dice.below(ready.len() as u64) as usize];
        let call = self.proxies[who].calls.remove(at);
        self.settle(who, call.purpose.expect("a purpose"), call.answer.expect("an answer"))
    }

    fn settle(&mut self, who: usize, purpose: Purpose, answer: Option<TxnResponse>) -> Outcome {
        let now_ms = self.now_ms;
        let proxy = &mut self.proxies[who];
        match purpose {
            Purpose::Acquire(acquisition) => {
                let lease = acquisition.lease;
                let how = answer.map_or(Acquired::Unknown, |answer| claim::acquired(answer, lease).0);
                proxy.book.acquired(acquisition, how, now_ms);
            }
            Purpose::Write(number, attempt) => {
                let at = proxy.writes.iter().position(|write| write.number == number).expect("a write");
                let was_answered = answer.is_some();
                let write = &mut proxy.writes[at];
                match write.change.settle(&mut proxy.book, PREFIX, attempt, answer, now_ms) {
                    Settled::Done(answer) => {
                        if write.path.ends_with("Put") {
                            let put = PutResponse::decode(answer).map_err(|error| error.to_string())?;
                            if put.header.is_none_or(|header| header.revision == 0) {
                                return Err("a put has no revision".into());
                            }
                        }
                        self.done += 1;
                        let write = proxy.writes.remove(at);
                        write.bars.iter().for_each(|bar| proxy.book.unbar(*bar));
                    }
                    Settled::Later(revoked) => {
                        write.is_waiting = true;
                        if write.bars.is_empty() {
                            let ranges = write.change.ranges(PREFIX);
                            write.bars = ranges.into_iter().map(|range| proxy.book.bar(range)).collect();
                        }
                        revoked.into_iter().for_each(|txn| self.ask(who, Purpose::Revoke, txn));
                    }
                    Settled::Unreadable if was_answered => return Err("an answer is not understood".into()),
                    Settled::Unreadable => {
                        let write = proxy.writes.remove(at);
                        write.bars.iter().for_each(|bar| proxy.book.unbar(*bar));
                    }
                }
            }
            Purpose::Revoke | Purpose::Release => {}
        }
        Ok(())
    }

    /// A proxy learns of the next event.
    fn learn(&mut self, who: usize) {
        let proxy = &mut self.proxies[who];
        let Some((key, revision, kv)) = self.store.events.get(proxy.learned) else { return };
        proxy.learned += 1;
        let Some(of) = key.strip_prefix(PREFIX) else { return };
        let news = match kv {
            Some(kv) => News::Put {
                lease: kv.lease,
                created: kv.create_revision,
                revision: *revision,
                is_revoked: kv.value == REVOKE,
            },
            None => News::Deleted { revision: *revision },
        };
        proxy.book.learn(&Bytes::copy_from_slice(of), news, self.now_ms);
    }

    /// A proxy lists the lease keys instead.
    fn list(&mut self, who: usize) {
        let proxy = &mut self.proxies[who];
        let own = |kv: &&KeyValue| kv.key.starts_with(PREFIX) && Some(kv.lease) == proxy.book.lease();
        let list: BTreeMap<Bytes, (i64, bool)> = self
            .store
            .pairs
            .values()
            .filter(own)
            .map(|kv| (kv.key.slice(PREFIX.len()..), (kv.create_revision, kv.value == REVOKE)))
            .collect();
        proxy.book.compare(&list, self.store.revision, self.now_ms);
        proxy.learned = self.store.events.len();
    }

    fn release(&mut self, who: usize) {
        for release in self.proxies[who].book.take_releases() {
            let txn = claim::releasing(PREFIX, &release);
            self.ask(who, Purpose::Release, txn);
        }
    }

    /// A proxy keeps its lease alive, or gets another one.
    fn keep_alive(&mut self, who: usize) {
        let until_ms = self.now_ms + TTL_MS / 4 * 3;
        let proxy = &mut self.proxies[who];
        match self.store.leases.get_mut(&proxy.lease) {
            Some(end) => {
                *end = self.now_ms + TTL_MS;
                proxy.book.prolong_session(until_ms);
            }
            None => {
                self.last_lease += 1;
                proxy.lease = self.last_lease;
                self.store.leases.insert(proxy.lease, self.now_ms + TTL_MS);
                proxy.book.begin_session(proxy.lease, until_ms);
            }
        }
    }

    fn step(&mut self) -> Outcome {
        let who = self.dice.below(3) as usize;
        match self.dice.below(100) {
            0..34 => return self.read(who),
            34..42 => self.write(who),
            42..58 => self.execute(who),
            58..72 => return self.answer(who),
            72..75 => return self.lose(who),
            75..83 => self.learn(who),
            83 => self.list(who),
            84..89 => self.release(who),
            89..92 => self.keep_alive(who),
            92..95 => {
                let waiting = self.proxies[who].writes.iter().find(|write| write.is_waiting).map(|write| write.number);
                waiting.into_iter().for_each(|number| self.attempt(who, number));
            }
            95 => {
                // The client's lease ends, and there is another one.
                self.store.leases.insert(CLIENTS_LEASE, 0);
                self.store.expire(self.now_ms);
                self.store.leases.insert(CLIENTS_LEASE, u64::MAX);
            }
            _ => self.pass_time(),
        }
        self.proxies[who].book.prove(1, u64::MAX);
        Ok(())
    }

    fn pass_time(&mut self) {
        self.now_ms += if self.dice.one_in(20) { self.dice.below(50_000) } else { self.dice.below(3_000) };
        self.store.expire(self.now_ms);
    }

    /// Everything works again: all writes end, once the leases of those that are gone have ended at the latest. Then clients only read.
    fn finish(&mut self) -> Outcome {
        let mut quiet_rounds = 0;
        for _ in 0..400 {
            self.now_ms += 1_000;
            self.store.expire(self.now_ms);
            for who in 0..self.proxies.len() {
                self.keep_alive(who);
                while self.proxies[who].learned < self.store.events.len() {
                    self.learn(who);
                }
                self.release(who);
                while !self.proxies[who].calls.is_empty() {
                    self.execute(who);
                    self.answer(who)?;
                }
                let waiting: Vec<u64> = self.proxies[who]
                    .writes
                    .iter()
                    .filter(|write| write.is_waiting)
                    .map(|write| write.number)
                    .collect();
                waiting.into_iter().for_each(|number| self.attempt(who, number));
                self.read(who)?;
            }
            // Not until there are no calls: a proxy that has no key tries to acquire one with each read.
            if self.proxies.iter().all(|proxy| proxy.writes.is_empty()) {
                quiet_rounds += 1;
            }
            if quiet_rounds == 20 {
                return Ok(());
            }
        }
        let stuck: Vec<usize> = self.proxies.iter().map(|proxy| proxy.writes.len()).collect();
        Err(format!("writes do not end: {stuck:?}"))
    }
}

fn run(seed: u64) -> Result<(u64, u64), String> {
    let mut world = World::new(seed);
    for step in 0..STEPS {
        world.step().map_err(|why| format!("seed {seed}, step {step}: {why}"))?;
    }
    world.finish().map_err(|why| format!("seed {seed}, at the end: {why}"))?;
    Ok((world.served, world.done))
}

#[test]
fn what_is_served_is_what_members_have() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let from = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(since);
    let (mut served, mut done) = (0, 0);
    for seed in from..from + SCHEDULES {
        let counts = run(seed).unwrap_or_else(|why| panic!("{why}"));
        (served, done) = (served + counts.0, done + counts.1);
    }
    assert!(served > SCHEDULES * 10 && done > SCHEDULES * 10, "{served} reads from memory, {done} writes");
}

#[test]
fn planted_mistakes_are_found() {
    for mistake in Mistake::ALL {
        Mistake::plant(Some(mistake));
        let found = (0..20 * SCHEDULES).find_map(|seed| run(seed).err());
        Mistake::plant(None);
        assert!(found.is_some(), "{mistake:?} is not found");
    }
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    assert_eq!(run(7), run(7));
}

/// A book with a session that serves.
fn serving() -> Book {
    let mut book = Book::default();
    book.prove(1, TTL_MS);
    book.begin_session(1, TTL_MS);
    book
}

fn pair(key: &Bytes, value_bytes: usize) -> KeyValue {
    KeyValue { key: key.clone(), value: vec![b'v'; value_bytes].into(), ..KeyValue::default() }
}

fn at(revision: i64) -> ResponseHeader {
    ResponseHeader { revision, ..ResponseHeader::default() }
}

fn keep(book: &mut Book, key: &Bytes, revision: i64, value_bytes: usize) {
    let acquisition = book.acquire(key, 2).expect("it is nobody's");
    book.acquired(acquisition, Acquired::Yes(pair(key, value_bytes), at(revision)), 2);
}

#[test]
fn what_is_written_is_bounded_like_what_is_read() {
    let mut book = serving();
    for number in 0..200_i64 {
        let key = Bytes::from(format!("key-{number}"));
        keep(&mut book, &key, 10 + number, 1);
        let created = book.write(&key).expect("it is kept");
        book.wrote(&key, created, Wrote::State(Some(pair(&key, 1 << 20)), at(1_000 + number)), 3);
        assert!(book.size().1 <= BYTES_MAX, "{} bytes", book.size().1);
    }
    let (keys, bytes) = book.size();
    assert!(keys > 50 && bytes > BYTES_MAX / 2, "{keys} keys, {bytes} bytes");
    assert_eq!(book.take_releases().len() + keys, 200, "the others are given back");
}

#[test]
fn a_key_holds_nothing_but_itself() {
    let mut book = serving();
    let request = Bytes::from(vec![b'k'; 1 << 20]);
    let is_part = |key: &Bytes| request.as_ptr_range().contains(&key.as_ptr());
    let key = request.slice(1_000..1_010);
    assert!(book.acquire(&request, 2).is_none(), "it is too long");
    let acquisition = book.acquire(&key, 2).expect("it is nobody's");
    assert!(!is_part(&acquisition.key));
    book.acquired(acquisition, Acquired::Yes(pair(&Bytes::copy_from_slice(&key), 1), at(10)), 2);
    book.is_in_the_way(&key, 10, 3);
    assert!(book.take_releases().iter().all(|release| !is_part(&release.key)));
    assert!(book.acquire(&key, 4).is_none(), "it rests");
}

#[test]
fn what_a_user_writes_is_not_kept() {
    for is_private in [false, true] {
        let mut book = serving();
        let key = Bytes::from("key");
        keep(&mut book, &key, 10, 1);
        let put = PutRequest { key: key.clone(), value: "secret".into(), ..PutRequest::default() };
        let message = put.encode_to_vec().into();
        let change = Change::of("/etcdserverpb.KV/Put", &message, PREFIX, is_private).expect("read").expect("a write");
        let attempt = change.attempt(&mut book, PREFIX, 3);
        let range = RangeResponse { kvs: vec![pair(&key, 0)], count: 1, ..RangeResponse::default() };
        let responses = [Response::ResponsePut(PutResponse::default()), Response::ResponseRange(range)];
        let responses = responses.map(|response| ResponseOp { response: Some(response) }).to_vec();
        let answer = TxnResponse { header: Some(at(11)), succeeded: true, responses };
        assert!(matches!(change.settle(&mut book, PREFIX, attempt, Some(answer), 4), Settled::Done(_)));
        assert_eq!(book.get(&key, 5).is_some(), !is_private);
        assert_eq!(book.take_releases().len(), usize::from(is_private));
    }
}

#[test]
fn the_lease_key_of_somebody_is_not_deleted_under_it() {
    let guarded = |key: &'static str| {
        let delete = DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() };
        let message = delete.encode_to_vec().into();
        let change =
            Change::of("/etcdserverpb.KV/DeleteRange", &message, PREFIX, false).expect("read").expect("a write");
        let attempt = change.attempt(&mut serving(), PREFIX, 3);
        attempt.txn.compare.iter().map(|compare| compare.key.clone()).collect::<Vec<_>>()
    };
    assert_eq!(guarded("a"), ["l/a"]);
    assert_eq!(guarded("l/a"), ["l/l/a", "l/a"]);
}
