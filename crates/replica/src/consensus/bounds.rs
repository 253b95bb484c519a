//! Bounds of what raft-rs is given: it trusts every number and every configuration, and panics over some.

use crate::consensus::config::Restored;
use crate::consensus::error::Error;
use api::raftpb::ConfState;

/// No honest index or term is above this; the sum of two below it does not overflow.
pub(crate) const NUMBER_MAX: u64 = u64::MAX >> 2;
/// A message may always raise the term by this much. Members that could not communicate for a while differ by less.
const LEAP_FREE: u64 = 1 << 10;
/// All messages together may raise the term by this much within an election timeout. No cluster has that many elections
/// in its life. Without the bound one message could leave no terms for later elections.
const LEAPS_MAX: u64 = 1 << 32;
/// Election timeouts within which a refused member sends again: it campaigns within three.
const PATIENCE: u8 = 6;
/// Limit of members in a configuration.
const MEMBERS_MAX: usize = 1024;

/// Whether a cluster can have this configuration.
pub(crate) fn is_sound(conf_state: &ConfState) -> bool {
    let mut members: Vec<u64> = conf_state.voters.iter().chain(&conf_state.learners).copied().collect();
    let count = members.len();
    members.sort_unstable();
    members.dedup();
    let joint =
        !conf_state.voters_outgoing.is_empty() || !conf_state.learners_next.is_empty() || conf_state.auto_leave();
    // Every change of Cairn and of etcd concerns one member, so there is no joint configuration.
    !conf_state.voters.is_empty()
        && members.len() == count
        && count <= MEMBERS_MAX
        && members.first() != Some(&0)
        && !joint
}

/// How far messages may still raise the term.
#[derive(Debug)]
pub(crate) struct Leaps {
    allowance: u64,
    /// Election timeouts for which the allowance is not cut back yet, because a message was refused.
    patience: u8,
}

impl Default for Leaps {
    fn default() -> Leaps {
        Leaps { allowance: LEAPS_MAX, patience: 0 }
    }
}

impl Leaps {
    /// Whether a message of term `theirs` may be taken by a member in term `ours`.
    pub(crate) fn allow(&self, ours: u64, theirs: u64) -> bool {
        let leap = theirs.saturating_sub(ours);
        leap <= LEAP_FREE || leap <= self.allowance
    }

    /// Notes that a message was refused. Its sender may be a member whose own term was raised that far. This member
    /// then follows as slowly as that one was raised.
    pub(crate) fn note_refusal(&mut self) {
        self.patience = PATIENCE;
    }

    /// Notes that the term was raised from `before` to `after`.
    pub(crate) fn note(&mut self, before: u64, after: u64) {
        self.allowance = self.allowance.saturating_sub(after.saturating_sub(before));
    }

    /// Refills the allowance after an election timeout.
    pub(crate) fn refill(&mut self) {
        let max = if self.patience > 0 { u64::MAX } else { LEAPS_MAX };
        self.allowance = self.allowance.saturating_add(LEAPS_MAX).min(max);
        self.patience = self.patience.saturating_sub(1);
    }
}

impl Restored {
    /// Whether a member can start from this state.
    ///
    /// # Errors If an index or term is too large for later ones, or the configuration is invalid.
    pub fn check(&self) -> Result<(), Error> {
        let entries = self.entries.iter().flat_map(|entry| [entry.index(), entry.term()]);
        let numbers = [self.applied, self.applied_term, self.hard_state.term(), self.hard_state.commit()];
        if let Some(number) = numbers.into_iter().chain(entries).find(|number| *number > NUMBER_MAX) {
            return Err(Error::Number(number));
        }
        // A member that has not learned of a configuration yet has none.
        let is_none = self.conf_state == ConfState { auto_leave: self.conf_state.auto_leave, ..ConfState::default() };
        if (!is_none || self.conf_state.auto_leave()) && !is_sound(&self.conf_state) {
            return Err(Error::Configuration(self.conf_state.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::consensus::{Config, Member};
    use api::raftpb::{Entry, HardState};

    pub(in crate::consensus) fn start(change: impl Fn(&mut Restored)) -> Result<Member, Error> {
        let config = Config {
            id: 1,
            election_ticks: 10,
            heartbeat_ticks: 1,
            pre_vote: true,
            seed: 1,
            boot_nonce: 1,
            near_entries: 1,
            unsafe_ignore_lost_log: false,
        };
        let mut restored = Restored {
            hard_state: HardState { term: Some(2), vote: Some(1), commit: Some(5) },
            applied: 5,
            applied_term: 2,
            conf_state: ConfState { voters: vec![1, 2], learners: vec![3], ..ConfState::default() },
            ..Restored::default()
        };
        change(&mut restored);
        Member::new(&config, restored)
    }

    #[test]
    fn a_configuration_that_no_cluster_has_is_refused() {
        assert!(start(|_| {}).is_ok());
        for auto_leave in [None, Some(false)] {
            assert!(start(|restored| restored.conf_state = ConfState { auto_leave, ..ConfState::default() }).is_ok());
        }
        let changes: [fn(&mut ConfState); 7] = [
            |state| state.voters.clear(),
            |state| state.voters.push(2),
            |state| state.learners.push(1),
            |state| state.learners.push(0),
            |state| state.voters_outgoing = vec![4],
            |state| state.auto_leave = Some(true),
            |state| state.voters = (1..2000).collect(),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let started = start(|restored| change(&mut restored.conf_state));
            assert!(matches!(started, Err(Error::Configuration(_))), "change {at}");
        }
    }

    #[test]
    fn numbers_that_leave_none_for_what_comes_later_are_refused() {
        let changes: [fn(&mut Restored); 6] = [
            |restored| (restored.applied, restored.hard_state.commit) = (u64::MAX, Some(u64::MAX)),
            |restored| restored.applied = NUMBER_MAX + 1,
            |restored| restored.applied_term = u64::MAX,
            |restored| restored.hard_state.term = Some(u64::MAX),
            |restored| restored.hard_state.commit = Some(u64::MAX),
            |restored| {
                restored.entries = vec![Entry { index: Some(6), term: Some(u64::MAX), ..Entry::default() }];
            },
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert!(matches!(start(change), Err(Error::Number(_))), "change {at}");
        }
    }
}
