//! Lease checkpoints (feature gate LeaseCheckpoint): now and then the leader writes to the log how much time long leases have left,
//! so that a new leader does not begin to count from the start.

use super::publish;
use crate::config::Gate;
use crate::logging;
use crate::node::{self, Node, lock};
use api::etcdserverpb::{LeaseCheckpoint, LeaseCheckpointRequest};
use api::{Error, Message};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time between checkpoints. A lease that is shorter gains less than that from a change of leaders.
const INTERVAL: Duration = Duration::from_secs(300);
/// Leases in one entry.
const BATCH: usize = 1000;
const POLL: Duration = Duration::from_millis(500);

/// Writes checkpoints until the member stops.
pub(crate) fn run(node: &Arc<Node>) {
    let mut since = Instant::now();
    while node.config.gates.is_on(Gate::LeaseCheckpoint) && !node.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(POLL);
        if !node.status.is_leader() {
            since = Instant::now();
        } else if since.elapsed() >= INTERVAL {
            since = Instant::now();
            write(node);
        }
    }
}

fn write(node: &Arc<Node>) {
    let left = lock(&node.lessor).time_left(node.now_ms(), INTERVAL.as_secs() as i64);
    for batch in left.chunks(BATCH) {
        let checkpoints =
            batch.iter().map(|(id, remaining_ttl)| LeaseCheckpoint { id: *id, remaining_ttl: *remaining_ttl });
        let request = LeaseCheckpointRequest { checkpoints: checkpoints.collect() };
        if let Err(error) = publish::propose_and_wait(node, node::LEASE_CHECKPOINT, &request.encode_to_vec()) {
            logging::warn("cannot write a lease checkpoint", &[("error", error.message().into())]);
            return;
        }
    }
}

/// The entry after which nothing is known of the time these leases have left; `None` when nothing is known anyway.
fn forgetting(node: &Node, leases: &[i64]) -> Option<Vec<u8>> {
    let granted = node.store.leases();
    let noted = leases.iter().filter(|lease| granted.get(**lease).is_some_and(|lease| lease.remaining_ttl > 0));
    let checkpoints: Vec<LeaseCheckpoint> = noted.map(|id| LeaseCheckpoint { id: *id, remaining_ttl: 0 }).collect();
    (!checkpoints.is_empty()).then(|| LeaseCheckpointRequest { checkpoints }.encode_to_vec())
}

/// Whether something was noted of the time that this lease has left.
pub(super) fn is_noted(lease: &store::Lease) -> bool {
    lease.remaining_ttl > 0
}

/// Before leases are renewed: what was noted of them is void, or the next leader would end them too soon.
pub(super) fn forget(node: &Arc<Node>, leases: Vec<i64>, done: impl FnOnce(Result<Vec<i64>, Error>) + Send + 'static) {
    match forgetting(node, &leases) {
        None => done(Ok(leases)),
        Some(request) => {
            let answer = move |outcome: node::Outcome| done(outcome.map(|_| leases));
            node.propose(node.as_member(), node::LEASE_CHECKPOINT, &request, Box::new(answer));
        }
    }
}

/// The same for one lease, on a thread that may block.
pub(super) fn forget_and_wait(node: &Arc<Node>, lease: i64) -> Result<(), Error> {
    match forgetting(node, &[lease]) {
        None => Ok(()),
        Some(request) => publish::propose_and_wait(node, node::LEASE_CHECKPOINT, &request),
    }
}
