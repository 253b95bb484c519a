//! The end of a run: all faults are repaired, and then the cluster must work, agree, and have lost nothing.

use crate::operation::{Answer, Request};
use crate::process::Process;
use crate::schedule::Event;
use crate::trace::trace;
use crate::world::World;
use api::Message;
use api::etcdserverpb::{InternalRaftRequest, PutRequest, RangeRequest, RequestHeader};
use std::collections::BTreeMap;
use store::Work;

/// After this many election timeouts a write must have succeeded at every voter, and all members must agree.
const BOUND_ELECTIONS: u64 = 30;
const CHECK_EVERY_US: u64 = 50_000;
/// A member that is not idle after so many steps never will be.
const SETTLING_STEPS_MAX: usize = 1_000;

/// The state of the final check.
#[derive(Default)]
pub(crate) struct Finale {
    began_us: Option<u64>,
    /// Probes under way, by operation: whether it is a write, and its host.
    probes: BTreeMap<usize, (bool, usize)>,
    written: BTreeMap<usize, bool>,
    read: BTreeMap<usize, bool>,
    over: bool,
    /// When the first write succeeded, from the beginning of the final check.
    pub(crate) first_write_us: Option<u64>,
    answered_us: Vec<usize>,
}

impl Finale {
    pub(crate) fn has_begun(&self) -> bool {
        self.began_us.is_some()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Takes the answer to a request of the simulator.
    pub(crate) fn answered(&mut self, operation: usize, answer: &Answer) {
        let Some((is_write, host)) = self.probes.remove(&operation) else { return };
        match answer {
            Answer::Applied { result: Ok(_), .. } if is_write => {
                self.written.insert(host, true);
                self.answered_us.push(operation);
            }
            Answer::Read { .. } => {
                self.read.insert(host, true);
            }
            _ => {}
        }
    }
}

impl World {
    pub(crate) fn begin_finale(&mut self) {
        trace!(self.env, "everything is put right");
        self.finale.began_us = Some(self.env.now_us);
        self.heal_all();
        self.env.after(CHECK_EVERY_US, Event::Finale);
    }

    /// Sends further probes, or completes the final check.
    pub(crate) fn check_end(&mut self) {
        let began_us = self.finale.began_us.unwrap_or_default();
        let bound_us = BOUND_ELECTIONS * self.env.plan.election_ticks as u64 * self.env.plan.tick_us;
        if self.finale.first_write_us.is_none() && !self.finale.answered_us.is_empty() {
            self.finale.first_write_us = Some(self.env.now_us - began_us);
        }
        // A machine may still be starting, and may lose power once more during a write.
        for host in &mut self.hosts {
            if host.process.is_none() && !host.is_gone {
                host.start_after(&mut self.env, 1_000);
            }
        }
        self.check_lost();
        let missing = self.missing();
        let Some(missing) = missing else {
            self.finale.over = true;
            return self.check_agreement();
        };
        assert!(self.env.now_us < began_us + bound_us, "the cluster does not recover: {missing}");
        self.probe();
        self.env.after(CHECK_EVERY_US, Event::Finale);
    }

    /// Members of the newest configuration: those that take writes, with the observers beside them, and learners.
    fn members(&self) -> (Vec<usize>, Vec<usize>) {
        let Some((_, state)) = self.env.ledger.newest_conf_state() else { return (Vec::new(), Vec::new()) };
        let host = |id: &u64| self.env.addresses.get(id).copied();
        let writers = state.voters.iter().filter_map(host).chain(self.observing()).collect();
        (writers, state.learners.iter().filter_map(host).collect())
    }

    /// The first condition that does not hold yet, as a text.
    fn missing(&self) -> Option<String> {
        let (writers, learners) = self.members();
        if writers.is_empty() {
            return Some("no members".into());
        }
        if let Some(writer) = writers.iter().find(|writer| !self.finale.written.contains_key(writer)) {
            return Some(format!("no write through {writer}"));
        }
        if let Some(member) = writers.iter().chain(&learners).find(|member| !self.finale.read.contains_key(member)) {
            return Some(format!("no read through {member}"));
        }
        // Nobody renews them any more.
        if let Some((lease, ..)) = self.env.history.model().leases().next() {
            return Some(format!("lease {lease} does not end"));
        }
        let last = self.env.ledger.last_committed();
        for member in writers.iter().chain(&learners) {
            let Some(process) = &self.hosts[*member].process else { return Some(format!("{member} does not run")) };
            if !process.has_applied(last) {
                return Some(format!("{member} is not at {last}: {:?}", process.status()));
            }
        }
        None
    }

    fn probe(&mut self) {
        let (writers, learners) = self.members();
        for host in writers.iter().chain(&learners).copied() {
            let under_way =
                |is_write: bool, world: &World| world.finale.probes.values().any(|probe| *probe == (is_write, host));
            if writers.contains(&host) && !self.finale.written.contains_key(&host) && !under_way(true, self) {
                let id = self.env.request_id();
                let header = Some(RequestHeader { id, ..Default::default() });
                let put = Some(PutRequest { key: "end".into(), value: format!("v{id}").into(), ..Default::default() });
                let write = InternalRaftRequest { header, put, ..Default::default() };
                let request = Request::Write(write.encode_to_vec().into());
                let operation = self.env.history.begin(self.env.now_us, None, id, request);
                self.finale.probes.insert(operation, (true, host));
                self.request(host, operation);
            }
            if !self.finale.read.contains_key(&host) && !under_way(false, self) {
                let range = RangeRequest { key: "k".into(), range_end: "l".into(), ..Default::default() };
                let operation = self.ask(host, Request::Read { range, linearizable: true });
                self.finale.probes.insert(operation, (false, host));
            }
        }
    }

    /// Checks that the quota is compared with the same on every member, once each has dropped all that it need not keep.
    fn check_live_bytes(&self, members: &[usize]) {
        let live: Vec<u64> =
            members.iter().filter_map(|member| settled_bytes(self.hosts[*member].process.as_ref()?)).collect();
        assert!(live.windows(2).all(|two| two[0] == two[1]), "members have different numbers of live bytes: {live:?}");
    }

    /// Checks that all members have the same data, and that it is the result of the acknowledged writes.
    fn check_agreement(&mut self) {
        let (writers, learners) = self.members();
        let model = self.env.history.model();
        let last = self.env.ledger.last_committed();
        assert!(model.index() == last, "entry {last} is committed, but only {} applied", model.index());
        let expected = model.read(&[0], &[0], model.revision());
        let leases: Vec<(i64, i64, i64)> = model.leases().collect();
        let mut hashes = Vec::new();
        for member in writers.iter().chain(&learners) {
            let Some(process) = &self.hosts[*member].process else { continue };
            let all = RangeRequest { key: vec![0].into(), range_end: vec![0].into(), ..Default::default() };
            let held = process.machine.store.range(&all);
            let Ok(held) = held else { panic!("host {member} cannot be read") };
            assert!(
                held.kvs.to_messages() == expected && held.revision == model.revision(),
                "host {member} holds {held:?}, not {expected:?} at revision {}",
                model.revision()
            );
            let own = process.machine.store.leases().list().into_iter();
            let mut own: Vec<_> = own.map(|lease| (lease.id, lease.ttl, lease.remaining_ttl)).collect();
            own.sort_unstable();
            assert!(own == leases, "host {member} holds the leases {own:?}, not {leases:?}");
            assert!(
                process.machine.store.compact_revision() == model.compact_revision(),
                "host {member} compacted elsewhere"
            );
            let alarms: Vec<u64> = process.machine.store.alarms().iter().map(|alarm| alarm.member_id).collect();
            assert!(
                alarms.iter().eq(model.alarms()),
                "host {member} has the alarms {alarms:x?}, not {:x?}",
                model.alarms()
            );
            let Ok(hash) = process.machine.store.hash_kv(0) else { panic!("host {member} cannot be hashed") };
            hashes.push((hash.hash, process.machine.store.hash()));
        }
        assert!(hashes.windows(2).all(|two| two[0] == two[1]), "members hash differently: {hashes:?}");
        let members: Vec<usize> = writers.into_iter().chain(learners).collect();
        self.check_live_bytes(&members);
        self.check_watches(&members);
    }
}

/// The live bytes of a member that has nothing to drop any more. `None` if its disk fails meanwhile.
fn settled_bytes(process: &Process) -> Option<u64> {
    let store = &process.machine.store;
    for _ in 0..SETTLING_STEPS_MAX {
        if store.maintain(1 << 20).ok()?.work == Work::Idle {
            return Some(store.usage().live_bytes);
        }
    }
    panic!("{:x} is never done with dropping what it need not keep", process.machine.id)
}
