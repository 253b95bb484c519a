//! From protobuf to protobuf's JSON, one piece at a time: an answer of a gigabyte is never in memory as text as a whole. Fields keep the
//! names of the `.proto` files, zeros are left out, and numbers of 64 bits are strings.

use api::schema::{Field, Kind, Message};
use api::varint;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes, BytesMut};
use std::io::Write;

/// Bytes of a field's content turned into text at once. A multiple of three, so that base64 goes on without padding.
const CHUNK_BYTES: usize = 24 * 1024;

/// How [`Encoder::run`] ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// There is as much as was asked for.
    Full,
    /// The next field of the message is not all there.
    Hungry,
    /// The text is complete.
    Done,
}

/// A message that is not what it says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// One message on its way to JSON.
#[derive(Debug)]
pub(crate) struct Encoder {
    /// The messages that are open, from the outermost.
    levels: Vec<Level>,
    /// The rest of a long value.
    long: Option<Bytes>,
    /// All of the outermost message is here.
    is_whole: bool,
}

#[derive(Debug)]
struct Level {
    of: &'static Message,
    rest: Bytes,
    /// A field was written.
    has_fields: bool,
    /// The list that is open.
    list: Option<u32>,
}

impl Level {
    fn new(of: &'static Message, rest: Bytes) -> Level {
        Level { of, rest, has_fields: false, list: None }
    }
}

impl Encoder {
    /// For a message that comes in pieces.
    pub(crate) fn new(of: &'static Message) -> Encoder {
        Encoder { levels: vec![Level::new(of, Bytes::new())], long: None, is_whole: false }
    }

    /// For a whole message.
    pub(crate) fn whole(of: &'static Message, message: Bytes) -> Encoder {
        let mut encoder = Encoder::new(of);
        encoder.push(message);
        encoder.finish();
        encoder
    }

    /// Adds a piece of the message, after which the encoder was [`Run::Hungry`].
    pub(crate) fn push(&mut self, piece: Bytes) {
        let ([Level { rest, .. }], None) = (&mut self.levels[..], &self.long) else {
            unreachable!("pieces end between fields of the outermost message");
        };
        if rest.is_empty() {
            *rest = piece;
        } else {
            // Usually this is the only reference: then it grows in place.
            let mut both = std::mem::take(rest).try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            both.extend_from_slice(&piece);
            *rest = both.freeze();
        }
    }

    /// Says that there are no more pieces.
    pub(crate) fn finish(&mut self) {
        self.is_whole = true;
    }

    /// Adds to `out` until it holds `bytes_max`, or a little more.
    pub(crate) fn run(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> Result<Run, Malformed> {
        loop {
            if out.len() >= bytes_max {
                return Ok(Run::Full);
            }
            if let Some(long) = &mut self.long {
                let chunk = long.split_to(long.len().min(CHUNK_BYTES));
                put_base64(out, &chunk);
                if long.is_empty() {
                    self.long = None;
                    out.push(b'"');
                }
                continue;
            }
            let depth = self.levels.len();
            let Some(level) = self.levels.last_mut() else { return Ok(Run::Done) };
            if level.rest.is_empty() {
                if depth == 1 && !self.is_whole {
                    return Ok(Run::Hungry);
                }
                close(level, out);
                self.levels.pop();
                continue;
            }
            let mut rest = level.rest.clone();
            let taken = take(&mut rest);
            let (number, value) = match taken {
                Some(Some(field)) => field,
                None if depth == 1 && !self.is_whole => return Ok(Run::Hungry),
                None | Some(None) => return Err(Malformed),
            };
            level.rest = rest;
            let Some(field) = level.of.by_number(number) else { continue };
            match (field.kind, value) {
                (Kind::Message(of), Value::Bytes(content)) => {
                    begin(level, field, out);
                    self.levels.push(Level::new(of, content));
                }
                (Kind::Bytes, Value::Bytes(content)) if !content.is_empty() || is_kept(field) => {
                    begin(level, field, out);
                    out.push(b'"');
                    if content.len() > CHUNK_BYTES {
                        self.long = Some(content);
                    } else {
                        put_base64(out, &content);
                        out.push(b'"');
                    }
                }
                (Kind::String, Value::Bytes(content)) if !content.is_empty() || is_kept(field) => {
                    begin(level, field, out);
                    put_string(out, &String::from_utf8_lossy(&content));
                }
                (Kind::Bytes | Kind::String, Value::Bytes(_)) => {}
                (Kind::Message(_) | Kind::Bytes | Kind::String, Value::Number(_)) => return Err(Malformed),
                (kind, Value::Number(number)) => {
                    if number != 0 || is_kept(field) {
                        begin(level, field, out);
                        put_number(out, kind, number);
                    }
                }
                // A packed list of numbers.
                (kind, Value::Bytes(mut content)) => {
                    while !content.is_empty() {
                        let number = take_number(&mut content).flatten().ok_or(Malformed)?;
                        begin(level, field, out);
                        put_number(out, kind, number);
                    }
                }
            }
        }
    }
}

/// Whether even a zero is written.
fn is_kept(field: &Field) -> bool {
    field.repeated || field.oneof.is_some()
}

/// Writes what stands before a value of `field`.
fn begin(level: &mut Level, field: &Field, out: &mut Vec<u8>) {
    if level.list == Some(field.number) {
        return out.push(b',');
    }
    end_list(level, out);
    out.push(if std::mem::replace(&mut level.has_fields, true) { b',' } else { b'{' });
    out.push(b'"');
    out.extend_from_slice(field.name.as_bytes());
    out.extend_from_slice(b"\":");
    if field.repeated {
        level.list = Some(field.number);
        out.push(b'[');
    }
}

fn end_list(level: &mut Level, out: &mut Vec<u8>) {
    if level.list.take().is_some() {
        out.push(b']');
    }
}

fn close(level: &mut Level, out: &mut Vec<u8>) {
    end_list(level, out);
    if !level.has_fields {
        out.push(b'{');
    }
    out.push(b'}');
}

fn put_number(out: &mut Vec<u8>, kind: Kind, number: u64) {
    // Writing to memory cannot fail.
    let _ = match kind {
        Kind::Bool => write!(out, "{}", number != 0),
        Kind::Int64 => write!(out, "\"{}\"", number as i64),
        Kind::Uint64 => write!(out, "\"{number}\""),
        Kind::Uint32 => write!(out, "{}", number as u32),
        Kind::Enum(of) => match of.name(number as i32) {
            Some(name) => write!(out, "\"{name}\""),
            None => write!(out, "{}", number as i32),
        },
        _ => write!(out, "{}", number as i32),
    };
}

fn put_base64(out: &mut Vec<u8>, content: &[u8]) {
    let at = out.len();
    out.resize(at.saturating_add(content.len().div_ceil(3).saturating_mul(4)), 0);
    let written = STANDARD.encode_slice(content, out.get_mut(at..).unwrap_or_default()).unwrap_or(0);
    out.truncate(at.saturating_add(written));
}

/// Writes `text` in quotes.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    // Neither writing to memory nor a string can fail.
    let _ = serde_json::to_writer(out, text);
}

enum Value {
    Number(u64),
    Bytes(Bytes),
}

/// Takes one field off `rest`: none if it is not all there, and none inside if it cannot be one.
fn take(rest: &mut Bytes) -> Option<Option<(u32, Value)>> {
    let Some(key) = take_number(rest)? else { return Some(None) };
    let number = (key >> 3) as u32;
    let fixed = |rest: &mut Bytes, len: usize| {
        (rest.len() >= len).then(|| {
            rest.advance(len);
            // No field of the API is one: as unknown as any.
            Some((0, Value::Number(0)))
        })
    };
    match key & 7 {
        0 => {
            let Some(value) = take_number(rest)? else { return Some(None) };
            Some(Some((number, Value::Number(value))))
        }
        1 => fixed(rest, 8),
        2 => {
            let Some(len) = take_number(rest)? else { return Some(None) };
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            (rest.len() >= len).then(|| Some((number, Value::Bytes(rest.split_to(len)))))
        }
        5 => fixed(rest, 4),
        _ => Some(None),
    }
}

/// Takes a number off `rest`: none if it is not all there, and none inside if it is too long.
fn take_number(rest: &mut Bytes) -> Option<Option<u64>> {
    let mut behind = &rest[..];
    let Some(number) = varint::take(&mut behind) else {
        return (rest.len() >= varint::LEN_MAX).then_some(None);
    };
    rest.advance(rest.len().saturating_sub(behind.len()));
    Some(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message as _;
    use api::etcdserverpb::{
        AlarmMember, AlarmResponse, LeaseKeepAliveResponse, Member, MemberListResponse, RangeResponse, ResponseHeader,
        ResponseOp, TxnResponse, response_op,
    };
    use api::mvccpb::KeyValue;

    fn text(name: &str, message: &impl api::Message, piece: usize, room: usize) -> String {
        let mut wire = Bytes::from(message.encode_to_vec());
        let mut encoder = Encoder::new(Message::find(name).expect("a message of the API"));
        let mut text = Vec::new();
        loop {
            let mut out = Vec::new();
            let run = encoder.run(&mut out, room).expect("a valid message");
            text.extend_from_slice(&out);
            match run {
                Run::Full => {}
                Run::Hungry if wire.is_empty() => encoder.finish(),
                Run::Hungry => encoder.push(wire.split_to(piece.min(wire.len()))),
                Run::Done => return String::from_utf8(text).expect("text"),
            }
        }
    }

    fn header() -> Option<ResponseHeader> {
        Some(ResponseHeader { cluster_id: u64::MAX, member_id: 1, revision: -2, raft_term: 0 })
    }

    #[test]
    fn messages_become_json_whatever_the_pieces() {
        let pair = |key: &[u8], version| KeyValue { key: key.to_vec().into(), version, ..Default::default() };
        let range = RangeResponse {
            header: header(),
            kvs: vec![pair(b"", 0), pair(&[0xfb, 0xff], 7), pair(&[b'x'; 4], 1)],
            more: true,
            count: 3,
        };
        let wanted = r#"{"header":{"cluster_id":"18446744073709551615","member_id":"1","revision":"-2"},"kvs":[{},{"key":"+/8=","version":"7"},{"key":"eHh4eA==","version":"1"}],"more":true,"count":"3"}"#;
        for piece in [1, 2, 7, 1000] {
            for room in [1, 10, 1000] {
                assert_eq!(text("etcdserverpb.RangeResponse", &range, piece, room), wanted);
            }
        }
        let members =
            Member { name: "a\"\n\u{1}ü<".into(), peer_ur_ls: vec!["".into(), "b".into()], ..Default::default() };
        let list = MemberListResponse { header: None, members: vec![members] };
        assert_eq!(
            text("etcdserverpb.MemberListResponse", &list, 3, 9),
            r#"{"members":[{"name":"a\"\n\u0001ü<","peerURLs":["","b"]}]}"#
        );
        let alarms = AlarmResponse {
            header: None,
            alarms: vec![AlarmMember { member_id: 5, alarm: 1 }, AlarmMember { member_id: 6, alarm: 9 }],
        };
        assert_eq!(
            text("etcdserverpb.AlarmResponse", &alarms, 3, 9),
            r#"{"alarms":[{"memberID":"5","alarm":"NOSPACE"},{"memberID":"6","alarm":9}]}"#
        );
        assert_eq!(text("etcdserverpb.LeaseKeepAliveResponse", &LeaseKeepAliveResponse::default(), 1, 1), "{}");
    }

    #[test]
    fn what_is_in_a_group_is_written_even_when_empty() {
        let op = |response| ResponseOp { response: Some(response) };
        let inner = TxnResponse {
            responses: vec![op(response_op::Response::ResponseRange(RangeResponse::default()))],
            ..Default::default()
        };
        let txn = TxnResponse {
            header: None,
            succeeded: true,
            responses: vec![op(response_op::Response::ResponseTxn(inner)), ResponseOp { response: None }],
        };
        let wanted = r#"{"succeeded":true,"responses":[{"response_txn":{"responses":[{"response_range":{}}]}},{}]}"#;
        assert_eq!(text("etcdserverpb.TxnResponse", &txn, 5, 5), wanted);
    }

    #[test]
    fn long_values_are_written_in_chunks() {
        let value = vec![0xa5; 3 * CHUNK_BYTES + 1];
        let range = RangeResponse {
            kvs: vec![KeyValue { value: value.clone().into(), lease: 1, ..Default::default() }],
            ..Default::default()
        };
        let mut encoder = Encoder::whole(
            Message::find("etcdserverpb.RangeResponse").expect("a message of the API"),
            range.encode_to_vec().into(),
        );
        let mut all = Vec::new();
        loop {
            let mut out = Vec::new();
            let run = encoder.run(&mut out, 100).expect("a valid message");
            assert!(out.len() <= 100 + CHUNK_BYTES / 3 * 4 + 10, "{} bytes at once", out.len());
            all.extend_from_slice(&out);
            if run == Run::Done {
                break;
            }
        }
        let wanted = format!("{{\"kvs\":[{{\"value\":\"{}\",\"lease\":\"1\"}}]}}", STANDARD.encode(value));
        assert_eq!(String::from_utf8(all).expect("text"), wanted);
    }

    #[test]
    fn damaged_messages_are_refused() {
        for wire in [&[0x0a, 5, 1][..], &[0x0b], &[0xff; 12], &[0x18]] {
            let of = Message::find("etcdserverpb.RangeResponse").expect("a message of the API");
            let mut encoder = Encoder::whole(of, Bytes::copy_from_slice(wire));
            assert_eq!(encoder.run(&mut Vec::new(), 1000), Err(Malformed), "{wire:?}");
        }
    }
}
