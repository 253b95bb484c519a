//! The time of leases, which only the leader knows: every member asks it there.

use super::checkpoints;
use super::remote::{self, CallError};
use crate::auth::hand_over;
use crate::config::Gate;
use crate::node::{Node, Weight};
use api::etcdserverpb::{LeaseTimeToLiveRequest, LeaseTimeToLiveResponse};
use api::{Error, limits};
use peer::client::Kept;
use rpc::{Address, StreamWaker};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// One call to the leader may take this long.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Leases of one client that are renewed at the leader before the thread takes another client's work.
const PIECE: usize = 64;
/// Bytes of a lease's keys that are copied on any thread.
const INLINE_KEY_BYTES_MAX: u64 = 1 << 20;
/// Pause before the leader is asked again.
const RETRY: Duration = Duration::from_millis(50);

/// Times to live in seconds, in the order of the leases; 0 for a lease that does not exist.
pub(crate) type Renewed = Result<Vec<i64>, Error>;

/// A client that keeps leases alive.
#[derive(Clone)]
pub(crate) struct Keeper {
    /// The client's address.
    pub(crate) client: Address,
    /// Tells whether the client still waits.
    pub(crate) waker: StreamWaker,
}

/// Renews leases for which [`renew_at_once`] returned `None`. `done` is called once, on any thread, unless the client
/// has gone.
pub(crate) fn renew(node: &Arc<Node>, keeper: Keeper, leases: Vec<i64>, done: impl FnOnce(Renewed) + Send + 'static) {
    if !failpoint::is_set!(BEFORE_CHECKPOINT_IN_LEASE_RENEW) {
        return renew_now(node, keeper, leases, done);
    }
    let (own, client) = (node.clone(), Some(keeper.client));
    let held_up = move |done| {
        failpoint::point!(BEFORE_CHECKPOINT_IN_LEASE_RENEW);
        renew_now(&own, keeper, leases, done);
    };
    if let Err(done) = node.slow.try_give(client, done, held_up) {
        done(Err(Error::TooManyRequests));
    }
}

fn renew_now(node: &Arc<Node>, keeper: Keeper, leases: Vec<i64>, done: impl FnOnce(Renewed) + Send + 'static) {
    let client = Some(keeper.client);
    let forward = |node: &Arc<Node>, leases: Vec<i64>, done: DoneRenewing| {
        Renewal { keeper, renewed: Vec::with_capacity(leases.len()), leases, done }.begin(node);
    };
    let term = node.status.term();
    if !node.status.is_leader() {
        return forward(node, leases, Box::new(done));
    }
    // A leader that has lost the quorum may not know yet that another leader keeps the deadlines.
    confirm(node, move |own, allowed| match allowed {
        // The lease is renewed before its checkpoints are revoked: a checkpoint either has the new time, or is revoked
        // by an entry behind it.
        Ok(()) => hand_over(&own.clone(), client, move || match renew_here(&own, &leases) {
            None => forward(&own, leases, Box::new(done)),
            Some(renewed) => checkpoints::forget(&own, &leases, term, move |forgotten| match forgotten {
                Ok(()) => done(Ok(renewed)),
                Err(_) => done(Err(Error::NotPrimaryLessor)),
            }),
        }),
        Err(Error::Stopped) => done(Err(Error::Stopped)),
        // The client then tries another member.
        Err(_) => done(Err(Error::NotPrimaryLessor)),
    });
}

/// Renews a lease if that needs neither other members nor the log. `None` if it needs them, or if the lease may be
/// gone.
pub(crate) fn renew_at_once(node: &Arc<Node>, lease: i64) -> Option<i64> {
    // A renewal that a failpoint holds up must not hold up its thread.
    let is_held_up = failpoint::is_set!(BEFORE_CHECKPOINT_IN_LEASE_RENEW);
    if !node.status.is_leader() || !node.config.gates.is_on(Gate::FastLeaseKeepAlive) || is_held_up {
        return None;
    }
    // A revoked lease leaves the store a little before its deadline is dropped.
    let granted = || node.store.leases().get(lease).filter(|granted| !checkpoints::is_noted(granted));
    let renewed = node.lessor.renew_at_once(lease, || node.now_ms(), granted)?;
    if renewed.asks {
        confirm(node, |_, _| ());
    }
    renewed.ttl_seconds
}

/// Confirms by a read index that this member leads, and tells the lessor.
fn confirm(node: &Arc<Node>, done: impl FnOnce(Arc<Node>, Result<(), Error>) + Send + 'static) {
    let own = node.clone();
    let asked_ms = node.now_ms();
    node.linearize(Weight::NONE, move |allowed| {
        if allowed.is_ok() {
            own.lessor.with(|lessor| lessor.confirm(asked_ms));
        }
        done(own, allowed);
    });
}

/// Renews leases on the leader, which keeps the deadlines; `None` on any other member.
pub(super) fn renew_here(node: &Node, leases: &[i64]) -> Option<Vec<i64>> {
    let granted = node.store.leases();
    // A revoked lease leaves the store a little before its deadline is dropped.
    node.lessor.renew(leases, || node.now_ms(), |lease| granted.get(lease))
}

type DoneRenewing = Box<dyn FnOnce(Renewed) + Send>;

/// Leases that are renewed at the leader, piece by piece.
struct Renewal {
    keeper: Keeper,
    leases: Vec<i64>,
    /// Times to live of the leases renewed so far.
    renewed: Vec<i64>,
    done: DoneRenewing,
}

impl Renewal {
    fn begin(self, node: &Arc<Node>) {
        let client = Some(self.keeper.client);
        let work = |node: &Arc<Node>, kept: &mut Kept, renewal: Renewal| renewal.go_on(node, kept);
        node.forward(client, self, work, |renewal, error| (renewal.done)(Err(error)));
    }

    /// Renews one piece, and queues the rest behind the work of other clients.
    fn go_on(mut self, node: &Arc<Node>, kept: &mut Kept) {
        let piece = self.leases.iter().skip(self.renewed.len()).take(PIECE);
        let mut renewed = Vec::with_capacity(PIECE);
        for lease in piece {
            // The client has gone, so the remaining leases are not renewed.
            if self.keeper.waker.is_canceled() {
                return;
            }
            match ask_leader(node, |url, patience| remote::renew(kept, &node.connector, url, *lease, patience)) {
                Ok(ttl) => renewed.push(ttl.unwrap_or(0)),
                Err(error) => return (self.done)(Err(error)),
            }
        }
        self.renewed.append(&mut renewed);
        if self.renewed.len() >= self.leases.len() {
            return (self.done)(Ok(self.renewed));
        }
        node.forward_on(Some(self.keeper.client), move |node, kept| self.go_on(node, kept));
    }
}

/// Asks the current leader until there is an answer or the time of a request is over.
fn ask_leader<T>(node: &Node, mut ask: impl FnMut(&str, Duration) -> Result<T, CallError>) -> Result<T, Error> {
    let deadline = Instant::now() + node.config.request_timeout();
    let mut answered = false;
    while let Some(urls) = super::leader_urls(node, deadline) {
        for url in &urls {
            match ask(url, CALL_MAX) {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    answered = true;
                    logging::debug(
                        "cannot ask the leader about a lease",
                        &[("url", url.into()), ("error", Value::Shown(&error))],
                    );
                }
            }
        }
        std::thread::sleep(RETRY);
    }
    Err(match (node.stopping.load(Ordering::Relaxed), answered) {
        (true, _) => Error::Stopped,
        (false, true) => Error::Timeout,
        (false, false) => Error::NoLeader,
    })
}

/// Renews a lease for an observer that follows this process, where the deadlines are kept; `None` if the lease does not exist.
pub(super) fn renew_elsewhere(node: &Node, lease: i64) -> Result<Option<i64>, Error> {
    let kept = &mut Kept::default();
    ask_leader(node, |url, patience| remote::renew(kept, &node.connector, url, lease, patience))
}

/// The remaining time of a lease, asked in the same way.
pub(super) fn time_to_live_elsewhere(
    node: &Node,
    request: &LeaseTimeToLiveRequest,
) -> Result<Option<LeaseTimeToLiveResponse>, Error> {
    let kept = &mut Kept::default();
    ask_leader(node, |url, patience| remote::time_to_live(kept, &node.connector, url, request, patience))
}

/// The remaining time of a lease, or the error.
pub(crate) type TimeToLive = Result<LeaseTimeToLiveResponse, Error>;

/// Passes the remaining time of a lease to `done`, once, on any thread. The caller fills in the header.
pub(crate) fn time_to_live(
    node: &Arc<Node>,
    client: Address,
    request: LeaseTimeToLiveRequest,
    done: impl FnOnce(TimeToLive) + Send + 'static,
) {
    let done: DoneAsking = Box::new(done);
    if !node.status.is_leader() {
        return forward_time_to_live(node, client, request, done);
    }
    let own = node.clone();
    node.linearize(Weight::NONE, move |allowed| {
        let (keys, bytes) = if request.keys { own.store.leases().attached(request.id) } else { (0, 0) };
        let is_short = keys <= limits::INLINE_SORT_KEYS_MAX as u64 && bytes <= INLINE_KEY_BYTES_MAX;
        let is_held_up = failpoint::is_set!(BEFORE_LOOKUP_WHEN_LEASE_TIME_TO_LIVE);
        let look = move |node: &Arc<Node>, done: DoneAsking| match time_to_live_here(node, &request) {
            Ok(found) => done(Ok(found.unwrap_or_else(|| gone(&request)))),
            // This member has lost leadership in the meantime.
            Err(Error::NotPrimaryLessor) => forward_time_to_live(node, client, request, done),
            Err(error) => done(Err(error)),
        };
        match allowed {
            Ok(()) if is_short && !is_held_up => look(&own, done),
            // Consensus may wait for this thread, so a long list of keys is copied elsewhere.
            Ok(()) => {
                let node = own.clone();
                let look = move |done| {
                    failpoint::point!(BEFORE_LOOKUP_WHEN_LEASE_TIME_TO_LIVE);
                    look(&node, done);
                };
                if let Err(done) = own.slow.try_give(Some(client), done, look) {
                    done(Err(Error::TooManyRequests));
                }
            }
            Err(error) => done(Err(error)),
        }
    });
}

fn gone(request: &LeaseTimeToLiveRequest) -> LeaseTimeToLiveResponse {
    LeaseTimeToLiveResponse { id: request.id, ttl: -1, ..Default::default() }
}

/// The remaining time of a lease, on the member that keeps the deadlines; `Ok(None)` if the lease does not exist.
pub(super) fn time_to_live_here(
    node: &Node,
    request: &LeaseTimeToLiveRequest,
) -> Result<Option<LeaseTimeToLiveResponse>, Error> {
    let leases = node.store.leases();
    let Some(lease) = leases.get(request.id) else { return Ok(None) };
    let keys = if request.keys { leases.keys(request.id) } else { Vec::new() };
    let ttl = node.lessor.with(|lessor| lessor.is_primary().then(|| lessor.seconds_left(&lease, node.now_ms())));
    let ttl = ttl.ok_or(Error::NotPrimaryLessor)?;
    Ok(Some(LeaseTimeToLiveResponse { id: request.id, ttl, granted_ttl: lease.ttl, keys, ..Default::default() }))
}

type DoneAsking = Box<dyn FnOnce(TimeToLive) + Send>;

fn forward_time_to_live(node: &Arc<Node>, client: Address, request: LeaseTimeToLiveRequest, done: DoneAsking) {
    let ask = move |node: &Arc<Node>, kept: &mut Kept, done: DoneAsking| {
        let found =
            ask_leader(node, |url, patience| remote::time_to_live(kept, &node.connector, url, &request, patience));
        done(found.map(|found| found.unwrap_or_else(|| gone(&request))));
    };
    node.forward(Some(client), done, ask, |done, error| done(Err(error)));
}
