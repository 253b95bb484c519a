//! Leader transfer: on request, and before a leader stops.

use crate::node::Node;
use api::Error;
use peer::client::Kept;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// A leader that stops waits at most this long for its successor, so that the process ends soon.
const PATIENCE: Duration = Duration::from_millis(700);
const LOOK: Duration = Duration::from_millis(5);

/// Checks that leadership may go to `target` and starts the transfer. Calls `done` once the target leads, or the
/// request's time is over.
pub(crate) fn move_leader(node: &Arc<Node>, target: u64, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
    if !node.status.is_leader() {
        return done(Err(Error::NotLeader));
    }
    if node.store.members().members.get(&target).is_none_or(|member| member.is_learner) {
        return done(Err(Error::BadLeaderTransferee));
    }
    let patience = node.config.request_timeout();
    let wait = move |node: &Arc<Node>, _: &mut Kept, done: Box<dyn FnOnce(Result<(), Error>) + Send>| {
        done(if transfer(node, target, patience) { Ok(()) } else { Err(Error::TimeoutLeaderTransfer) });
    };
    let done: Box<dyn FnOnce(Result<(), Error>) + Send> = Box::new(done);
    node.forward(None, done, wait, |done, error| done(Err(error)));
}

/// Starts the transfer and waits. Returns whether `target` leads.
fn transfer(node: &Arc<Node>, target: u64, patience: Duration) -> bool {
    let began = Instant::now();
    logging::info(
        "leadership transfer starting",
        &[("local-member-id", Value::Id(node.member_id)), ("transferee-member-id", Value::Id(target))],
    );
    node.transfer_leader(target);
    while node.status.leader() != target {
        if began.elapsed() > patience {
            logging::warn("leadership transfer failed", &[("transferee-member-id", Value::Id(target))]);
            return false;
        }
        std::thread::sleep(LOOK);
    }
    logging::info(
        "leadership transfer finished",
        &[("new-leader-member-id", Value::Id(target)), ("took", Value::Shown(&format_args!("{:?}", began.elapsed())))],
    );
    true
}

/// Called before the member stops: a leader transfers leadership to the voter to which it has been connected for
/// longest.
pub(crate) fn before_stopping(node: &Arc<Node>) {
    let ids =
        [("local-member-id", Value::Id(node.member_id)), ("current-leader-member-id", Value::Id(node.status.leader()))];
    if !node.status.is_leader() {
        return logging::info("skipped leadership transfer; local server is not leader", &ids);
    }
    let voters = super::change::members(node).into_iter().filter(|member| !member.is_learner);
    let others = voters.filter(|member| member.id != node.member_id);
    let mut others = others.peekable();
    if others.peek().is_none() {
        return logging::info("skipped leadership transfer for single voting member cluster", &ids);
    }
    let connected = others.filter_map(|member| Some((node.active_since(member.id)?, member.id)));
    match connected.min() {
        Some((_, target)) => {
            transfer(node, target, PATIENCE);
        }
        None => logging::info("skipped leadership transfer: no other voter is connected", &[]),
    }
}
