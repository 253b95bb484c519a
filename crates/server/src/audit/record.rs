//! The line of one request.

use super::text::escaped;
use super::{Class, Named};
use crate::audit::request::Field;
use api::Code;
use rpc::Peer;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::time::{Instant, SystemTime};
use telemetry::logging::{quote, timestamp};

/// Bytes of a key or name that are shown.
const SHOWN_BYTES_MAX: usize = 256;
/// Bytes that are shown of all keys of a request together; each has an equal part of them, and at least [`SHOWN_BYTES_MIN`].
const KEYS_BYTES_MAX: usize = 8 << 10;
const SHOWN_BYTES_MIN: usize = 32;
/// Bytes of the digest of what is cut off.
const DIGEST_BYTES: usize = 8;

/// A request that is under way.
pub(crate) struct Record {
    /// The line up to what the end adds.
    head: String,
    began: Instant,
}

impl Record {
    pub(super) fn begin(member_id: u64, peer: &Peer, path: &str, class: Class, named: &Named) -> Record {
        let mut head = String::with_capacity(320);
        let at = timestamp(SystemTime::now());
        // Writing to a string cannot fail.
        let _ = write!(head, "{{\"ts\":\"{at}\",\"member\":\"{member_id:x}\",\"from\":\"{}\"", peer.address);
        if let Some(name) = peer.common_name.as_deref().or(peer.recorded_name.as_deref()) {
            bounded(&mut head, "certificate", name.as_bytes(), SHOWN_BYTES_MAX);
        }
        bounded(&mut head, "method", path.as_bytes(), SHOWN_BYTES_MAX);
        let _ = write!(head, ",\"class\":\"{}\"", class.name());
        head.push_str(&details(named));
        Record { head, began: Instant::now() }
    }

    /// Adds what the first message of a stream names.
    pub(crate) fn add(&mut self, named: &Named) {
        self.head.push_str(&details(named));
    }

    /// Bytes that are kept until the request has ended.
    pub(crate) fn held_bytes(&self) -> usize {
        self.head.capacity()
    }

    /// The line, for a request of `user` that ended with `code`, and for a transaction whether its comparisons held. An empty user is
    /// nobody: authentication is off, or the request came without a token.
    pub(crate) fn end(self, user: &str, code: Code, succeeded: Option<bool>) -> String {
        let mut line = self.head;
        if let Some(succeeded) = succeeded {
            let _ = write!(line, ",\"succeeded\":{succeeded}");
        }
        bounded(&mut line, "user", user.as_bytes(), SHOWN_BYTES_MAX);
        let _ = write!(line, ",\"code\":\"{}\",\"took_ms\":{}}}", code.name(), self.began.elapsed().as_millis());
        line
    }
}

/// What a request names, as members of the object.
fn details(named: &Named) -> String {
    let mut text = String::new();
    for (name, field) in &named.fields {
        match field {
            Field::Text(bytes) => bounded(&mut text, name, bytes, SHOWN_BYTES_MAX),
            Field::Number(number) => drop(write!(text, ",\"{name}\":{number}")),
            Field::Id(id) => drop(write!(text, ",\"{name}\":\"{id:x}\"")),
        }
    }
    if named.keys.is_empty() {
        return text;
    }
    let part = KEYS_BYTES_MAX.checked_div(named.keys.len()).unwrap_or(KEYS_BYTES_MAX);
    let bytes_max = part.clamp(SHOWN_BYTES_MIN, SHOWN_BYTES_MAX);
    text.push_str(",\"keys\":[");
    for (place, keys) in named.keys.iter().enumerate() {
        let _ = write!(text, "{}{{\"op\":\"{}\"", if place > 0 { "," } else { "" }, keys.op);
        if let Some(branch) = keys.branch {
            let _ = write!(text, ",\"branch\":\"{branch}\"");
        }
        bounded(&mut text, "key", &keys.key, bytes_max);
        if !keys.end.is_empty() {
            bounded(&mut text, "end", &keys.end, bytes_max);
        }
        text.push('}');
    }
    text.push(']');
    if !named.more.is_empty() {
        text.push_str(",\"more\":{");
        for (place, (op, count)) in named.more.iter().enumerate() {
            let _ = write!(text, "{}\"{op}\":{count}", if place > 0 { "," } else { "" });
        }
        text.push('}');
    }
    text
}

/// Appends a member with text; one that is cut off is followed by how long it was, and by the beginning of its SHA-256: two that differ
/// only behind the cut do not look alike.
fn bounded(text: &mut String, name: &str, bytes: &[u8], bytes_max: usize) {
    let _ = write!(text, ",\"{name}\":");
    quote(text, &escaped(bytes, bytes_max));
    if bytes.len() > bytes_max {
        let _ = write!(text, ",\"{name}_bytes\":{},\"{name}_sha256\":\"", bytes.len());
        for byte in Sha256::digest(bytes).iter().take(DIGEST_BYTES) {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::of_message;
    use api::Message;
    use api::etcdserverpb::*;
    use rpc::Address;

    fn line(path: &str, message: impl Message) -> String {
        line_of(path, message, true)
    }

    fn line_of(path: &str, message: impl Message, reads: bool) -> String {
        let peer = Peer::unknown(Address::Tcp(([127, 0, 0, 1], 5).into()));
        let (class, named) = of_message(path, &message.encode_to_vec().into(), reads, usize::MAX);
        let line = Record::begin(0xab, &peer, path, class, &named).end("ann", Code::Ok, None);
        let parsed: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((&parsed["member"], &parsed["from"]), (&"ab".into(), &"127.0.0.1:5".into()));
        line
    }

    fn put(key: &[u8], value: &str) -> RequestOp {
        let put = PutRequest { key: key.to_vec().into(), value: value.to_string().into(), ..Default::default() };
        RequestOp { request: Some(request_op::Request::RequestPut(put)) }
    }

    #[test]
    fn keys_are_told_and_values_are_not() {
        let text = line(
            "/etcdserverpb.KV/Put",
            PutRequest { key: "k\n".into(), value: "secret".into(), lease: 31, ..Default::default() },
        );
        assert!(text.contains(r#""keys":[{"op":"put","key":"k\\x0a"}]"#) && text.contains(r#""lease":"1f""#), "{text}");
        assert!(text.contains(r#""class":"write""#) && text.contains(r#""user":"ann","code":"OK""#), "{text}");
        let text = line(
            "/etcdserverpb.KV/Txn",
            TxnRequest {
                success: vec![put(b"a", "secret")],
                failure: (0..300).map(|_| put(&[b'x'; 9_000], "secret")).collect(),
                ..Default::default()
            },
        );
        assert!(text.contains(r#""key_bytes":9000"#) && text.contains(r#""more":{"put":45}"#), "{text}");
        assert!(text.len() < 48_000 && !text.contains("secret"), "{text}");
    }

    fn range(key: &str) -> RequestOp {
        let range = RangeRequest { key: key.to_string().into(), ..Default::default() };
        RequestOp { request: Some(request_op::Request::RequestRange(range)) }
    }

    fn delete(key: &str) -> RequestOp {
        let delete = DeleteRangeRequest { key: key.to_string().into(), ..Default::default() };
        RequestOp { request: Some(request_op::Request::RequestDeleteRange(delete)) }
    }

    const TXN: &str = "/etcdserverpb.KV/Txn";

    #[test]
    fn writes_of_a_transaction_cannot_be_hidden() {
        let reads = || (0..400).map(|_| range("harmless"));
        let txn = TxnRequest { success: reads().chain([delete("victim")]).collect(), ..Default::default() };
        let text = line_of(TXN, txn.clone(), false);
        assert!(text.contains(r#""keys":[{"op":"delete","branch":"success","key":"victim"}],"user""#), "{text}");
        let text = line_of(TXN, txn, true);
        assert!(text.contains(r#""keys":[{"op":"delete","branch":"success","key":"victim"},{"op":"range","#), "{text}");
        assert!(text.contains(r#"],"more":{"range":145}"#), "{text}");
        // As many operations as the default of --max-txn-ops lets a branch have are named, of both branches.
        let full = |name: &str| (0..128).map(|place| delete(&format!("{name}{place}"))).collect::<Vec<_>>();
        let text =
            line_of(TXN, TxnRequest { failure: full("decoy"), success: full("victim"), ..Default::default() }, false);
        assert!(text.contains(r#"{"op":"delete","branch":"success","key":"victim127"}"#), "{text}");
        assert!(
            text.contains(r#"{"op":"delete","branch":"failure","key":"decoy0"}"#) && !text.contains("more"),
            "{text}"
        );
        let inner = TxnRequest { failure: vec![delete("victim")], ..Default::default() };
        let inner = RequestOp { request: Some(request_op::Request::RequestTxn(inner)) };
        let puts = (0..300).map(|_| put(b"harmless", "")).chain([inner]).collect();
        let text = line_of(TXN, TxnRequest { success: puts, ..Default::default() }, false);
        assert!(text.contains(r#"[{"op":"delete","branch":"success/failure","key":"victim"}"#), "{text}");
        assert!(text.contains(r#""more":{"put":45}"#), "{text}");
    }

    #[test]
    fn keys_that_are_cut_off_can_be_told_apart() {
        let of = |end: &str| {
            let key = format!("{}{end}", "k".repeat(256));
            line("/etcdserverpb.KV/Put", PutRequest { key: key.into(), ..Default::default() })
        };
        let digest =
            |text: &str| text.split_once(r#""key_bytes":257,"key_sha256":""#).map(|(_, rest)| rest[..16].to_string());
        assert!(digest(&of("a")).is_some_and(|one| Some(one) != digest(&of("b"))), "{}", of("a"));
        assert!(!of("").contains("key_sha256"));
    }

    #[test]
    fn passwords_are_never_told() {
        let (name, password) = (String::from("ann"), String::from("hunter2"));
        let requests = [
            line(
                "/etcdserverpb.Auth/Authenticate",
                AuthenticateRequest { name: name.clone(), password: password.clone() },
            ),
            line(
                "/etcdserverpb.Auth/UserAdd",
                AuthUserAddRequest {
                    name: name.clone(),
                    password: password.clone(),
                    hashed_password: password.clone(),
                    ..Default::default()
                },
            ),
            line(
                "/etcdserverpb.Auth/UserChangePassword",
                AuthUserChangePasswordRequest { name, password: password.clone(), hashed_password: password },
            ),
        ];
        for text in requests {
            assert!(text.contains(r#""name":"ann""#) && !text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn reads_in_disguise_are_reads() {
        let range = RequestOp { request: Some(request_op::Request::RequestRange(RangeRequest::default())) };
        for text in [
            line("/etcdserverpb.KV/Txn", TxnRequest { success: vec![range], ..Default::default() }),
            line("/etcdserverpb.Maintenance/Alarm", AlarmRequest::default()),
        ] {
            assert!(text.contains(r#""class":"read""#), "{text}");
        }
        let disarm = AlarmRequest { action: 2, alarm: 1, member_id: 7 };
        let text = line("/etcdserverpb.Maintenance/Alarm", disarm);
        assert!(text.contains(r#""action":"DEACTIVATE","alarm":"NOSPACE","member_id":"7""#), "{text}");
    }

    #[test]
    fn what_cannot_be_read_names_nothing() {
        let (class, named) = of_message("/etcdserverpb.KV/Put", &vec![0xff; 9].into(), true, usize::MAX);
        assert_eq!((class, named.keys.len()), (Class::Write, 0));
    }
}
