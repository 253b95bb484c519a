//! Answers within the budget: what one takes is claimed before it is made. Where there is no room it is made later, anew.

use super::kv::run_slowly_with;
use super::reply::{refuse, unanswered};
use crate::node::Node;
use api::{Error, limits};
use budget::{Claim, Pool};
use bytes::Bytes;
use rpc::{Address, Reply, Responder, Status};
use std::cell::RefCell;
use std::sync::Arc;
use store::{Allowance, Unread};

/// Times that an answer is made because it got longer while it waited.
const TRIES_MAX: u32 = 8;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Stop {
    /// The call has failed.
    Failed(Status),
    /// So many bytes are to be claimed first.
    Needs(u64),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Stop {
        Stop::Failed(status)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error.into())
    }
}

/// What an answer may take that is being made.
pub(super) struct Terms<'a> {
    pub(super) node: &'a Arc<Node>,
    wanted: &'a dyn Fn() -> bool,
    client: Address,
    granted: RefCell<Option<Claim>>,
}

impl Terms<'_> {
    /// What the store may take to find the pairs.
    pub(super) fn allowance(&self) -> Allowance<'_> {
        let bytes_max = match &*self.granted.borrow() {
            Some(claim) if claim.is_whole_pool() => usize::MAX,
            Some(claim) => usize::try_from(claim.bytes()).unwrap_or(usize::MAX).max(limits::PLACES_FREE_BYTES),
            None => limits::PLACES_FREE_BYTES,
        };
        Allowance { wanted: self.wanted, bytes_max }
    }

    /// Why the store has no answer; `likely_bytes` is what the answer is thought to take.
    pub(super) fn stop(&self, unread: Unread, likely_bytes: u64) -> Stop {
        match unread {
            Unread::TooMuch => {
                let more = (self.allowance().bytes_max as u64).saturating_mul(2);
                Stop::Needs(likely_bytes.max(more))
            }
            unread => Stop::Failed(unanswered(self.node, unread)),
        }
    }

    /// Claims `bytes` for the answer; nothing if that is little.
    pub(super) fn claim(&self, bytes: usize) -> Result<Option<Claim>, Stop> {
        if bytes <= limits::BUDGET_FREE_BYTES {
            return Ok(None);
        }
        let bytes = bytes as u64;
        if let Some(mut claim) = self.granted.take() {
            // Of the whole pool there is nothing more to be had. What has grown out of its pool waits for its place in the other one.
            let is_in_its_pool = bytes <= claim.bytes() || Pool::of_answer(bytes) == claim.pool();
            let fits = is_in_its_pool && ((claim.is_whole_pool() && bytes > claim.bytes()) || claim.resize(bytes));
            return if fits { Ok(Some(claim)) } else { Err(Stop::Needs(bytes)) };
        }
        let claim = self.node.budget.try_claim(Pool::of_answer(bytes), bytes, Some(self.client));
        claim.map(Some).ok_or(Stop::Needs(bytes))
    }
}

/// Keeps a claim for as long as the bytes of a whole answer live.
pub(super) fn held(claim: Option<Claim>, bytes: Bytes) -> Bytes {
    match claim {
        Some(claim) => claim.hold(bytes),
        None => bytes,
    }
}

/// One answer to be made.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// On whose account.
    pub(super) client: Address,
    /// It is made on a slow thread.
    pub(super) is_heavy: bool,
    /// What it is thought to take. Only worth finding out if it may be much.
    pub(super) likely_bytes: u64,
    /// Length of the request, which is held while it waits.
    pub(super) request_bytes: usize,
}

impl Order {
    /// Claims what the request holds while it waits; nothing if that is little.
    fn keep(&self, node: &Node) -> Result<Option<Claim>, Error> {
        node.budget.claim_request(self.request_bytes, self.client)
    }
}

/// Has `build` make the answer, as often as it takes.
pub(super) fn answer(
    node: &Arc<Node>,
    order: Order,
    responder: Responder,
    build: impl FnMut(&Terms<'_>) -> Result<Reply, Stop> + Send + 'static,
) {
    if order.likely_bytes <= limits::PLACES_FREE_BYTES as u64 {
        return attempt(node, order, None, responder, build, TRIES_MAX);
    }
    let (bytes, client) = (order.likely_bytes, Some(order.client));
    match node.budget.try_claim(Pool::of_answer(bytes), bytes, client) {
        Some(claim) => attempt(node, order, Some(claim), responder, build, TRIES_MAX),
        None => wait(node, order, bytes, responder, build, TRIES_MAX),
    }
}

fn attempt(
    node: &Arc<Node>,
    order: Order,
    granted: Option<Claim>,
    responder: Responder,
    mut build: impl FnMut(&Terms<'_>) -> Result<Reply, Stop> + Send + 'static,
    tries: u32,
) {
    let make = move |node: &Arc<Node>, responder: Responder| {
        let wanted = || !responder.is_canceled();
        let terms = Terms { node, wanted: &wanted, client: order.client, granted: RefCell::new(granted) };
        let built = build(&terms);
        drop(terms);
        match built {
            Ok(reply) => responder.send(Ok(reply)),
            Err(Stop::Failed(status)) => refuse(responder, status),
            Err(Stop::Needs(bytes)) => wait(node, order, bytes, responder, build, tries),
        }
    };
    if !order.is_heavy {
        return make(node, responder);
    }
    match order.keep(node) {
        Ok(kept) => run_slowly_with(node, responder, move |node, responder| {
            make(node, responder);
            drop(kept);
        }),
        Err(error) => refuse(responder, error),
    }
}

fn wait(
    node: &Arc<Node>,
    order: Order,
    bytes: u64,
    responder: Responder,
    build: impl FnMut(&Terms<'_>) -> Result<Reply, Stop> + Send + 'static,
    tries: u32,
) {
    let Some(tries) = tries.checked_sub(1) else { return refuse(responder, Error::TooManyRequests) };
    let kept = match order.keep(node) {
        Ok(kept) => kept,
        Err(error) => return refuse(responder, error),
    };
    let own = node.clone();
    node.budget.wait(Pool::of_answer(bytes), bytes, Some(order.client), move |claim| match claim {
        Ok(_) if responder.is_canceled() => own.slow.count_canceled(),
        // This thread grants all other claims.
        Ok(claim) => responder.resume(move |responder| {
            drop(kept);
            attempt(&own, order, Some(claim), responder, build, tries);
        }),
        Err(error) => refuse(responder, error),
    });
}

/// Calls `then` once `bytes` are claimed for the answer to a request that goes through the log; at once, and with nothing, if that is
/// little. Not if the client has gone meanwhile: what it was told has failed must not be done later. After a wait it is called on a slow
/// thread, so that others do not wait for what it looks up. `request_bytes` is the length of the request, which is held while it waits.
pub(super) fn with_room(
    node: &Arc<Node>,
    client: Address,
    request_bytes: usize,
    bytes: u64,
    responder: Responder,
    then: impl FnOnce(&Arc<Node>, Option<Claim>, Responder) + Send + 'static,
) {
    if bytes <= limits::BUDGET_FREE_BYTES as u64 {
        return then(node, None, responder);
    }
    let pool = Pool::of_answer(bytes);
    if let Some(claim) = node.budget.try_claim(pool, bytes, Some(client)) {
        return then(node, Some(claim), responder);
    }
    let kept = match node.budget.claim_request(request_bytes, client) {
        Ok(kept) => kept,
        Err(error) => return refuse(responder, error),
    };
    let own = node.clone();
    node.budget.wait(pool, bytes, Some(client), move |claim| match claim {
        Ok(claim) => run_slowly_with(&own, responder, move |node, responder| {
            drop(kept);
            then(node, Some(claim), responder);
        }),
        Err(error) => refuse(responder, error),
    });
}

/// A reply that is made already, as what was applied is answered: it counts whether there is room or not, so that others wait.
pub(super) fn counted(node: &Node, claim: Option<Claim>, reply: Reply) -> Reply {
    match reply {
        Reply::Whole(bytes) if bytes.len() > limits::BUDGET_FREE_BYTES => {
            let claim = node.budget.claim_anyway(claim, bytes.len() as u64);
            Reply::Whole(claim.hold(bytes))
        }
        reply => reply,
    }
}
