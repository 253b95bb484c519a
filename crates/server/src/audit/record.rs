//! The line of one request.

use super::text::{SHOWN_BYTES_MAX, escaped};
use super::{Class, Named};
use crate::audit::request::Field;
use api::Code;
use rpc::Peer;
use std::fmt::Write;
use std::time::{Instant, SystemTime};
use telemetry::logging::{quote, timestamp};

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
        if let Some(name) = peer.common_name.as_deref() {
            bounded(&mut head, "certificate", name.as_bytes());
        }
        bounded(&mut head, "method", path.as_bytes());
        let _ = write!(head, ",\"class\":\"{}\"", class.name());
        head.push_str(&details(named));
        Record { head, began: Instant::now() }
    }

    /// Adds what the first message of a stream names.
    pub(crate) fn add(&mut self, named: &Named) {
        self.head.push_str(&details(named));
    }

    /// The line, for a request of `user` that ended with `code`. An empty user is nobody: authentication is off, or the request came
    /// without a token.
    pub(crate) fn end(self, user: &str, code: Code) -> String {
        let mut line = self.head;
        bounded(&mut line, "user", user.as_bytes());
        let _ = write!(line, ",\"code\":\"{}\",\"took_ms\":{}}}", code.name(), self.began.elapsed().as_millis());
        line
    }
}

/// What a request names, as members of the object.
fn details(named: &Named) -> String {
    let mut text = String::new();
    for (name, field) in &named.fields {
        match field {
            Field::Text(bytes) => bounded(&mut text, name, bytes),
            Field::Number(number) => drop(write!(text, ",\"{name}\":{number}")),
            Field::Id(id) => drop(write!(text, ",\"{name}\":\"{id:x}\"")),
        }
    }
    if named.keys.is_empty() {
        return text;
    }
    text.push_str(",\"keys\":[");
    for (place, keys) in named.keys.iter().enumerate() {
        let _ = write!(text, "{}{{\"op\":\"{}\"", if place > 0 { "," } else { "" }, keys.op);
        bounded(&mut text, "key", &keys.key);
        if !keys.end.is_empty() {
            bounded(&mut text, "end", &keys.end);
        }
        text.push('}');
    }
    text.push(']');
    if named.more > 0 {
        let _ = write!(text, ",\"more_keys\":{}", named.more);
    }
    text
}

/// Appends a member with text; one that is cut off is followed by how long it was.
fn bounded(text: &mut String, name: &str, bytes: &[u8]) {
    let _ = write!(text, ",\"{name}\":");
    quote(text, &escaped(bytes));
    if bytes.len() > SHOWN_BYTES_MAX {
        let _ = write!(text, ",\"{name}_bytes\":{}", bytes.len());
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
        let peer = Peer::unknown(Address::Tcp(([127, 0, 0, 1], 5).into()));
        let (class, named) = of_message(path, &message.encode_to_vec().into());
        let line = Record::begin(0xab, &peer, path, class, &named).end("ann", Code::Ok);
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
                failure: (0..40).map(|_| put(&[b'x'; 9_000], "secret")).collect(),
                ..Default::default()
            },
        );
        assert!(text.contains(r#""key_bytes":9000"#) && text.contains(r#""more_keys":25"#), "{text}");
        assert!(text.len() < 8_000 && !text.contains("secret"), "{text}");
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
        let (class, named) = of_message("/etcdserverpb.KV/Put", &vec![0xff; 9].into());
        assert_eq!((class, named.keys.len()), (Class::Write, 0));
    }
}
