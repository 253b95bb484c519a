//! Lease checkpoints (feature gate LeaseCheckpoint): now and then the leader writes to the log how much time long leases have left,
//! so that a new leader does not begin to count from the start.

use super::publish;
use crate::config::Gate;
use crate::node::{self, Node};
use api::etcdserverpb::{LeaseCheckpoint, LeaseCheckpointRequest};
use api::{Error, Message, RaftRequest};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use telemetry::logging;

/// Time between checkpoints. Shorter leases are left out: a change of leader extends them by less than this anyway.
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
    let long = node.lessor.with(|lessor| lessor.long_leases(INTERVAL.as_secs() as i64));
    for batch in long.chunks(BATCH) {
        let Some(told) = propose(node, batch) else { return };
        if let Err(error) = publish::wait(node, &told) {
            logging::warn("cannot write a lease checkpoint", &[("error", error.message().into())]);
            return;
        }
    }
}

/// Proposes a checkpoint of these leases; `None` on a member that does not keep their deadlines.
///
/// The lessor's lock orders renewals and the checkpoint. The checkpoint contains an earlier renewal; a later renewal
/// proposes to revoke the checkpoint, and that entry follows it in the log. For the same reason the checkpoint is
/// proposed only in the term in which it was made: a later leader may have renewed leases without this member's
/// knowledge.
fn propose(node: &Arc<Node>, leases: &[i64]) -> Option<Receiver<Result<(), Error>>> {
    node.lessor.with(|lessor| {
        let term = node.status.term();
        if !lessor.is_primary() || !node.status.is_leader() {
            return None;
        }
        let left = lessor.note(leases, node.now_ms());
        let checkpoints = left.into_iter().map(|(id, remaining_ttl)| LeaseCheckpoint { id, remaining_ttl });
        let request = LeaseCheckpointRequest { checkpoints: checkpoints.collect() };
        let (done, told) = publish::told();
        node.propose_in_term(term, node.as_member(), RaftRequest::LeaseCheckpoint, &request.encode_to_vec(), done);
        Some(told)
    })
}

/// Checkpoints that renewals have made wrong.
struct Noted {
    request: Vec<u8>,
    /// Each lease with the number of this leader's checkpoint that contains it.
    checkpoints: Vec<(i64, u64)>,
}

impl Noted {
    /// The checkpoints of these leases, applied or proposed; `None` if there are none.
    ///
    /// # Errors
    /// If this member does not lead in `term` any more: what it has noted is forgotten then.
    fn of(node: &Node, leases: &[i64], term: u64) -> Result<Option<Noted>, Error> {
        let granted = node.store.leases();
        node.lessor.with(|lessor| {
            // Under its lock, since a member that leads no more says so before it forgets.
            if !lessor.is_primary() || !node.status.is_leader() || node.status.term() != term {
                return Err(Error::NotPrimaryLessor);
            }
            let checkpoints: Vec<(i64, u64)> =
                leases.iter().filter_map(|id| lessor.noted(*id).map(|checkpoint| (*id, checkpoint))).collect();
            let is_noted =
                |id: i64| lessor.noted(id).is_some() || granted.get(id).is_some_and(|lease| is_noted(&lease));
            let noted = leases.iter().filter(|id| is_noted(**id));
            let void: Vec<LeaseCheckpoint> = noted.map(|id| LeaseCheckpoint { id: *id, remaining_ttl: 0 }).collect();
            let request = (!void.is_empty()).then(|| LeaseCheckpointRequest { checkpoints: void }.encode_to_vec());
            Ok(request.map(|request| Noted { request, checkpoints }))
        })
    }

    fn is_taken_back(&self, node: &Node) {
        node.lessor.with(|lessor| {
            for (lease, checkpoint) in &self.checkpoints {
                lessor.forgotten(*lease, *checkpoint);
            }
        });
    }
}

/// Whether a checkpoint of this lease is in effect.
pub(super) fn is_noted(lease: &store::Lease) -> bool {
    lease.remaining_ttl > 0
}

/// Revokes the checkpoints of leases that were renewed in this term before the renewal is answered: otherwise the next leader would end
/// these leases too soon. An entry of a later term would be behind the point at which its leader has taken the leases over.
pub(super) fn forget(
    node: &Arc<Node>,
    leases: &[i64],
    term: u64,
    done: impl FnOnce(Result<(), Error>) + Send + 'static,
) {
    let noted = match Noted::of(node, leases, term) {
        Ok(Some(noted)) => noted,
        Ok(None) => return done(Ok(())),
        Err(error) => return done(Err(error)),
    };
    let request = noted.request.clone();
    let own = node.clone();
    let answer = move |outcome: node::Outcome| {
        if outcome.is_ok() {
            noted.is_taken_back(&own);
        }
        done(outcome.map(|_| ()));
    };
    node.propose_in_term(term, node.as_member(), RaftRequest::LeaseCheckpoint, &request, Box::new(answer));
}

/// Like [`forget`] for one lease, on a thread that may block.
pub(super) fn forget_and_wait(node: &Arc<Node>, lease: i64, term: u64) -> Result<(), Error> {
    let Some(noted) = Noted::of(node, &[lease], term)? else { return Ok(()) };
    let (done, told) = publish::told();
    node.propose_in_term(term, node.as_member(), RaftRequest::LeaseCheckpoint, &noted.request, done);
    publish::wait(node, &told)?;
    noted.is_taken_back(node);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Rig;
    use api::etcdserverpb::{LeaseGrantRequest, LeaseGrantResponse};

    #[test]
    fn a_checkpoint_is_taken_back_only_in_the_term_of_the_renewal() {
        let rig = Rig::start(&[]);
        let node = rig.node();
        let grant = LeaseGrantRequest { id: 7, ttl: 600 };
        let _: LeaseGrantResponse = rig.call("/etcdserverpb.Lease/LeaseGrant", None, &grant).expect("granted");
        let told = propose(node, &[7]).expect("it leads");
        assert_eq!(publish::wait(node, &told), Ok(()));
        let is_noted = || node.store.leases().get(7).is_some_and(|lease| is_noted(&lease));
        assert!(is_noted());
        // A leader of a later term has taken the lease over with the time of the checkpoint.
        let term = node.status.term();
        assert_eq!(forget_and_wait(node, 7, term - 1), Err(Error::NotPrimaryLessor));
        let (done, told) = std::sync::mpsc::channel();
        forget(node, &[7], term - 1, move |forgotten| done.send(forgotten).expect("the test waits"));
        assert_eq!(told.recv(), Ok(Err(Error::NotPrimaryLessor)));
        assert!(is_noted());
        assert_eq!(forget_and_wait(node, 7, term), Ok(()));
        assert!(!is_noted());
        // What this member has noted it forgets when it leads no more: then there may have been something.
        assert_eq!(forget_and_wait(node, 7, term - 1), Err(Error::NotPrimaryLessor));
        assert_eq!(forget_and_wait(node, 7, term), Ok(()));
    }
}
