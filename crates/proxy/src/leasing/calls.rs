//! Calls of clients whose keys may be leased.

use api::etcdserverpb::{RangeRequest, RangeResponse, TxnResponse};
use api::mvccpb::KeyValue;
use api::{Code, Message};
use bytes::Bytes;
use parking_lot::Mutex;
use rpc::Status;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

use super::book::{Acquired, Acquisition, Book};
use super::change::{Attempt, Change, Settled};
use super::claim;
use crate::single::{Asked, RANGE, Singles, TXN};

/// How long a write waits for others to give lease keys back. The lease of an owner that is gone ends before.
const WAIT_MAX: Duration = Duration::from_secs(90);
/// The pauses between two tries of a write: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What is known of leased keys, for all threads.
#[derive(Debug)]
pub(crate) struct Leasing {
    /// What is put before a key to have its lease key.
    pub(super) prefix: Bytes,
    pub(super) book: Mutex<Book>,
    began: Instant,
    /// A lease key was deleted.
    pub(super) deleted: Notify,
    /// There are lease keys to give back.
    pub(super) work: Notify,
    /// Reads that were answered from memory, and lease keys that were acquired.
    pub(crate) hits: AtomicU64,
    pub(crate) acquired: AtomicU64,
}

impl Leasing {
    pub(crate) fn new(prefix: &str) -> Leasing {
        Leasing {
            prefix: Bytes::copy_from_slice(prefix.as_bytes()),
            book: Mutex::default(),
            began: Instant::now(),
            deleted: Notify::new(),
            work: Notify::new(),
            hits: AtomicU64::new(0),
            acquired: AtomicU64::new(0),
        }
    }

    /// Milliseconds since the proxy began.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// An answer had this revision.
    pub(crate) fn saw(&self, revision: i64) {
        self.book.lock().saw(revision);
    }

    /// Who may read is, or has been, changed: nothing is served before members say again that everybody may read.
    pub(crate) fn doubt(&self) {
        self.with(Book::doubt);
    }

    /// Keys that are kept, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.book.lock().size()
    }

    /// Does something with the book, and tells the keeper what is to be given back.
    pub(super) fn with<T>(&self, what: impl FnOnce(&mut Book, u64) -> T) -> T {
        let now_ms = self.now_ms();
        let mut book = self.book.lock();
        let done = what(&mut book, now_ms);
        if book.has_releases() {
            self.work.notify_one();
        }
        done
    }

    /// The answer to a read of a key that is kept.
    fn kept(&self, request: &RangeRequest) -> Option<RangeResponse> {
        let (mut kv, header) = self.with(|book, now_ms| book.get(&request.key, now_ms))?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        if request.keys_only {
            kv.value = Bytes::new();
        }
        let kvs = if request.count_only { Vec::new() } else { vec![kv] };
        Some(RangeResponse { header: Some(header), kvs, count: 1, more: false })
    }
}

/// The read of a call, if what is kept may answer it: that of one key, as it is now.
fn readable(asked: &Asked) -> Option<RangeRequest> {
    // Whether it has a leader, and what a user may read, only a member can say.
    let is_for_members = |name: &&str| asked.metadata.get(name).is_some();
    if asked.path != RANGE || ["hasleader", "token", "authorization"].iter().any(is_for_members) {
        return None;
    }
    let request = RangeRequest::decode(asked.message.clone()).ok()?;
    let RangeRequest { key, keys_only, count_only, serializable, limit, .. } = &request;
    let plain = RangeRequest {
        key: key.clone(),
        keys_only: *keys_only,
        count_only: *count_only,
        serializable: *serializable,
        limit: *limit,
        ..RangeRequest::default()
    };
    (request == plain && *limit >= 0 && !key.is_empty()).then_some(plain)
}

/// The pair of a key as a read asked for it.
fn shown(mut range: RangeResponse, request: &RangeRequest) -> RangeResponse {
    if request.keys_only {
        range.kvs.iter_mut().for_each(|kv: &mut KeyValue| kv.value = Bytes::new());
    }
    if request.count_only {
        range.kvs.clear();
    }
    range
}

impl Singles {
    /// Answers a read from memory, or by acquiring its key. None if it is to be passed on.
    pub(crate) async fn read_leased(&self, asked: &Asked) -> Option<Result<Bytes, Status>> {
        let leasing = self.leasing.as_ref()?;
        let request = readable(asked)?;
        if let Some(answer) = leasing.kept(&request) {
            return Some(self.hold(&answer, asked));
        }
        if request.serializable {
            return None;
        }
        let acquisition = leasing.with(|book, now_ms| book.acquire(&request.key, now_ms))?;
        let (txn, lease) = (claim::acquiring(&leasing.prefix, &acquisition), acquisition.lease);
        let acquiring = Acquiring { leasing, acquisition: Some(acquisition) };
        // One that fails is read as if nothing was kept.
        let answer = self.ask(asked, TXN, claim::encoded(&txn), asked.timeout, false).await.ok()?;
        let (how, range) = claim::acquired(TxnResponse::decode(answer).ok()?, lease);
        acquiring.settle(how);
        if let (Some(order), Some(header)) = (&self.order, range.as_ref().and_then(|range| range.header)) {
            order.shows_revision(header.revision);
        }
        Some(Ok(shown(range?, &request).encode_to_vec().into()))
    }

    /// An answer that the proxy makes itself, within what its client may have it hold.
    fn hold(&self, answer: &RangeResponse, asked: &Asked) -> Result<Bytes, Status> {
        if let (Some(order), Some(header)) = (&self.order, &answer.header) {
            order.shows_revision(header.revision);
        }
        let claimed = self.held.answers(asked.client)(answer.encoded_len())?;
        let message = answer.encode_to_vec().into();
        Ok(match claimed {
            Some(hold) => hold(message),
            None => message,
        })
    }

    /// Makes a write once nobody else keeps what it changes.
    pub(crate) async fn write_leased(&self, leasing: &Leasing, asked: &Asked) -> Result<Bytes, Status> {
        let is_private = asked.metadata.get("token").or(asked.metadata.get("authorization")).is_some();
        let Some(change) = Change::of(asked.path, &asked.message, &leasing.prefix, is_private)? else {
            return self.forward(asked).await;
        };
        // The call has room for its message, of which two bytes may be an operation. It may wait for others for long.
        let _room = match change.bytes() {
            ..=api::limits::BUDGET_FREE_BYTES => None,
            bytes => Some(self.held.call_later(bytes, asked.client).await?),
        };
        let began = Instant::now();
        let left = || asked.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        let mut bars = Bars { leasing, numbers: Vec::new() };
        let mut pause = PAUSE_MIN;
        loop {
            // From now on: what is deleted while the answer is on its way counts, too.
            let mut deleted = pin!(leasing.deleted.notified());
            deleted.as_mut().enable();
            let attempt = leasing.with(|book, now_ms| change.attempt(book, &leasing.prefix, now_ms));
            let message = claim::encoded(&attempt.txn);
            let trying = Trying { leasing, change: &change, attempt: Some(attempt) };
            let answer = self.ask(asked, TXN, message, left(), false).await?;
            let settled = trying.settle(TxnResponse::decode(answer).ok());
            let revoked = match settled {
                Settled::Done(answer) => return Ok(answer),
                Settled::Later(revoked) => revoked,
                Settled::Unreadable => {
                    return Err(Status::new(Code::Internal, "the answer of the member cannot be read"));
                }
            };
            // This proxy's own readers shall not come before the write again and again.
            bars.set(&change);
            for txn in &revoked {
                self.ask(asked, TXN, claim::encoded(txn), left(), false).await?;
            }
            if began.elapsed() >= WAIT_MAX {
                let text = format!("the owner of a leased key has not given it back within {WAIT_MAX:?}");
                return Err(Status::new(Code::Unavailable, text));
            }
            if left().is_some_and(|left| left.is_zero()) {
                return Err(Status::new(Code::DeadlineExceeded, "context deadline exceeded"));
            }
            tokio::time::sleep(PAUSE_MIN).await;
            let _ = tokio::time::timeout(pause, deleted).await;
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
    }
}

/// An acquisition whose end is not known before it is settled.
struct Acquiring<'a> {
    leasing: &'a Leasing,
    acquisition: Option<Acquisition>,
}

impl Acquiring<'_> {
    fn settle(mut self, how: Acquired) {
        if matches!(how, Acquired::Yes(..)) {
            self.leasing.acquired.fetch_add(1, Ordering::Relaxed);
        }
        self.end(how);
    }

    fn end(&mut self, how: Acquired) {
        if let Some(acquisition) = self.acquisition.take() {
            self.leasing.with(|book, now_ms| book.acquired(acquisition, how, now_ms));
        }
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        self.end(Acquired::Unknown);
    }
}

/// A try of a write whose end is not known before it is settled.
struct Trying<'a> {
    leasing: &'a Leasing,
    change: &'a Change,
    attempt: Option<Attempt>,
}

impl Trying<'_> {
    fn settle(mut self, answer: Option<TxnResponse>) -> Settled {
        self.end(answer)
    }

    fn end(&mut self, answer: Option<TxnResponse>) -> Settled {
        let Some(attempt) = self.attempt.take() else { return Settled::Unreadable };
        let leasing = self.leasing;
        leasing.with(|book, now_ms| self.change.settle(book, &leasing.prefix, attempt, answer, now_ms))
    }
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        self.end(None);
    }
}

/// Keys that are not acquired while a write waits.
struct Bars<'a> {
    leasing: &'a Leasing,
    numbers: Vec<u64>,
}

impl Bars<'_> {
    fn set(&mut self, change: &Change) {
        if self.numbers.is_empty() {
            let mut book = self.leasing.book.lock();
            self.numbers = change.ranges(&self.leasing.prefix).into_iter().map(|range| book.bar(range)).collect();
        }
    }
}

impl Drop for Bars<'_> {
    fn drop(&mut self) {
        let mut book = self.leasing.book.lock();
        self.numbers.iter().for_each(|number| book.unbar(*number));
    }
}
