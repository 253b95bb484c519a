//! Messages of a hostile peer.

use crate::choices::Choices;
use crate::world::World;
use api::Message as _;
use api::raftpb::{ConfState, Entry, Message, Snapshot, SnapshotMetadata};

/// A message to the member; most come from the learner that exists only here.
pub(crate) fn message(world: &World, choices: &mut Choices<'_>) -> Message {
    let from = match choices.byte() % 8 {
        0 => world.number("from", choices),
        _ => world.learner,
    };
    let term = match choices.byte() % 8 {
        0 => choices.number(),
        1 | 2 => world.term + u64::from(choices.byte() % 3),
        _ => world.term,
    };
    let index = world.number("index", choices);
    let mut message = Message {
        r#type: Some(i32::from(choices.byte() % 24)),
        to: Some(if choices.chance(8) { choices.number() } else { world.member }),
        from: Some(from),
        term: Some(term),
        log_term: Some(if choices.chance(64) { choices.number() } else { world.term }),
        index: Some(index),
        commit: Some(world.number("commit", choices)),
        ..Message::default()
    };
    for place in 0..choices.below(4) as u64 {
        message.entries.push(Entry {
            term: Some(if choices.chance(16) { choices.number() } else { term }),
            index: Some(if choices.chance(16) { choices.number() } else { index.wrapping_add(place + 1) }),
            r#type: Some(i32::from(choices.byte() % 4)),
            data: choices.chance(200).then(|| entry(world, choices).into()),
        });
    }
    if choices.chance(48) {
        message.reject = Some(true);
        message.reject_hint = Some(world.number("index", choices));
    }
    if choices.chance(32) {
        message.context = Some(world.bytes("context", choices).into());
    }
    if choices.chance(24) {
        let conf_state = ConfState {
            voters: vec![world.member, world.number("ID", choices)],
            learners: vec![world.number("ID", choices)],
            ..ConfState::default()
        };
        let metadata = SnapshotMetadata {
            conf_state: Some(conf_state),
            index: Some(world.number("index", choices)),
            term: Some(world.number("term", choices)),
        };
        message.snapshot = Some(Snapshot { data: Some(world.bytes("data", choices).into()), metadata: Some(metadata) });
    }
    message
}

/// What an entry may hold: a request of the log's kind, bent or not.
fn entry(world: &World, choices: &mut Choices<'_>) -> Vec<u8> {
    let request = api::schema::Message::find("etcdserverpb.InternalRaftRequest");
    let bytes = match request {
        Some(request) => crate::message::build(request, world, choices),
        None => crate::message::unknown(world, choices),
    };
    crate::message::bend(bytes, choices)
}

/// One frame of a stream: of all messages, or of appends.
pub(crate) fn frame(is_append: bool, world: &World, choices: &mut Choices<'_>) -> Vec<u8> {
    let body = crate::message::bend(message(world, choices).encode_to_vec(), choices);
    let length = if choices.chance(8) { choices.number() } else { body.len() as u64 };
    let whole = [&length.to_be_bytes(), &body[..]].concat();
    if !is_append {
        return whole;
    }
    match choices.byte() % 4 {
        0 => vec![0],
        1 => {
            let mut out = vec![1];
            out.extend((choices.number() % 5).to_be_bytes());
            out.extend(whole);
            out.extend(world.committed.to_be_bytes());
            out
        }
        2 => [&[choices.byte()], &whole[..]].concat(),
        _ => [&[2], &whole[..]].concat(),
    }
}
