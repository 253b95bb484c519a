//! A member whose directory is replaced by an older copy of itself. It has forgotten entries, votes and terms, which no crash-recovery
//! protocol allows for: it must end when a message of its leader proves it, and take part in nothing from then on.
//!
//! Until that message arrives, it may vote. So the copy is put back only when all other voters know everything that the member has ever
//! promised: then nothing acknowledged can be lost, whether the leader stays (and the member must end), or goes (and the next leader
//! brings the member up to date, because the loss can no longer be known).

use crate::fault_kind::Kind;
use crate::operation::State;
use crate::plan::Options;
use crate::process::Process;
use crate::schedule::Event;
use crate::shadow::Shadow;
use crate::trace::trace;
use crate::world::World;
use api::raftpb;
use disk::sim::{Random, SimDisk};
use replica::Proof;

/// Separates this fault's random choices from all others, so that other seeds run as before.
const STREAM: u64 = 0x5e7b_acc0_ffee;
/// Percentage of the runs that can have this fault.
const PERCENT: u64 = 30;
/// Time between checks whether the copy can be put back.
const RETRY_US: u64 = 20_000;

/// The state of the fault that sets a member back.
#[derive(Default)]
pub(crate) struct SetBack {
    random: Option<Random>,
    /// The member, and the older state of its disk.
    copy: Option<(usize, SimDisk)>,
    /// The host of the member, once the copy was put back.
    victim: Option<usize>,
    /// The member's log on the disk until then: it has acknowledged no more than that.
    lost: Shadow,
    /// The proof that ended the member.
    pub(crate) proof: Option<Proof>,
    /// The operation that removes the member.
    removal: Option<usize>,
}

impl SetBack {
    pub(crate) fn new(seed: u64, options: Options) -> SetBack {
        let mut random = Random::new(seed ^ STREAM);
        let wanted = options.sets_back || random.chance(PERCENT);
        SetBack { random: wanted.then_some(random), ..SetBack::default() }
    }
}

impl World {
    /// Decides when the copy is made.
    pub(crate) fn plan_set_back(&mut self) {
        let plan = &self.env.plan;
        // A member that has ended leaves its vote missing, so no member may be added or removed meanwhile.
        let can_be = plan.founders >= 3
            && !plan.changes_members()
            && plan.extras.observers == 0
            && self.env.options.mutation.is_none();
        let Some(random) = self.set_back.random.as_mut().filter(|_| can_be) else { return };
        let at_us = 1_200_000 + random.below(1_500_000);
        self.env.after(at_us, Event::SetBack);
    }

    /// Makes the copy, or puts it back as soon as the others hold everything that this member has promised.
    pub(crate) fn set_back(&mut self) {
        if self.finale.has_begun() {
            return;
        }
        let Some(random) = self.set_back.random.as_mut() else { return };
        let mut delay_us = RETRY_US;
        match self.set_back.copy.take() {
            None => {
                let host = random.below(self.hosts.len() as u64) as usize;
                let copy = self.hosts[host].disk.after_cut(random.next_u64());
                if self.hosts[host].process.is_some() {
                    delay_us = 100_000 + random.below(1_000_000);
                    trace!(self.env, "the directory of {host} is copied");
                    self.set_back.copy = Some((host, copy));
                }
            }
            Some((host, copy)) if self.is_known_to_others(host) => return self.put_back(host, copy),
            waits => self.set_back.copy = waits,
        }
        self.env.after(delay_us, Event::SetBack);
    }

    /// Whether all other voters have on their disks what this member may have promised (its whole log, its term, and
    /// all that is committed), and follow the leader of that term, which knows what this member has acknowledged. A
    /// voter that is still a candidate in that term could be elected as a second leader, since this member has
    /// forgotten its vote.
    fn is_known_to_others(&self, host: usize) -> bool {
        let (ledger, id) = (&self.env.ledger, self.hosts[host].id);
        let Some(process) = &self.hosts[host].process else { return false };
        let status = process.status();
        let ((last, of_term), committed) = (process.machine.log.last(), ledger.last_committed_place());
        let Some(leader) = self.leader().filter(|leader| *leader != host) else { return false };
        let leader = self.hosts[leader].id;
        let knows = |other: &crate::host::Host| {
            let Some(running) = &other.process else { return false };
            let Some(durable) = ledger.durable.get(&other.id) else { return false };
            let of = running.status();
            let follows = (of.leader, of.term, durable.term) == (leader, status.term, status.term);
            let holds = |(index, term)| durable.log.holds(index, term);
            follows && holds((last, of_term)) && holds(committed)
        };
        let is_settled = ledger.durable.get(&id).is_some_and(|durable| durable.term == status.term);
        is_settled && self.hosts.iter().filter(|other| other.index != host).all(knows)
    }

    fn put_back(&mut self, host: usize, copy: SimDisk) {
        trace!(self.env, "{host} is set back to a copy of its directory");
        let machine = &mut self.hosts[host];
        machine.kill(&mut self.env);
        machine.disk = copy;
        self.set_back.lost = self.env.ledger.forget(machine.id).log;
        machine.start_after(&mut self.env, 1_000);
        self.set_back.victim = Some(host);
        *self.faults.counts.entry(Kind::SetBack).or_default() += 1;
    }

    /// Ends a member that reports a proof that its log was lost.
    pub(crate) fn end_lost(&mut self, host: usize, proof: Proof) {
        trace!(self.env, "{host} ends: {proof}");
        assert!(self.set_back.victim == Some(host), "host {host} ends, and was never set back: {proof}");
        let lost = &self.set_back.lost;
        let is_true = match proof {
            Proof::Lost { acknowledged, last, .. } => acknowledged > last && acknowledged <= lost.last().0,
            Proof::Replaced { acknowledged, theirs, ours, .. } => {
                let replaces = |process: &Process| {
                    process.machine.log.term(acknowledged) == Some(ours) && process.status().committed < acknowledged
                };
                theirs != ours
                    && lost.holds(acknowledged, theirs)
                    && self.hosts[host].process.as_ref().is_some_and(replaces)
            }
            // The copy is a former state of the member, so entries that are committed in it are committed everywhere.
            Proof::Contradicted { .. } => false,
        };
        assert!(is_true, "{proof}");
        self.set_back.proof = Some(proof);
        // The disk is marked, so no process runs on it any more.
        let machine = &mut self.hosts[host];
        machine.is_gone = true;
        machine.kill(&mut self.env);
        self.remove_lost();
    }

    /// Removes a member that has ended, as an operator would.
    pub(crate) fn remove_lost(&mut self) {
        let Some(host) = self.set_back.victim.filter(|_| self.set_back.proof.is_some()) else { return };
        let id = self.hosts[host].id;
        let is_member = self.env.ledger.newest_conf_state().is_some_and(|(_, state)| state.voters.contains(&id));
        let is_pending = |operation: usize| self.env.history.operations[operation].state == State::Pending;
        if !is_member {
            return;
        }
        if let Some(leader) = self.leader().filter(|_| !self.set_back.removal.is_some_and(is_pending)) {
            self.propose_change(leader, raftpb::ConfChangeType::ConfChangeRemoveNode, id, None);
            self.set_back.removal = self.faults.last_change;
        }
        self.env.after(300_000, Event::RemoveLost);
    }

    /// The outcome of a run with this fault: whether the copy was put back, whether the member has ended, and whether
    /// that was because of an entry of another term in the copy.
    pub(crate) fn set_back_outcome(&self) -> (u64, u64, u64) {
        let SetBack { victim, proof, .. } = &self.set_back;
        let is_replaced = matches!(proof, Some(Proof::Replaced { .. }));
        (u64::from(victim.is_some()), u64::from(proof.is_some()), u64::from(is_replaced))
    }

    /// Checks that a member that has ended does nothing more.
    pub(crate) fn check_lost(&self) {
        let ended = self.set_back.victim.filter(|_| self.set_back.proof.is_some());
        assert!(ended.is_none_or(|host| self.hosts[host].process.is_none()), "{ended:?} runs although its log is lost");
    }
}
