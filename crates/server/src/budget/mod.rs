//! What clients may have the member hold in memory, all together: one budget of bytes for the process, in pools that do not take from
//! each other.
//!
//! Who builds an answer or keeps part of a request claims its bytes first, and the claim lives as long as they do: a [`Claim`] that is
//! given bytes ([`Claim::hold`]) is released when the last of them has left or their stream has ended. Answers that find no room
//! wait, for a while and in bounded number, in the [`line`] of their pool. Of what is shared out of a pool a connection may have
//! a quarter and a host half, so that whoever reads nothing keeps only themselves waiting.

mod line;

use api::{Error, limits};
use bytes::Bytes;
use contain::lock;
use line::{Line, Verdict, Waiter, origin};
use rpc::{Address, Origin};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use telemetry::metrics::Page;

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

    /// What of a budget is shared out among clients, so that none has all of it: of short answers and requests the second half. The
    /// first is had without a look at who asks, which is how most of them find room.
    fn shared(self, bytes_max: u64) -> u64 {
        match self {
            Pool::Short | Pool::Requests => self.part(bytes_max) / 2,
            Pool::Long => self.part(bytes_max),
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
    /// Somebody waits because there is no room: who claims looks here first, without the lock. Those who wait for what is their own
    /// to be taken keep nobody else waiting.
    is_stalled: AtomicBool,
    /// How many wait, for whatever reason.
    waiting: AtomicUsize,
    waits: AtomicU64,
    refusals: AtomicU64,
}

#[derive(Default)]
struct State {
    lines: [Line; Pool::ALL.len()],
    /// When it was looked last whether somebody has waited for too long.
    looked: Option<Instant>,
    /// What of each pool is held by connection, and by host.
    by_client: HashMap<(Pool, Address), u64>,
    by_host: HashMap<(Pool, Origin), u64>,
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

    /// What of a pool is had without a look at who asks.
    fn unshared(&self, pool: Pool) -> u64 {
        pool.part(self.bytes_max).saturating_sub(pool.shared(self.bytes_max))
    }

    /// Claims `bytes` if there is room now and nobody was there first.
    pub(crate) fn try_claim(self: &Arc<Self>, pool: Pool, bytes: u64, client: Option<Address>) -> Option<Claim> {
        if self.figures(pool).is_stalled.load(Ordering::Relaxed) {
            return None;
        }
        if self.take_below(self.unshared(pool), pool, bytes) {
            return Some(self.had(pool, bytes, 0, client));
        }
        let mut state = lock(&self.state);
        if state.line(pool).has(client) {
            return None;
        }
        match self.grant(&mut state, pool, bytes, client) {
            Verdict::Granted(claim) => Some(claim),
            Verdict::Connection | Verdict::Host | Verdict::Full => None,
        }
    }

    /// The claim for what was taken, with `noted` of it on the account of `client`.
    fn had(self: &Arc<Self>, pool: Pool, bytes: u64, noted: u64, client: Option<Address>) -> Claim {
        Claim { budget: self.clone(), pool, bytes, client, noted }
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
        self.had(pool, bytes, 0, None)
    }

    /// A claim of nothing yet for a request that is not whole.
    pub(crate) fn request(self: &Arc<Self>, client: Address) -> Claim {
        self.had(Pool::Requests, 0, 0, Some(client))
    }

    /// The same for a long answer that is made piece by piece.
    pub(crate) fn long_answer(self: &Arc<Self>, client: Address) -> Claim {
        self.had(Pool::Long, 0, 0, Some(client))
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

    /// Claims for a request that waits: nothing if it is little. No error but that there is no room.
    pub(crate) fn claim_request(self: &Arc<Self>, bytes: usize, client: Address) -> Result<Option<Claim>, Error> {
        if bytes <= limits::BUDGET_FREE_BYTES {
            return Ok(None);
        }
        let mut claim = self.request(client);
        if claim.resize(bytes as u64) { Ok(Some(claim)) } else { Err(Error::TooManyRequests) }
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
        let waiter = Waiter { bytes, client, since: Instant::now(), then: Box::new(then) };
        let mut state = lock(&self.state);
        let refused = if state.stopped {
            Some(waiter)
        } else {
            // The thread sees whether it waits for itself alone.
            if !self.has_its_share(&state, pool, bytes, client) {
                self.figures(pool).is_stalled.store(true, Ordering::Relaxed);
            }
            self.figures(pool).waits.fetch_add(1, Ordering::Relaxed);
            let refused = state.line(pool).add(waiter);
            self.count(&mut state, pool);
            self.woken.notify_one();
            refused
        };
        drop(state);
        if let Some(refused) = refused {
            self.figures(pool).refusals.fetch_add(1, Ordering::Relaxed);
            (refused.then)(Err(Error::TooManyRequests));
        }
    }

    /// Notes how many wait.
    fn count(&self, state: &mut State, pool: Pool) {
        self.figures(pool).waiting.store(state.line(pool).len(), Ordering::Relaxed);
    }

    /// Takes `bytes` of a pool on behalf of `client`, if neither has too much.
    fn grant(self: &Arc<Self>, state: &mut State, pool: Pool, bytes: u64, client: Option<Address>) -> Verdict {
        let shared = pool.shared(self.bytes_max);
        if let Some(client) = client {
            if !state.connection_may_have(pool, client, bytes, 0, shared) {
                return Verdict::Connection;
            }
            if !state.host_may_have(pool, client, bytes, 0, shared) {
                return Verdict::Host;
            }
        }
        if !self.take(pool, bytes) {
            return Verdict::Full;
        }
        let noted = if client.is_some() { bytes } else { 0 };
        if let Some(client) = client {
            state.note(pool, client, bytes);
        }
        Verdict::Granted(self.had(pool, bytes, noted, client))
    }

    /// Whether a client has to wait for its own answers to be taken, whatever room there is.
    fn has_its_share(&self, state: &State, pool: Pool, bytes: u64, client: Option<Address>) -> bool {
        let shared = pool.shared(self.bytes_max);
        client.is_some_and(|client| {
            !state.connection_may_have(pool, client, bytes, 0, shared)
                || !state.host_may_have(pool, client, bytes, 0, shared)
        })
    }

    /// Gives back `bytes`, of which `noted` are on the account of `client`.
    fn release(&self, pool: Pool, bytes: u64, noted: u64, client: Option<Address>) {
        self.figures(pool).held.fetch_sub(bytes, Ordering::Relaxed);
        let noted = client.filter(|_| noted > 0).map(|client| (client, noted));
        if noted.is_none() && self.figures(pool).waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Under the lock, or the thread could miss it between its look and its sleep.
        let mut state = lock(&self.state);
        if let Some((client, noted)) = noted {
            state.forget(pool, client, noted);
            state.line(pool).give_turn(Some(client));
        }
        if state.line(pool).len() > 0 {
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
            for (waiter, claim) in due {
                (waiter.then)(claim);
            }
            if stopped {
                return;
            }
        }
    }

    /// Those whose wait is over, and how it ended.
    fn due(self: &Arc<Self>, state: &mut State) -> Vec<(Waiter, Result<Claim, Error>)> {
        let now = Instant::now();
        let mut due = Vec::new();
        let looks = state.stopped || state.looked.is_none_or(|looked| now.duration_since(looked) >= LOOK);
        if looks {
            state.looked = Some(now);
        }
        for pool in Pool::ALL {
            let mut line = std::mem::take(state.line(pool));
            let is_stalled = line.serve(
                |waiter| self.grant(state, pool, waiter.bytes, waiter.client),
                |waiter, claim| due.push((waiter, Ok(claim))),
            );
            // Nobody came too early to have waited for that long.
            let before = if state.stopped { None } else { now.checked_sub(self.patience) };
            if state.stopped || (looks && before.is_some()) {
                let error = || if state.stopped { Error::Stopped } else { Error::TooManyRequests };
                line.late(before, |waiter| {
                    self.figures(pool).refusals.fetch_add(1, Ordering::Relaxed);
                    due.push((waiter, Err(error())));
                });
            }
            let is_stalled = is_stalled && line.len() > 0;
            *state.line(pool) = line;
            self.figures(pool).is_stalled.store(is_stalled, Ordering::Relaxed);
            self.count(state, pool);
        }
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
    fn line(&mut self, pool: Pool) -> &mut Line {
        let [short, long, requests] = &mut self.lines;
        match pool {
            Pool::Short => short,
            Pool::Long => long,
            Pool::Requests => requests,
        }
    }

    /// Whether a connection may have so much more of a pool of `most`, for what has `own` of it already. Who has nothing else may have
    /// as much as one answer takes.
    fn connection_may_have(&self, pool: Pool, client: Address, bytes: u64, own: u64, most: u64) -> bool {
        fits(self.by_client.get(&(pool, client)), bytes, own, most / 4)
    }

    /// The same of its host.
    fn host_may_have(&self, pool: Pool, client: Address, bytes: u64, own: u64, most: u64) -> bool {
        fits(self.by_host.get(&(pool, origin(Some(client)))), bytes, own, most / 2)
    }

    fn note(&mut self, pool: Pool, client: Address, bytes: u64) {
        let of_client = self.by_client.entry((pool, client)).or_default();
        *of_client = of_client.saturating_add(bytes);
        let of_host = self.by_host.entry((pool, origin(Some(client)))).or_default();
        *of_host = of_host.saturating_add(bytes);
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
        take(&mut self.by_host, &(pool, origin(Some(client))), bytes);
    }
}

/// Whether `bytes` more than is `held` are within a share, or nothing else is held than the `own`.
fn fits(held: Option<&u64>, bytes: u64, own: u64, share: u64) -> bool {
    held.is_none_or(|held| *held <= own || held.saturating_add(bytes) <= share)
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
    /// Who has them.
    client: Option<Address>,
    /// How many of them are on the client's account: those that were had without a look at it are not.
    noted: u64,
}

impl Claim {
    /// What it is for.
    pub(crate) fn pool(&self) -> Pool {
        self.pool
    }

    /// Bytes that it is for.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is all there is, so that what it is for may take even more.
    pub(crate) fn is_whole_pool(&self) -> bool {
        self.bytes >= self.pool.part(self.budget.bytes_max)
    }

    /// Makes it one for `bytes`. False if it would be more and there is no room, or its client has its share; it stays what it was then.
    pub(crate) fn resize(&mut self, bytes: u64) -> bool {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            let noted = less.min(self.noted);
            self.noted = self.noted.saturating_sub(noted);
            self.budget.release(self.pool, less, noted, self.client);
        } else if !self.grow(bytes.saturating_sub(self.bytes)) {
            self.budget.figures(self.pool).refusals.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.bytes = bytes;
        true
    }

    fn grow(&mut self, more: u64) -> bool {
        let (budget, pool) = (&self.budget, self.pool);
        if budget.take_below(budget.unshared(pool), pool, more) {
            return true;
        }
        let Some(client) = self.client else { return budget.take(pool, more) };
        let shared = pool.shared(budget.bytes_max);
        let mut state = lock(&budget.state);
        let may_have = state.connection_may_have(pool, client, more, self.noted, shared)
            && state.host_may_have(pool, client, more, self.noted, shared);
        if !may_have || !budget.take(pool, more) {
            return false;
        }
        state.note(pool, client, more);
        self.noted = self.noted.saturating_add(more);
        true
    }

    /// The same bytes, which hold the claim until the last reference to them is gone.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _claim: self })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.budget.release(self.pool, self.bytes, self.noted, self.client);
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
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::sync::mpsc::{Receiver, channel};

    const MIB: u64 = 1 << 20;

    fn client(host: u8, port: u16) -> Option<Address> {
        Some(Address::Tcp(SocketAddr::from(([127, 0, 0, host], port))))
    }

    const HOST: Address = Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1));

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
        let mut request = budget.request(HOST);
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
        // What is released of the host's own brings it behind those who waited for room meanwhile.
        assert_eq!(huge.recv().expect("an answer").expect("a claim").bytes(), 32 * MIB);
        drop(more.recv().expect("an answer").expect("a claim"));
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
    }

    #[test]
    fn no_host_takes_the_places_of_others() {
        const PLACES: usize = limits::BUDGET_QUEUE_MAX / 4;
        let budget = Budget::new(64 * MIB, FOREVER);
        let _held = budget.try_claim(Pool::Short, 16 * MIB, None).expect("room");
        let refusal = |told: &Receiver<_>| matches!(told.try_recv(), Ok(Err(Error::TooManyRequests)));
        let mut queued = Vec::new();
        for host in 1..=4 {
            // As many connections as it likes.
            let of_host = (0..PLACES).map(|index| waiting(&budget, Pool::Short, 1, client(host, (index / 10) as u16)));
            queued.extend(of_host);
            assert!(refusal(&waiting(&budget, Pool::Short, 1, client(host, 9_999))), "{host}");
        }
        assert!(!queued.iter().any(refusal));
        // All places are taken, and each newcomer has one of those that the others have many of.
        let new: Vec<_> = (5..=8).map(|host| waiting(&budget, Pool::Short, 1, client(host, 0))).collect();
        assert!(!new.iter().any(refusal));
        assert_eq!(queued.iter().filter(|told| refusal(told)).count(), new.len());
        // The places of another pool are others.
        let _held = budget.try_claim(Pool::Long, 32 * MIB, None).expect("room");
        assert!(!refusal(&waiting(&budget, Pool::Long, 1, client(1, 0))));
        budget.stop();
        budget.run();
        assert!(new.iter().all(|told| matches!(told.try_recv(), Ok(Err(Error::Stopped)))));
        assert_eq!(budget.held(Pool::Short), 16 * MIB);
    }

    #[test]
    fn who_waits_for_itself_keeps_nobody_waiting() {
        let budget = running(FOREVER);
        let held = [0, 1].map(|port| budget.try_claim(Pool::Long, 8 * MIB, client(1, port)).expect("room"));
        let queued: Vec<_> = (0..1_000).map(|_| waiting(&budget, Pool::Long, 100, client(1, 2))).collect();
        // A claim of somebody else has shown that it was looked at them.
        drop(waiting(&budget, Pool::Long, 1, client(3, 0)).recv());
        let other = budget.try_claim(Pool::Long, MIB, client(2, 0));
        assert!(other.is_some(), "there is room, and all who wait have their share");
        assert!(queued.iter().all(|told| told.try_recv().is_err()));
        drop(held);
        for told in queued {
            drop(told.recv().expect("an answer").expect("a claim"));
        }
        drop(other);
        assert_eq!(budget.held(Pool::Long), 0);
        budget.stop();
    }

    #[test]
    fn hosts_have_their_turns() {
        let budget = Budget::new(64 * MIB, FOREVER);
        let held = budget.try_claim(Pool::Short, 16 * MIB, None).expect("room");
        let greedy: Vec<_> = (0..100).map(|port| waiting(&budget, Pool::Short, MIB, client(1, port))).collect();
        let other = waiting(&budget, Pool::Short, MIB, client(2, 0));
        drop(held);
        let claims = budget.due(&mut lock(&budget.state));
        // Half of what is shared for the one host, and the other comes second, not behind a hundred.
        assert_eq!(claims.len(), 5);
        for (waiter, claim) in claims.into_iter().take(2) {
            (waiter.then)(claim);
        }
        assert!(greedy.iter().filter(|told| told.try_recv().is_ok()).count() == 1 && other.try_recv().is_ok());
    }

    #[test]
    fn requests_that_wait_are_shared_out() {
        let budget = Budget::new(64 * MIB, FOREVER);
        let mut greedy: Vec<_> = (0..32).map(|port| budget.request(client(1, port).expect("an address"))).collect();
        while greedy.iter_mut().any(|claim| claim.bytes() < 4 * MIB && claim.resize(claim.bytes() + (64 << 10))) {}
        // The half that nobody shares, and half of the other one.
        assert_eq!(budget.held(Pool::Requests), 12 * MIB);
        let other = client(2, 0).expect("an address");
        assert!(budget.claim_request(2 * MIB as usize, other).is_ok_and(|claim| claim.is_some()));
        assert!(budget.claim_request(limits::BUDGET_FREE_BYTES, HOST).is_ok_and(|claim| claim.is_none()));
        drop(greedy);
        assert_eq!(budget.held(Pool::Requests), 0);
        assert!(lock(&budget.state).by_client.is_empty());
    }

    #[test]
    fn what_grows_stays_within_its_share() {
        let budget = Budget::new(64 * MIB, FOREVER);
        let mut claims = [0, 1].map(|port| budget.long_answer(client(1, port).expect("an address")));
        // One answer may take it all, a second one of the host then waits for that.
        assert!(claims[0].resize(20 * MIB) && !claims[1].resize(MIB));
        assert!(claims[0].resize(4 * MIB) && claims[1].resize(4 * MIB));
        assert!(!claims[1].resize(20 * MIB) && claims[1].bytes() == 4 * MIB);
        let mut short = budget.try_claim(Pool::Short, 60 << 10, client(1, 0)).expect("room");
        let _more = budget.try_claim(Pool::Short, 10 * MIB, client(1, 0)).expect("room");
        assert!(!short.resize(4 * MIB), "a quarter of the half that is shared is less");
    }
}
