//! What one observer is sent: applied entries as they come, what this process knows of the leader, and a snapshot if the entries are gone.

use super::followers::Place;
use crate::node::Node;
use api::raftpb::{Message, MessageType, Snapshot, SnapshotMetadata};
use http::StatusCode;
use peer::{Fed, Feed, Follower, Refused};
use replica::Stretch;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// Bytes of the entries of one message.
const BATCH_BYTES: u64 = 512 << 10;
/// How long an observer may go without a heartbeat.
const BEAT_MAX: Duration = Duration::from_millis(100);

/// Pause while a snapshot is being installed here.
const INSTALL_LOOK: Duration = Duration::from_millis(5);
const STOPS: &str = "the process stops";

/// What `follower` is sent from now on, or why it is sent nothing.
pub(crate) fn feed(node: &Arc<Node>, follower: &Follower) -> Result<Box<dyn Feed>, Refused> {
    let refused = |status, text: String| Err(Refused { status, text });
    let Some(way) = node.way() else {
        let text = "this observer follows nobody at the moment".into();
        return refused(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    if node.retiring.load(Ordering::Relaxed) || node.stopping.load(Ordering::Relaxed) {
        return refused(StatusCode::SERVICE_UNAVAILABLE, STOPS.into());
    }
    let (index, term) = follower.last;
    if let Some(Stretch::Differs(ours)) = node.stretch(follower.last, BATCH_BYTES) {
        let text = format!("the observer ends at entry {index} of term {term}, which is of term {ours} here");
        tell_difference(follower, &text);
        return refused(StatusCode::UNPROCESSABLE_ENTITY, text);
    }
    if let Some(index) = node.differs(follower) {
        let text = other_entry(index);
        tell_difference(follower, &text);
        return refused(StatusCode::UNPROCESSABLE_ENTITY, text);
    }
    logging::info(
        "an observer follows this process",
        &[
            ("observer-id", Value::Shown(&format_args!("{:x}", follower.id))),
            ("observer-name", (&follower.name).into()),
            ("last-index", index.into()),
        ],
    );
    let place = node.followers.add(follower, node.now_ms());
    let (beat, has_joined) = (Instant::now(), false);
    let node = Arc::downgrade(node);
    let (id, last, follower) = (follower.id, follower.last, follower.clone());
    Ok(Box::new(Feeding { node, id, follower, last, has_joined, beat, way, place }))
}

fn other_entry(index: u64) -> String {
    format!("the observer's entry {index} is another one here")
}

fn tell_difference(follower: &Follower, text: &str) {
    logging::error(
        "an observer has another history than this process: it is sent nothing",
        &[("observer-id", Value::Shown(&format_args!("{:x}", follower.id))), ("error", text.into())],
    );
}

struct Feeding {
    node: Weak<Node>,
    id: u64,
    follower: Follower,
    /// Index and term of the last entry that the observer has, or was sent.
    last: (u64, u64),
    /// It was told that its last entry is here, too.
    has_joined: bool,
    /// When it was last sent something.
    beat: Instant,
    /// The way by which entries came here when the stream began.
    way: Vec<u64>,
    place: Place,
}

impl Feeding {
    fn may_go_on(&self, node: &Node) -> Result<(), String> {
        if node.stopping.load(Ordering::Relaxed) || node.retiring.load(Ordering::Relaxed) {
            return Err(STOPS.into());
        }
        let is_same = node.way().as_ref() == Some(&self.way);
        if is_same { Ok(()) } else { Err("entries come here by another way".into()) }
    }

    fn message(&self, node: &Node, kind: MessageType) -> Message {
        let (leader, term) = (node.status.leader(), node.status.term());
        Message {
            r#type: Some(kind as i32),
            to: Some(self.id),
            from: Some(leader),
            term: Some(term.max(self.last.1)),
            ..Message::default()
        }
    }

    fn entries(&mut self, node: &Node, entries: Vec<api::raftpb::Entry>) -> Message {
        let mut message = self.message(node, MessageType::MsgApp);
        (message.index, message.log_term) = (Some(self.last.0), Some(self.last.1));
        if let Some(last) = entries.last() {
            self.last = (last.index(), last.term());
            // The published term may be behind the entries that are applied.
            message.term = Some(message.term().max(last.term()));
        }
        message.commit = Some(self.last.0);
        message.entries = entries;
        self.place.sent(self.last.0);
        self.has_joined = true;
        message
    }

    fn beat(&self, node: &Node) -> Message {
        let mut beat = [self.message(node, MessageType::MsgHeartbeat)];
        node.headroom.tell(&mut beat);
        let [mut beat] = beat;
        beat.commit = Some(node.status.applied());
        beat
    }

    fn snapshot(&self, node: &Arc<Node>) -> Result<Fed, String> {
        let continues = |export: &store::Export| {
            let found = node.stretch((export.index(), export.term()), 1);
            matches!(found, Some(Stretch::Entries(_)))
        };
        let export = node.followers.export(node.now_ms(), continues, || node.export());
        let export = export.ok_or(STOPS)?;
        let metadata = SnapshotMetadata {
            conf_state: Some(export.conf_state().clone()),
            index: Some(export.index()),
            term: Some(export.term()),
        };
        logging::info(
            "sending a snapshot to an observer",
            &[
                ("observer-id", Value::Shown(&format_args!("{:x}", self.id))),
                ("snapshot-index", export.index().into()),
                ("bytes", export.segment_bytes().into()),
            ],
        );
        let mut message = self.message(node, MessageType::MsgSnap);
        message.term = Some(message.term().max(export.term()));
        message.snapshot = Some(Snapshot { data: None, metadata: Some(metadata) });
        Ok(Fed::Snapshot(message, node.sending(export)))
    }
}

impl Feed for Feeding {
    fn way(&self) -> Vec<u64> {
        self.way.clone()
    }

    fn next(&mut self) -> Result<Fed, String> {
        let patience = self.node.upgrade().ok_or(STOPS)?.config.heartbeat.min(BEAT_MAX);
        loop {
            let node = self.node.upgrade().ok_or(STOPS)?;
            self.may_go_on(&node)?;
            node.followers.note(node.now_ms());
            let waits = self.has_joined && node.status.applied() == self.last.0;
            let found = if waits { Stretch::Behind } else { node.stretch(self.last, BATCH_BYTES).ok_or(STOPS)? };
            match found {
                Stretch::Entries(entries) if !self.has_joined || !entries.is_empty() => {
                    // It may have waited for this process to come so far.
                    if !self.has_joined
                        && let Some(index) = node.differs(&self.follower)
                    {
                        let text = other_entry(index);
                        tell_difference(&self.follower, &text);
                        return Err(text);
                    }
                    self.beat = Instant::now();
                    return Ok(Fed::Message(self.entries(&node, entries)));
                }
                Stretch::Trimmed => return self.snapshot(&node),
                Stretch::Differs(ours) => return Err(format!("entry {} is of term {ours} here", self.last.0)),
                // A snapshot is being installed here.
                Stretch::Behind if node.status.applied() > self.last.0 => std::thread::sleep(INSTALL_LOOK),
                Stretch::Entries(_) | Stretch::Behind => {}
            }
            let left = patience.saturating_sub(self.beat.elapsed());
            if left.is_zero() {
                self.beat = Instant::now();
                return Ok(Fed::Message(self.beat(&node)));
            }
            let last = self.last.0;
            node.followers.wait(left, || node.status.applied() > last);
        }
    }

    fn goes_on(&mut self) -> Result<(), String> {
        let node = self.node.upgrade().ok_or(STOPS)?;
        self.may_go_on(&node)?;
        node.followers.is_fetched(node.now_ms());
        Ok(())
    }
}
