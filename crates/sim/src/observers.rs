//! Observers: processes outside of the configuration that follow a member or another observer, as `server/observer` has them do.
//!
//! What is simulated is the stream of entries, the questions for read indexes and the proposals passed on. What is sent, what is taken and
//! when a read may be answered is decided by `replica`. Clients ask observers what they ask members, and the checks are those of
//! members: what an observer answers must fit into the history of the others.

use crate::mutation::Mutation;
use crate::operation::{Answer, Request};
use crate::process::Process;
use crate::schedule::Event;
use crate::trace::trace;
use crate::world::World;
use api::raftpb::{Message, MessageType, Snapshot, SnapshotMetadata};
use disk::sim::Random;
use replica::{Observed, Stretch};
use std::sync::Arc;

/// Separates these random choices from all others.
const STREAM: u64 = 0x0b5e_45e4_0a11_5eed;
/// Bytes of the entries of one message, at least one: few, so that a stream may end between any two.
const BATCH_BYTES: u64 = 300;
/// The longest time between two looks at a stream.
const LOOK_US_MAX: u64 = 8_000;
/// After this time a connection sends again what was lost.
const REPEAT_US: u64 = 50_000;
/// The pause before the next source is tried.
const RETRY_US: u64 = 100_000;
/// Election timeouts after which a source is given up that is silent.
const SILENT_TIMEOUTS: u64 = 2;
/// Those after which one is given up that knows no leader, or is behind the observer.
const USELESS_TIMEOUTS: u64 = 3;

/// The observers of a run.
pub(crate) struct Observers {
    random: Random,
    all: Vec<Observer>,
    next_stream: u64,
    pub(crate) counts: ObserverCounts,
}

/// What the observers of a run have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObserverCounts {
    /// Observers.
    pub observers: u64,
    /// Streams by which they were sent entries.
    pub streams: u64,
    /// Those of them that came from another observer.
    pub behind_observers: u64,
    /// Snapshots that they have installed.
    pub installs: u64,
}

impl ObserverCounts {
    pub(crate) fn add(&mut self, other: &ObserverCounts) {
        self.observers += other.observers;
        self.streams += other.streams;
        self.behind_observers += other.behind_observers;
        self.installs += other.installs;
    }
}

/// An observer as the threads around its replica have it.
struct Observer {
    host: usize,
    stream: Option<Stream>,
    retry_us: u64,
    /// Questions that wait for the next call.
    questions: Vec<Message>,
    /// The call under way, the stream it was made on, and what it answers.
    asked: Option<(usize, u64, Vec<Message>)>,
    /// The operation that shows whether it is level, and the `boot` that asked.
    levels: Option<(usize, u64)>,
    /// The sender and the last entry of the snapshot that it was sent, until entries follow.
    snapshot: Option<(usize, u64)>,
}

/// A stream of entries, both ends of it.
struct Stream {
    number: u64,
    /// Host and `boot` of both processes.
    from: (usize, u64),
    boot: u64,
    /// The ids that entries come through, the sender's last.
    way: Vec<u64>,
    /// The sender: index and term of the last entry sent, and whether the observer was told that it follows.
    last: (u64, u64),
    has_sent: bool,
    beat_us: u64,
    arrives_us: u64,
    /// Messages that have not arrived yet. A snapshot comes behind them, as on one connection.
    under_way: u64,
    /// What arrives before is held back, in order: the link was down.
    held_until_us: u64,
    transfer: Option<u64>,
    /// The observer: whether it has entries from here, and what it last heard.
    has_joined: bool,
    began_us: u64,
    heard_us: u64,
    leaderless_us: Option<u64>,
}

impl Observers {
    pub(crate) fn new(seed: u64) -> Observers {
        Observers {
            random: Random::new(seed ^ STREAM),
            all: Vec::new(),
            next_stream: 0,
            counts: ObserverCounts::default(),
        }
    }
}

impl World {
    pub(crate) fn begin_observers(&mut self) {
        self.observers.counts.observers = self.env.plan.extras.observers as u64;
        for number in 0..self.env.plan.extras.observers {
            let host = self.hosts.len();
            self.hosts.push(crate::host::Host::observing(host, self.hosts[0].cluster_id()));
            let observer = Observer {
                host,
                stream: None,
                retry_us: 0,
                questions: Vec::new(),
                asked: None,
                levels: None,
                snapshot: None,
            };
            self.observers.all.push(observer);
            // Some come while the cluster is made, some when there is much to fetch.
            let delay_us = self.observers.random.below(6_000_000);
            self.hosts[host].start_after(&mut self.env, delay_us);
            self.env.after(delay_us, Event::Observe { number });
        }
    }

    /// Hosts of observers.
    pub(crate) fn observing(&self) -> Vec<usize> {
        self.observers.all.iter().map(|observer| observer.host).collect()
    }

    fn timeouts_us(&self, timeouts: u64) -> u64 {
        timeouts * self.env.plan.election_ticks as u64 * self.env.plan.tick_us
    }

    /// One look of the threads at both ends of an observer's stream.
    pub(crate) fn observe(&mut self, number: usize) {
        let delay_us = 200 + self.observers.random.below(LOOK_US_MAX);
        self.env.after(delay_us, Event::Observe { number });
        if let Some(why) = self.lost(number) {
            self.leave_stream(number, why);
        }
        let observer = &self.observers.all[number];
        let Some(process) = &self.hosts[observer.host].process else { return };
        if process.paused_until_us > self.env.now_us {
            return;
        }
        if observer.stream.is_none() {
            if self.env.now_us >= observer.retry_us {
                self.follow(number);
            }
            return;
        }
        self.feed(number);
        self.become_level(number);
        self.ask_within_batch(number);
    }

    /// Has what an observer follows asked for a read index while it applies a batch, of which some is answered and some is not.
    fn ask_within_batch(&mut self, number: usize) {
        let observer = &self.observers.all[number];
        let Some(stream) = observer.stream.as_ref().filter(|stream| stream.has_joined) else { return };
        let ((from, boot), host) = (stream.from, observer.host);
        let is_within = self.hosts[from].process(boot).is_some_and(|process| process.machine.is_within_batch());
        if is_within && self.reaches(from, host) {
            self.ask(from, Request::ReadIndex);
        }
    }

    /// Why a stream ends; `None` if it does not, or there is none.
    fn lost(&self, number: usize) -> Option<&'static str> {
        let observer = &self.observers.all[number];
        let stream = observer.stream.as_ref()?;
        let now_us = self.env.now_us;
        let own = self.hosts[observer.host].process.as_ref().filter(|process| process.boot == stream.boot);
        let Some(own) = own else { return Some("it ends") };
        if own.machine.outbox.as_ref().is_some_and(|outbox| outbox.has_refused) {
            return Some("it refuses a message");
        }
        let source = self.hosts[stream.from.0].process.as_ref().filter(|process| process.boot == stream.from.1);
        let Some(source) = source else { return Some("its source ends") };
        if self.way_of(source).is_none_or(|way| way != stream.way) {
            return Some("its source follows another way, or nobody");
        }
        if now_us > stream.heard_us + self.timeouts_us(SILENT_TIMEOUTS) && stream.transfer.is_none() {
            return Some("its source is silent");
        }
        let useless_us = self.timeouts_us(USELESS_TIMEOUTS);
        if stream.leaderless_us.is_some_and(|since_us| now_us > since_us + useless_us) {
            return Some("its source knows no leader");
        }
        let is_behind = !stream.has_joined && stream.transfer.is_none() && now_us > stream.began_us + useless_us;
        is_behind.then_some("its source is behind it")
    }

    /// The ids by which entries come to a process, and its own; `None` if it has no right to pass them on.
    fn way_of(&self, process: &Process) -> Option<Vec<u64>> {
        let machine = &process.machine;
        if machine.removed.contains(&machine.id) {
            return None;
        }
        let mut way = Vec::new();
        if machine.outbox.is_some() {
            let observer = self.observers.all.iter().find(|observer| observer.host == machine.host)?;
            let stream = observer.stream.as_ref().filter(|stream| stream.has_joined && stream.boot == process.boot)?;
            way.clone_from(&stream.way);
        }
        way.push(machine.id);
        Some(way)
    }

    fn leave_stream(&mut self, number: usize, why: &str) {
        let observer = &mut self.observers.all[number];
        let Some(stream) = observer.stream.take() else { return };
        trace!(self.env, "{} leaves the stream from {}: {why}", observer.host, stream.from.0);
        observer.retry_us = self.env.now_us + RETRY_US;
        observer.questions.clear();
        let host = observer.host;
        if let Some(transfer) = stream.transfer {
            self.cancel_transfer(transfer);
        }
        self.keep_behind(number, None);
        if let Some(process) = self.hosts[host].process(stream.boot) {
            if let Some(outbox) = &mut process.machine.outbox {
                // The next source is asked again. What was proposed may have arrived.
                (outbox.questions, outbox.proposals) = (Vec::new(), Vec::new());
            }
            let (to, term) = (Some(process.machine.id), Some(process.machine.published.term));
            let kind = Some(MessageType::MsgHeartbeat as i32);
            process.receive(&mut self.env, Message { r#type: kind, to, from: Some(0), term, ..Message::default() });
        }
        self.note_followers(stream.from.0);
    }

    /// Tries to follow any process that an operator may have named.
    fn follow(&mut self, number: usize) {
        let host = self.observers.all[number].host;
        self.observers.all[number].retry_us = self.env.now_us + RETRY_US;
        let others: Vec<usize> = self.sources().filter(|other| *other != host).collect();
        let drawn = self.observers.random.below(others.len().max(1) as u64) as usize;
        let Some(&drawn) = others.get(drawn) else { return };
        // After an install it goes on where the snapshot came from, if that can be.
        let from = self.observers.all[number].snapshot.map_or(drawn, |(from, _)| from);
        if self.follow_host(number, from).is_none() {
            self.keep_behind(number, None);
        }
    }

    /// Begins a stream from this host; `None` if that cannot be.
    fn follow_host(&mut self, number: usize, from: usize) -> Option<()> {
        let host = self.observers.all[number].host;
        let (source, own) = (self.hosts[from].process.as_ref()?, self.hosts[host].process.as_ref()?);
        let way = self.way_of(source).filter(|way| !way.contains(&own.machine.id))?;
        if !self.reaches(from, host) || source.paused_until_us > self.env.now_us {
            return None;
        }
        let last = own.raft().last_entry();
        let applied = source.machine.noted;
        let stretch = source.raft().stretch(last.0, last.1, applied, 1);
        let differs = source.raft().differs(last.0, &own.raft().tail(last.0), applied);
        let is_same = !matches!(stretch, Stretch::Differs(_)) && differs.is_none();
        assert!(is_same, "{from} has another history than {host}: {stretch:?} behind {last:?}, {differs:?}");
        trace!(self.env, "{host} follows {from} behind {last:?}");
        let stream = Stream {
            number: self.observers.next_stream,
            from: (from, source.boot),
            boot: own.boot,
            way,
            last,
            has_sent: false,
            beat_us: 0,
            arrives_us: 0,
            under_way: 0,
            held_until_us: 0,
            transfer: None,
            has_joined: false,
            began_us: self.env.now_us,
            heard_us: self.env.now_us,
            leaderless_us: None,
        };
        self.observers.next_stream += 1;
        self.observers.all[number].stream = Some(stream);
        self.note_followers(from);
        let own = self.hosts[host].process.as_mut()?;
        let began_unsettled = !own.has_taken_all();
        let outbox = own.machine.outbox.as_mut()?;
        (outbox.has_refused, outbox.began_unsettled) = (false, began_unsettled);
        Some(())
    }

    /// Members, and observers.
    fn sources(&self) -> impl Iterator<Item = usize> {
        let members = self.env.ledger.newest_conf_state().map(|(_, state)| state);
        let members = members.into_iter().flat_map(|state| state.voters.iter().chain(&state.learners));
        let members = members.filter_map(|id| self.env.addresses.get(id).copied());
        members.chain(self.observers.all.iter().map(|observer| observer.host))
    }

    /// Whether a connection between two hosts works.
    fn reaches(&self, one: usize, other: usize) -> bool {
        self.env.network.passes(one, other) && self.env.network.passes(other, one)
    }

    /// Tells a process's replica what those that follow it need of its log.
    fn note_followers(&mut self, from: usize) {
        let of = |observer: &&Observer| observer.stream.as_ref().is_some_and(|stream| stream.from.0 == from);
        let has_followers = self.observers.all.iter().any(|observer| of(&observer));
        let sent = self.observers.all.iter().filter_map(|observer| observer.snapshot);
        let sent = sent.filter(|(host, _)| *host == from).map(|(_, index)| index).min();
        if let Some(process) = &mut self.hosts[from].process {
            process.machine.observed = Observed { has_followers, sent };
        }
    }

    /// The sender's end: entries that were applied there, or a heartbeat, or a snapshot.
    fn feed(&mut self, number: usize) {
        let observer = &self.observers.all[number];
        let (host, now_us) = (observer.host, self.env.now_us);
        let Some(stream) = observer.stream.as_ref().filter(|stream| stream.transfer.is_none()) else { return };
        let from = stream.from.0;
        let Some(source) = &self.hosts[from].process else { return };
        if !self.reaches(from, host) || source.paused_until_us > now_us {
            return;
        }
        let is_careless = self.env.options.mutation == Some(Mutation::SendsObserversUncommitted);
        let applied = if is_careless { source.raft().last_entry().0 } else { source.machine.noted };
        let status = source.machine.published;
        let mut message = Message {
            to: Some(self.hosts[host].id),
            from: Some(status.leader),
            term: Some(status.term.max(stream.last.1)),
            ..Message::default()
        };
        match source.raft().stretch(stream.last.0, stream.last.1, applied, BATCH_BYTES) {
            Stretch::Entries(entries) if !stream.has_sent || !entries.is_empty() => {
                message.r#type = Some(MessageType::MsgApp as i32);
                (message.index, message.log_term) = (Some(stream.last.0), Some(stream.last.1));
                let last = entries.last().map_or(stream.last, |entry| (entry.index(), entry.term()));
                message.term = Some(message.term().max(last.1));
                message.commit = Some(last.0);
                message.entries = entries;
                self.send_on(number, last, message);
            }
            Stretch::Trimmed if stream.under_way == 0 => self.send_snapshot(number, message),
            Stretch::Trimmed => {}
            Stretch::Differs(ours) => panic!("{from} has an entry of term {ours} at {:?}", stream.last),
            _ if now_us >= stream.beat_us + self.env.plan.tick_us.min(100_000) => {
                message.r#type = Some(MessageType::MsgHeartbeat as i32);
                message.commit = Some(applied);
                self.send_on(number, stream.last, message);
            }
            _ => {}
        }
    }

    /// Sends a message on a stream, which keeps their order.
    fn send_on(&mut self, number: usize, last: (u64, u64), message: Message) {
        let delay_us = self.env.network.delay(&mut self.observers.random);
        let Some(stream) = &mut self.observers.all[number].stream else { return };
        stream.has_sent |= message.r#type() == MessageType::MsgApp;
        stream.last = last;
        stream.beat_us = self.env.now_us;
        stream.under_way += 1;
        stream.arrives_us = stream.arrives_us.max(self.env.now_us + delay_us);
        let (at_us, stream) = (stream.arrives_us, stream.number);
        self.env.schedule.at(at_us, Event::Fed { number, stream, message: Box::new(message) });
    }

    fn send_snapshot(&mut self, number: usize, mut message: Message) {
        let observer = &self.observers.all[number];
        let Some(from) = observer.stream.as_ref().map(|stream| stream.from.0) else { return };
        let to = observer.host;
        let Some(process) = self.hosts[from].process.as_mut() else { return };
        if !process.machine.can_capture() {
            return;
        }
        let export = Arc::new(process.machine.applier.export());
        let metadata = SnapshotMetadata {
            conf_state: Some(export.conf_state().clone()),
            index: Some(export.index()),
            term: Some(export.term()),
        };
        message.r#type = Some(MessageType::MsgSnap as i32);
        message.term = Some(message.term().max(export.term()));
        message.snapshot = Some(Snapshot { data: None, metadata: Some(metadata) });
        let index = export.index();
        let transfer = self.begin_transfer_between(from, to, message, export);
        let observer = &mut self.observers.all[number];
        if let Some(stream) = &mut observer.stream {
            stream.transfer = transfer;
        }
        self.keep_behind(number, Some((from, index)));
    }

    /// Notes the snapshot that an observer was sent, behind which its sender keeps what follows.
    fn keep_behind(&mut self, number: usize, snapshot: Option<(usize, u64)>) {
        let before = std::mem::replace(&mut self.observers.all[number].snapshot, snapshot);
        for (host, _) in before.into_iter().chain(snapshot) {
            self.note_followers(host);
        }
    }

    /// Ends the transfer of a snapshot to an observer, which follows anew then. Returns whether it was one.
    pub(crate) fn end_fed_transfer(&mut self, transfer: u64, ok: bool) -> bool {
        let is_of = |observer: &Observer| observer.stream.as_ref().and_then(|stream| stream.transfer) == Some(transfer);
        let Some(number) = self.observers.all.iter().position(is_of) else { return false };
        let kept = self.observers.all[number].snapshot;
        self.leave_stream(number, if ok { "a snapshot is installed" } else { "a snapshot was not installed" });
        if ok {
            self.observers.counts.installs += 1;
            // What follows the snapshot stays there until it follows again.
            self.observers.all[number].retry_us = 0;
            self.keep_behind(number, kept);
        }
        true
    }

    /// The observer's end: a message arrives.
    pub(crate) fn fed(&mut self, number: usize, of_stream: u64, message: Message) {
        let now_us = self.env.now_us;
        let observer = &self.observers.all[number];
        let Some(stream) = observer.stream.as_ref().filter(|stream| stream.number == of_stream) else { return };
        let (mut held_until_us, reaches) = (stream.held_until_us, self.reaches(stream.from.0, observer.host));
        if !reaches && held_until_us <= now_us {
            // The connection repeats what was lost, and what comes behind it waits.
            held_until_us = now_us + REPEAT_US;
        }
        if held_until_us > now_us {
            let event = Event::Fed { number, stream: of_stream, message: Box::new(message) };
            self.env.schedule.at(held_until_us, event);
            if let Some(stream) = &mut self.observers.all[number].stream {
                stream.held_until_us = held_until_us;
            }
            return;
        }
        let observer = &self.observers.all[number];
        let Some(stream) = &observer.stream else { return };
        let (boot, host) = (stream.boot, observer.host);
        let is_first = !stream.has_joined && message.r#type() == MessageType::MsgApp;
        let observer = &mut self.observers.all[number];
        let Some(stream) = &mut observer.stream else { return };
        stream.heard_us = now_us;
        stream.under_way -= 1;
        stream.has_joined |= is_first;
        let knows_leader = message.from() != 0;
        stream.leaderless_us = if knows_leader { None } else { stream.leaderless_us.or(Some(now_us)) };
        // What is behind this observer is not believed.
        let (is_believed, chained) = (stream.has_joined, stream.way.len() > 1);
        if is_first {
            self.observers.counts.streams += 1;
            self.observers.counts.behind_observers += u64::from(chained);
            self.keep_behind(number, None);
        }
        if let Some(process) = self.hosts[host].process(boot).filter(|_| is_believed) {
            trace!(self.env, "{host} <- {}", crate::show::message(&message));
            process.receive(&mut self.env, message);
        }
    }

    /// An observer that follows asks for a read index of its own, and is level with the answer.
    fn become_level(&mut self, number: usize) {
        let observer = &self.observers.all[number];
        let host = observer.host;
        let Some(process) = &self.hosts[host].process else { return };
        let (boot, outbox) = (process.boot, process.machine.outbox.as_ref());
        if observer.levels.is_none() && outbox.is_some_and(|outbox| !outbox.is_published) {
            self.observers.all[number].levels = Some((self.ask(host, Request::ReadIndex), boot));
        }
    }

    /// Passes on what the observers' consensus has for what they follow.
    pub(crate) fn pass_on(&mut self) {
        for number in 0..self.observers.all.len() {
            let observer = &mut self.observers.all[number];
            let Some(process) = &mut self.hosts[observer.host].process else { continue };
            let (id, Some(outbox)) = (process.machine.id, &mut process.machine.outbox) else { continue };
            let (questions, proposals) = (std::mem::take(&mut outbox.questions), std::mem::take(&mut outbox.proposals));
            let Some(stream) = observer.stream.as_ref().filter(|stream| stream.has_joined) else { continue };
            let (from, stream) = (stream.from, stream.number);
            for question in &questions {
                self.env.ledger.sends(id, question);
            }
            observer.questions.extend(questions);
            // Questions that come while others are under way wait for the next call: its answer is from after they came.
            let asks = observer.asked.is_none() && !observer.questions.is_empty();
            let host = observer.host;
            if asks && self.reaches(from.0, host) {
                let operation = self.ask(from.0, Request::ReadIndex);
                let observer = &mut self.observers.all[number];
                let questions = std::mem::take(&mut observer.questions);
                observer.asked = Some((operation, stream, questions));
            }
            for mut message in proposals {
                // Each is sent once, and lost if the connection is.
                message.to = Some(self.hosts[from.0].id);
                if self.reaches(from.0, host) {
                    let delay_us = self.env.network.delay(&mut self.observers.random);
                    self.env.after(delay_us, Event::Deliver { from: id, to: from.0, message: Box::new(message) });
                }
            }
        }
    }

    /// Takes the answer to an observer's question, or to whether it is level.
    pub(crate) fn answer_observer(&mut self, operation: usize, answer: &Answer) {
        let levels = |observer: &&mut Observer| observer.levels.is_some_and(|(asked, _)| asked == operation);
        if let Some(observer) = self.observers.all.iter_mut().find(levels) {
            let boot = observer.levels.take().map(|(_, boot)| boot);
            let host = &mut self.hosts[observer.host];
            let process = host.process.as_mut().filter(|process| Some(process.boot) == boot);
            let outbox = process.and_then(|process| process.machine.outbox.as_mut());
            if let (Answer::ReadIndex { .. }, Some(outbox), Some(known)) = (answer, outbox, &mut host.observing) {
                (outbox.is_published, known.was_level) = (true, true);
            }
        }
        let is_asked = |observer: &Observer| observer.asked.as_ref().is_some_and(|(asked, ..)| *asked == operation);
        let Some(number) = self.observers.all.iter().position(is_asked) else { return };
        let observer = &mut self.observers.all[number];
        let Some((_, stream, questions)) = observer.asked.take() else { return };
        let Some(stream) = observer.stream.as_ref().filter(|now| now.number == stream) else { return };
        let (from, host, boot) = (stream.from.0, observer.host, stream.boot);
        let Answer::ReadIndex { applied } = *answer else { return };
        if !self.reaches(from, host) {
            return;
        }
        let Some(process) = self.hosts[host].process(boot) else { return };
        let (id, term) = (process.machine.id, process.machine.published.term);
        for question in questions {
            let answer = Message {
                r#type: Some(MessageType::MsgReadIndexResp as i32),
                to: Some(id),
                from: question.to,
                term: Some(term),
                index: Some(applied),
                entries: question.entries,
                ..Message::default()
            };
            process.receive(&mut self.env, answer);
        }
    }
}
