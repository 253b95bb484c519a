//! The budget: deciding, waiting for and granting claims.

use crate::claim::Claim;
use crate::figures::{Figures, PoolUsage};
use crate::line::{Line, Verdict, Waiter};
use crate::pool::Pool;
use crate::refusals::Refusals;
use crate::shares::{Shares, UsedUp, host_share, origin};
use api::{Error, limits};
use contain::lock;
use rpc::Address;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The part that a lock guards.
#[derive(Default)]
pub(crate) struct State {
    lines: [Line; Pool::ALL.len()],
    /// When claims that waited for too long were last looked for.
    looked: Option<Instant>,
    pub(crate) shares: Shares,
    refusals: Refusals,
    stopped: bool,
}

/// The budget of one process.
pub struct Budget {
    pub(crate) bytes_max: u64,
    figures: [Figures; Pool::ALL.len()],
    pub(crate) state: Mutex<State>,
    woken: Condvar,
    /// How long a claim may wait.
    patience: Duration,
}

impl Budget {
    /// A budget of `bytes_max`, in which a claim may wait for `patience`.
    pub fn new(bytes_max: u64, patience: Duration) -> Arc<Budget> {
        Arc::new(Budget {
            bytes_max,
            figures: Default::default(),
            state: Mutex::default(),
            woken: Condvar::new(),
            patience,
        })
    }

    pub(crate) fn figures(&self, pool: Pool) -> &Figures {
        let [short, long, requests] = &self.figures;
        match pool {
            Pool::Short => short,
            Pool::Long => long,
            Pool::Requests => requests,
        }
    }

    /// Bytes held of a pool.
    pub fn held(&self, pool: Pool) -> u64 {
        self.figures(pool).held.load(Ordering::Relaxed)
    }

    /// Whether claims on answers wait for room that `client` may have, or were refused for lack of it a moment ago: of that of anybody,
    /// or of that of its host, which has its share while the connection that claims does not. A connection that has its own share needs
    /// nobody else's.
    pub fn is_waited_for(&self, client: Address) -> bool {
        const ANSWERS: [Pool; 2] = [Pool::Short, Pool::Long];
        if ANSWERS.into_iter().any(|pool| self.figures(pool).is_stalled.load(Ordering::Relaxed)) {
            return true;
        }
        let of = origin(Some(client));
        let mut state = lock(&self.state);
        let is_wanted = |pool| {
            let line = state.line(pool);
            let (has_large, next) = (line.has_large(), line.next_of(of).map(|waiter| (waiter.bytes, waiter.client)));
            has_large || next.is_some_and(|(bytes, next)| self.used_up(&state, pool, bytes, next) == Some(UsedUp::Host))
        };
        ANSWERS.into_iter().any(is_wanted) || state.refusals.are_recent(of, Instant::now())
    }

    /// Counts a claim that [`Budget::try_claim`] refused, and that does not wait. For a while it shows like one that does that room is
    /// wanted.
    pub fn refused(&self, pool: Pool, bytes: u64, client: Address) {
        self.figures(pool).refusals.fetch_add(1, Ordering::Relaxed);
        self.note_refusal(pool, bytes, 0, client);
    }

    /// Notes that room was wanted for `bytes` more of a claim that has `own` on the account of `client`.
    pub(crate) fn note_refusal(&self, pool: Pool, bytes: u64, own: u64, client: Address) {
        let mut state = lock(&self.state);
        match state.shares.used_up(pool, client, bytes, own, pool.shared(self.bytes_max)) {
            Some(UsedUp::Connection) => {}
            Some(UsedUp::Host) => state.refusals.note_host(origin(Some(client)), Instant::now()),
            None => state.refusals.note(Instant::now()),
        }
    }

    /// Takes `bytes` out of a pool if they are there.
    pub(crate) fn take(&self, pool: Pool, bytes: u64) -> bool {
        self.take_below(pool.part(self.bytes_max), pool, bytes)
    }

    /// The same if no more than `most` are held after it.
    pub(crate) fn take_below(&self, most: u64, pool: Pool, bytes: u64) -> bool {
        let more = |held: u64| held.checked_add(bytes).filter(|after| *after <= most);
        self.figures(pool).held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// The part of a pool that is granted without looking at the client.
    pub(crate) fn unshared(&self, pool: Pool) -> u64 {
        pool.part(self.bytes_max).saturating_sub(pool.shared(self.bytes_max))
    }

    /// Claims `bytes` if there is room now and no earlier claim waits for it.
    pub fn try_claim(self: &Arc<Self>, pool: Pool, bytes: u64, client: Option<Address>) -> Option<Claim> {
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
            Verdict::Connection | Verdict::Host | Verdict::Full | Verdict::Large => None,
        }
    }

    /// The claim for what was taken, with `noted` of it on the account of `client`.
    fn had(self: &Arc<Self>, pool: Pool, bytes: u64, noted: u64, client: Option<Address>) -> Claim {
        Claim::new(self.clone(), pool, bytes, client, noted)
    }

    /// Claims `bytes` of an answer that exists already, whether there is room or not. `claim` was made for it before.
    pub fn claim_anyway(self: &Arc<Self>, claim: Option<Claim>, bytes: u64) -> Claim {
        if let Some(mut claim) = claim
            && (claim.bytes() >= bytes || claim.is_whole_pool())
        {
            if claim.bytes() > bytes {
                claim.resize(bytes);
            }
            return claim;
        }
        let pool = Pool::of_answer(bytes);
        self.figures(pool).held.fetch_add(bytes, Ordering::Relaxed);
        self.had(pool, bytes, 0, None)
    }

    /// A claim of nothing yet for a request that is not whole.
    pub fn request(self: &Arc<Self>, client: Address) -> Claim {
        self.had(Pool::Requests, 0, 0, Some(client))
    }

    /// A claim of nothing yet for a long answer that is made piece by piece.
    pub fn long_answer(self: &Arc<Self>, client: Address) -> Claim {
        self.had(Pool::Long, 0, 0, Some(client))
    }

    /// Claims `bytes` once there is room, or fails like [`Budget::wait`].
    pub async fn claim(self: &Arc<Self>, pool: Pool, bytes: u64, client: Address) -> Result<Claim, Error> {
        if let Some(claim) = self.try_claim(pool, bytes, Some(client)) {
            return Ok(claim);
        }
        let (tell, told) = tokio::sync::oneshot::channel();
        // The waiting task may have ended.
        self.wait(pool, bytes, Some(client), move |claim| drop(tell.send(claim)));
        told.await.unwrap_or(Err(Error::Stopped))
    }

    /// Claims for a request that waits: nothing if it is short. Fails only if there is no room.
    pub fn claim_request(self: &Arc<Self>, bytes: usize, client: Address) -> Result<Option<Claim>, Error> {
        if bytes <= limits::BUDGET_FREE_BYTES {
            return Ok(None);
        }
        let mut claim = self.request(client);
        if claim.resize(bytes as u64) { Ok(Some(claim)) } else { Err(Error::TooManyRequests) }
    }

    /// Claims `bytes` once there is room: `then` is called with the claim, or with a refusal if too many wait or it takes too long.
    pub fn wait(
        self: &Arc<Self>,
        pool: Pool,
        bytes: u64,
        client: Option<Address>,
        then: impl FnOnce(Result<Claim, Error>) + Send + 'static,
    ) {
        self.wait_while(pool, bytes, client, || true, then);
    }

    /// The same while it is `needed`: a claim that is not takes no place in the line, or leaves it at the next [`Budget::leave`], and
    /// `then` is not called.
    pub fn wait_while(
        self: &Arc<Self>,
        pool: Pool,
        bytes: u64,
        client: Option<Address>,
        needed: impl Fn() -> bool + Send + 'static,
        then: impl FnOnce(Result<Claim, Error>) + Send + 'static,
    ) {
        // An answer larger than the whole pool is granted all of it, once nothing else of the pool is held.
        let bytes = bytes.min(pool.part(self.bytes_max));
        let waiter = Waiter { bytes, client, since: Instant::now(), needed: Box::new(needed), then: Box::new(then) };
        let mut state = lock(&self.state);
        if !(waiter.needed)() {
            // Its client has called `leave` already. What it holds may be a claim of this budget.
            drop(state);
            drop(waiter);
            return;
        }
        let refused = if state.stopped {
            Some(waiter)
        } else {
            // Other claims have to wait for this one, unless it waits for its own client alone or asks for more than a share.
            let is_large = bytes > host_share(pool.shared(self.bytes_max));
            if !is_large && self.used_up(&state, pool, bytes, client).is_none() {
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

    /// Ends the waits of a connection's claims that are not needed any more.
    pub fn leave(&self, pool: Pool, client: Option<Address>) {
        let mut state = lock(&self.state);
        let gone = state.line(pool).leave(client);
        if !gone.is_empty() {
            self.count(&mut state, pool);
            self.woken.notify_one();
        }
        drop(state);
        // What they hold may be a claim of this budget.
        drop(gone);
    }

    /// Notes how many claims wait.
    fn count(&self, state: &mut State, pool: Pool) {
        self.figures(pool).waiting.store(state.line(pool).len(), Ordering::SeqCst);
    }

    /// Takes `bytes` of a pool on behalf of `client`, if neither its connection nor its host has its share.
    fn grant(self: &Arc<Self>, state: &mut State, pool: Pool, bytes: u64, client: Option<Address>) -> Verdict {
        match self.used_up(state, pool, bytes, client) {
            Some(UsedUp::Connection) => return Verdict::Connection,
            Some(UsedUp::Host) => return Verdict::Host,
            None => {}
        }
        if !self.take(pool, bytes) {
            return if bytes > host_share(pool.shared(self.bytes_max)) { Verdict::Large } else { Verdict::Full };
        }
        let noted = if client.is_some() { bytes } else { 0 };
        if let Some(client) = client {
            state.shares.note(pool, client, bytes);
        }
        Verdict::Granted(self.had(pool, bytes, noted, client))
    }

    /// The share, if any, that has no room for a new claim: who has it waits until something of it is released.
    fn used_up(&self, state: &State, pool: Pool, bytes: u64, client: Option<Address>) -> Option<UsedUp> {
        client.and_then(|client| state.shares.used_up(pool, client, bytes, 0, pool.shared(self.bytes_max)))
    }

    /// Gives back `bytes`, of which `noted` are on the account of `client`.
    pub(crate) fn release(&self, pool: Pool, bytes: u64, noted: u64, client: Option<Address>) {
        // In one order with `count` and `take_below`: either a claim that begins to wait sees these bytes free, or it is seen here.
        self.figures(pool).held.fetch_sub(bytes, Ordering::SeqCst);
        let noted = client.filter(|_| noted > 0).map(|client| (client, noted));
        if noted.is_none() && self.figures(pool).waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        // Under the lock, or the thread could miss it between its look and its sleep.
        let mut state = lock(&self.state);
        if let Some((client, noted)) = noted {
            state.shares.forget(pool, client, noted);
            state.line(pool).give_turn(Some(client));
        }
        if state.line(pool).len() > 0 {
            state.line(pool).give_back_turns();
            self.woken.notify_one();
        }
    }

    /// Ends all waits, those of later claims too.
    pub fn stop(&self) {
        lock(&self.state).stopped = true;
        self.woken.notify_one();
    }

    /// Grants waiting claims, on a thread of its own: a thread that releases a claim may be in the middle of anything.
    pub fn run(self: &Arc<Self>) {
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

    /// The claims whose wait is over, with the result.
    pub(crate) fn due(self: &Arc<Self>, state: &mut State) -> Vec<(Waiter, Result<Claim, Error>)> {
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
            // `None` if the clock has not run for that long: then no claim is late.
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

    /// The usage of each pool, for the metrics.
    pub fn usage(&self) -> [PoolUsage; Pool::ALL.len()] {
        Pool::ALL.map(|pool| {
            let figures = self.figures(pool);
            PoolUsage {
                pool,
                held_bytes: self.held(pool),
                limit_bytes: pool.part(self.bytes_max),
                waits: figures.waits.load(Ordering::Relaxed),
                refusals: figures.refusals.load(Ordering::Relaxed),
            }
        })
    }
}

/// How often claims that waited for too long are looked for.
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
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("bytes_max", &self.bytes_max)
            .field("figures", &self.figures)
            .finish_non_exhaustive()
    }
}
