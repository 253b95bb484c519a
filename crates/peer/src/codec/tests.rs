use super::*;
use api::raftpb::{Entry, EntryType, Message, MessageType};
use bytes::{BufMut, BytesMut};

const BYTES_MAX: usize = 8 << 20;
const HUGE: u64 = 10 << 30;

fn message(kind: MessageType) -> Message {
    Message { r#type: Some(kind as i32), from: Some(1), to: Some(2), term: Some(5), ..Message::default() }
}

fn entry(term: u64, index: u64, data: impl Into<Vec<u8>>) -> Entry {
    let kind = Some(EntryType::EntryNormal as i32);
    Entry { term: Some(term), index: Some(index), r#type: kind, data: Some(data.into().into()) }
}

fn append(term: u64, log_term: u64, index: u64, entries: Vec<Entry>, commit: u64) -> Message {
    let of = message(MessageType::MsgApp);
    let (log_term, index, commit) = (Some(log_term), Some(index), Some(commit));
    Message { term: Some(term), log_term, index, entries, commit, ..of }
}

/// The messages of `conformance/peer/frames_test.go`, in the same order.
fn appends() -> Vec<Message> {
    let conf_change = Some(EntryType::EntryConfChange as i32);
    vec![
        append(5, 4, 10, vec![entry(5, 11, "a"), entry(5, 12, "")], 9),
        append(5, 5, 12, vec![entry(5, 13, "x".repeat(300))], 12),
        append(5, 5, 13, vec![], 13),
        append(5, 5, 13, vec![Entry { r#type: conf_change, ..entry(5, 14, "c") }], 13),
        append(5, 5, 20, vec![], 14),
        append(6, 5, 20, vec![entry(6, 21, "d")], 14),
        append(6, 6, 21, vec![entry(6, 22, "e"), entry(6, 23, "f"), entry(6, 24, "g")], 21),
    ]
}

fn others() -> Vec<Message> {
    let of = message;
    let context = Some("CampaignTransfer".into());
    vec![
        Message { commit: Some(7), context: Some("ctx".into()), ..of(MessageType::MsgHeartbeat) },
        Message { context: Some("ctx".into()), ..of(MessageType::MsgHeartbeatResp) },
        Message { index: Some(9), log_term: Some(4), context, ..of(MessageType::MsgVote) },
        Message { reject: Some(true), ..of(MessageType::MsgVoteResp) },
        Message { index: Some(9), log_term: Some(4), ..of(MessageType::MsgPreVote) },
        of(MessageType::MsgPreVoteResp),
        Message {
            index: Some(11),
            reject: Some(true),
            reject_hint: Some(8),
            log_term: Some(3),
            ..of(MessageType::MsgAppResp)
        },
        Message { entries: vec![Entry { data: Some("p".into()), ..Entry::default() }], ..of(MessageType::MsgProp) },
        Message {
            index: Some(4),
            entries: vec![Entry { data: Some("r".into()), ..Entry::default() }],
            ..of(MessageType::MsgReadIndex)
        },
        of(MessageType::MsgTimeoutNow),
    ]
}

fn encoded(kind: Kind, messages: &[Message]) -> BytesMut {
    let (mut encoder, mut bytes) = (Encoder::new(kind), BytesMut::new());
    for message in messages {
        encoder.message(message, &mut bytes);
    }
    bytes
}

fn decoder(kind: Kind) -> Decoder {
    Decoder::new(kind, 1, 2, BYTES_MAX)
}

fn decoded(decoder: &mut Decoder, input: &mut BytesMut) -> Result<Vec<Message>, Error> {
    let mut messages = Vec::new();
    while let Some(frame) = decoder.next(input)? {
        if let Frame::Message(message) = frame {
            messages.push(message);
        }
    }
    Ok(messages)
}

#[test]
fn frames_are_etcds() {
    for (kind, messages, genuine) in [
        (Kind::MsgApp, appends(), &include_bytes!("testdata/msgapp.stream")[..]),
        (Kind::Message, others(), &include_bytes!("testdata/message.stream")[..]),
    ] {
        assert_eq!(encoded(kind, &messages), genuine, "{kind:?}: written differently");
        let read = decoded(&mut decoder(kind), &mut BytesMut::from(genuine)).expect("valid");
        assert_eq!(read, messages, "{kind:?}: read differently");
    }
}

#[test]
fn continuations_are_short() {
    assert_eq!(
        encoded(Kind::MsgApp, &appends()[..3]).last_chunk::<17>(),
        Some(&{
            let mut frame = [0; 17];
            frame[0] = 1;
            frame[16] = 13;
            frame
        })
    );
}

#[test]
fn what_a_continuation_cannot_say_is_written_whole() {
    let first = append(5, 4, 10, vec![entry(5, 11, "a")], 9);
    let follows = append(5, 5, 11, vec![entry(5, 12, "b")], 9);
    for other in [
        append(5, 5, 11, vec![entry(5, 13, "gap")], 9),
        append(6, 5, 11, vec![entry(6, 12, "term")], 9),
        append(5, 5, 12, vec![], 9),
    ] {
        let messages = [first.clone(), other, follows.clone()];
        let mut bytes = encoded(Kind::MsgApp, &messages);
        assert_eq!(decoded(&mut decoder(Kind::MsgApp), &mut bytes).expect("valid"), messages);
    }
}

#[test]
fn streams_are_read_however_they_arrive() {
    for (kind, messages) in [(Kind::MsgApp, appends()), (Kind::Message, others())] {
        let bytes = encoded(kind, &messages);
        for piece in 1..bytes.len() {
            let (mut decoder, mut input, mut read) = (decoder(kind), BytesMut::new(), Vec::new());
            for part in bytes.chunks(piece) {
                input.extend_from_slice(part);
                read.extend(decoded(&mut decoder, &mut input).expect("valid"));
            }
            assert_eq!(read, messages, "in pieces of {piece}");
        }
    }
}

#[test]
fn every_truncation_waits_for_more() {
    for (kind, messages) in [(Kind::MsgApp, appends()), (Kind::Message, others())] {
        let bytes = encoded(kind, &messages);
        for length in 0..bytes.len() {
            let (mut decoder, mut input) = (decoder(kind), BytesMut::from(&bytes[..length]));
            let mut read = decoded(&mut decoder, &mut input).expect("valid so far");
            assert!(read.len() < messages.len());
            input.extend_from_slice(&bytes[length..]);
            read.extend(decoded(&mut decoder, &mut input).expect("valid"));
            assert_eq!(read, messages);
        }
    }
}

#[test]
fn heartbeats_of_the_link() {
    for (kind, frame) in [(Kind::MsgApp, &[0][..]), (Kind::Message, &[0, 0, 0, 0, 0, 0, 0, 2, 8, 8][..])] {
        let mut bytes = BytesMut::new();
        Encoder::new(kind).heartbeat(&mut bytes);
        assert_eq!(bytes, frame);
        assert_eq!(decoder(kind).next(&mut bytes), Ok(Some(Frame::Heartbeat)));
        assert!(bytes.is_empty());
    }
}

#[test]
fn huge_lengths_are_refused_before_anything_is_kept() {
    let mut words = vec![(Kind::Message, vec![], HUGE), (Kind::MsgApp, vec![2], HUGE), (Kind::MsgApp, vec![1], HUGE)];
    words.push((Kind::MsgApp, [&[1][..], &3u64.to_be_bytes()].concat(), HUGE));
    words.extend(words.clone().into_iter().map(|(kind, before, _)| (kind, before, u64::MAX)));
    words.push((Kind::Message, vec![], BYTES_MAX as u64 + 1));
    for (kind, before, length) in words {
        let mut input = BytesMut::from(&before[..]);
        input.put_u64(length);
        let error = decoder(kind).next(&mut input).expect_err("too long");
        assert!(matches!(error, Error::TooLong { bound: BYTES_MAX, .. }), "{error}");
    }
}

#[test]
fn many_small_entries_are_bounded_by_what_they_cost() {
    let mut input = BytesMut::new();
    input.put_u8(1);
    input.put_u64(BYTES_MAX as u64 / 8);
    input.put_bytes(0, BYTES_MAX);
    assert!(matches!(decoder(Kind::MsgApp).next(&mut input), Err(Error::TooLong { .. })));
}

#[test]
fn indexes_end_somewhere() {
    let mut bytes = encoded(Kind::MsgApp, &[append(5, 5, u64::MAX, vec![], 1)]);
    bytes.put_slice(&[1]);
    bytes.put_u64(1);
    bytes.put_u64(0);
    bytes.put_u64(9);
    assert_eq!(decoded(&mut decoder(Kind::MsgApp), &mut bytes), Err(Error::Index));
}

#[test]
fn garbage_never_panics() {
    let mut state = 1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20_000 {
        let (kind, messages) = if random() % 2 == 0 { (Kind::MsgApp, appends()) } else { (Kind::Message, others()) };
        let mut bytes = encoded(kind, &messages);
        for _ in 0..1 + random() % 4 {
            let at = random() as usize % bytes.len();
            bytes[at] = random() as u8;
        }
        // Any result is right, as long as it ends.
        let _ = decoded(&mut decoder(kind), &mut bytes);
    }
}

/// An entry that the log keeps does not keep the memory of what came before it.
#[test]
fn what_comes_behind_a_long_frame_has_memory_of_its_own() {
    let long = Message { context: Some(vec![7; 1 << 20].into()), ..message(MessageType::MsgHeartbeat) };
    let entries = vec![Entry { data: Some(vec![8; 9_000].into()), ..Entry::default() }];
    let next = Message { entries, ..message(MessageType::MsgProp) };
    let mut input = BytesMut::new();
    for message in [&long, &next] {
        let encoded = api::Message::encode_to_vec(message);
        input.put_u64(encoded.len() as u64);
        input.put_slice(&encoded);
    }
    let first = input.as_ptr_range();
    let mut decoder = Decoder::new(Kind::Message, 1, 2, BYTES_MAX);
    assert_eq!(decoder.next(&mut input), Ok(Some(Frame::Message(long))));
    let Ok(Some(Frame::Message(got))) = decoder.next(&mut input) else { panic!("the next message") };
    assert_eq!(got, next);
    let data = got.entries.first().and_then(|entry| entry.data.as_ref()).expect("data");
    assert!(!first.contains(&data.as_ptr()), "it shares the memory of the long one");
}
