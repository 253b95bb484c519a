//! What the consensus thread owns: the Raft core, and everything that waits for it.
//!
//! It is behind a lock only because, while the consensus thread waits for the disk, the timer thread may have to stand in for it.
//! Nothing here waits for the log's disk.

use super::apply::Apply;
use super::inbox::{Arrived, Released};
use super::proposals::Proposals;
use super::rooms::{NoEnd, Word};
use super::transfer::{Install, Sending};
use super::{Done, Node, REVOKE_RETRY, entry, lock, lost_log, membership};
use crate::logging::{self, Pace, Value};
use crate::overload::Class;
use crate::peers::Origin;
use api::{Error, Message, limits, raftpb, walpb};
use replica::{Backlog, Member, Piece, Role, Takeover, Work};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Applied entries that gather in memory before they are forgotten.
const TRIM_ENTRIES: u64 = 100;
/// Sent to a follower that is far behind, and how often: 64 MiB per second, in parts that take the leader half a millisecond.
const LAGGING_BYTES: u64 = 128 << 10;
const LAGGING_PAUSE: Duration = Duration::from_millis(2);
/// Time between two lines about refused messages.
const REFUSED_LINES_MS: u64 = 1_000;

/// Work for the log's disk.
pub(super) struct Unsynced {
    pub(super) number: u64,
    pub(super) snapshot: Option<walpb::Snapshot>,
    pub(super) entries: Vec<raftpb::Entry>,
    pub(super) hard_state: Option<raftpb::HardState>,
    pub(super) must_sync: bool,
    /// To peers, once it is durable.
    messages: Vec<raftpb::Message>,
}

pub(super) struct Core {
    pub(super) node: Arc<Node>,
    pub(super) member: Member,
    apply: Apply,
    backlog: Backlog,
    proposals: Proposals,
    sending: Sending,
    /// States that came from other members, until the store has applied all it was given.
    installs: VecDeque<Install>,
    /// The state that the member is about to be told of.
    installing: Option<Install>,
    /// Told once the installed state is durable.
    installed: Vec<SyncSender<Result<(), String>>>,
    /// In order.
    pub(super) unsynced: Vec<Unsynced>,
    /// Since when the consensus thread has been waiting for the disk.
    pub(super) syncing_since: Option<Instant>,
    pub(super) release: Option<Released>,
    pub(super) stop: bool,
    next_tick: Instant,
    /// When followers that are far behind are sent more; there are some if it is set.
    next_lagging: Option<Instant>,
    last_tick: Instant,
    /// When members were last known to be active; empty on one that does not lead.
    heard: BTreeMap<u64, Instant>,
    was_leader: bool,
    leader: u64,
    refused: u64,
    refused_line_ms: u64,
}

impl Core {
    pub(super) fn new(node: Arc<Node>, member: Member, apply: Apply) -> Self {
        let now = Instant::now();
        Core {
            node,
            member,
            apply,
            backlog: Backlog::default(),
            proposals: Proposals::default(),
            sending: Sending::default(),
            installs: VecDeque::new(),
            installing: None,
            installed: Vec::new(),
            unsynced: Vec::new(),
            syncing_since: None,
            release: None,
            stop: false,
            next_tick: now,
            next_lagging: None,
            last_tick: now,
            heard: BTreeMap::new(),
            was_leader: false,
            leader: 0,
            refused: 0,
            refused_line_ms: 0,
        }
    }

    /// Before the first turn.
    pub(super) fn begin(&mut self) {
        let heartbeat = self.node.config.heartbeat;
        self.next_tick = Instant::now() + heartbeat;
        self.last_tick = Instant::now();
        if self.member.status().sole_voter {
            // Nobody else could be elected: there is nothing to wait for.
            if let Err(error) = self.member.campaign() {
                logging::warn("cannot stand for election", &[("error", Value::Shown(&error))]);
            }
        } else if self.node.config.pre_vote && self.node.config.election_tick_advance {
            // A leader that is there is heard of before the rest of the time is over, and asking for votes first disturbs none.
            self.member.advance_election(self.node.config.election_ticks().saturating_sub(2));
        }
    }

    /// Takes in what has arrived.
    pub(super) fn accept(&mut self, arrived: Arrived) {
        self.stop |= arrived.stop;
        let is_behind = self.apply.bytes() + self.backlog.bytes() > limits::APPLY_QUEUE_BYTES_MAX;
        for (message, origin) in arrived.messages {
            match message.r#type() {
                // A state comes with its data or not at all.
                raftpb::MessageType::MsgSnap => {}
                // Sent again once there is room.
                raftpb::MessageType::MsgApp if is_behind && !message.entries.is_empty() => {}
                // What nobody can apply would end every member.
                raftpb::MessageType::MsgProp if is_behind || !is_applicable(&message) => self.refused += 1,
                _ => {
                    let word = Word::of(&message);
                    if self.step(message, origin)
                        && let Some(word) = word
                    {
                        self.hear(word);
                    }
                }
            }
        }
        self.installs.extend(arrived.installs);
        self.proposals.add_urgent(&self.node, &mut self.member, arrived.urgent);
        if is_behind {
            refuse(&self.node, arrived.proposals);
        } else {
            self.proposals.add(&self.node, &mut self.member, arrived.proposals);
        }
        self.proposals.add_changes(&self.node, arrived.changes);
        if !arrived.reads.is_empty() {
            self.node.reads.add(&self.node, arrived.reads, self.node.now_ms());
        }
        for id in arrived.unreachable {
            self.member.report_unreachable(id);
        }
        for (id, ok) in arrived.states_sent {
            self.sending.sent(&mut self.member, id, ok);
        }
        if let Some(to) = arrived.transfer
            && let Err(error) = self.member.transfer(to)
        {
            logging::warn("cannot hand leadership over", &[("error", Value::Shown(&error))]);
        }
        for answer in arrived.progress {
            answer(self.member.progress());
        }
        if arrived.release_below.is_some() {
            self.release = arrived.release_below;
        }
    }

    /// Sees to it that clients wait no longer than they should, and nothing else: the disk does not answer.
    pub(super) fn keep_time(&mut self, arrived: Arrived) {
        let now_ms = self.node.now_ms();
        self.proposals.add_held(&self.node, arrived.urgent, arrived.proposals);
        self.proposals.add_changes(&self.node, arrived.changes);
        self.node.reads.add(&self.node, arrived.reads, now_ms);
        self.node.reads.tick(&mut self.member, now_ms);
        self.proposals.tick(&self.node);
    }

    /// Notes what another member tells of its disk.
    fn hear(&self, word: Word) {
        let conf_state = self.member.conf_state();
        if conf_state.voters.contains(&word.from) || conf_state.learners.contains(&word.from) {
            self.node.rooms.hear(word, &self.member.status(), self.node.now_ms());
        }
    }

    /// Whether Raft has taken the message, if only to find that it is late.
    fn step(&mut self, message: raftpb::Message, origin: Origin) -> bool {
        let from = message.from();
        let error = match self.member.step(message) {
            Ok(()) => return true,
            Err(replica::Error::LogLost(proof)) => lost_log::end(&self.node, &proof),
            Err(error) => error,
        };
        self.refused += 1;
        let is_claim = matches!(&error, replica::Error::Message(refusal) if refusal.is_claim());
        let metrics = &self.node.metrics;
        let counter = if is_claim { &metrics.claims_refused } else { &metrics.messages_refused };
        counter.fetch_add(1, Ordering::Relaxed);
        // What was posted in a member's name says nothing against that member's streams.
        if is_claim
            && origin == Origin::Stream
            && !self.node.config.unsafe_ignore_lost_log
            && let Some(peers) = self.node.peers.get()
        {
            peers.hang_up(from);
        }
        let now_ms = self.node.now_ms();
        if now_ms >= self.refused_line_ms {
            self.refused_line_ms = now_ms + REFUSED_LINES_MS;
            logging::warn(
                "refused a Raft message",
                &[
                    ("from", Value::Shown(&format_args!("{from:x}"))),
                    ("error", Value::Shown(&error)),
                    ("refused-so-far", self.refused.into()),
                ],
            );
        }
        false
    }

    /// Not while the store has anything to apply, nor while another state is on its way to the disk: that would be waited for here.
    fn next_install(&mut self) -> Option<Install> {
        let waits = !self.installs.is_empty() && self.backlog.is_empty() && self.installed.is_empty();
        if waits && self.apply.is_idle_or_tells() { self.installs.pop_front() } else { None }
    }

    fn install(&mut self, install: Install) {
        let message = install.message.clone();
        let index = install.prepared.index();
        if !install.is_what_is_named() {
            let _ = install.answer.try_send(Err("the message names another state than the one that came".into()));
            return;
        }
        self.installing = Some(install);
        self.step(message, Origin::Request);
        while self.member.has_work() {
            let work = self.member.work();
            self.finish(work);
        }
        // Taken by the work that names it, or of no use: then this member is further already, or follows another leader.
        if let Some(left) = self.installing.take() {
            let is_level = self.member.status().committed >= index;
            let result = if is_level { Ok(()) } else { Err("the state was not wanted".to_string()) };
            // Its sender may have given up.
            let _ = left.answer.try_send(result);
        }
    }

    /// Does all the work there is but that of the log's disk.
    pub(super) fn advance(&mut self) {
        loop {
            self.hand_on();
            self.member.applied(self.node.status.applied());
            self.proposals.retry(&self.node, &mut self.member);
            self.node.reads.ask(&mut self.member, &self.node);
            self.sending.offer(&mut self.member, &self.apply);
            if self.member.has_work() {
                let work = self.member.work();
                self.finish(work);
            } else if let Some(install) = self.next_install() {
                self.install(install);
            } else {
                return;
            }
        }
    }

    fn finish(&mut self, work: Work) {
        let snapshot = work.snapshot.and_then(|snapshot| snapshot.metadata).map(|metadata| self.take_over(metadata));
        // Followers write to their disks while this member does.
        self.send(work.messages);
        self.unsynced.push(Unsynced {
            number: work.number,
            snapshot,
            entries: work.entries,
            hard_state: work.hard_state,
            must_sync: work.must_sync,
            messages: work.persisted_messages,
        });
        for (number, index) in work.reads {
            self.node.reads.answered(number, index);
        }
        self.backlog.add(work.number, work.committed);
        self.hand_on();
    }

    /// Gives the store what it can be given now.
    fn hand_on(&mut self) {
        while let Some(piece) = self.backlog.next(|| self.apply.is_idle_or_tells()) {
            match piece {
                Piece::Entries(entries) => self.apply.committed(entries),
                Piece::Change(entry) => self.change(&entry),
            }
        }
    }

    /// A change of the members takes effect, in the store and in Raft; then it is answered.
    fn change(&mut self, entry: &raftpb::Entry) {
        let (node, member) = (&self.node, &mut self.member);
        self.apply.change(entry, |change| {
            let taken = member.apply_conf_change(change);
            if let Err(error) = &taken {
                logging::error("a configuration change failed", &[("error", Value::Shown(error))]);
            }
            membership::changed(node, change);
            taken.ok()
        });
    }

    /// Puts the state that Raft now goes on from into the store.
    fn take_over(&mut self, metadata: raftpb::SnapshotMetadata) -> walpb::Snapshot {
        let Some(install) = self.installing.take() else {
            unreachable!("Raft took a state that was not there");
        };
        assert_eq!(install.prepared.index(), metadata.index(), "Raft took another state than the one that came");
        self.apply.install(install.prepared);
        membership::replaced(&self.node);
        self.installed.push(install.answer);
        walpb::Snapshot { index: metadata.index, term: metadata.term, conf_state: metadata.conf_state }
    }

    fn send(&mut self, mut messages: Vec<raftpb::Message>) {
        let Some(peers) = self.node.peers.get().filter(|_| !messages.is_empty()) else { return };
        let is_state = |message: &raftpb::Message| message.r#type() == raftpb::MessageType::MsgSnap;
        if messages.iter().any(is_state) {
            for state in messages.extract_if(.., |message| is_state(message)) {
                self.sending.send(peers, state, &self.node);
            }
        }
        self.node.rooms.tell(&mut messages);
        peers.send(&messages);
    }

    /// This work is on the disk.
    pub(super) fn persisted(&mut self, work: Vec<Unsynced>) {
        let Some(last) = work.last().map(|last| last.number) else { return };
        let installed = work.iter().any(|work| work.snapshot.is_some());
        let messages: Vec<raftpb::Message> = work.into_iter().flat_map(|work| work.messages).collect();
        self.send(messages);
        self.member.persisted(last);
        self.backlog.persisted(last);
        if installed {
            for answer in self.installed.drain(..) {
                // Its sender may have given up.
                let _ = answer.try_send(Ok(()));
            }
        }
    }

    /// Tells everyone where the member stands now.
    pub(super) fn settle(&mut self) {
        let status = self.member.status();
        self.node.status.publish(&status, self.node.now_ms());
        self.trim(&status);
        self.node.status.set_log_bytes(self.member.log_bytes());
        if (status.role == Role::Leader) != self.was_leader {
            self.change_leadership(status.role == Role::Leader);
        }
        if status.leader != self.leader {
            self.leader = status.leader;
            if status.leader != 0 {
                self.node.reads.leader_changed(&self.node, &mut self.member);
            }
            logging::info(
                if status.leader == 0 { "lost the leader" } else { "found a leader" },
                &[
                    ("leader", Value::Shown(&format_args!("{:x}", status.leader))),
                    ("term", status.term.into()),
                    ("local-member-id", Value::Shown(&format_args!("{:x}", self.node.member_id))),
                ],
            );
        }
        self.node.reads.release(&self.node);
    }

    /// Entries stay in memory for followers that lag; a member alone needs none of them. However far they lag, what stays is
    /// bounded in bytes.
    fn trim(&mut self, status: &replica::Status) {
        let keep = if status.sole_voter { 0 } else { self.node.config.catchup_entries };
        let is_due = self.member.log_len() as u64 > keep + TRIM_ENTRIES;
        let sent = self.sending.keep_behind();
        // A member that has just taken a state is sent what came meanwhile, or it would need the next one at once.
        let needed = if is_due { self.furthest_behind().into_iter().chain(sent).min() } else { sent };
        let bytes_max = match needed {
            Some(_) => limits::LOG_MEMORY_SENDING_BYTES_MAX,
            None => limits::LOG_MEMORY_BYTES_MAX,
        };
        if is_due {
            let below = status.applied.saturating_sub(keep);
            self.member.trim(needed.map_or(below, |needed| below.min(needed)));
        }
        if self.member.log_bytes() > bytes_max {
            // A little more, or it would be looked for after each entry.
            self.member.trim(self.member.trim_to_fit(bytes_max - bytes_max / 16));
        }
    }

    /// How far the slowest of the members is that answer and are not being sent a state.
    fn furthest_behind(&self) -> Option<u64> {
        // Raft forgets every election timeout who was active.
        let patience = 2 * self.node.config.election_timeout;
        let answers = |id| self.heard.get(&id).is_some_and(|at| at.elapsed() < patience);
        let members = self.member.progress().into_iter();
        members.filter(|one| answers(one.id) && one.mode != replica::Mode::Snapshot).map(|one| one.matched).min()
    }

    /// Notes who is there.
    fn look_around(&mut self, now: Instant) {
        let members = self.member.progress();
        self.heard.retain(|id, _| members.iter().any(|member| member.id == *id));
        self.heard.extend(members.iter().filter(|member| member.recently_active).map(|member| (member.id, now)));
    }

    /// Whose disks count, and which claims are settled.
    fn look_at_rooms(&self, now_ms: u64) {
        let conf_state = self.member.conf_state();
        let is_member = |id: u64| conf_state.voters.contains(&id) || conf_state.learners.contains(&id);
        let members = (conf_state.voters.len() + conf_state.learners.len()) as u64;
        let patience_ms = 2 * self.node.config.election_timeout.as_millis() as u64;
        let rooms = &self.node.rooms;
        rooms.look_around(members, is_member, now_ms.saturating_sub(patience_ms));
        let retry_ms = (self.member.status().leader == 0).then_some(patience_ms);
        rooms.release(self.member.last_index(), self.node.status.applied(), now_ms, retry_ms);
    }

    fn change_leadership(&mut self, leads: bool) {
        self.was_leader = leads;
        let now_ms = self.node.now_ms();
        let mut lessor = lock(&self.node.lessor);
        if leads {
            let extension_ms = self.node.config.election_timeout.as_millis() as u64;
            let leases = self.node.store.leases().list();
            let leases = leases.into_iter().map(|lease| (lease.id, lease.ttl, lease.remaining_ttl));
            // Of those that are over at once, as many as leave room for others in each round.
            let rounds = 1000 / self.node.config.heartbeat.as_millis().max(1) as usize;
            let per_second_max = limits::LEASE_REVOKE_BATCH_MAX * rounds.max(1) * 3 / 4;
            lessor.promote(leases, Takeover { extension_ms, per_second_max }, now_ms);
        } else {
            lessor.demote();
            self.sending.lost_leadership(&mut self.member);
        }
        drop(lessor);
        logging::info(
            if leads { "became leader" } else { "no longer leader" },
            &[("term", self.member.status().term.into())],
        );
    }

    /// When there is something to do even if nothing arrives.
    pub(super) fn deadline(&self) -> Instant {
        self.next_lagging.map_or(self.next_tick, |lagging| lagging.min(self.next_tick))
    }

    /// What the clock brings, if anything is due.
    pub(super) fn tick_if_due(&mut self) {
        let now = Instant::now();
        self.send_lagging(now);
        if now < self.next_tick {
            return;
        }
        let heartbeat = self.node.config.heartbeat;
        if self.was_leader && now - self.last_tick > 2 * heartbeat + heartbeat && !self.member.status().sole_voter {
            self.node.metrics.heartbeat_failures.fetch_add(1, Ordering::Relaxed);
            logging::warn(
                "leader failed to send out heartbeat on time; took too long, leader is overloaded likely from slow disk",
                &[("took", Value::Shown(&format_args!("{:?}", now - self.last_tick)))],
            );
        }
        self.last_tick = now;
        // After a stall one tick stands for all that were missed: nobody else could act meanwhile either.
        self.next_tick = now + heartbeat;
        self.look_around(now);
        self.member.tick();
        let now_ms = self.node.now_ms();
        self.look_at_rooms(now_ms);
        // Asked of Raft and not of what was last settled: after a stall the messages of another leader came in just before this.
        if self.leads_for_sure() {
            let retry_ms = REVOKE_RETRY.as_millis() as u64;
            let expired = lock(&self.node.lessor).expired(now_ms, limits::LEASE_REVOKE_BATCH_MAX, retry_ms);
            if !expired.is_empty() {
                self.revoke(expired);
            }
        }
        self.node.reads.tick(&mut self.member, now_ms);
        self.proposals.tick(&self.node);
        self.sending.tick(&mut self.member);
        if self.syncing_since.is_none() {
            self.apply.tick();
        }
    }

    fn send_lagging(&mut self, now: Instant) {
        if self.next_lagging.is_some_and(|at| now >= at) {
            self.member.send_lagging(LAGGING_BYTES);
            self.next_lagging = None;
        }
        if self.next_lagging.is_none() && self.member.has_lagging() {
            self.next_lagging = Some(now + LAGGING_PAUSE);
        }
    }

    fn revoke(&mut self, leases: Vec<i64>) {
        let mut batch = Vec::with_capacity(leases.len());
        let (mut waiting, mut is_room_missing) = (0_u32, false);
        for lease in leases {
            // One that does not end now is due again after a while.
            let claim = match self.node.claim_lease_end(lease) {
                Ok(claim) => claim,
                Err(NoEnd::UnderWay) => continue,
                Err(reason) => {
                    waiting += 1;
                    is_room_missing |= reason == NoEnd::RoomMissing;
                    continue;
                }
            };
            let id = self.node.next_request.fetch_add(1, Ordering::Relaxed);
            let request = api::etcdserverpb::LeaseRevokeRequest { id: lease };
            let data = entry::wrap(id, self.node.as_member(), entry::LEASE_REVOKE, &request.encode_to_vec()).into();
            let node = Arc::downgrade(&self.node);
            let done: Done = Box::new(move |outcome: super::Outcome| {
                let Some(node) = node.upgrade() else { return };
                if matches!(outcome, Err(Error::LeaseNotFound)) {
                    lock(&node.lessor).revoke(lease);
                }
                claim.end(&node, &outcome);
            });
            batch.push(super::inbox::Proposal {
                id,
                class: Class::Lease,
                data,
                done,
                since: Instant::now(),
                term: None,
            });
        }
        static PACE: Pace = Pace::new();
        if waiting > 0
            && let Some(left_out) = PACE.line()
        {
            logging::warn(
                "expired leases wait for room on the disk",
                &[("leases", u64::from(waiting).into()), ("lines-left-out", left_out.into())],
            );
        }
        if is_room_missing {
            self.node.raise_no_space();
        }
        self.node.metrics.leases_expired.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.node.metrics.proposals_pending.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.proposals.add_now(&self.node, &mut self.member, batch);
    }

    /// Leads, and is not about to hand over: what is proposed now is not forwarded to another leader, nor held for the next.
    fn leads_for_sure(&self) -> bool {
        let status = self.member.status();
        status.role == Role::Leader && status.transferee == 0
    }

    /// Whether others could lead in this member's place.
    pub(super) fn leads_others(&self) -> bool {
        self.was_leader && !self.member.status().sole_voter
    }

    /// Ends applying and answers everyone who still waits.
    pub(super) fn end(&mut self) {
        self.apply.stop();
        self.node.pending.fail_all(Error::Stopped);
        self.node.reads.fail_all(Error::Stopped);
        self.installs.clear();
        self.installed.clear();
    }
}

/// Whether all that another member proposes can be read as a request.
fn is_applicable(message: &raftpb::Message) -> bool {
    let is_request = |entry: &raftpb::Entry| entry.data.as_ref().is_none_or(store::is_request);
    message.entries.iter().filter(|entry| entry.r#type() == raftpb::EntryType::EntryNormal).all(is_request)
}

fn refuse(node: &Arc<Node>, proposals: Vec<super::inbox::Proposal>) {
    let count = proposals.len() as u64;
    node.metrics.proposals_pending.fetch_sub(count, Ordering::Relaxed);
    node.metrics.proposals_failed.fetch_add(count, Ordering::Relaxed);
    for proposal in proposals {
        proposal.done.end(Err(node.refuse(proposal.class)));
    }
}
