//! Entries on their way to a leader.

use super::Node;
use super::inbox::{Change, Proposal};
use crate::overload::Class;
use api::{Error, limits, raftpb};
use bytes::Bytes;
use replica::{Member, Role, Status};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of held proposals that are proposed together.
const RETRY_BYTES_MAX: usize = 1 << 20;

/// What goes ahead of the others.
struct Urgent {
    id: u64,
    data: Bytes,
    /// See [`Proposal::term`].
    term: Option<u64>,
}

impl Urgent {
    /// Whether a member that stands like this may propose it.
    fn is_for(&self, status: &Status) -> bool {
        self.term.is_none_or(|term| status.role == Role::Leader && status.term == term)
    }
}

enum Held {
    Entry(Bytes),
    Change(raftpb::ConfChange),
}

/// Proposals that no leader takes yet. Who waits for them is registered with [`Node::pending`] already, so that they end in time
/// whatever becomes of this. Those whose clients have gone are not proposed any more.
#[derive(Default)]
pub(super) struct Proposals {
    held: VecDeque<(u64, Held)>,
    /// Those that go ahead of them.
    urgent: VecDeque<Urgent>,
    bytes: usize,
}

impl Proposals {
    /// Proposes what goes ahead of everything else.
    pub(super) fn add_urgent(&mut self, node: &Arc<Node>, member: &mut Member, proposals: Vec<Proposal>) {
        if proposals.is_empty() {
            return;
        }
        self.hold_urgent(node, proposals);
        self.retry_urgent(node, member);
    }

    fn hold_urgent(&mut self, node: &Arc<Node>, proposals: Vec<Proposal>) {
        let terms: Vec<Option<u64>> = proposals.iter().map(|proposal| proposal.term).collect();
        let (ids, batch) = register(node, proposals);
        let urgent = ids.into_iter().zip(batch).zip(terms);
        self.urgent.extend(urgent.map(|((id, data), term)| Urgent { id, data, term }));
    }

    fn retry_urgent(&mut self, node: &Arc<Node>, member: &mut Member) {
        if !self.urgent.is_empty() && member.takes_proposals() {
            self.withdraw_gone(node);
        }
        while !self.urgent.is_empty() && member.takes_proposals() {
            let (mut ids, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
            let (status, mut outdated) = (member.status(), Vec::new());
            while bytes < RETRY_BYTES_MAX
                && let Some(urgent) = self.urgent.pop_front()
            {
                if !urgent.is_for(&status) {
                    outdated.push(urgent.id);
                } else if node.pending.waits(urgent.id) {
                    bytes += urgent.data.len();
                    ids.push(urgent.id);
                    batch.push(urgent.data);
                }
                // Else whoever asked was told that it took too long.
            }
            node.fail_pending(&outdated, Error::NotPrimaryLessor);
            if let Err(error) = member.propose(batch) {
                refuse(node, &ids, &error);
            }
        }
    }

    /// Proposes what came in, behind what is held.
    pub(super) fn add(&mut self, node: &Arc<Node>, member: &mut Member, proposals: Vec<Proposal>) {
        if proposals.is_empty() {
            return;
        }
        let (ids, batch) = register(node, proposals);
        if !self.held.is_empty() || !member.takes_proposals() {
            return self.hold(node, ids, batch);
        }
        if let Err(error) = member.propose(batch) {
            refuse(node, &ids, &error);
        }
    }

    /// Holds what came in until the next turn.
    pub(super) fn add_held(&mut self, node: &Arc<Node>, urgent: Vec<Proposal>, proposals: Vec<Proposal>) {
        self.hold_urgent(node, urgent);
        let (ids, batch) = register(node, proposals);
        self.hold(node, ids, batch);
    }

    /// Proposes as the leader that this member is, or not at all.
    pub(super) fn add_now(&mut self, node: &Arc<Node>, member: &mut Member, proposals: Vec<Proposal>) {
        let (ids, batch) = register(node, proposals);
        if let Err(error) = member.propose(batch) {
            refuse(node, &ids, &error);
        }
    }

    /// Proposes changes of the members.
    pub(super) fn add_changes(&mut self, node: &Arc<Node>, changes: Vec<Change>) {
        for Change { change, done } in changes {
            let (now, now_ms) = node.now();
            node.pending.add(std::iter::once((change.id(), Class::Member, done, now)), now, now_ms);
            self.held.push_back((change.id(), Held::Change(change)));
        }
    }

    fn hold(&mut self, node: &Arc<Node>, ids: Vec<u64>, batch: Vec<Bytes>) {
        let mut refused = Vec::new();
        for (id, data) in ids.into_iter().zip(batch) {
            // How many there may be was checked when they came.
            if self.bytes + data.len() > limits::PROPOSAL_QUEUE_BYTES_MAX {
                refused.push(id);
            } else {
                self.bytes += data.len();
                self.held.push_back((id, Held::Entry(data)));
            }
        }
        node.fail_pending(&refused, Error::TooManyRequests);
    }

    /// Proposes what is held, if a leader takes it now.
    pub(super) fn retry(&mut self, node: &Arc<Node>, member: &mut Member) {
        self.retry_urgent(node, member);
        if !self.held.is_empty() && member.takes_proposals() {
            self.withdraw_gone(node);
        }
        while !self.held.is_empty() && member.takes_proposals() {
            let (mut ids, mut batch, mut change, mut bytes) = (Vec::new(), Vec::new(), None, 0);
            while let Some((id, next)) = self.held.front() {
                match next {
                    // Nobody waits any more: whoever asked was told that it took too long.
                    _ if !node.pending.waits(*id) => {}
                    Held::Entry(data) if bytes < RETRY_BYTES_MAX => {
                        bytes += data.len();
                        ids.push(*id);
                        batch.push(data.clone());
                    }
                    Held::Change(next) if batch.is_empty() => {
                        ids.push(*id);
                        change = Some(next.clone());
                    }
                    _ => break,
                }
                if let Some((_, Held::Entry(data))) = self.held.pop_front() {
                    self.bytes -= data.len();
                }
                if change.is_some() {
                    break;
                }
            }
            let result = match &change {
                Some(change) => member.propose_conf_change(change),
                None => member.propose(batch),
            };
            match (result, change) {
                (Ok(()), _) => {}
                // Another change is under way.
                (Err(replica::Error::Dropped), Some(change)) => {
                    self.held.push_front((change.id(), Held::Change(change)));
                    return;
                }
                (Err(error), _) => refuse(node, &ids, &error),
            }
        }
    }

    /// Ends those whose clients have given up: what was told to have failed must not be done later.
    fn withdraw_gone(&self, node: &Node) {
        let ids = self.urgent.iter().map(|urgent| urgent.id).chain(self.held.iter().map(|(id, _)| *id));
        node.end_pending(node.pending.withdraw_gone(ids), Error::Timeout);
    }

    /// Forgets what nobody waits for any more, so that it makes room.
    pub(super) fn tick(&mut self, node: &Arc<Node>) {
        if self.urgent.is_empty() && self.held.is_empty() {
            return;
        }
        self.withdraw_gone(node);
        if !self.urgent.is_empty() {
            self.urgent.retain(|urgent| node.pending.waits(urgent.id));
        }
        if self.held.is_empty() {
            return;
        }
        self.held.retain(|(id, _)| node.pending.waits(*id));
        self.bytes = self.held.iter().map(|(_, held)| if let Held::Entry(data) = held { data.len() } else { 0 }).sum();
    }
}

/// Notes who waits; answers the ids and the entries.
fn register(node: &Arc<Node>, proposals: Vec<Proposal>) -> (Vec<u64>, Vec<Bytes>) {
    let mut batch: Vec<Bytes> = Vec::with_capacity(proposals.len());
    let mut ids = Vec::with_capacity(proposals.len());
    let (now, now_ms) = node.now();
    let proposals = proposals.into_iter().map(|proposal| {
        batch.push(proposal.data);
        ids.push(proposal.id);
        (proposal.id, proposal.class, proposal.done, proposal.since)
    });
    node.pending.add(proposals, now, now_ms);
    (ids, batch)
}

fn refuse(node: &Arc<Node>, ids: &[u64], error: &replica::Error) {
    if !matches!(error, replica::Error::Full) {
        crate::logging::warn("a proposal was refused", &[("error", crate::logging::Value::Shown(error))]);
    }
    node.fail_pending(ids, Error::TooManyRequests);
}

impl Node {
    /// Answers those who wait for these proposals with `error`.
    pub(super) fn fail_pending(&self, ids: &[u64], error: Error) {
        if ids.is_empty() {
            return;
        }
        self.end_pending(self.pending.withdraw(ids), error);
    }

    fn end_pending(&self, withdrawn: Vec<(Class, super::Done)>, error: Error) {
        let count = withdrawn.len() as u64;
        for (class, done) in withdrawn {
            done.end(Err(if error == Error::TooManyRequests { self.refuse(class) } else { error }));
        }
        self.metrics.proposals_pending.fetch_sub(count, Ordering::Relaxed);
        self.metrics.proposals_failed.fetch_add(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_leader_knew_is_not_proposed_in_another_term() {
        let status = |role, term| Status {
            role,
            leader: 0,
            term,
            committed: 0,
            applied: 0,
            serves_reads: false,
            sole_voter: false,
            voter: true,
            learner: false,
            transferee: 0,
        };
        let urgent = |term| Urgent { id: 1, data: Bytes::new(), term };
        let of_five = urgent(Some(5));
        assert!(of_five.is_for(&status(Role::Leader, 5)));
        assert!(!of_five.is_for(&status(Role::Leader, 7)), "another has led in between");
        assert!(!of_five.is_for(&status(Role::Follower, 5)), "the leader would get it from here");
        assert!(urgent(None).is_for(&status(Role::Follower, 7)));
    }
}
