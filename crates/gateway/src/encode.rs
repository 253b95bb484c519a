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

/// One message on its way to JSON. Of what has come it keeps what it cannot write yet: less than a field's head, or a text.
#[derive(Debug)]
pub(crate) struct Encoder {
    /// The messages that are open, from the outermost.
    levels: Vec<Level>,
    /// What has come and is not written.
    rest: Bytes,
    /// How much of a value of bytes is still to be written.
    value: Option<usize>,
    /// All of the outermost message is here.
    is_whole: bool,
}

#[derive(Debug)]
struct Level {
    of: &'static Message,
    /// How much of it is still to be read; of the outermost this is not known.
    left: Option<usize>,
    /// A field was written.
    has_fields: bool,
    /// The list that is open.
    list: Option<u32>,
}

impl Level {
    fn new(of: &'static Message, left: Option<usize>) -> Level {
        Level { of, left, has_fields: false, list: None }
    }

    /// Whether `len` bytes more can be part of it.
    fn has(&self, len: usize) -> bool {
        self.left.is_none_or(|left| len <= left)
    }

    /// Notes that `len` bytes of it are read.
    fn read(&mut self, len: usize) {
        self.left = self.left.map(|left| left.saturating_sub(len));
    }
}

impl Encoder {
    /// For a message that comes in pieces.
    pub(crate) fn new(of: &'static Message) -> Encoder {
        Encoder { levels: vec![Level::new(of, None)], rest: Bytes::new(), value: None, is_whole: false }
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
        if self.rest.is_empty() {
            self.rest = piece;
        } else {
            // Usually this is the only reference: then it grows in place.
            let rest = std::mem::take(&mut self.rest);
            let mut both = rest.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            both.extend_from_slice(&piece);
            self.rest = both.freeze();
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
            let is_last = self.is_whole && self.rest.is_empty();
            let went_on = match (self.value, self.levels.last_mut()) {
                (Some(left), _) => self.go_on(left, out),
                (None, None) => return Ok(Run::Done),
                (None, Some(level)) if level.left.map_or(is_last, |left| left == 0) => {
                    close(level, out);
                    self.levels.pop();
                    true
                }
                (None, Some(_)) => self.field(out)?,
            };
            if !went_on {
                return if self.is_whole { Err(Malformed) } else { Ok(Run::Hungry) };
            }
        }
    }

    /// Goes on with a value of which `left` bytes are to be written. False if what is here is not enough.
    fn go_on(&mut self, left: usize, out: &mut Vec<u8>) -> bool {
        let mut len = left.min(self.rest.len()).min(CHUNK_BYTES);
        if len < left {
            // Base64 goes on without padding after three bytes.
            len = len.saturating_sub(len % 3);
        }
        if len == 0 && left > 0 {
            return false;
        }
        put_base64(out, &self.rest.split_to(len));
        let left = left.saturating_sub(len);
        self.value = Some(left).filter(|left| *left > 0);
        if left == 0 {
            out.push(b'"');
        }
        true
    }

    /// Begins with the next field, or writes it. False if what is here is not enough.
    fn field(&mut self, out: &mut Vec<u8>) -> Result<bool, Malformed> {
        let Some(level) = self.levels.last_mut() else { return Ok(true) };
        // What stands behind the end of this message is not its own.
        let has_all = level.left.is_some_and(|left| left <= self.rest.len());
        let own = level.left.map_or(&self.rest[..], |left| self.rest.get(..left).unwrap_or(&self.rest));
        let Some(head) = head(own)? else { return if has_all { Err(Malformed) } else { Ok(false) } };
        let field = level.of.by_number(head.number);
        let content_len = match head.value {
            Value::Content(len) => len,
            Value::Number(value) => {
                self.rest.advance(head.len);
                level.read(head.len);
                let Some(field) = field else { return Ok(true) };
                if matches!(field.kind, Kind::Message(_) | Kind::Bytes | Kind::String) {
                    return Err(Malformed);
                }
                if value != 0 || is_kept(field) {
                    begin(level, field, out);
                    put_number(out, field.kind, value);
                }
                return Ok(true);
            }
        };
        let len = head.len.checked_add(content_len).filter(|len| level.has(*len)).ok_or(Malformed)?;
        if let Some(field) = field
            && let Kind::Message(_) | Kind::Bytes = field.kind
        {
            self.rest.advance(head.len);
            level.read(len);
            if let Kind::Message(of) = field.kind {
                begin(level, field, out);
                self.levels.push(Level::new(of, Some(content_len)));
            } else if content_len > 0 || is_kept(field) {
                begin(level, field, out);
                out.push(b'"');
                self.value = Some(content_len);
            }
            return Ok(true);
        }
        // All others are written whole.
        if self.rest.len() < len {
            return Ok(false);
        }
        level.read(len);
        let content = self.rest.split_to(len).split_off(head.len);
        match field {
            None => {}
            Some(field) if matches!(field.kind, Kind::String) && (!content.is_empty() || is_kept(field)) => {
                begin(level, field, out);
                put_string(out, &String::from_utf8_lossy(&content));
            }
            // A packed list of numbers, or nothing.
            Some(field) => {
                let mut content = &content[..];
                while !content.is_empty() {
                    let number = varint::take(&mut content).ok_or(Malformed)?;
                    begin(level, field, out);
                    put_number(out, field.kind, number);
                }
            }
        }
        Ok(true)
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

/// What stands before the content of a field, and a number itself.
struct Head {
    number: u32,
    /// How many bytes that takes.
    len: usize,
    value: Value,
}

enum Value {
    Number(u64),
    /// Content of so many bytes.
    Content(usize),
}

/// The head of the field that `wire` begins with; none if it is not all there.
fn head(wire: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut behind = wire;
    let Some(key) = take_number(&mut behind)? else { return Ok(None) };
    let (number, value) = match key & 7 {
        0 => match take_number(&mut behind)? {
            Some(value) => ((key >> 3) as u32, Value::Number(value)),
            None => return Ok(None),
        },
        2 => match take_number(&mut behind)? {
            Some(len) => ((key >> 3) as u32, Value::Content(usize::try_from(len).unwrap_or(usize::MAX))),
            None => return Ok(None),
        },
        // No field of the API is one: as unknown as any.
        kind @ (1 | 5) => match behind.get(if kind == 1 { 8 } else { 4 }..) {
            Some(rest) => {
                behind = rest;
                (0, Value::Number(0))
            }
            None => return Ok(None),
        },
        _ => return Err(Malformed),
    };
    Ok(Some(Head { number, len: wire.len().saturating_sub(behind.len()), value }))
}

/// Takes a number off `wire`: none if it is not all there.
fn take_number(wire: &mut &[u8]) -> Result<Option<u64>, Malformed> {
    let number = varint::take(wire);
    if number.is_none() && wire.len() >= varint::LEN_MAX { Err(Malformed) } else { Ok(number) }
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

    /// Whatever the messages inside it are as long as.
    #[test]
    fn no_more_is_kept_of_a_message_than_a_piece() {
        let kv = |key: u8| KeyValue { key: vec![key; 3].into(), value: vec![key; 10_000].into(), ..Default::default() };
        let range = RangeResponse { kvs: (0..20).map(kv).collect(), count: 20, ..Default::default() };
        let pairs: Vec<String> = range
            .kvs
            .iter()
            .map(|kv| {
                format!("{{\"key\":\"{}\",\"value\":\"{}\"}}", STANDARD.encode(&kv.key), STANDARD.encode(&kv.value))
            })
            .collect();
        let response = Some(response_op::Response::ResponseRange(range));
        let txn = TxnResponse { header: None, succeeded: false, responses: vec![ResponseOp { response }] };
        let mut wire = Bytes::from(txn.encode_to_vec());
        let mut encoder = Encoder::new(Message::find("etcdserverpb.TxnResponse").expect("a message of the API"));
        let mut text = Vec::new();
        loop {
            match encoder.run(&mut text, usize::MAX).expect("a valid message") {
                Run::Hungry if wire.is_empty() => encoder.finish(),
                Run::Hungry => {
                    assert!(encoder.rest.len() < 16, "{} bytes are kept", encoder.rest.len());
                    encoder.push(wire.split_to(100.min(wire.len())));
                }
                Run::Full | Run::Done => break,
            }
        }
        let wanted =
            format!("{{\"responses\":[{{\"response_range\":{{\"kvs\":[{}],\"count\":\"20\"}}}}]}}", pairs.join(","));
        assert_eq!(String::from_utf8(text).expect("text"), wanted);
    }

    #[test]
    fn damaged_messages_are_refused() {
        // Cut off, of no kind, without an end, of a number that is not all there; and pairs whose key is longer than the pair, or whose
        // own number is not all in it.
        let damaged: [&[u8]; 7] = [
            &[0x0a, 5, 1],
            &[0x0b],
            &[0xff; 12],
            &[0x18],
            &[0x12, 3, 0x0a, 2, b'k', 0x18, 1],
            &[0x12, 1, 0x18, 1],
            &[0x12, 2, 0x0a],
        ];
        for wire in damaged {
            let of = Message::find("etcdserverpb.RangeResponse").expect("a message of the API");
            let mut encoder = Encoder::whole(of, Bytes::copy_from_slice(wire));
            assert_eq!(encoder.run(&mut Vec::new(), 1000), Err(Malformed), "{wire:?}");
            let mut encoder = Encoder::new(of);
            let mut pieces = wire.chunks(1).map(Bytes::copy_from_slice);
            let last = loop {
                match encoder.run(&mut Vec::new(), 1000) {
                    Ok(Run::Hungry) => match pieces.next() {
                        Some(piece) => encoder.push(piece),
                        None => encoder.finish(),
                    },
                    last => break last,
                }
            };
            assert_eq!(last, Err(Malformed), "{wire:?} in pieces");
        }
    }
}
