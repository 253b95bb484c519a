//! What an observer knows about what it follows, and what it has to ask it.

use crate::node::Node;
use api::raftpb::{Message, MessageType};
use contain::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Questions for read indexes that may wait: consensus asks again for those that are dropped.
const QUESTIONS_MAX: usize = 1_024;
/// Bytes of proposals that may wait for what is followed; further ones are lost, as those are for which a member's peer has no room.
const PROPOSALS_BYTES_MAX: usize = 64 << 20;
/// Bytes of proposals that are sent at once.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// What is followed now.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Where it is reached.
    pub(crate) url: String,
    /// The ids of those that entries come through, the last of them its own.
    pub(crate) way: Vec<u64>,
    /// Since when it is followed.
    pub(crate) since: Instant,
}

impl Source {
    /// Its id.
    pub(crate) fn id(&self) -> u64 {
        self.way.last().copied().unwrap_or_default()
    }
}

/// The link of an observer to what it follows.
pub(crate) struct Link {
    /// Where it may follow.
    pub(crate) urls: Vec<String>,
    state: Mutex<State>,
    changed: Condvar,
    has_source: AtomicBool,
    /// How far what is followed is, as it says.
    pub(super) theirs: AtomicU64,
    /// Sources that were lost so far.
    pub(crate) lost: AtomicU64,
    /// Sources whose history was another one.
    pub(crate) differing: AtomicU64,
}

#[derive(Default)]
struct State {
    source: Option<Arc<Source>>,
    /// Why consensus refused what came from the source.
    refused: Option<String>,
    questions: Vec<Message>,
    proposals: VecDeque<Message>,
    proposals_bytes: usize,
    is_stopped: bool,
}

impl Link {
    /// A link that has no source yet.
    pub(crate) fn new(urls: Vec<String>) -> Link {
        Link {
            urls,
            state: Mutex::default(),
            changed: Condvar::new(),
            has_source: AtomicBool::new(false),
            theirs: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            differing: AtomicU64::new(0),
        }
    }

    /// What is followed now, and has the entries that are here.
    pub(crate) fn source(&self) -> Option<Arc<Source>> {
        lock(&self.state).source.clone()
    }

    /// Whether something is followed.
    pub(crate) fn has_source(&self) -> bool {
        self.has_source.load(Ordering::Relaxed)
    }

    /// How far what is followed is, as it says.
    pub(crate) fn theirs(&self) -> u64 {
        self.theirs.load(Ordering::Relaxed)
    }

    pub(super) fn joined(&self, source: Source) {
        let mut state = lock(&self.state);
        state.refused = None;
        state.source = Some(Arc::new(source));
        self.has_source.store(true, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }

    /// Forgets the source. Returns whether there was one.
    pub(super) fn leave(&self) -> bool {
        let mut state = lock(&self.state);
        self.has_source.store(false, Ordering::Relaxed);
        // Whoever asks again is answered by the next source. What is proposed may have reached the last one's leader or not.
        state.questions.clear();
        state.proposals.clear();
        state.proposals_bytes = 0;
        state.source.take().is_some()
    }

    /// Consensus did not take what came from the source.
    pub(crate) fn refuse(&self, why: String) {
        lock(&self.state).refused.get_or_insert(why);
    }

    pub(super) fn take_refusal(&self) -> Option<String> {
        lock(&self.state).refused.take()
    }

    /// Takes what consensus sends: only what is followed is told anything, and only what asks it for something.
    pub(crate) fn send(&self, messages: Vec<Message>) {
        let mut state = lock(&self.state);
        if state.source.is_none() {
            return;
        }
        for message in messages {
            match message.r#type() {
                MessageType::MsgReadIndex if state.questions.len() < QUESTIONS_MAX => state.questions.push(message),
                MessageType::MsgProp => {
                    let bytes = bytes(&message);
                    if state.proposals_bytes.saturating_add(bytes) <= PROPOSALS_BYTES_MAX {
                        state.proposals_bytes += bytes;
                        state.proposals.push_back(message);
                    }
                }
                _ => {}
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for questions for a read index; `None` once the observer stops.
    pub(super) fn questions(&self) -> Option<(Arc<Source>, Vec<Message>)> {
        self.wait(|state| {
            let source = state.source.clone().filter(|_| !state.questions.is_empty())?;
            Some((source, std::mem::take(&mut state.questions)))
        })
    }

    /// Waits for proposals; `None` once the observer stops. They go in one message, as many as fit.
    pub(super) fn proposals(&self) -> Option<(Arc<Source>, Message)> {
        self.wait(|state| {
            let source = state.source.clone()?;
            let mut message = state.proposals.pop_front()?;
            let mut size = bytes(&message);
            while let Some(next) = state.proposals.pop_front_if(|next| size + bytes(next) <= BATCH_BYTES_MAX) {
                size += bytes(&next);
                message.entries.extend(next.entries);
            }
            state.proposals_bytes = state.proposals_bytes.saturating_sub(size);
            Some((source, message))
        })
    }

    fn wait<T>(&self, mut take: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some(taken) = take(&mut state) {
                return Some(taken);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the threads that wait here.
    pub(crate) fn stop(&self) {
        lock(&self.state).is_stopped = true;
        self.changed.notify_all();
    }
}

fn bytes(message: &Message) -> usize {
    message.entries.iter().map(|entry| entry.data().len() + 64).sum()
}

impl Node {
    /// Peer URL of what is followed, once there is something; `None` when `deadline` has passed or the observer stops.
    pub(crate) fn source_url(&self, link: &Link, deadline: Instant) -> Option<String> {
        while Instant::now() < deadline && !self.stopping.load(Ordering::Relaxed) {
            if let Some(source) = link.source() {
                return Some(source.url.clone());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::raftpb::Entry;

    fn message(kind: MessageType, bytes: usize) -> Message {
        let entry = Entry { data: Some(vec![7; bytes].into()), ..Entry::default() };
        Message { r#type: Some(kind as i32), entries: vec![entry], ..Message::default() }
    }

    fn linked() -> Link {
        let link = Link::new(Vec::new());
        link.joined(Source { url: "http://a:1".into(), way: vec![3, 4], since: Instant::now() });
        link
    }

    #[test]
    fn nothing_is_sent_but_questions_and_proposals() {
        let link = linked();
        let kinds = [
            MessageType::MsgAppResp,
            MessageType::MsgVote,
            MessageType::MsgVoteResp,
            MessageType::MsgPreVote,
            MessageType::MsgPreVoteResp,
            MessageType::MsgHeartbeatResp,
            MessageType::MsgTimeoutNow,
            MessageType::MsgReadIndex,
            MessageType::MsgProp,
        ];
        link.send(kinds.into_iter().map(|kind| message(kind, 1)).collect());
        assert_eq!(link.questions().map(|(source, asked)| (source.id(), asked.len())), Some((4, 1)));
        assert_eq!(link.proposals().map(|(_, message)| message.entries.len()), Some(1));
        let state = lock(&link.state);
        assert!(state.questions.is_empty() && state.proposals.is_empty() && state.proposals_bytes == 0);
    }

    #[test]
    fn what_waits_is_bounded_and_sent_together() {
        let link = linked();
        link.send((0..2 * QUESTIONS_MAX).map(|_| message(MessageType::MsgReadIndex, 8)).collect());
        assert_eq!(link.questions().map(|(_, asked)| asked.len()), Some(QUESTIONS_MAX));
        link.send((0..100).map(|_| message(MessageType::MsgProp, 1 << 20)).collect());
        assert!(lock(&link.state).proposals_bytes <= PROPOSALS_BYTES_MAX);
        assert!(link.leave(), "there was a source");
        link.send(vec![message(MessageType::MsgProp, 10)]);
        link.joined(Source { url: "http://a:1".into(), way: vec![3], since: Instant::now() });
        link.send((0..5).map(|_| message(MessageType::MsgProp, 400 << 10)).collect());
        let sizes: Vec<usize> =
            (0..3).filter_map(|_| link.proposals().map(|(_, message)| message.entries.len())).collect();
        assert_eq!(sizes, [2, 2, 1]);
        link.stop();
        assert!(link.proposals().is_none() && link.questions().is_none());
    }
}
