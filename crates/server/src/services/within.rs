//! Answers within the budget: what one takes is claimed before it is made. Where there is no room it is made later, anew.

use super::kv::run_slowly_with;
use super::parts::Claimed;
use super::reply::{encode, refuse, unanswered};
use crate::client_share::{measured, unmeasured};
use crate::node::Node;
use api::{Error, Message, limits};
use budget::{Claim, Pool};
use bytes::Bytes;
use rpc::{Address, Reply, Responder, Status};
use std::cell::RefCell;
use std::sync::Arc;
use store::{Allowance, Unread};

/// How often an answer is built again because it has grown while it waited for memory.
const TRIES_MAX: u32 = 8;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Stop {
    /// The call has failed.
    Failed(Status),
    /// The answer needs a claim of this many bytes first.
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

/// The memory that an answer may use while it is built.
pub(super) struct Terms<'a> {
    pub(super) node: &'a Arc<Node>,
    wanted: &'a dyn Fn() -> bool,
    client: Address,
    granted: RefCell<Option<Claim>>,
}

impl Terms<'_> {
    /// The memory that the store may use to find the pairs.
    pub(super) fn allowance(&self) -> Allowance<'_> {
        let bytes_max = match &*self.granted.borrow() {
            Some(claim) if claim.is_whole_pool() => usize::MAX,
            Some(claim) => usize::try_from(claim.bytes()).unwrap_or(usize::MAX).max(limits::PLACES_FREE_BYTES),
            None => limits::PLACES_FREE_BYTES,
        };
        Allowance { wanted: self.wanted, bytes_max }
    }

    /// Turns the store's reason for no answer into a [`Stop`]; `likely_bytes` is the estimated size of the answer.
    pub(super) fn stop(&self, unread: Unread, likely_bytes: u64) -> Stop {
        match unread {
            Unread::TooMuch => {
                let more = (self.allowance().bytes_max as u64).saturating_mul(2);
                Stop::Needs(likely_bytes.max(more))
            }
            unread => Stop::Failed(unanswered(self.node, unread)),
        }
    }

    /// Claims `bytes` for the answer; `None` if that is little.
    pub(super) fn claim(&self, bytes: usize) -> Result<Option<Claim>, Stop> {
        if bytes <= limits::BUDGET_FREE_BYTES {
            return Ok(None);
        }
        let bytes = bytes as u64;
        if let Some(mut claim) = self.granted.take() {
            // A claim of the whole pool cannot grow, and is enough. An answer that has outgrown its pool waits for room
            // in the other pool.
            let is_in_its_pool = bytes <= claim.bytes() || Pool::of_answer(bytes) == claim.pool();
            let fits = is_in_its_pool && ((claim.is_whole_pool() && bytes > claim.bytes()) || claim.resize(bytes));
            return if fits { Ok(Some(claim)) } else { Err(Stop::Needs(bytes)) };
        }
        let claim = self.node.budget.try_claim(Pool::of_answer(bytes), bytes, Some(self.client));
        claim.map(Some).ok_or(Stop::Needs(bytes))
    }
}

/// Encodes an answer that may be large, within the budget.
pub(super) fn encode_within(terms: &Terms<'_>, message: &impl Message) -> Result<Reply, Stop> {
    let claim = terms.claim(message.encoded_len())?;
    Ok(counted(terms.node, claim, encode(message)?))
}

/// Keeps a claim for as long as the bytes of a whole answer live.
pub(super) fn held(claim: Option<Claim>, bytes: Bytes) -> Bytes {
    match claim {
        Some(claim) => claim.hold(bytes),
        None => bytes,
    }
}

/// An answer to be built.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// The client for which the memory counts.
    pub(super) client: Address,
    /// Whether the answer is built on a slow thread.
    pub(super) is_heavy: bool,
    /// The estimated memory for the answer; 0 if it is surely little.
    pub(super) likely_bytes: u64,
    /// Length of the request, which is kept while it waits.
    pub(super) request_bytes: usize,
}

impl Order {
    /// Claims the memory of the request while it waits; `None` if that is little.
    fn keep(&self, node: &Node) -> Result<Option<Claim>, Error> {
        node.budget.claim_request(self.request_bytes, self.client)
    }
}

/// Calls `build` for the answer, again after each wait for more memory.
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
        let counts = node.client_shares.is_some();
        let built = if counts { measured(|| build(&terms)) } else { build(&terms) };
        drop(terms);
        match built {
            Ok(reply) => responder.send(Ok(reply)),
            Err(Stop::Failed(status)) => refuse(responder, status),
            Err(Stop::Needs(bytes)) => wait(node, order, bytes, responder, build, tries),
        }
        if counts {
            unmeasured();
        }
    };
    if !order.is_heavy {
        return make(node, responder);
    }
    match order.keep(node) {
        Ok(kept) => run_slowly_with(node, order.client, responder, move |node, responder| {
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
        // Building it here would delay all other claims, which this thread grants.
        Ok(claim) => responder.resume(move |responder| {
            drop(kept);
            attempt(&own, order, Some(claim), responder, build, tries);
        }),
        Err(error) => refuse(responder, error),
    });
}

/// Calls `then` once `bytes` are claimed for the answer to a request that goes through the log. If `bytes` is little,
/// `then` is called at once and without a claim. If the client has gone during the wait, `then` is not called: a
/// request that has failed for its client must not be executed later. After a wait, `then` runs on a slow thread, so
/// that its lookups delay no other client. `request_bytes` is the length of the request, which is kept while it waits.
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
        Ok(claim) => run_slowly_with(&own, client, responder, move |node, responder| {
            drop(kept);
            then(node, Some(claim), responder);
        }),
        Err(error) => refuse(responder, error),
    });
}

/// Claims memory for the reply to an applied request even if there is no room: the reply must be sent, and other claims
/// wait instead.
pub(super) fn counted(node: &Node, claim: Option<Claim>, reply: Reply) -> Reply {
    match reply {
        Reply::Whole(bytes) if bytes.len() > limits::BUDGET_FREE_BYTES => {
            let claim = node.budget.claim_anyway(claim, bytes.len() as u64);
            Reply::Whole(claim.hold(bytes))
        }
        // What is held is the message; it becomes less as it is encoded.
        Reply::Parts { len, source } => {
            let claim = node.budget.claim_anyway(claim, len as u64);
            Reply::Parts { len, source: Box::new(Claimed::new(source, claim, len)) }
        }
        reply => reply,
    }
}
