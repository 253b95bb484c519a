//! Outgoing messages: several of raft-rs' messages are joined where one means the same.

use crate::consensus::convert;
use api::raftpb::{self, MessageType};
use raft::eraftpb;

/// Appends are joined up to about this size.
const JOINED_BYTES_MAX: usize = 512 * 1024;

/// Converts messages for peers, and joins them where possible. raft-rs sends the new commit index and new entries
/// separately, and answers each append separately: a follower that takes several appends in one turn would send that
/// many answers.
pub(crate) fn pack(messages: Vec<eraftpb::Message>) -> Vec<raftpb::Message> {
    let mut packed: Vec<raftpb::Message> = Vec::with_capacity(messages.len());
    for message in messages {
        let message = convert::message_from_raft(message);
        // Only the last message to the same member is considered, so that the order of its messages stays.
        let earlier = packed.iter_mut().rfind(|earlier| earlier.to == message.to);
        match earlier {
            Some(earlier) if joins(earlier, &message) => join(earlier, message),
            _ => packed.push(message),
        }
    }
    packed
}

fn joins(earlier: &raftpb::Message, later: &raftpb::Message) -> bool {
    if earlier.r#type != later.r#type || earlier.term != later.term || earlier.from != later.from {
        return false;
    }
    match later.r#type() {
        MessageType::MsgApp => {
            let last = earlier.entries.last().map_or((earlier.index(), earlier.log_term()), |e| (e.index(), e.term()));
            let small = later.entries.is_empty() || bytes(earlier).saturating_add(bytes(later)) <= JOINED_BYTES_MAX;
            last == (later.index(), later.log_term()) && small
        }
        MessageType::MsgAppResp => !earlier.reject() && !later.reject() && later.index() >= earlier.index(),
        _ => false,
    }
}

fn join(earlier: &mut raftpb::Message, later: raftpb::Message) {
    if later.r#type() == MessageType::MsgApp {
        earlier.entries.extend(later.entries);
        earlier.commit = earlier.commit.max(later.commit);
    } else {
        *earlier = later;
    }
}

fn bytes(message: &raftpb::Message) -> usize {
    message.entries.iter().map(|entry| entry.data().len().saturating_add(24)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use raft::eraftpb::MessageType as Kind;

    fn append(to: u64, index: u64, entries: &[u64], commit: u64) -> eraftpb::Message {
        let mut message = eraftpb::Message { to, from: 1, term: 3, log_term: 3, index, commit, ..Default::default() };
        message.set_msg_type(Kind::MsgAppend);
        let entry = |index: &u64| eraftpb::Entry { index: *index, term: 3, ..Default::default() };
        message.set_entries(entries.iter().map(entry).collect::<Vec<_>>().into());
        message
    }

    fn answer(to: u64, index: u64, reject: bool) -> eraftpb::Message {
        let mut message = eraftpb::Message { to, from: 1, term: 3, index, reject, ..Default::default() };
        message.set_msg_type(Kind::MsgAppendResponse);
        message
    }

    fn shape(packed: &[raftpb::Message]) -> Vec<(u64, u64, usize, u64)> {
        packed.iter().map(|message| (message.to(), message.index(), message.entries.len(), message.commit())).collect()
    }

    #[test]
    fn appends_that_follow_each_other_are_joined() {
        let packed = pack(vec![
            append(2, 5, &[6, 7], 4),
            append(3, 5, &[6, 7], 4),
            append(2, 7, &[], 6),
            append(2, 7, &[8], 7),
            append(3, 5, &[], 6),
        ]);
        assert_eq!(shape(&packed), [(2, 5, 3, 7), (3, 5, 2, 4), (3, 5, 0, 6)]);
    }

    #[test]
    fn of_answers_the_last_one_counts_but_a_rejection_stands() {
        let packed = pack(vec![answer(2, 6, false), answer(2, 9, false), answer(2, 9, true), answer(2, 10, false)]);
        assert_eq!(shape(&packed), [(2, 9, 0, 0), (2, 9, 0, 0), (2, 10, 0, 0)]);
    }
}
