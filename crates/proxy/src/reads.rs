//! Serializable reads: the same ones that are under way at the same time share one answer, and answers are given again for a moment.
//!
//! Only to clients with the same identity, and only as long as nothing that passes through the proxy may have changed what they say. What
//! is changed elsewhere is bounded by [`AGE_MAX`]: a serializable read may be that old anyway.

use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest};
use api::{Code, Message};
use bytes::Bytes;
use contain::Contained;
use parking_lot::Mutex;
use rpc::Status;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

use crate::identity::Identity;

/// How long an answer is given again.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(1);
/// Answers that are kept, as in etcd, and the bytes of all of them.
const KEPT_MAX: usize = 2_048;
const KEPT_BYTES_MAX: usize = 32 << 20;
/// The largest answer that is kept.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Counters of writes to single keys.
const SLOTS: usize = 1_024;

/// Who asks what.
type Key = (Identity, Bytes);
type Told = Option<Result<Bytes, Failure>>;

/// Why a read was not answered.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    /// It concerns the client that asked alone: it has no room for the answer, or has gone. Others ask for themselves.
    pub(crate) is_own: bool,
}

/// The answer to a read.
#[derive(Debug)]
pub(crate) enum Given<C> {
    /// It may be for others, too, and is nobody's yet.
    Shared(Bytes),
    /// It was asked for alone, with this claim.
    Own(Bytes, C),
}

/// What may have changed what a read says: equal stamps of the same read mean that nothing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64, u64);

/// What a write may change.
#[derive(Debug)]
pub(crate) enum Written {
    /// Nothing that is read, if there is none.
    Keys(Vec<usize>),
    /// Ranges of keys, or who may read what.
    Everything,
}

impl Written {
    /// Whether it certainly changes nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Written::Keys(slots) if slots.is_empty())
    }
}

#[derive(Debug)]
struct Kept {
    answer: Bytes,
    stamp: Stamp,
    /// When it was asked for: it may be as old.
    since: Instant,
}

/// A read that is under way.
#[derive(Debug)]
struct Flight {
    stamp: Stamp,
    began: Instant,
    tell: Arc<watch::Sender<Told>>,
}

#[derive(Debug, Default)]
struct State {
    kept: HashMap<Key, Kept>,
    /// The keys of `kept`, the oldest first.
    order: VecDeque<Key>,
    bytes: usize,
    flights: HashMap<Key, Flight>,
}

/// The reads of all clients.
#[derive(Debug)]
pub(crate) struct Reads {
    state: Mutex<State>,
    hasher: RandomState,
    /// Writes of keys, by what the key's hash says.
    keys: Vec<AtomicU64>,
    ranges: AtomicU64,
    all: AtomicU64,
    /// Reads that were answered without asking a member, and those for which one was asked.
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    /// When its clock stands still, if it does, so that a busy machine ages nothing.
    #[cfg(test)]
    pub(crate) stands: Mutex<Option<Instant>>,
    /// How far its clock is ahead.
    #[cfg(test)]
    ahead: Mutex<Duration>,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads {
            state: Mutex::default(),
            hasher: RandomState::new(),
            keys: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            ranges: AtomicU64::new(0),
            all: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            #[cfg(test)]
            ahead: Mutex::default(),
            #[cfg(test)]
            stands: Mutex::default(),
        }
    }
}

impl Reads {
    /// Answers a read, with what `ask` brings if nothing that is known will do. `message` is the request. The claim that `ask` brings is held
    /// until its answer is told: then it is for each that gets it to claim it.
    ///
    /// # Errors
    /// What the member says.
    pub(crate) async fn answer<F, C>(
        self: &Arc<Reads>,
        identity: Identity,
        message: Bytes,
        request: &RangeRequest,
        ask: impl Fn() -> F,
    ) -> Result<Given<C>, Status>
    where
        F: Future<Output = Result<(Bytes, C), Failure>> + Send + 'static,
        C: Send + 'static,
    {
        let key: Key = (identity, message);
        loop {
            let (stamp, now) = (self.stamp(request), self.now());
            let is_young = |since: Instant| now.saturating_duration_since(since) < AGE_MAX;
            let (mut told, is_joined) = {
                let mut state = self.state.lock();
                let kept = state.kept.get(&key).filter(|kept| kept.stamp == stamp && is_young(kept.since));
                if let Some(kept) = kept {
                    self.hits.fetch_add(1, Ordering::Relaxed);
                    return Ok(Given::Shared(kept.answer.clone()));
                }
                // One that has been under way for longer may be with a member that answers nothing any more.
                match state.flights.get(&key).filter(|flight| flight.stamp == stamp && is_young(flight.began)) {
                    Some(flight) => {
                        self.hits.fetch_add(1, Ordering::Relaxed);
                        (flight.tell.subscribe(), true)
                    }
                    None => {
                        self.misses.fetch_add(1, Ordering::Relaxed);
                        let (tell, told) = watch::channel(None);
                        let tell = Arc::new(tell);
                        let flight = Flight { stamp, began: now, tell: tell.clone() };
                        state.flights.insert(key.clone(), flight);
                        let (reads, key, request) = (self.clone(), key.clone(), request.clone());
                        let leg = Leg { reads, key, tell, request, stamp, began: now };
                        tokio::spawn(Contained::new(leg.fly(ask())));
                        (told, false)
                    }
                }
            };
            // One that nobody waited for at one moment was given up.
            let answer = told.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
            match answer {
                Some(Ok(answer)) => return Ok(Given::Shared(answer)),
                Some(Err(failure)) if is_joined && failure.is_own => {
                    self.misses.fetch_add(1, Ordering::Relaxed);
                    let (answer, claim) = ask().await.map_err(|failure| failure.status)?;
                    return Ok(Given::Own(answer, claim));
                }
                Some(Err(failure)) => return Err(failure.status),
                None => {}
            }
        }
    }

    /// Something is, or has been, written. Called before it is asked for, and after it is answered.
    pub(crate) fn wrote(&self, written: &Written) {
        if written.is_nothing() {
            return;
        }
        self.all.fetch_add(1, Ordering::SeqCst);
        match written {
            Written::Everything => {
                self.ranges.fetch_add(1, Ordering::SeqCst);
            }
            Written::Keys(slots) => {
                for slot in slots.iter().filter_map(|slot| self.keys.get(*slot)) {
                    slot.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// What a request may change.
    pub(crate) fn writes(&self, path: &str, message: &Bytes) -> Written {
        let slots = match path {
            "/etcdserverpb.KV/Put" => PutRequest::decode(message.clone()).ok().map(|put| vec![self.slot(&put.key)]),
            "/etcdserverpb.KV/DeleteRange" => DeleteRangeRequest::decode(message.clone())
                .ok()
                .and_then(|delete| delete.range_end.is_empty().then(|| vec![self.slot(&delete.key)])),
            "/etcdserverpb.KV/Txn" => crate::txn::decode(message.clone()).ok().and_then(|txn| self.written_by(txn)),
            "/etcdserverpb.Lease/LeaseGrant" => Some(Vec::new()),
            _ => None,
        };
        slots.map_or(Written::Everything, Written::Keys)
    }

    /// The slots of all keys that a transaction may write; none if it may delete a range.
    fn written_by(&self, txn: TxnRequest) -> Option<Vec<usize>> {
        let (mut open, mut slots) = (vec![txn], Vec::new());
        while let Some(txn) = open.pop() {
            for op in txn.success.into_iter().chain(txn.failure) {
                match op.request {
                    Some(Request::RequestPut(put)) => slots.push(self.slot(&put.key)),
                    Some(Request::RequestDeleteRange(delete)) if delete.range_end.is_empty() => {
                        slots.push(self.slot(&delete.key));
                    }
                    Some(Request::RequestDeleteRange(_)) => return None,
                    Some(Request::RequestTxn(inner)) => open.push(inner),
                    Some(Request::RequestRange(_)) | None => {}
                }
            }
        }
        Some(slots)
    }

    fn slot(&self, key: &[u8]) -> usize {
        (self.hasher.hash_one(key) as usize).wrapping_rem(SLOTS)
    }

    fn stamp(&self, request: &RangeRequest) -> Stamp {
        if !request.range_end.is_empty() {
            return Stamp(self.all.load(Ordering::SeqCst), 0);
        }
        let of_key = self.keys.get(self.slot(&request.key)).map_or(0, |slot| slot.load(Ordering::SeqCst));
        Stamp(of_key, self.ranges.load(Ordering::SeqCst))
    }

    fn now(&self) -> Instant {
        let now = Instant::now();
        #[cfg(test)]
        let now = self.stands.lock().unwrap_or(now) + *self.ahead.lock();
        now
    }

    /// Answers that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.state.lock().kept.len()
    }
}

impl State {
    /// Keeps an answer that was asked for at `since`.
    fn keep(&mut self, key: Key, answer: &Bytes, stamp: Stamp, since: Instant) {
        // An earlier question may be answered later.
        let has_newer = || self.kept.get(&key).is_some_and(|kept| kept.since > since);
        if answer.len() > ANSWER_BYTES_MAX || has_newer() {
            return;
        }
        // A copy: the answer may be a part of something larger.
        let kept = Kept { answer: Bytes::copy_from_slice(answer), stamp, since };
        let bytes = cost(&key, &kept);
        match self.kept.insert(key.clone(), kept) {
            Some(before) => self.bytes = self.bytes.saturating_sub(cost(&key, &before)),
            None => self.order.push_back(key),
        }
        self.bytes = self.bytes.saturating_add(bytes);
        while self.order.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            if let Some(gone) = self.kept.remove(&oldest) {
                self.bytes = self.bytes.saturating_sub(cost(&oldest, &gone));
            }
        }
    }
}

/// What an answer takes, in bytes.
fn cost(key: &Key, kept: &Kept) -> usize {
    let twice = key.1.len().saturating_add(key.0.bytes()).saturating_mul(2);
    kept.answer.len().saturating_add(twice).saturating_add(256)
}

/// The task that asks a member.
struct Leg {
    reads: Arc<Reads>,
    key: Key,
    tell: Arc<watch::Sender<Told>>,
    request: RangeRequest,
    stamp: Stamp,
    began: Instant,
}

impl Leg {
    async fn fly<C>(self, ask: impl Future<Output = Result<(Bytes, C), Failure>>) {
        let answer = tokio::select! {
            answer = ask => answer,
            () = self.tell.closed() => return,
        };
        // The claim ends here: before anybody claims the answer anew.
        let answer = answer
            .map(|(answer, _)| answer)
            .map_err(|Failure { status, is_own }| Failure { status: Status::new(status.code, status.message), is_own });
        if let Ok(answer) = &answer
            && self.reads.stamp(&self.request) == self.stamp
        {
            self.reads.state.lock().keep(self.key.clone(), answer, self.stamp, self.began);
        }
        self.tell.send_replace(Some(answer));
    }
}

impl Drop for Leg {
    /// However it ended, nobody joins it any more; who waits for it still gets an answer, or asks again.
    fn drop(&mut self) {
        let mut state = self.reads.state.lock();
        if state.flights.get(&self.key).is_some_and(|flight| Arc::ptr_eq(&flight.tell, &self.tell)) {
            state.flights.remove(&self.key);
        }
        drop(state);
        self.tell.send_if_modified(|told| {
            let is_new = told.is_none();
            let status = Status::new(Code::Unavailable, "the read was given up");
            told.get_or_insert(Err(Failure { status, is_own: true }));
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::RequestOp;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::Semaphore;

    struct Member {
        asked: Arc<AtomicUsize>,
        gate: Arc<Semaphore>,
    }

    type Answering = std::pin::Pin<Box<dyn Future<Output = Result<(Bytes, ()), Failure>> + Send>>;

    impl Member {
        fn new(is_open: bool) -> Member {
            Member { asked: Arc::default(), gate: Arc::new(Semaphore::new(if is_open { 1_000 } else { 0 })) }
        }

        fn ask(&self) -> impl Fn() -> Answering + use<> {
            let (asked, gate) = (self.asked.clone(), self.gate.clone());
            move || {
                let (asked, gate) = (asked.clone(), gate.clone());
                Box::pin(async move {
                    let number = asked.fetch_add(1, Ordering::SeqCst);
                    gate.acquire().await.expect("open").forget();
                    Ok((Bytes::from(number.to_string()), ()))
                })
            }
        }
    }

    fn token(name: &str) -> Identity {
        Identity::of(&[("token", name)].into_iter().collect())
    }

    fn range(key: &'static str, end: &'static str) -> RangeRequest {
        RangeRequest { key: key.into(), range_end: end.into(), serializable: true, ..RangeRequest::default() }
    }

    async fn read(reads: &Arc<Reads>, token: Identity, request: &RangeRequest, member: &Member) -> String {
        let answer = reads.answer(token, request.encode_to_vec().into(), request, member.ask()).await;
        let Ok(Given::Shared(answer)) = answer else { panic!("{answer:?}") };
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn the_same_reads_at_the_same_time_are_one() {
        let (reads, member) = (Arc::new(Reads::default()), Member::new(false));
        let request = range("a", "");
        let mut all: Vec<_> = (0..50).map(|_| Box::pin(read(&reads, token("x"), &request, &member))).collect();
        for read in &mut all {
            assert!(futures_now(read).await.is_none());
        }
        assert_eq!(member.asked.load(Ordering::SeqCst), 1);
        let mut other = Box::pin(read(&reads, token("y"), &request, &member));
        assert!(futures_now(&mut other).await.is_none());
        assert_eq!(member.asked.load(Ordering::SeqCst), 2, "another token asks for itself");
        // The one that began goes away: the others get the answer.
        drop(all.swap_remove(0));
        member.gate.add_permits(10);
        for read in all {
            assert_eq!(read.await, "0");
        }
        assert_eq!(other.await, "1");
        assert!(reads.state.lock().flights.is_empty());
    }

    async fn futures_now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        let mut found = None;
        // The spawned task has its turns meanwhile.
        for _ in 0..3 {
            found = found.or(std::future::poll_fn(|cx| {
                std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
                    std::task::Poll::Ready(output) => Some(output),
                    std::task::Poll::Pending => None,
                })
            })
            .await);
            if found.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        found
    }

    #[tokio::test]
    async fn one_that_nobody_waits_for_is_given_up() {
        let (reads, member) = (Arc::new(Reads::default()), Member::new(false));
        let request = range("a", "");
        let mut one = Box::pin(read(&reads, token("x"), &request, &member));
        assert!(futures_now(&mut one).await.is_none());
        drop(one);
        while !reads.state.lock().flights.is_empty() {
            tokio::task::yield_now().await;
        }
        member.gate.add_permits(1);
        assert_eq!(read(&reads, token("x"), &request, &member).await, "1");
    }

    #[tokio::test]
    async fn answers_are_given_again_until_something_is_written() {
        let (reads, member) = (Arc::new(Reads::default()), Member::new(true));
        let (one, many) = (range("a", ""), range("a", "c"));
        let put = |key: &'static str| PutRequest { key: key.into(), ..PutRequest::default() };
        assert_eq!(read(&reads, token("x"), &one, &member).await, "0");
        assert_eq!(read(&reads, token("x"), &one, &member).await, "0");
        assert_eq!(read(&reads, token("y"), &one, &member).await, "1", "not what another token has read");
        assert_eq!(read(&reads, token("x"), &many, &member).await, "2");
        let other = (0..).map(|number| format!("b{number}")).find(|key| reads.slot(key.as_bytes()) != reads.slot(b"a"));
        let message = PutRequest { key: other.expect("a key").into(), ..PutRequest::default() }.encode_to_vec();
        reads.wrote(&reads.writes("/etcdserverpb.KV/Put", &message.into()));
        assert_eq!(read(&reads, token("x"), &one, &member).await, "0", "another key was written");
        assert_eq!(read(&reads, token("x"), &many, &member).await, "3", "one of the range was");
        let op = |request| RequestOp { request: Some(request) };
        let txn = TxnRequest { failure: vec![op(Request::RequestPut(put("a")))], ..TxnRequest::default() };
        let txn = TxnRequest { success: vec![op(Request::RequestTxn(txn))], ..TxnRequest::default() };
        let deletes = DeleteRangeRequest { range_end: "z".into(), ..DeleteRangeRequest::default() };
        for (number, (path, message)) in [
            ("/etcdserverpb.KV/Put", put("a").encode_to_vec()),
            ("/etcdserverpb.KV/Txn", txn.encode_to_vec()),
            ("/etcdserverpb.KV/DeleteRange", deletes.encode_to_vec()),
            ("/etcdserverpb.KV/Compact", Vec::new()),
            ("/etcdserverpb.Auth/UserRevokeRole", Vec::new()),
        ]
        .into_iter()
        .enumerate()
        {
            reads.wrote(&reads.writes(path, &message.into()));
            assert_eq!(read(&reads, token("x"), &one, &member).await, (number + 4).to_string(), "{path}");
        }
    }

    #[tokio::test]
    async fn a_read_that_a_write_overtook_is_not_kept() {
        let (reads, member) = (Arc::new(Reads::default()), Member::new(false));
        let request = range("a", "");
        let mut before = Box::pin(read(&reads, token("x"), &request, &member));
        assert!(futures_now(&mut before).await.is_none());
        reads.wrote(&Written::Everything);
        let mut after = Box::pin(read(&reads, token("x"), &request, &member));
        assert!(futures_now(&mut after).await.is_none());
        assert_eq!(member.asked.load(Ordering::SeqCst), 2, "it does not share what was asked before the write");
        member.gate.add_permits(5);
        assert_eq!((before.await, after.await), ("0".into(), "1".into()));
        assert_eq!(read(&reads, token("x"), &request, &member).await, "1");
    }

    /// As with a member that hangs.
    #[tokio::test]
    async fn a_read_that_has_been_under_way_for_long_is_not_joined() {
        let (reads, member) = (Arc::new(Reads::default()), Member::new(false));
        *reads.stands.lock() = Some(Instant::now());
        let request = range("a", "");
        let asked = || member.asked.load(Ordering::SeqCst);
        let mut first = Box::pin(read(&reads, token("x"), &request, &member));
        assert!(futures_now(&mut first).await.is_none());
        *reads.ahead.lock() = Duration::from_secs(2);
        let mut second = Box::pin(read(&reads, token("x"), &request, &member));
        assert!(futures_now(&mut second).await.is_none());
        assert_eq!(asked(), 2);
        *reads.ahead.lock() = Duration::from_millis(2_900);
        let mut third = Box::pin(read(&reads, token("x"), &request, &member));
        assert!(futures_now(&mut third).await.is_none());
        assert_eq!(asked(), 2, "it joins the second");
        member.gate.add_permits(2);
        assert_eq!((first.await, second.await, third.await), ("0".into(), "1".into(), "1".into()));
        // It counts from the question how old an answer is.
        assert_eq!(read(&reads, token("x"), &request, &member).await, "1");
        *reads.ahead.lock() = Duration::from_millis(3_100);
        member.gate.add_permits(1);
        assert_eq!(read(&reads, token("x"), &request, &member).await, "2");
    }

    #[tokio::test]
    async fn an_answer_that_comes_late_takes_the_place_of_no_newer_one() {
        let (reads, key) = (Reads::default(), (token("x"), Bytes::from("a")));
        let now = reads.now();
        let mut state = reads.state.lock();
        for (answer, since) in [("new", now + Duration::from_secs(1)), ("old", now)] {
            state.keep(key.clone(), &answer.into(), Stamp(0, 0), since);
        }
        assert_eq!(state.kept[&key].answer, "new");
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let (reads, member) = (Arc::new(Reads::default()), Member::new(true));
        for number in 0..900 {
            let request = RangeRequest { limit: number, ..range("a", "b") };
            read(&reads, token("x"), &request, &member).await;
        }
        assert_eq!(reads.kept(), 900);
        let now = reads.now();
        let mut state = reads.state.lock();
        for number in 0..5_000_u32 {
            let answer = Bytes::from(vec![0; 100]);
            state.keep((token("x"), number.to_be_bytes().to_vec().into()), &answer, Stamp(0, 0), now);
        }
        assert_eq!((state.kept.len(), state.order.len()), (KEPT_MAX, KEPT_MAX));
        for number in 0..100_u32 {
            let answer = Bytes::from(vec![0; 1 << 20]);
            state.keep((token("x"), number.to_be_bytes().to_vec().into()), &answer, Stamp(0, 0), now);
        }
        let bytes: usize = state.kept.iter().map(|(key, kept)| cost(key, kept)).sum();
        assert!(bytes == state.bytes && bytes <= KEPT_BYTES_MAX && state.kept.len() == state.order.len());
    }
}
