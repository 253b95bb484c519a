//! Proposals on their way to a leader.

use crate::consensus::{self, Member, Role, Status};
use crate::{Mistake, Note, Now, Shell};
use api::{Error, limits, raftpb};
use bytes::Bytes;
use std::collections::VecDeque;

/// Bytes of held proposals that are proposed together.
const RETRY_BYTES_MAX: usize = 1 << 20;

/// A proposal for an entry, with its waiter.
pub struct Proposal<W> {
    /// The request's id, as it stands in the entry.
    pub id: u64,
    /// The entry.
    pub data: Bytes,
    /// The waiter.
    pub waiter: W,
    /// Only the leader of this term may propose it. Only for urgent proposals.
    pub term: Option<u64>,
}

/// A configuration change, with its waiter. The change's id is the request's.
pub struct ConfChangeProposal<W> {
    /// The change.
    pub change: raftpb::ConfChange,
    /// The waiter.
    pub waiter: W,
}

/// A proposal that precedes the others.
struct Urgent {
    id: u64,
    data: Bytes,
    /// See [`Proposal::term`].
    term: Option<u64>,
}

impl Urgent {
    /// Whether a member of this status may propose the entry.
    fn is_for(&self, status: &Status) -> bool {
        self.term.is_none_or(|term| status.role == Role::Leader && status.term == term)
    }
}

enum Held {
    Entry(Bytes),
    ConfChange(raftpb::ConfChange),
}

/// Held proposals, which no leader takes yet. Their waiters are already in [`Pending`](crate::Pending), so that they
/// end in time in any case. Proposals whose clients have gone are dropped: a request that has failed must not be
/// applied later.
#[derive(Default)]
pub(crate) struct Proposals {
    held: VecDeque<(u64, Held)>,
    /// Held proposals that precede those in `held`.
    urgent: VecDeque<Urgent>,
    /// Bytes of the entries in `held`.
    bytes: usize,
}

impl Proposals {
    /// Proposes the proposals that precede all others.
    pub(crate) fn add_urgent<S: Shell>(
        &mut self,
        shell: &mut S,
        raft: &mut Member,
        proposals: Vec<Proposal<S::Waiter>>,
        now: Now,
    ) {
        if proposals.is_empty() {
            return;
        }
        self.hold_urgent(shell, proposals, now);
        self.retry_urgent(shell, raft);
    }

    fn hold_urgent<S: Shell>(&mut self, shell: &mut S, proposals: Vec<Proposal<S::Waiter>>, now: Now) {
        let terms: Vec<Option<u64>> = proposals.iter().map(|proposal| proposal.term).collect();
        let (ids, batch) = register(shell, proposals, now);
        let urgent = ids.into_iter().zip(batch).zip(terms);
        self.urgent.extend(urgent.map(|((id, data), term)| Urgent { id, data, term }));
    }

    fn retry_urgent<S: Shell>(&mut self, shell: &mut S, raft: &mut Member) {
        if self.urgent.is_empty() || !raft.takes_proposals() {
            return;
        }
        self.withdraw_gone(shell);
        while !self.urgent.is_empty() && raft.takes_proposals() {
            let (mut ids, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0usize);
            let (status, mut outdated) = (raft.status(), Vec::new());
            let any_term = shell.makes(Mistake::UrgentInAnyTerm);
            shell.pending(|pending| {
                while bytes < RETRY_BYTES_MAX
                    && let Some(urgent) = self.urgent.pop_front()
                {
                    if !any_term && !urgent.is_for(&status) {
                        outdated.push(urgent.id);
                    } else if pending.waits(urgent.id) {
                        bytes = bytes.saturating_add(urgent.data.len());
                        ids.push(urgent.id);
                        batch.push(urgent.data);
                    }
                    // Without a waiter the proposal is dropped: its client has got a time-out.
                }
            });
            fail(shell, &outdated, Error::NotPrimaryLessor);
            if let Err(error) = raft.propose(batch) {
                refuse(shell, &ids, &error);
            }
        }
    }

    /// Proposes new proposals after the held ones.
    pub(crate) fn add<S: Shell>(
        &mut self,
        shell: &mut S,
        raft: &mut Member,
        proposals: Vec<Proposal<S::Waiter>>,
        now: Now,
    ) {
        if proposals.is_empty() {
            return;
        }
        let (ids, batch) = register(shell, proposals, now);
        if !self.held.is_empty() || !raft.takes_proposals() {
            return self.hold(shell, ids, batch);
        }
        if shell.makes(Mistake::AppliesTwice) {
            self.held.extend(ids.iter().zip(&batch).map(|(id, data)| (*id, Held::Entry(data.clone()))));
        }
        if let Err(error) = raft.propose(batch) {
            refuse(shell, &ids, &error);
        }
    }

    /// Holds new proposals until the next turn.
    pub(crate) fn add_held<S: Shell>(
        &mut self,
        shell: &mut S,
        urgent: Vec<Proposal<S::Waiter>>,
        proposals: Vec<Proposal<S::Waiter>>,
        now: Now,
    ) {
        self.hold_urgent(shell, urgent, now);
        let (ids, batch) = register(shell, proposals, now);
        self.hold(shell, ids, batch);
    }

    /// Proposes only if this member leads.
    pub(crate) fn add_now<S: Shell>(
        &mut self,
        shell: &mut S,
        raft: &mut Member,
        proposals: Vec<Proposal<S::Waiter>>,
        now: Now,
    ) {
        let (ids, batch) = register(shell, proposals, now);
        if let Err(error) = raft.propose(batch) {
            refuse(shell, &ids, &error);
        }
    }

    /// Takes configuration changes, to be proposed after the held proposals.
    pub(crate) fn add_conf_changes<S: Shell>(
        &mut self,
        shell: &mut S,
        changes: Vec<ConfChangeProposal<S::Waiter>>,
        now: Now,
    ) {
        for ConfChangeProposal { change, waiter } in changes {
            shell.pending(|pending| pending.add(change.id(), waiter, now));
            self.held.push_back((change.id(), Held::ConfChange(change)));
        }
    }

    fn hold<S: Shell>(&mut self, shell: &mut S, ids: Vec<u64>, batch: Vec<Bytes>) {
        let mut refused = Vec::new();
        for (id, data) in ids.into_iter().zip(batch) {
            // The number of changes was limited when they came.
            let bytes = self.bytes.saturating_add(data.len());
            if bytes > limits::PROPOSAL_QUEUE_BYTES_MAX {
                refused.push(id);
            } else {
                self.bytes = bytes;
                self.held.push_back((id, Held::Entry(data)));
            }
        }
        fail(shell, &refused, Error::TooManyRequests);
    }

    /// Proposes the held proposals, if a leader takes them now.
    pub(crate) fn retry<S: Shell>(&mut self, shell: &mut S, raft: &mut Member) {
        self.retry_urgent(shell, raft);
        if self.held.is_empty() || !raft.takes_proposals() {
            return;
        }
        self.withdraw_gone(shell);
        while !self.held.is_empty() && raft.takes_proposals() {
            let (mut ids, mut batch, mut change) = (Vec::new(), Vec::new(), None);
            shell.pending(|pending| change = self.next(|id| pending.waits(id), &mut ids, &mut batch));
            if let Some(change) = &change
                && raft.decides_change()
                && !shell.makes(Mistake::SkipsChangeRules)
                && let Err(error) = shell.may_change(change)
            {
                // It was allowed when it was proposed: others came before it.
                fail(shell, &ids, error);
                continue;
            }
            let result = match &change {
                Some(change) => raft.propose_conf_change(change),
                None => raft.propose(batch),
            };
            match (result, change) {
                (Ok(()), _) => {}
                // Another change is under way.
                (Err(consensus::Error::Dropped), Some(change)) => {
                    self.held.push_front((change.id(), Held::ConfChange(change)));
                    return;
                }
                (Err(consensus::Error::LastVoter), _) => fail(shell, &ids, Error::MemberNotEnoughStarted),
                (Err(error), _) => refuse(shell, &ids, &error),
            }
        }
    }

    /// Takes the proposals for one step: entries, or one configuration change.
    fn next(
        &mut self,
        waits: impl Fn(u64) -> bool,
        ids: &mut Vec<u64>,
        batch: &mut Vec<Bytes>,
    ) -> Option<raftpb::ConfChange> {
        let mut bytes = 0usize;
        let mut change = None;
        while let Some((id, next)) = self.held.front() {
            match next {
                // The proposal has no waiter left: its client has got a time-out.
                _ if !waits(*id) => {}
                Held::Entry(data) if bytes < RETRY_BYTES_MAX => {
                    bytes = bytes.saturating_add(data.len());
                    ids.push(*id);
                    batch.push(data.clone());
                }
                Held::ConfChange(next) if batch.is_empty() => {
                    ids.push(*id);
                    change = Some(next.clone());
                }
                _ => break,
            }
            if let Some((_, Held::Entry(data))) = self.held.pop_front() {
                self.bytes = self.bytes.saturating_sub(data.len());
            }
            if change.is_some() {
                break;
            }
        }
        change
    }

    /// Ends the proposals whose clients have given up.
    fn withdraw_gone<S: Shell>(&self, shell: &mut S) {
        let ids = self.urgent.iter().map(|urgent| urgent.id).chain(self.held.iter().map(|(id, _)| *id));
        let gone = shell.pending(|pending| pending.withdraw_gone(ids));
        end(shell, gone, Error::Timeout);
    }

    /// Drops the held proposals without a waiter, which frees their places.
    pub(crate) fn tick<S: Shell>(&mut self, shell: &mut S) {
        if self.urgent.is_empty() && self.held.is_empty() {
            return;
        }
        self.withdraw_gone(shell);
        shell.pending(|pending| {
            self.urgent.retain(|urgent| pending.waits(urgent.id));
            self.held.retain(|(id, _)| pending.waits(*id));
        });
        self.bytes = self.held.iter().map(|(_, held)| if let Held::Entry(data) = held { data.len() } else { 0 }).sum();
    }
}

/// Registers the waiters; returns the ids and the entries.
fn register<S: Shell>(shell: &mut S, proposals: Vec<Proposal<S::Waiter>>, now: Now) -> (Vec<u64>, Vec<Bytes>) {
    let mut batch: Vec<Bytes> = Vec::with_capacity(proposals.len());
    let mut ids = Vec::with_capacity(proposals.len());
    if proposals.is_empty() {
        return (ids, batch);
    }
    shell.pending(|pending| {
        for proposal in proposals {
            batch.push(proposal.data);
            ids.push(proposal.id);
            pending.add(proposal.id, proposal.waiter, now);
        }
    });
    (ids, batch)
}

fn refuse<S: Shell>(shell: &mut S, ids: &[u64], error: &consensus::Error) {
    if !matches!(error, consensus::Error::Full) {
        shell.note(Note::ProposalRefused(error));
    }
    fail(shell, ids, Error::TooManyRequests);
}

/// Ends these proposals with `error`.
fn fail<S: Shell>(shell: &mut S, ids: &[u64], error: Error) {
    if !ids.is_empty() {
        let withdrawn = shell.pending(|pending| pending.withdraw(ids));
        end(shell, withdrawn, error);
    }
}

fn end<S: Shell>(shell: &mut S, waiters: Vec<S::Waiter>, error: Error) {
    if !waiters.is_empty() {
        shell.end_proposals(waiters, error);
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
            alone: false,
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
