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
/// Leases that are renewed at the leader before it is another client's turn.
const PIECE: usize = 64;
/// Pause before the leader is asked again.
const RETRY: Duration = Duration::from_millis(50);

/// Times to live in seconds, in the order of the leases; 0 for one that is not there.
pub(crate) type Renewed = Result<Vec<i64>, Error>;

/// A client that keeps leases alive.
#[derive(Clone)]
pub(crate) struct Keeper {
    /// Where it is.
    pub(crate) client: Address,
    /// Whether it still waits.
    pub(crate) waker: StreamWaker,
}

/// Renews leases that [`renew_at_once`] does not; `done` is called once, on any thread, unless the client has gone.
pub(crate) fn renew(node: &Arc<Node>, keeper: Keeper, leases: Vec<i64>, done: impl FnOnce(Renewed) + Send + 'static) {
    let forward = |node: &Arc<Node>, leases: Vec<i64>, done: DoneRenewing| {
        Renewal { keeper, renewed: Vec::with_capacity(leases.len()), leases, done }.begin(node);
    };
    if !node.status.is_leader() {
        return forward(node, leases, Box::new(done));
    }
    // One that has lost the quorum may not know yet that another leader counts down the same leases.
    confirm(node, move |own, allowed| match allowed {
        // Renewed first: a checkpoint is either of the new time, or taken back after it in the log.
        Ok(()) => hand_over(&own.clone(), move || match renew_here(&own, &leases) {
            None => forward(&own, leases, Box::new(done)),
            Some(renewed) => checkpoints::forget(&own, &leases, move |forgotten| match forgotten {
                Ok(()) => done(Ok(renewed)),
                Err(_) => done(Err(Error::NotPrimaryLessor)),
            }),
        }),
        Err(Error::Stopped) => done(Err(Error::Stopped)),
        // The client turns to another member.
        Err(_) => done(Err(Error::NotPrimaryLessor)),
    });
}

/// Renews a lease where that needs neither a question to the others nor the log; `None` when it does, or when the lease may be gone.
pub(crate) fn renew_at_once(node: &Arc<Node>, lease: i64) -> Option<i64> {
    if !node.status.is_leader() || !node.config.gates.is_on(Gate::FastLeaseKeepAlive) {
        return None;
    }
    // The deadline goes a little later than a lease that was revoked.
    let may_renew = || node.store.leases().get(lease).is_some_and(|granted| !checkpoints::is_noted(&granted));
    let renewed = node.lessor.renew_at_once(lease, || node.now_ms(), may_renew)?;
    if renewed.asks {
        confirm(node, |_, _| ());
    }
    renewed.ttl_seconds
}

/// Asks the others whether this member leads, and notes it.
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

/// Renews on the member that keeps the deadlines; `None` on any other.
pub(super) fn renew_here(node: &Node, leases: &[i64]) -> Option<Vec<i64>> {
    let granted = node.store.leases();
    // The deadline goes a little later than a lease that was revoked.
    node.lessor.renew(leases, || node.now_ms(), |lease| granted.exists(lease))
}

type DoneRenewing = Box<dyn FnOnce(Renewed) + Send>;

/// Leases that are renewed at the leader, piece by piece.
struct Renewal {
    keeper: Keeper,
    leases: Vec<i64>,
    /// Of the first of them.
    renewed: Vec<i64>,
    done: DoneRenewing,
}

impl Renewal {
    fn begin(self, node: &Arc<Node>) {
        let client = Some(self.keeper.client);
        let work = |node: &Arc<Node>, kept: &mut Kept, renewal: Renewal| renewal.go_on(node, kept);
        node.forward(client, self, work, |renewal, error| (renewal.done)(Err(error)));
    }

    /// Renews some, and waits for the next turn with the rest.
    fn go_on(mut self, node: &Arc<Node>, kept: &mut Kept) {
        let piece = self.leases.iter().skip(self.renewed.len()).take(PIECE);
        let mut renewed = Vec::with_capacity(PIECE);
        for lease in piece {
            // The client no longer waits for the others either.
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

/// Asks whoever leads until there is an answer or the time of a request is over.
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

/// What came of a question about a lease.
pub(crate) type TimeToLive = Result<LeaseTimeToLiveResponse, Error>;

/// The time a lease has left; `done` is called once, on any thread. The header is for the caller to fill in.
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
        let keys = if request.keys { own.store.leases().keys_count(request.id) } else { 0 };
        let look = move |node: &Arc<Node>, done: DoneAsking| match time_to_live_here(node, &request) {
            Ok(found) => done(Ok(found.unwrap_or_else(|| gone(&request)))),
            // Leadership went away in between.
            Err(Error::NotPrimaryLessor) => forward_time_to_live(node, client, request, done),
            Err(error) => done(Err(error)),
        };
        match allowed {
            Ok(()) if keys <= limits::INLINE_SORT_KEYS_MAX => look(&own, done),
            // Consensus waits for this thread.
            Ok(()) => {
                let node = own.clone();
                if let Err(done) = own.slow.try_give(done, move |done| look(&node, done)) {
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

/// On the member that keeps the deadlines; `Ok(None)` for a lease that is not there.
pub(super) fn time_to_live_here(
    node: &Node,
    request: &LeaseTimeToLiveRequest,
) -> Result<Option<LeaseTimeToLiveResponse>, Error> {
    let leases = node.store.leases();
    let Some(lease) = leases.get(request.id) else { return Ok(None) };
    let keys = if request.keys { leases.keys(request.id) } else { Vec::new() };
    let ttl = node.lessor.with(|lessor| {
        lessor.is_primary().then(|| lessor.remaining_seconds(request.id, node.now_ms()).unwrap_or(lease.ttl))
    });
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
