//! What an observer has for what it follows, and what it serves meanwhile.

use crate::operation::Request;
use api::raftpb::{Message, MessageType};
use replica::{Error, Member, Refusal};

/// What an observer's consensus has for what it follows.
pub(crate) struct Outbox {
    pub(crate) questions: Vec<Message>,
    pub(crate) proposals: Vec<Message>,
    /// It has refused a message of the stream.
    pub(crate) has_refused: bool,
    /// Something was on its way into the log when the stream began.
    pub(crate) began_unsettled: bool,
    /// This process has once had everything that was acknowledged before it asked.
    pub(crate) is_published: bool,
    /// An earlier one had.
    was_level: bool,
    /// What its log knew to be committed at the start.
    committed: u64,
}

impl Outbox {
    pub(crate) fn new(was_level: bool, raft: &Member) -> Outbox {
        let committed = raft.status().committed;
        Outbox {
            questions: Vec::new(),
            proposals: Vec::new(),
            has_refused: false,
            began_unsettled: false,
            is_published: false,
            was_level,
            committed,
        }
    }

    /// Whether a request is served yet. Before an observer is level it only shows what it once had.
    pub(crate) fn serves(&self, request: &Request, applied: u64) -> bool {
        let shows = || self.was_level && applied >= self.committed;
        match request {
            Request::ReadIndex => true,
            Request::Read { linearizable: false, .. } => self.is_published || shows(),
            _ => self.is_published,
        }
    }

    /// Takes what consensus sends: whoever is followed is told nothing but this.
    pub(crate) fn take(&mut self, messages: Vec<Message>) {
        for message in messages {
            match message.r#type() {
                MessageType::MsgReadIndex => self.questions.push(message),
                MessageType::MsgProp => self.proposals.push(message),
                // Some clients ask an observer to hand leadership over. It is not passed on.
                MessageType::MsgTransferLeader => {}
                other => panic!("an observer sends {other:?}"),
            }
        }
    }

    /// Consensus has refused a message. Where a stream begins may only be wrong while something of a former one was on its way.
    pub(crate) fn refuse(&mut self, error: &Error) {
        let is_late = self.began_unsettled && matches!(error, Error::Message(Refusal::NotNext { .. }));
        assert!(is_late, "an observer refuses what it is sent: {error}");
        self.has_refused = true;
    }
}
