//! A whole cluster with its clients and its faults, one event after the other.

use crate::admin::Admin;
use crate::client::Client;
use crate::clock::DRIFT_PER_MILLE_MAX;
use crate::env::Env;
use crate::faults::Faults;
use crate::finale::Finale;
use crate::happened::Happened;
use crate::history::History;
use crate::host::{self, Host};
use crate::ledger::Ledger;
use crate::network::Network;
use crate::observers::Observers;
use crate::operation::{Answer, State};
use crate::operator::Operator;
use crate::plan::{Options, Plan};
use crate::process::PowerCut;
use crate::removals::Removals;
use crate::schedule::{Event, Schedule};
use crate::set_back::SetBack;
use crate::trace::{Trace, trace};
use crate::transfer::Transfers;
use crate::watches::Watches;
use disk::sim::Random;
use std::collections::BTreeMap;

/// Limit of events of one run.
const EVENTS_MAX: u64 = 2_000_000;

/// The whole simulated world: members, clients and faults.
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) hosts: Vec<Host>,
    pub(crate) clients: Vec<Client>,
    pub(crate) faults: Faults,
    pub(crate) transfers: Transfers,
    pub(crate) finale: Finale,
    pub(crate) set_back: SetBack,
    pub(crate) removals: Removals,
    pub(crate) watches: Watches,
    pub(crate) admin: Admin,
    pub(crate) operator: Operator,
    pub(crate) observers: Observers,
    pub(crate) events: u64,
}

impl World {
    pub(crate) fn new(seed: u64, options: Options, trace: Trace) -> World {
        let mut random = Random::new(seed);
        let plan = Plan::draw(seed, options, &mut random);
        let hosts = host::founders(plan.founders);
        let addresses: BTreeMap<u64, usize> = hosts.iter().map(|host| (host.id, host.index)).collect();
        let mut env = Env {
            now_us: 0,
            random,
            schedule: Schedule::default(),
            network: Network::new(plan.delay_us, plan.ordered),
            ledger: Ledger::new(!options.clients_only),
            history: History::new(),
            happened: Happened::default(),
            trace,
            plan,
            options,
            addresses,
            unreachable: Vec::new(),
            snapshots: Vec::new(),
            installed: Vec::new(),
            next_request: 0,
        };
        if env.plan.extras.clocks_drift {
            env.history.promise_per_mille = 1000 - 2 * DRIFT_PER_MILLE_MAX;
        }
        let repeats = env.plan.extras.is_varied;
        let clients = (0..env.plan.clients).map(|_| Client::default()).collect();
        let (faults, transfers, finale) = (Faults::default(), Transfers::default(), Finale::default());
        World {
            env,
            hosts,
            clients,
            faults,
            transfers,
            finale,
            set_back: SetBack::new(seed, options),
            removals: Removals::new(seed),
            watches: Watches::new(seed, repeats),
            admin: Admin::new(seed),
            operator: Operator::new(seed),
            observers: Observers::new(seed),
            events: 0,
        }
    }

    /// Runs to the end. A violation is a panic.
    pub(crate) fn run(&mut self) {
        trace!(self.env, "{:?}", self.env.plan);
        for host in &mut self.hosts {
            let delay_us = self.env.random.below(50_000);
            host.start_after(&mut self.env, delay_us);
        }
        for client in 0..self.clients.len() {
            let delay_us = self.env.random.below(100_000);
            self.env.after(1_000_000 + delay_us, Event::Client { client });
        }
        self.env.after(1_500_000, Event::Fault);
        self.plan_set_back();
        self.begin_watches();
        self.begin_observers();
        self.begin_disk_faults();
        self.begin_clock_jumps();
        if self.env.plan.extras.has_users {
            self.env.after(1_000_000, Event::Administer);
        }
        if self.env.plan.may_fill() {
            self.env.after(1_000_000, Event::Operate);
        }
        while !self.finale.is_over() {
            let Some((time_us, event)) = self.env.schedule.pop() else { panic!("nothing happens any more") };
            self.env.now_us = time_us;
            self.events += 1;
            assert!(self.events < EVENTS_MAX, "the run does not end");
            self.happen(event);
            self.settle();
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick { host, boot } => {
                if let Some(process) = self.hosts[host].process(boot) {
                    let period_us = process.machine.clock.lasts_us(self.env.plan.tick_us);
                    self.env.after(period_us, Event::Tick { host, boot });
                    self.with(host, boot, |process, env| process.tick(env));
                }
            }
            Event::Turn { host, boot } => self.with(host, boot, |process, env| process.turn(env)),
            Event::Deliver { from, to, message } => self.deliver(from, to, *message),
            Event::LogDone { host, boot } => self.with(host, boot, |process, env| process.log_done(env)),
            Event::Apply { host, boot } => self.with(host, boot, |process, env| process.apply_next(env)),
            Event::Checkpoint { host, boot } => self.with(host, boot, |process, env| process.write_checkpoint(env)),
            Event::Maintain { host, boot } => {
                if self.hosts[host].process(boot).is_some() {
                    let delay_us = 20_000 + self.env.random.below(300_000);
                    self.env.after(delay_us, Event::Maintain { host, boot });
                    self.with(host, boot, |process, env| process.maintain(env));
                }
            }
            Event::Transfer { number } => self.transfer(number),
            Event::Client { client } => self.client(client),
            Event::Watch { client } => self.watch(client),
            Event::Administer => self.administer(),
            Event::Operate => self.operate(),
            Event::DiskFault { random } => self.fail_disk(random),
            Event::ClockJump { random } => self.jump(random),
            Event::Request { host, operation } => match &mut self.hosts[host].process {
                Some(process) => process.request(&mut self.env, operation),
                None => self.env.answer(operation, Answer::Refused),
            },
            Event::Answered { operation, answer } => self.answered(operation, &answer),
            Event::GiveUp { operation } => {
                if self.env.history.operations[operation].state == State::Pending {
                    self.answered(operation, &Answer::Unknown);
                }
            }
            Event::Fault => {
                if !self.finale.has_begun() {
                    let delay_us = self.env.between(self.env.plan.fault_gap_us) + self.rest_between_faults_us();
                    self.env.after(delay_us, Event::Fault);
                    self.fault();
                    self.begin_finale_if_done();
                }
            }
            Event::Heal { number } => self.heal(number),
            Event::Start { host } => self.hosts[host].start(&mut self.env),
            Event::Leave { host, boot } => {
                if self.hosts[host].process(boot).is_some() {
                    if self.can_leave(host) {
                        self.leave(host);
                    } else {
                        self.env.after(1_000_000, Event::Leave { host, boot });
                    }
                }
            }
            Event::Observe { number } => self.observe(number),
            Event::Fed { number, stream, message } => self.fed(number, stream, *message),
            Event::SetBack => self.set_back(),
            Event::RemoveLost => self.remove_lost(),
            Event::Finale => self.check_end(),
        }
    }

    /// Handles the effects of an event outside its own member.
    fn settle(&mut self) {
        for (from, to) in std::mem::take(&mut self.env.unreachable) {
            let Some(&host) = self.env.addresses.get(&from) else { continue };
            if let Some(process) = &mut self.hosts[host].process {
                process.unreachable(&mut self.env, to);
            }
        }
        for (message, export) in std::mem::take(&mut self.env.snapshots) {
            self.begin_transfer(message, export);
        }
        for (number, ok) in std::mem::take(&mut self.env.installed) {
            self.installed(number, ok);
        }
        self.pass_on();
    }

    /// Runs `act` on a process; the disk may lose power during it.
    pub(crate) fn with(
        &mut self,
        host: usize,
        boot: u64,
        act: impl FnOnce(&mut crate::process::Process, &mut Env) -> Result<(), PowerCut>,
    ) {
        let machine = &mut self.hosts[host];
        let Some(process) = machine.process.as_mut().filter(|process| process.boot == boot) else { return };
        let outcome = act(process, &mut self.env);
        let proof = process.proof();
        if outcome.is_err() {
            machine.end(&mut self.env);
        } else if let Some(proof) = proof {
            self.end_lost(host, proof);
        }
    }

    fn deliver(&mut self, from: u64, to: usize, message: api::raftpb::Message) {
        let Some(process) = &mut self.hosts[to].process else { return };
        if process.machine.removed.contains(&from) {
            // Peers tell a removed member that it is removed.
            if let Some(&host) = self.env.addresses.get(&from).filter(|host| self.can_leave(**host)) {
                self.leave(host);
            }
            return;
        }
        trace!(self.env, "{} <- {from:x} {}", to, crate::show::message(&message));
        process.receive(&mut self.env, message);
    }

    /// Whether a majority of the remaining members know of the removal. If one of two members stops before that, the
    /// other lacks its vote and cannot learn of the removal: operators wait for the answer before they take the machine
    /// away.
    fn can_leave(&self, host: usize) -> bool {
        let id = self.hosts[host].id;
        let Some((_, state)) = self.env.ledger.newest_conf_state() else { return false };
        let knows = |voter: &&u64| {
            let host = self.env.addresses.get(voter).and_then(|host| self.hosts[*host].process.as_ref());
            host.is_some_and(|process| process.machine.removed.contains(&id))
        };
        !state.voters.contains(&id) && state.voters.iter().filter(knows).count() > state.voters.len() / 2
    }

    /// A removed member ends for good.
    fn leave(&mut self, host: usize) {
        let machine = &mut self.hosts[host];
        if std::mem::replace(&mut machine.is_gone, true) {
            return;
        }
        trace!(self.env, "{host} leaves");
        machine.kill(&mut self.env);
    }

    /// Hosts whose member has not left.
    pub(crate) fn living(&self) -> impl Iterator<Item = usize> + use<> {
        let living: Vec<usize> = self.hosts.iter().filter(|host| !host.is_gone).map(|host| host.index).collect();
        living.into_iter()
    }

    fn client(&mut self, client: usize) {
        if self.finale.has_begun() {
            return;
        }
        let (request_id, request) = self.clients[client].next(&mut self.env, client);
        let hosts: Vec<usize> = self.living().collect();
        let host = hosts[self.env.random.below(hosts.len() as u64) as usize];
        let operation = self.env.history.begin(self.env.now_us, Some(client), request_id, request);
        self.env.history.operations[operation].token = self.clients[client].token(&mut self.env);
        self.clients[client].waits_for = Some(operation);
        self.request(host, operation);
    }

    /// Sends a request to a member.
    pub(crate) fn request(&mut self, host: usize, operation: usize) {
        trace!(
            self.env,
            "operation {operation} to {host}: {}",
            crate::show::request(&self.env.history.operations[operation].request)
        );
        let delay_us = self.env.between((20, 800));
        self.env.after(delay_us, Event::Request { host, operation });
        let patience_us = self.env.plan.request_timeout_us + 500_000;
        self.env.after(patience_us, Event::GiveUp { operation });
    }

    fn answered(&mut self, number: usize, answer: &Answer) {
        trace!(self.env, "operation {number}: {}", crate::show::answer(answer));
        self.env.history.answer(number, answer);
        let operation = &self.env.history.operations[number];
        let Some(client) = operation.client else {
            self.finale.answered(number, answer);
            self.answer_observer(number, answer);
            return;
        };
        if self.clients[client].waits_for != Some(number) {
            return;
        }
        self.clients[client].waits_for = None;
        self.clients[client].learn(&operation.request, answer);
        let refused = matches!(answer, Answer::Refused);
        // After enough operations, clients go on slowly until there were enough faults.
        let has_enough = self.env.history.counts.begun >= self.env.plan.operations;
        let rest_us = if has_enough { 150_000 } else { 0 };
        let pause_us = self.env.between(self.env.plan.think_us) + rest_us + if refused { 30_000 } else { 0 };
        self.env.after(pause_us, Event::Client { client });
        self.begin_finale_if_done();
    }

    fn begin_finale_if_done(&mut self) {
        let done = self.env.history.counts.begun >= self.env.plan.operations
            && self.faults.begun >= self.env.plan.faults
            && self.faults.counts.len() >= 2
            && (!self.env.options.long || self.is_long());
        if done && !self.finale.has_begun() {
            self.begin_finale();
        }
    }
}
