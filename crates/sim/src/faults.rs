//! Faults, and their repair.

use crate::fault_kind::{KINDS, Kind};
use crate::operation::{Request, State};
use crate::removals::VOTERS_KEPT;
use crate::schedule::Event;
use crate::trace::trace;
use crate::world::World;
use api::raftpb;
use replica::Role;
use std::collections::BTreeMap;

/// Members that are added to the founders, at most.
const HOSTS_ADDED_MAX: usize = 6;

/// How a fault ends.
enum Undo {
    Links(Vec<(usize, usize)>),
    Loss,
    Delay,
    Duplication,
}

/// The faults so far, and those under way.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) counts: BTreeMap<Kind, u64>,
    pub(crate) begun: u64,
    lasting: BTreeMap<u64, Undo>,
    next: u64,
    /// The kind of the last fault. If it is drawn again, the draw is repeated once.
    last: Option<Kind>,
    pub(crate) last_change: Option<usize>,
}

impl World {
    /// Begins a fault.
    pub(crate) fn fault(&mut self) {
        let kinds = &self.env.plan.kinds;
        let mut kind = KINDS[kinds[self.env.random.below(kinds.len() as u64) as usize]];
        if self.faults.last == Some(kind) {
            kind = KINDS[kinds[self.env.random.below(kinds.len() as u64) as usize]];
        }
        if self.inflict(kind) {
            self.faults.last = Some(kind);
            self.faults.begun += 1;
            *self.faults.counts.entry(kind).or_default() += 1;
        }
    }

    fn inflict(&mut self, kind: Kind) -> bool {
        let hosts: Vec<usize> = self.living().collect();
        if hosts.is_empty() {
            return false;
        }
        let victim = self.victim(&hosts);
        trace!(self.env, "fault {kind:?}, host {victim}");
        match kind {
            Kind::Isolation => {
                let links = hosts.iter().filter(|host| **host != victim);
                let links = links.flat_map(|host| [(*host, victim), (victim, *host)]).collect();
                self.block(links)
            }
            Kind::Split => {
                let sides: Vec<bool> = hosts.iter().map(|_| self.env.random.chance(50)).collect();
                let mut links = Vec::new();
                for (from, from_side) in hosts.iter().zip(&sides) {
                    let others = hosts.iter().zip(&sides).filter(|(_, side)| *side != from_side);
                    links.extend(others.map(|(to, _)| (*from, *to)));
                }
                self.block(links)
            }
            Kind::OneWay => {
                let inward = self.env.random.chance(50);
                let others = hosts.iter().filter(|host| **host != victim);
                let links: Vec<_> = others.map(|host| if inward { (*host, victim) } else { (victim, *host) }).collect();
                let some = links.into_iter().filter(|_| self.env.random.chance(70)).collect();
                self.block(some)
            }
            Kind::Loss => {
                self.env.network.loss_percent = 5 + self.env.random.below(40);
                self.last(Undo::Loss)
            }
            Kind::Delay => {
                self.env.network.late_percent = 5 + self.env.random.below(40);
                self.env.network.late_us = 50_000 + self.env.random.below(3_000_000);
                self.last(Undo::Delay)
            }
            Kind::Duplication => {
                self.env.network.duplicate_percent = 10 + self.env.random.below(60);
                self.last(Undo::Duplication)
            }
            Kind::Kill => self.down(victim, false),
            Kind::PowerCut => self.down(victim, true),
            Kind::PowerCutInWrite => {
                let disk = &self.hosts[victim].disk;
                if disk.is_cut() {
                    return false;
                }
                let steps = [3, 20, 100][self.env.random.below(3) as usize];
                disk.cut_at(disk.operations() + self.env.random.below(steps));
                true
            }
            Kind::Blackout => {
                for host in hosts {
                    self.down(host, true);
                }
                true
            }
            Kind::Pause => {
                let until_us = self.env.now_us + 50_000 + self.env.random.below(3_000_000);
                let Some(process) = &mut self.hosts[victim].process else { return false };
                process.paused_until_us = until_us;
                true
            }
            Kind::SlowDisk => {
                let now_us = self.env.now_us;
                let slow = (now_us + 200_000 + self.env.random.below(3_000_000), self.env.random.below(2_500_000));
                let Some(process) = &mut self.hosts[victim].process else { return false };
                process.slow_disk = slow;
                true
            }
            Kind::Transfer => {
                let to = hosts[self.env.random.below(hosts.len() as u64) as usize];
                let to = self.hosts[to].id;
                let from = self.leader().unwrap_or(victim);
                self.ask(from, Request::Transfer { to });
                true
            }
            Kind::Membership => self.change_members(victim),
            Kind::Removals | Kind::SetBack | Kind::DiskError | Kind::ClockJump => false,
        }
    }

    /// Chooses a host for a fault: often the leader's.
    fn victim(&mut self, hosts: &[usize]) -> usize {
        let any = hosts[self.env.random.below(hosts.len() as u64) as usize];
        if self.env.random.chance(40) { self.leader().unwrap_or(any) } else { any }
    }

    /// The host that leads the highest term.
    pub(crate) fn leader(&self) -> Option<usize> {
        let processes = self.hosts.iter().filter_map(|host| host.process.as_ref());
        let leaders = processes.map(|process| (process.status(), process.machine.host));
        let leaders = leaders.filter(|(status, _)| status.role == Role::Leader);
        leaders.max_by_key(|(status, _)| status.term).map(|(_, host)| host)
    }

    fn block(&mut self, links: Vec<(usize, usize)>) -> bool {
        let Some(_) = links.first() else { return false };
        self.env.network.blocked.extend(links.iter().copied());
        self.last(Undo::Links(links))
    }

    /// Schedules the end of a fault.
    fn last(&mut self, undo: Undo) -> bool {
        let number = self.faults.next;
        self.faults.next += 1;
        self.faults.lasting.insert(number, undo);
        let delay_us = 100_000 + self.env.random.below(4_000_000);
        self.env.after(delay_us, Event::Heal { number });
        true
    }

    pub(crate) fn heal(&mut self, number: u64) {
        let network = &mut self.env.network;
        match self.faults.lasting.remove(&number) {
            Some(Undo::Links(links)) => {
                for link in links {
                    network.blocked.remove(&link);
                }
            }
            Some(Undo::Loss) => network.loss_percent = 0,
            Some(Undo::Delay) => network.late_percent = 0,
            Some(Undo::Duplication) => network.duplicate_percent = 0,
            None => return,
        }
        trace!(self.env, "fault {number} is over");
    }

    fn down(&mut self, victim: usize, power: bool) -> bool {
        let host = &mut self.hosts[victim];
        if host.process.is_none() {
            return false;
        }
        if power {
            host.lose_power(&mut self.env);
        } else {
            host.kill(&mut self.env);
            let longest_us = if self.env.random.chance(50) { 200_000 } else { 4_000_000 };
            let delay_us = 1_000 + self.env.random.below(longest_us);
            host.start_after(&mut self.env, delay_us);
        }
        true
    }

    /// Makes a configuration change, one at a time, through the leader if there is one.
    fn change_members(&mut self, victim: usize) -> bool {
        let Some((_, members)) = self.env.ledger.newest_conf_state() else { return false };
        let members = members.clone();
        let is_pending = |operation: usize| self.env.history.operations[operation].state == State::Pending;
        if self.faults.last_change.is_some_and(is_pending) {
            return false;
        }
        let leader = self.leader();
        let through = leader.unwrap_or(victim);
        let learner = members.learners.first().copied();
        let count = members.voters.len() + members.learners.len();
        let first = self.env.plan.founders + self.env.plan.extras.observers;
        let has_room = count < self.env.plan.hosts_max && self.hosts.len() < first + HOSTS_ADDED_MAX;
        let drawn = self.env.random.below(4);
        let lacks_learners = self.env.options.two_learners && members.learners.len() < 2;
        let choice = if lacks_learners && has_room { 1 } else { drawn };
        match choice {
            0 if has_room => self.add(through, raftpb::ConfChangeType::ConfChangeAddNode),
            1 if has_room => self.add(through, raftpb::ConfChangeType::ConfChangeAddLearnerNode),
            2 => {
                let voters = members.voters.iter().filter(|_| members.voters.len() > VOTERS_KEPT);
                let all: Vec<u64> = voters.chain(&members.learners).copied().collect();
                if all.is_empty() {
                    return false;
                }
                let id = all[self.env.random.below(all.len() as u64) as usize];
                self.propose_change(through, raftpb::ConfChangeType::ConfChangeRemoveNode, id, None);
                // Each of the two changes would be allowed alone.
                let hosts: Vec<usize> = self.living().collect();
                if members.voters.len() > VOTERS_KEPT
                    && let Some((id, through)) = self.removals.second(id, &members.voters, &hosts)
                {
                    self.propose_change(through, raftpb::ConfChangeType::ConfChangeRemoveNode, id, None);
                    *self.faults.counts.entry(Kind::Removals).or_default() += 1;
                }
            }
            _ => match learner {
                Some(id) => {
                    let member = store::Member { id, ..Default::default() };
                    let context = store::ConfChangeContext { member, is_promote: true };
                    self.propose_change(through, raftpb::ConfChangeType::ConfChangeAddNode, id, Some(context));
                }
                None => return false,
            },
        }
        true
    }

    /// Adds a member, and starts it without waiting for the outcome.
    fn add(&mut self, through: usize, kind: raftpb::ConfChangeType) {
        let index = self.hosts.len();
        let host = crate::host::Host::joining(index, self.hosts[0].cluster_id());
        let member = store::Member {
            id: host.id,
            peer_urls: vec![host.url.clone()],
            is_learner: kind == raftpb::ConfChangeType::ConfChangeAddLearnerNode,
            ..Default::default()
        };
        let id = host.id;
        self.env.addresses.insert(id, index);
        self.hosts.push(host);
        self.propose_change(through, kind, id, Some(store::ConfChangeContext { member, is_promote: false }));
        let delay_us = self.env.random.below(1_000_000);
        self.hosts[index].start_after(&mut self.env, delay_us);
    }

    pub(crate) fn propose_change(
        &mut self,
        through: usize,
        kind: raftpb::ConfChangeType,
        id: u64,
        context: Option<store::ConfChangeContext>,
    ) {
        let request_id = self.env.request_id();
        let change = raftpb::ConfChange {
            id: Some(request_id),
            r#type: Some(kind as i32),
            node_id: Some(id),
            context: context.map(|context| context.encode().into()),
        };
        let request = Request::ConfChange(Box::new(change));
        let operation = self.env.history.begin(self.env.now_us, None, request_id, request);
        self.faults.last_change = Some(operation);
        self.request(through, operation);
    }

    /// Sends a request of the simulator itself to a member.
    pub(crate) fn ask(&mut self, host: usize, request: Request) -> usize {
        let request_id = self.env.request_id();
        let operation = self.env.history.begin(self.env.now_us, None, request_id, request);
        self.request(host, operation);
        operation
    }

    /// Ends all faults.
    pub(crate) fn heal_all(&mut self) {
        self.faults.lasting.clear();
        self.env.network.heal();
        for host in &mut self.hosts {
            host.disk.repair();
            if let Some(process) = &mut host.process {
                process.paused_until_us = 0;
                process.slow_disk = (0, 0);
                process.wake(&mut self.env);
            } else if !host.is_gone {
                host.start_after(&mut self.env, 1_000);
            }
        }
    }
}
