//! What clients may have the member hold in memory, all together: one budget of bytes for the process, in pools that do not take from
//! each other.
//!
//! Who builds an answer or keeps part of a request claims its bytes first, and the claim lives as long as they do: a [`Claim`] that is
//! given bytes ([`Claim::hold`]) is released when the last of them has left or their stream has ended. Answers that find no room
//! wait, for a while and in bounded number, each pool's in the order they came. Of what is shared out of a pool a connection may have
//! a quarter and a host half, so that whoever reads nothing keeps only themselves waiting.

use crate::metrics::Page;
use crate::node::lock;
use api::{Error, limits};
use bytes::Bytes;
use rpc::Address;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// What bytes are claimed for. Each has its part of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pool {
    /// Answers that are built in one piece and are no longer than [`limits::TURN_BYTES_MAX`].
    Short,
    /// All others: places of pairs, text for websockets, lists.
    Long,
    /// Requests that are not whole, or wait for this member to know who asks.
    Requests,
}

impl Pool {
    const ALL: [Pool; 3] = [Pool::Short, Pool::Long, Pool::Requests];

    fn name(self) -> &'static str {
        match self {
            Pool::Short => "short_answers",
            Pool::Long => "long_answers",
            Pool::Requests => "requests",
        }
    }

    /// Its part of a budget.
    fn part(self, bytes_max: u64) -> u64 {
        match self {
            Pool::Short | Pool::Requests => bytes_max / 4,
            Pool::Long => bytes_max / 2,
        }
    }

    /// What of a budget is shared out among clients, so that none has all of it: of short answers the second half. The first is had
    /// without a look at who asks, which is how most of them are answered.
    fn shared(self, bytes_max: u64) -> Option<u64> {
        match self {
            Pool::Short => Some(self.part(bytes_max) / 2),
            Pool::Long => Some(self.part(bytes_max)),
            Pool::Requests => None,
        }
    }

    /// The pool of an answer that takes `bytes`.
    pub(crate) fn of_answer(bytes: u64) -> Pool {
        if bytes <= limits::TURN_BYTES_MAX as u64 { Pool::Short } else { Pool::Long }
    }
}

/// One pool's figures.
#[derive(Debug, Default)]
struct Figures {
    held: AtomicU64,
    /// How many wait: who claims looks here first, without the lock.
    waiting: AtomicUsize,
    waits: AtomicU64,
    refusals: AtomicU64,
}

/// Called with the claim once it is granted, or with the refusal, on the budget's own thread.
type Then = Box<dyn FnOnce(Result<Claim, Error>) + Send>;

struct Waiter {
    pool: Pool,
    bytes: u64,
    client: Option<Address>,
    since: Instant,
    then: Then,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiter>,
    /// What of each pool is held by connection, and by host.
    by_client: HashMap<(Pool, Address), u64>,
    by_host: HashMap<(Pool, IpAddr), u64>,
    stopped: bool,
}

/// The budget of one process.
pub(crate) struct Budget {
    bytes_max: u64,
    figures: [Figures; Pool::ALL.len()],
    state: Mutex<State>,
    woken: Condvar,
    /// How long a claim may wait.
    patience: Duration,
}

impl Budget {
    pub(crate) fn new(bytes_max: u64, patience: Duration) -> Arc<Budget> {
        Arc::new(Budget {
            bytes_max,
            figures: Default::default(),
            state: Mutex::default(),
            woken: Condvar::new(),
            patience,
        })
    }

    fn figures(&self, pool: Pool) -> &Figures {
        let [short, long, requests] = &self.figures;
        match pool {
            Pool::Short => short,
            Pool::Long => long,
            Pool::Requests => requests,
        }
    }

    /// Bytes held of a pool.
    pub(crate) fn held(&self, pool: Pool) -> u64 {
        self.figures(pool).held.load(Ordering::Relaxed)
    }

    /// Takes `bytes` out of a pool if they are there.
    fn take(&self, pool: Pool, bytes: u64) -> bool {
        self.take_below(pool.part(self.bytes_max), pool, bytes)
    }

    /// The same if there are no more than `most` out then.
    fn take_below(&self, most: u64, pool: Pool, bytes: u64) -> bool {
        let more = |held: u64| held.checked_add(bytes).filter(|after| *after <= most);
        self.figures(pool).held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Claims `bytes` if there is room now and nobody of this pool was there first.
    pub(crate) fn try_claim(self: &Arc<Self>, pool: Pool, bytes: u64, client: Option<Address>) -> Option<Claim> {
        if self.figures(pool).waiting.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let unshared = pool.part(self.bytes_max).saturating_sub(pool.shared(self.bytes_max).unwrap_or(0));
        if !self.take_below(unshared, pool, bytes) {
            return self.grant(&mut lock(&self.state), pool, bytes, client);
        }
        Some(Claim { budget: self.clone(), pool, bytes, client: None })
    }

    /// Claims `bytes` of an answer that there is already, whether there is room or not. `claim` was made for it before.
    pub(crate) fn claim_anyway(self: &Arc<Self>, claim: Option<Claim>, bytes: u64) -> Claim {
        if let Some(mut claim) = claim
            && (claim.bytes >= bytes || claim.is_whole_pool())
        {
            if claim.bytes > bytes {
                claim.resize(bytes);
            }
            return claim;
        }
        let pool = Pool::of_answer(bytes);
        self.figures(pool).held.fetch_add(bytes, Ordering::Relaxed);
        Claim { budget: self.clone(), pool, bytes, client: None }
    }

    /// A claim of nothing yet for a request that is not whole.
    pub(crate) fn request(self: &Arc<Self>) -> Claim {
        Claim { budget: self.clone(), pool: Pool::Requests, bytes: 0, client: None }
    }

    /// The same for a long answer that is made piece by piece.
    pub(crate) fn long_answer(self: &Arc<Self>) -> Claim {
        Claim { budget: self.clone(), pool: Pool::Long, bytes: 0, client: None }
    }

    /// Claims `bytes` once there is room, or fails like [`Budget::wait`].
    pub(crate) async fn claim(self: &Arc<Self>, pool: Pool, bytes: u64, client: Address) -> Result<Claim, Error> {
        if let Some(claim) = self.try_claim(pool, bytes, Some(client)) {
            return Ok(claim);
        }
        let (tell, told) = tokio::sync::oneshot::channel();
        // Whoever waits may have gone.
        self.wait(pool, bytes, Some(client), move |claim| drop(tell.send(claim)));
        told.await.unwrap_or(Err(Error::Stopped))
    }

    /// Claims for an unfinished request; no error but that there is no room.
    pub(crate) fn claim_request(self: &Arc<Self>, bytes: usize) -> Result<Claim, Error> {
        let mut claim = self.request();
        if claim.resize(bytes as u64) { Ok(claim) } else { Err(Error::TooManyRequests) }
    }

    /// Claims `bytes` once there is room: `then` is called with the claim, or with a refusal if too many wait or it takes too long.
    pub(crate) fn wait(
        self: &Arc<Self>,
        pool: Pool,
        bytes: u64,
        client: Option<Address>,
        then: impl FnOnce(Result<Claim, Error>) + Send + 'static,
    ) {
        // What is larger than the whole pool gets it once it has it for itself: by then nothing is held but that one answer.
        let bytes = bytes.min(pool.part(self.bytes_max));
        let mut state = lock(&self.state);
        let of_client = state.waiting.iter().filter(|waiter| waiter.client == client).count();
        if state.stopped
            || state.waiting.len() >= limits::BUDGET_QUEUE_MAX
            || (client.is_some() && of_client >= limits::BUDGET_QUEUE_MAX / 4)
        {
            drop(state);
            self.figures(pool).refusals.fetch_add(1, Ordering::Relaxed);
            return then(Err(Error::TooManyRequests));
        }
        state.waiting.push_back(Waiter { pool, bytes, client, since: Instant::now(), then: Box::new(then) });
        self.figures(pool).waiting.fetch_add(1, Ordering::Relaxed);
        self.figures(pool).waits.fetch_add(1, Ordering::Relaxed);
        self.woken.notify_one();
    }

    /// Takes `bytes` of a pool on behalf of `client`, if neither has too much.
    fn grant(self: &Arc<Self>, state: &mut State, pool: Pool, bytes: u64, client: Option<Address>) -> Option<Claim> {
        let shared = pool.shared(self.bytes_max);
        let client = client.filter(|_| shared.is_some());
        if self.has_its_share(state, pool, bytes, client) || !self.take(pool, bytes) {
            return None;
        }
        if let Some(client) = client {
            state.note(pool, client, bytes);
        }
        Some(Claim { budget: self.clone(), pool, bytes, client })
    }

    /// Whether a client has to wait for its own answers to be taken, whatever room there is.
    fn has_its_share(&self, state: &State, pool: Pool, bytes: u64, client: Option<Address>) -> bool {
        let Some((client, shared)) = client.zip(pool.shared(self.bytes_max)) else { return false };
        !state.may_have(pool, client, bytes, shared)
    }

    fn release(&self, pool: Pool, bytes: u64, client: Option<Address>) {
        self.figures(pool).held.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(client) = client {
            lock(&self.state).forget(pool, client, bytes);
        }
        if self.figures(pool).waiting.load(Ordering::Relaxed) > 0 {
            // Under the lock, or the thread could miss it between its look and its sleep.
            let _state = lock(&self.state);
            self.woken.notify_one();
        }
    }

    /// Ends the wait of all who wait, and of all who come.
    pub(crate) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.woken.notify_one();
    }

    /// Grants what is waited for, on a thread of its own: whoever releases a claim may be in the middle of anything.
    pub(crate) fn run(self: &Arc<Self>) {
        loop {
            let mut state = lock(&self.state);
            let due = self.due(&mut state);
            let stopped = state.stopped;
            if due.is_empty() && !stopped {
                let waited = self.woken.wait_timeout(state, LOOK);
                drop(waited.unwrap_or_else(|poisoned| poisoned.into_inner()));
                continue;
            }
            drop(state);
            for (then, claim) in due {
                then(claim);
            }
            if stopped {
                return;
            }
        }
    }

    /// Those whose wait is over, and how it ended. Of a pool the first one that has to wait for room keeps those behind it waiting;
    /// one that has to wait for its own client does not.
    fn due(self: &Arc<Self>, state: &mut State) -> Vec<(Then, Result<Claim, Error>)> {
        let now = Instant::now();
        let mut due = Vec::new();
        let mut is_full = [false; Pool::ALL.len()];
        let mut left = VecDeque::with_capacity(state.waiting.len());
        for waiter in std::mem::take(&mut state.waiting) {
            let Waiter { pool, bytes, client, since, then } = waiter;
            let full = is_full.get_mut(pool as usize);
            let claim =
                if full.as_ref().is_some_and(|full| **full) { None } else { self.grant(state, pool, bytes, client) };
            if let Some(claim) = claim {
                self.figures(pool).waiting.fetch_sub(1, Ordering::Relaxed);
                due.push((then, Ok(claim)));
            } else if state.stopped || now.duration_since(since) >= self.patience {
                self.figures(pool).waiting.fetch_sub(1, Ordering::Relaxed);
                self.figures(pool).refusals.fetch_add(1, Ordering::Relaxed);
                due.push((then, Err(if state.stopped { Error::Stopped } else { Error::TooManyRequests })));
            } else {
                let by_client = self.has_its_share(state, pool, bytes, client);
                if let Some(full) = full {
                    *full |= !by_client;
                }
                left.push_back(Waiter { pool, bytes, client, since, then });
            }
        }
        state.waiting = left;
        due
    }

    /// The budget among the metrics.
    pub(crate) fn render(&self, page: &mut Page) {
        let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(Pool) -> u64| {
            page.family(name, kind, help);
            for pool in Pool::ALL {
                page.labelled(name, &[("pool", pool.name())], value(pool));
            }
        };
        let help = "Bytes that clients have this member hold, by what for.";
        family("cairn_budget_held_bytes", "gauge", help, &|pool| self.held(pool));
        let help = "Bytes that they may have it hold, by what for.";
        family("cairn_budget_limit_bytes", "gauge", help, &|pool| pool.part(self.bytes_max));
        let help = "Answers that waited for others to be taken, by what they needed.";
        let waits = |pool| self.figures(pool).waits.load(Ordering::Relaxed);
        family("cairn_budget_waits_total", "counter", help, &waits);
        let help = "Requests refused because clients had too much held, by what they needed.";
        let refusals = |pool| self.figures(pool).refusals.load(Ordering::Relaxed);
        family("cairn_budget_refused_total", "counter", help, &refusals);
    }
}

/// How often it is looked whether somebody has waited for too long.
const LOOK: Duration = Duration::from_millis(100);

impl State {
    /// Whether `client` may have so much more of a pool of `most`. Who has nothing may have as much as one answer takes.
    fn may_have(&self, pool: Pool, client: Address, bytes: u64, most: u64) -> bool {
        let fits = |held: Option<&u64>, share: u64| held.is_none_or(|held| held.saturating_add(bytes) <= share);
        fits(self.by_client.get(&(pool, client)), most / 4)
            && client.ip().is_none_or(|host| fits(self.by_host.get(&(pool, host)), most / 2))
    }

    fn note(&mut self, pool: Pool, client: Address, bytes: u64) {
        let of_client = self.by_client.entry((pool, client)).or_default();
        *of_client = of_client.saturating_add(bytes);
        if let Some(host) = client.ip() {
            let of_host = self.by_host.entry((pool, host)).or_default();
            *of_host = of_host.saturating_add(bytes);
        }
    }

    fn forget(&mut self, pool: Pool, client: Address, bytes: u64) {
        fn take<K: Eq + std::hash::Hash>(from: &mut HashMap<K, u64>, key: &K, bytes: u64) {
            if let Some(held) = from.get_mut(key) {
                *held = held.saturating_sub(bytes);
                if *held == 0 {
                    from.remove(key);
                }
            }
        }
        take(&mut self.by_client, &(pool, client), bytes);
        if let Some(host) = client.ip() {
            take(&mut self.by_host, &(pool, host), bytes);
        }
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("bytes_max", &self.bytes_max)
            .field("figures", &self.figures)
            .finish_non_exhaustive()
    }
}

/// Bytes of the budget, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    budget: Arc<Budget>,
    pool: Pool,
    bytes: u64,
    /// On whose account they are.
    client: Option<Address>,
}

impl Claim {
    /// Bytes that it is for.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is all there is, so that what it is for may take even more.
    pub(crate) fn is_whole_pool(&self) -> bool {
        self.bytes >= self.pool.part(self.budget.bytes_max)
    }

    /// Makes it one for `bytes`. False if it would be more and there is no room; it stays what it was then.
    pub(crate) fn resize(&mut self, bytes: u64) -> bool {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            self.budget.release(self.pool, less, self.client);
        } else {
            let more = bytes.saturating_sub(self.bytes);
            let has_room = match self.client {
                None => self.budget.take(self.pool, more),
                Some(client) => {
                    let mut state = lock(&self.budget.state);
                    let has_room = self.budget.take(self.pool, more);
                    if has_room {
                        state.note(self.pool, client, more);
                    }
                    has_room
                }
            };
            if !has_room {
                self.budget.figures(self.pool).refusals.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        }
        self.bytes = bytes;
        true
    }

    /// The same bytes, which hold the claim until the last reference to them is gone.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _claim: self })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.budget.release(self.pool, self.bytes, self.client);
    }
}

struct Held {
    bytes: Bytes,
    _claim: Claim,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used, reason = "tests")]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::sync::mpsc::{Receiver, channel};

    const MIB: u64 = 1 << 20;

    fn client(host: u8, port: u16) -> Option<Address> {
        Some(Address::Tcp(SocketAddr::from(([127, 0, 0, host], port))))
    }

    fn running(patience: Duration) -> Arc<Budget> {
        let budget = Budget::new(64 * MIB, patience);
        let own = budget.clone();
        std::thread::spawn(move || own.run());
        budget
    }

    fn waiting(
        budget: &Arc<Budget>,
        pool: Pool,
        bytes: u64,
        client: Option<Address>,
    ) -> Receiver<Result<Claim, Error>> {
        let (tell, told) = channel();
        // The test may be over.
        budget.wait(pool, bytes, client, move |claim| drop(tell.send(claim)));
        told
    }

    const FOREVER: Duration = Duration::from_secs(3_600);

    #[test]
    fn bytes_hold_their_claim_until_the_last_of_them_is_gone() {
        let budget = Budget::new(64 * MIB, FOREVER);
        let claim = budget.try_claim(Pool::Short, 1_000, None).expect("room");
        let mut bytes = claim.hold(Bytes::from(vec![7; 1_000]));
        let front = bytes.split_to(10);
        drop(bytes);
        assert_eq!((budget.held(Pool::Short), front.len()), (1_000, 10));
        drop(front);
        assert_eq!(budget.held(Pool::Short), 0);
    }

    #[test]
    fn pools_are_bounds_and_do_not_take_from_each_other() {
        let budget = Budget::new(64 * MIB, FOREVER);
        for (pool, part) in [(Pool::Short, 16), (Pool::Requests, 16), (Pool::Long, 32)] {
            let all = budget.try_claim(pool, part * MIB, None).expect("room");
            assert!(budget.try_claim(pool, 1, None).is_none(), "{pool:?}");
            drop(all);
            // The others do not notice that it is kept.
            std::mem::forget(budget.try_claim(pool, part * MIB, None).expect("room again"));
        }
        let mut request = budget.claim_request(0).expect("nothing is always there");
        assert!(!request.resize(1) && request.bytes() == 0);
    }

    #[test]
    fn who_waits_gets_what_is_released_in_order() {
        let budget = running(FOREVER);
        let held = budget.try_claim(Pool::Short, 16 * MIB, None).expect("room");
        let (first, second) = (waiting(&budget, Pool::Short, MIB, None), waiting(&budget, Pool::Short, 2 * MIB, None));
        // A pool that others wait for is asked in vain, even for less.
        assert!(budget.try_claim(Pool::Short, 1, None).is_none());
        drop(held);
        let claims = [first, second].map(|told| told.recv().expect("an answer").expect("a claim").bytes());
        assert_eq!(claims, [MIB, 2 * MIB]);
        budget.stop();
    }

    #[test]
    fn one_client_keeps_no_other_waiting() {
        let budget = running(FOREVER);
        // A quarter of 32 MiB for each connection, half for its host; then the next one of the host waits, and nobody else.
        let held = [0, 1].map(|port| budget.try_claim(Pool::Long, 8 * MIB, client(1, port)).expect("room"));
        let more = waiting(&budget, Pool::Long, MIB, client(1, 0));
        let other = waiting(&budget, Pool::Long, 8 * MIB, client(2, 0)).recv().expect("an answer").expect("a claim");
        assert!(more.try_recv().is_err());
        // A whole pool's answer gets it when it is free.
        let huge = waiting(&budget, Pool::Long, 1_000 * MIB, client(3, 0));
        drop((held, other));
        drop(more.recv().expect("an answer").expect("a claim"));
        assert_eq!(huge.recv().expect("an answer").expect("a claim").bytes(), 32 * MIB);
        budget.stop();
    }

    #[test]
    fn short_answers_of_one_host_leave_room_for_others() {
        let budget = Budget::new(64 * MIB, FOREVER);
        let mut held = Vec::new();
        for port in 0..100 {
            while let Some(claim) = budget.try_claim(Pool::Short, 64 << 10, client(1, port)) {
                held.push(claim);
            }
        }
        // The half that nobody shares, and half of the other one.
        assert_eq!(budget.held(Pool::Short), 12 * MIB);
        assert!(budget.try_claim(Pool::Short, MIB, client(2, 0)).is_some());
        drop(held);
        assert_eq!(budget.held(Pool::Short), 0);
        assert!(lock(&budget.state).by_host.is_empty());
    }

    #[test]
    fn waiting_has_an_end() {
        let budget = running(Duration::from_millis(1));
        let _held = budget.try_claim(Pool::Short, 16 * MIB, None).expect("room");
        let late = waiting(&budget, Pool::Short, 1, None);
        assert_eq!(late.recv().expect("an answer").err(), Some(Error::TooManyRequests));
        let budget = Budget::new(64 * MIB, FOREVER);
        let _held = budget.try_claim(Pool::Short, 16 * MIB, None).expect("room");
        let queued: Vec<_> = (0..limits::BUDGET_QUEUE_MAX).map(|_| waiting(&budget, Pool::Short, 1, None)).collect();
        let refused = waiting(&budget, Pool::Short, 1, None);
        assert_eq!(refused.recv().expect("an answer").err(), Some(Error::TooManyRequests));
        budget.stop();
        budget.run();
        assert!(queued.iter().all(|told| matches!(told.try_recv(), Ok(Err(Error::Stopped)))));
    }
}
