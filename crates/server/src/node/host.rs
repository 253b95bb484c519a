//! The process around a replica, as the replica sees it: the store behind the apply thread, the peers, those who wait, the log lines.

use super::apply::Apply;
use super::headroom::NoEnd;
use super::inbox::{InstallAnswer, Mark, Proposal, Read, Waiter};
use super::peer_handler::Sending;
use super::{Node, entry, lost_log, membership};
use crate::cluster;
use crate::overload::Class;
use api::raftpb::{ConfChange, ConfState, Entry, Message, SnapshotMetadata};
use api::{Error, Message as _, RaftRequest};
use peer::Origin;
use replica::{Error as RaftError, Lessor, Member, Note, Now, Observed, Pending, Proof, ReadIndex, Shell, Status};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::{Export, Prepared, Store};
use telemetry::logging::{self, Pace, Value};

/// Least time between two log lines about refused messages.
const REFUSED_LINES_MS: u64 = 1_000;

pub(super) struct Host {
    pub(super) node: Arc<Node>,
    pub(super) apply: Apply,
    /// Messages of peers that were refused so far.
    refused: u64,
    refused_line_ms: u64,
    /// Expired leases for whose keys the disks have no headroom.
    waiting_leases: u64,
    /// At least one of these leases needs more than the whole headroom.
    is_headroom_missing: bool,
    /// The leader that was told of last; 0 for none.
    leader: u64,
}

impl Host {
    pub(super) fn new(node: Arc<Node>, apply: Apply) -> Host {
        Host { node, apply, refused: 0, refused_line_ms: 0, waiting_leases: 0, is_headroom_missing: false, leader: 0 }
    }
}

impl Shell for Host {
    type Mark = Mark;
    type Waiter = Waiter;
    type Read = Read;
    type Source = InstallAnswer;
    // A store that fails ends the process.
    type Fault = Infallible;

    fn pending<T>(&mut self, look: impl FnOnce(&mut Pending<Waiter>) -> T) -> T {
        self.node.pending.with(look)
    }

    fn read_index<T>(&mut self, look: impl FnOnce(&mut ReadIndex<Read>) -> T) -> T {
        self.node.reads.with(look)
    }

    fn has_reads(&self) -> bool {
        self.node.reads.count() > 0
    }

    fn lessor<T>(&mut self, look: impl FnOnce(&mut Lessor, &Store) -> T) -> T {
        self.node.lessor.with(|lessor| look(lessor, &self.node.store))
    }

    fn message_taken(&mut self, raft: &Member, mark: Mark) {
        let Some(report) = mark.report else { return };
        let conf_state = raft.conf_state();
        if conf_state.voters.contains(&report.from) || conf_state.learners.contains(&report.from) {
            let observes = self.node.link.is_some();
            self.node.headroom.hear(report, &raft.status(), observes, self.node.now_ms());
        }
    }

    fn message_refused(&mut self, from: u64, mark: Option<Mark>, error: &RaftError) {
        self.refused += 1;
        // Proposals of other observers come in requests, and say nothing about what is followed.
        let is_followed = mark.as_ref().is_none_or(|mark| mark.origin == Origin::Stream);
        if let Some(link) = self.node.link.as_ref().filter(|_| is_followed) {
            link.refuse(error.to_string());
        }
        let is_claim = matches!(error, RaftError::Message(refusal) if refusal.is_claim());
        let metrics = &self.node.metrics;
        let counter = if is_claim { &metrics.claims_refused } else { &metrics.messages_refused };
        counter.fetch_add(1, Ordering::Relaxed);
        // A posted message does not prove which member sent it, so only one from a stream is a reason to close the
        // streams.
        if is_claim
            && mark.is_some_and(|mark| mark.origin == Origin::Stream)
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
                    ("error", Value::Shown(error)),
                    ("refused-so-far", self.refused.into()),
                ],
            );
        }
    }

    fn send(&mut self, mut messages: Vec<Message>) {
        if let Some(link) = &self.node.link {
            return link.send(messages);
        }
        let Some(peers) = self.node.peers.get().filter(|_| !messages.is_empty()) else { return };
        self.node.headroom.tell(&mut messages);
        peers.send(&messages);
    }

    fn send_snapshot(&mut self, message: Message, export: Arc<Export>) {
        failpoint::point!(SNAPSHOT_BEFORE_SEND);
        if let Some(peers) = self.node.peers.get() {
            let node = Arc::downgrade(&self.node);
            peers.send_snapshot(message, Arc::new(Sending { export, node }));
        }
    }

    fn applied(&self) -> u64 {
        self.node.status.applied()
    }

    fn observed(&self) -> Observed {
        self.node.followers.observed(|| self.node.now_ms())
    }

    fn apply_queue_bytes(&self) -> usize {
        self.apply.bytes()
    }

    fn is_store_idle_or_tells(&mut self) -> bool {
        self.apply.is_idle_or_tells()
    }

    fn wait_for_applied(&mut self, index: Option<u64>) -> bool {
        self.node.status.wait_for(index)
    }

    fn apply(&mut self, entries: Vec<Entry>) -> Result<(), Infallible> {
        self.apply.committed(entries);
        Ok(())
    }

    fn apply_conf_change(
        &mut self,
        entry: &Entry,
        mut take_effect: impl FnMut(&ConfChange) -> Option<ConfState>,
    ) -> Result<(), Infallible> {
        let node = &self.node;
        self.apply.conf_change(entry, |change| {
            let conf_state = take_effect(change);
            membership::changed(node, change);
            conf_state
        });
        Ok(())
    }

    fn install(&mut self, prepared: Prepared, _metadata: &SnapshotMetadata) -> Result<(), Infallible> {
        self.apply.install(prepared);
        membership::replaced(&self.node);
        Ok(())
    }

    fn export(&mut self) -> Option<Export> {
        self.apply.export()
    }

    fn may_change(&mut self, change: &ConfChange) -> Result<(), Error> {
        cluster::change::may_be(&self.node, change)
    }

    fn end_proposals(&mut self, waiters: Vec<Waiter>, error: Error) {
        self.node.end_proposals(waiters, error);
    }

    fn end_reads(&mut self, reads: Vec<Read>, error: Error) {
        self.node.end_reads(reads, error);
    }

    fn end_install(&mut self, answer: InstallAnswer, result: Result<(), String>) {
        // The thread that waits for the result may have given up.
        let _ = answer.try_send(result);
    }

    fn revoke(&mut self, lease: i64) -> Option<Proposal> {
        let node = &self.node;
        let claim = match node.claim_lease_end(lease) {
            Ok(claim) => claim,
            Err(NoEnd::UnderWay) => return None,
            Err(reason) => {
                self.waiting_leases += 1;
                self.is_headroom_missing |= reason == NoEnd::HeadroomMissing;
                return None;
            }
        };
        failpoint::point!(LEASE_BEFORE_EXPIRE);
        let id = node.next_request.fetch_add(1, Ordering::Relaxed);
        let request = api::etcdserverpb::LeaseRevokeRequest { id: lease };
        let data = entry::wrap(id, node.as_member(), RaftRequest::LeaseRevoke, &request.encode_to_vec()).into();
        let weak = Arc::downgrade(node);
        let done: super::Done = Box::new(move |outcome: super::Outcome| {
            let Some(node) = weak.upgrade() else { return };
            if matches!(outcome, Err(Error::LeaseNotFound)) {
                node.lessor.with(|lessor| lessor.revoke(lease));
            }
            claim.end(&node, &outcome);
        });
        node.metrics.proposals_pending.fetch_add(1, Ordering::Relaxed);
        Some(Proposal { id, data, waiter: Waiter::new(done, Class::Lease), term: None })
    }

    fn publish(&mut self, status: &Status, log_bytes: u64, now: Now) {
        self.node.status.publish(status, now.ms);
        self.node.status.set_log_bytes(log_bytes);
    }

    fn note(&mut self, note: Note<'_>) {
        let metrics = &self.node.metrics;
        match note {
            Note::Leader { leader, term } => {
                let before = std::mem::replace(&mut self.leader, leader);
                let text = leader_line(self.node.member_id, before, leader, term);
                logging::info(
                    &text,
                    &[
                        ("leader", Value::Shown(&format_args!("{leader:x}"))),
                        ("term", term.into()),
                        ("local-member-id", Value::Shown(&format_args!("{:x}", self.node.member_id))),
                    ],
                );
            }
            Note::Leads { leads, term } => {
                let role = if leads { "leader" } else { "follower" };
                let text = format!("{:x} became {role} at term {term}", self.node.member_id);
                logging::info(&text, &[("term", term.into())]);
            }
            Note::ForwardRefused => self.refused += 1,
            Note::ForwardedChangeRefused(error) => logging::warn(
                "refused a configuration change that another member forwarded",
                &[("error", error.message().into())],
            ),
            Note::ProposalRefused(error) => warn("a proposal was refused", error),
            Note::CannotCampaign(error) => warn("cannot stand for election", error),
            Note::CannotTransferLeader(error) => warn("cannot hand leadership over", error),
            Note::ConfChangeFailed(error) => {
                logging::error("a configuration change failed", &[("error", Value::Shown(error))]);
            }
            Note::ReadIndexesFailed(count) => {
                metrics.read_indexes_failed.fetch_add(count as u64, Ordering::Relaxed);
            }
            Note::HeartbeatLate(took) => {
                metrics.heartbeat_failures.fetch_add(1, Ordering::Relaxed);
                logging::warn(
                    "leader failed to send out heartbeat on time; took too long, leader is overloaded likely from slow disk",
                    &[("took", Value::Shown(&format_args!("{took:?}")))],
                );
            }
            Note::LeasesExpired(count) => {
                metrics.leases_expired.fetch_add(count as u64, Ordering::Relaxed);
                self.tell_of_waiting_leases();
            }
            Note::SnapshotOffered { index, bytes } => logging::info(
                "offering a snapshot to a member that lags behind the log",
                &[("snapshot-index", index.into()), ("bytes", bytes.into())],
            ),
            Note::SnapshotSent { to, ok } => logging::info(
                if ok { "sent a snapshot" } else { "could not send a snapshot" },
                &[("to", Value::Shown(&format_args!("{to:x}")))],
            ),
            Note::LogStalledHandsOver { to, stalled } => logging::warn(
                "the disk of the Raft log does not answer: handing leadership over",
                &[
                    ("stalled", Value::Shown(&format_args!("{stalled:?}"))),
                    ("to", Value::Shown(&format_args!("{to:x}"))),
                ],
            ),
            Note::LogStalledStepsDown { .. } => {
                logging::warn("the disk of the Raft log does not answer: stepping down", &[]);
            }
        }
    }

    fn log_lost(&mut self, proof: &Proof) {
        lost_log::end(&self.node, proof)
    }
}

/// What etcd says when another member leads, or none does.
fn leader_line(own: u64, before: u64, leader: u64, term: u64) -> String {
    match (before, leader) {
        (before, 0) => format!("raft.node: {own:x} lost leader {before:x} at term {term}"),
        (0, leader) => format!("raft.node: {own:x} elected leader {leader:x} at term {term}"),
        (before, leader) => format!("raft.node: {own:x} changed leader from {before:x} to {leader:x} at term {term}"),
    }
}

impl Host {
    /// Logs how many leases cannot end for lack of headroom, after each batch of them.
    fn tell_of_waiting_leases(&mut self) {
        static PACE: Pace = Pace::new();
        let waiting = std::mem::take(&mut self.waiting_leases);
        if waiting > 0
            && let Some(left_out) = PACE.line()
        {
            logging::warn(
                "expired leases wait for room on the disk",
                &[("leases", waiting.into()), ("lines-left-out", left_out.into())],
            );
        }
        if std::mem::take(&mut self.is_headroom_missing) {
            self.node.raise_no_space(0);
        }
    }
}

impl Node {
    /// Ends proposals that fail before they are applied, and corrects the counters.
    pub(super) fn end_proposals(&self, waiters: Vec<Waiter>, error: Error) {
        let count = waiters.len() as u64;
        for waiter in waiters {
            let is_refusal = error == Error::TooManyRequests;
            waiter.done.end(Err(if is_refusal { self.refuse(waiter.class) } else { error }));
        }
        self.metrics.proposals_pending.fetch_sub(count, Ordering::Relaxed);
        self.metrics.proposals_failed.fetch_add(count, Ordering::Relaxed);
    }
}

fn warn(text: &str, error: &RaftError) {
    logging::warn(text, &[("error", Value::Shown(error))]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Rig;
    use api::etcdserverpb::{MemberAddRequest, MemberAddResponse};
    use api::raftpb::MessageType;
    use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    /// Only a test that fails waits so long.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Answers the streams that a member dials, and hands over those for messages.
    fn peer(listener: TcpListener) -> Receiver<TcpStream> {
        let (tell, streams) = channel();
        std::thread::spawn(move || {
            let mut others = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                stream.set_read_timeout(Some(PATIENCE)).expect("set");
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let Some(path) = head.first().filter(|line| line.contains("/raft/stream/")) else { continue };
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
                if !path.contains("/raft/stream/message/") {
                    others.push(stream);
                } else if tell.send(stream).is_err() {
                    return;
                }
            }
        });
        streams
    }

    fn say(stream: &mut TcpStream, message: &Message) {
        let message = message.encode_to_vec();
        let frame = [&(message.len() as u64).to_be_bytes(), &message[..]].concat();
        let chunk = [format!("{:x}\r\n", frame.len()).as_bytes(), &frame, b"\r\n"].concat();
        stream.write_all(&chunk).expect("sent");
    }

    #[test]
    fn a_claim_about_the_log_is_counted_and_closes_its_stream() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let streams = peer(listener);
        let rig = Rig::start(&[]);
        let node = rig.node();
        let add = MemberAddRequest { peer_ur_ls: vec![url], is_learner: true };
        let added: MemberAddResponse = rig.call("/etcdserverpb.Cluster/MemberAdd", None, &add).expect("added");
        let learner = added.member.expect("a member").id;
        let counts = || {
            let metrics = &node.metrics;
            let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            (load(&metrics.claims_refused), load(&metrics.messages_refused))
        };
        // The learner says that it has entries of this term which the leader lacks.
        let claim = || Message {
            r#type: Some(MessageType::MsgAppResp as i32),
            from: Some(learner),
            to: Some(node.member_id),
            term: Some(node.status.term()),
            index: Some(1 << 30),
            ..Default::default()
        };
        let mut stream = streams.recv_timeout(PATIENCE).expect("a stream");
        say(&mut stream, &claim());
        let end = stream.read(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "the stream is closed: {end:?}");
        assert_eq!(counts(), (1, 0));

        // It is dialled again. What is posted in the learner's name closes no stream, and neither does another message that is refused.
        let mut stream = streams.recv_timeout(PATIENCE).expect("another stream");
        node.inbox.receive(vec![claim()], Origin::Request);
        rig.wait_for("the posted claim", || counts() == (2, 0));
        for refused in 1..3 {
            say(&mut stream, &Message { term: Some(0), ..claim() });
            rig.wait_for("a message on the same stream", || counts() == (2, refused));
        }
        assert!(node.status.leader() == node.member_id, "nobody's word ends a leader");
    }
}
