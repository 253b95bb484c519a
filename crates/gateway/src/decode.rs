//! From protobuf's JSON to protobuf. What the rules leave open is done as in Go's `protojson` with unknown fields discarded, because
//! clients of etcd rely on it; the error texts too.

use crate::values::Value;
use api::schema::{Field, Kind, Message};
use api::varint;
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Turns `json` into a message.
pub(crate) fn message(json: &Value, of: &'static Message) -> Result<Vec<u8>, String> {
    let mut reader = Reader { text: json.text(), at: 0 };
    let mut out = Out::default();
    reader.message(of, &mut out)?;
    Ok(out.whole())
}

/// A message that is being made. The lengths of the messages in it are put in at the end, all at once: what stands after a length is
/// only known when it is there, and to be moved for each level of a deep message would take that many times as long.
#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    /// The messages in it, in the order in which they begin.
    inner: Vec<Inner>,
    /// What the lengths will take of those that have ended.
    lens_bytes: usize,
}

/// A message within another.
struct Inner {
    /// Where it begins in what is made, without lengths.
    at: usize,
    /// Its length, with those in it.
    len: usize,
}

impl Out {
    /// Begins a message. What this returns is for its end.
    fn begin(&mut self) -> (usize, usize) {
        self.inner.push(Inner { at: self.bytes.len(), len: 0 });
        (self.inner.len().saturating_sub(1), self.lens_bytes)
    }

    fn end(&mut self, (index, lens_before): (usize, usize)) {
        let lens_within = self.lens_bytes.saturating_sub(lens_before);
        let Some(inner) = self.inner.get_mut(index) else { return };
        inner.len = self.bytes.len().saturating_sub(inner.at).saturating_add(lens_within);
        self.lens_bytes = self.lens_bytes.saturating_add(varint::len(inner.len as u64));
    }

    /// All of it, with the lengths.
    fn whole(self) -> Vec<u8> {
        if self.inner.is_empty() {
            return self.bytes;
        }
        let mut whole = Vec::with_capacity(self.bytes.len().saturating_add(self.lens_bytes));
        let mut from = 0;
        for inner in &self.inner {
            whole.extend_from_slice(self.bytes.get(from..inner.at).unwrap_or_default());
            varint::put(&mut whole, inner.len as u64);
            from = inner.at;
        }
        whole.extend_from_slice(self.bytes.get(from..).unwrap_or_default());
        whole
    }
}

/// Reads the text of a [`Value`]: the scanner has found its syntax right and its depth bounded, so neither is looked at again. What a
/// text without that promise costs is an error all the same: no place is read that is not there, and no loop continues after the end.
struct Reader<'a> {
    text: &'a [u8],
    /// Never after the end.
    at: usize,
}

/// Bit sets of the fields and groups that were given. No message has more than 64 fields.
#[derive(Default)]
struct Given {
    fields: u64,
    oneof: Option<&'static str>,
}

impl<'a> Reader<'a> {
    fn message(&mut self, of: &'static Message, out: &mut Out) -> Result<(), String> {
        self.take(b'{')?;
        let mut given = Given::default();
        while self.peek() != b'}' {
            if self.peek() == b',' {
                self.advance(1);
            }
            self.peek();
            let begin = self.at;
            let name = self.string()?;
            let raw = self.since(begin);
            self.take(b':')?;
            match of.by_name(&name) {
                None => self.skip(),
                Some(field) => self.field(of, field, begin, raw, &mut given, out)?,
            }
        }
        self.advance(1);
        Ok(())
    }

    fn field(
        &mut self,
        of: &'static Message,
        field: &'static Field,
        begin: usize,
        raw: &[u8],
        given: &mut Given,
        out: &mut Out,
    ) -> Result<(), String> {
        let raw = String::from_utf8_lossy(raw);
        let place = of.fields.iter().position(|other| other.number == field.number).unwrap_or_default();
        let bit = u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or_default();
        if given.fields & bit != 0 {
            return Err(self.fault(begin, &format!("duplicate field {raw}")));
        }
        given.fields |= bit;
        if self.peek() == b'n' {
            self.skip();
            return Ok(());
        }
        if let Some(oneof) = field.oneof {
            // No message of the API has two groups.
            if given.oneof.replace(oneof).is_some() {
                return Err(self.fault(begin, &format!("error parsing {raw}, oneof {oneof} is already set")));
            }
        }
        if !field.repeated {
            return self.value(field, field.oneof.is_some(), out);
        }
        self.take(b'[')?;
        while self.peek() != b']' {
            if self.peek() == b',' {
                self.advance(1);
            }
            self.value(field, true, out)?;
        }
        self.advance(1);
        Ok(())
    }

    /// One value of `field`. A zero is only written when it is `kept`.
    fn value(&mut self, field: &'static Field, kept: bool, out: &mut Out) -> Result<(), String> {
        self.peek();
        let begin = self.at;
        if let Kind::Message(of) = field.kind {
            varint::put(&mut out.bytes, varint::key(field.number, varint::DELIMITED));
            let begun = out.begin();
            self.message(of, out)?;
            out.end(begun);
            return Ok(());
        }
        let Some(value) = self.scalar(field.kind) else {
            self.at = begin;
            let (kind, raw) = (kind_name(field.kind), self.token());
            if std::str::from_utf8(self.since(begin)).is_err() {
                return Err(self.syntax(begin, "invalid UTF-8 in string"));
            }
            let text = format!("invalid value for {kind} field {}: {raw}", field.json_name);
            return Err(self.fault(begin, &text));
        };
        let out = &mut out.bytes;
        match value {
            // An enumeration's unknown name: skipped like an unknown field.
            Scalar::Skipped => {}
            Scalar::Number(0) if !kept => {}
            Scalar::Number(number) => varint::put_number(out, field.number, number),
            Scalar::Bytes(bytes) if bytes.is_empty() && !kept => {}
            Scalar::Bytes(bytes) => varint::put_bytes(out, field.number, &bytes),
        }
        Ok(())
    }

    /// A scalar; none if the value is not one of `kind`.
    fn scalar(&mut self, kind: Kind) -> Option<Scalar> {
        let first = self.peek();
        if matches!(first, b'{' | b'[') {
            return None;
        }
        let is_text = first == b'"';
        let number = |reader: &mut Self| -> Option<String> {
            // Numbers may stand in quotes, without blanks.
            let text = if is_text { reader.string().ok()? } else { reader.raw().to_string() };
            decimal(&text)
        };
        Some(match kind {
            Kind::Bool => match (is_text, self.raw()) {
                (false, "true") => Scalar::Number(1),
                (false, "false") => Scalar::Number(0),
                _ => return None,
            },
            Kind::Int64 => Scalar::Number(number(self)?.parse::<i64>().ok()? as u64),
            Kind::Int32 => Scalar::Number(i64::from(number(self)?.parse::<i32>().ok()?) as u64),
            Kind::Uint64 => Scalar::Number(number(self)?.parse::<u64>().ok()?),
            Kind::Uint32 => Scalar::Number(u64::from(number(self)?.parse::<u32>().ok()?)),
            Kind::Enum(_) if !is_text => Scalar::Number(i64::from(decimal(self.raw())?.parse::<i32>().ok()?) as u64),
            Kind::Enum(of) => match of.number(&self.string().ok()?) {
                Some(number) => Scalar::Number(i64::from(number) as u64),
                None => Scalar::Skipped,
            },
            Kind::String if is_text => Scalar::Bytes(self.string().ok()?.into_bytes()),
            Kind::Bytes if is_text => Scalar::Bytes(base64(&self.string().ok()?)?),
            Kind::String | Kind::Bytes | Kind::Message(_) => return None,
        })
    }

    /// The first byte of what comes next, after blanks. Zero at the end.
    fn peek(&mut self) -> u8 {
        let rest = self.rest();
        self.advance(rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).unwrap_or(rest.len()));
        self.rest().first().copied().unwrap_or(0)
    }

    /// Takes the byte that comes next, which must be this one.
    fn take(&mut self, byte: u8) -> Result<(), String> {
        if self.peek() != byte {
            return Err(self.unexpected());
        }
        self.advance(1);
        Ok(())
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// What was read after `begin`.
    fn since(&self, begin: usize) -> &'a [u8] {
        self.text.get(begin..self.at).unwrap_or_default()
    }

    /// Goes on by `count` bytes, or to the end.
    fn advance(&mut self, count: usize) {
        self.at = self.at.saturating_add(count).min(self.text.len());
    }

    /// A number or word as it stands.
    fn raw(&mut self) -> &'a str {
        let begin = self.at;
        let rest = self.rest();
        let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
        self.advance(rest.iter().position(is_end).unwrap_or(rest.len()));
        std::str::from_utf8(self.since(begin)).unwrap_or_default()
    }

    /// The next token, for a message.
    fn token(&mut self) -> String {
        match self.peek() {
            byte @ (b'{' | b'[') => char::from(byte).to_string(),
            b'"' => {
                let begin = self.at;
                self.skip_text();
                String::from_utf8_lossy(self.since(begin)).into_owned()
            }
            _ => self.raw().to_string(),
        }
    }

    fn skip_text(&mut self) {
        self.advance(1);
        while let Some(byte) = self.rest().first() {
            self.advance(1);
            match byte {
                b'"' => return,
                b'\\' => self.advance(1),
                _ => {}
            }
        }
    }

    /// Skips a value, whatever it is.
    fn skip(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                b'{' | b'[' => {
                    depth = depth.saturating_add(1);
                    self.advance(1);
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.advance(1);
                }
                b',' | b':' => self.advance(1),
                b'"' => self.skip_text(),
                _ => {
                    self.raw();
                }
            }
            if depth == 0 || self.rest().is_empty() {
                return;
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let begin = self.at;
        let mut out = Vec::new();
        self.take(b'"')?;
        loop {
            let rest = self.rest();
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(rest.len());
            let (text, behind) = rest.split_at_checked(plain).unwrap_or_default();
            out.extend_from_slice(text);
            self.advance(plain.saturating_add(1));
            match behind.first() {
                Some(b'\\') => {
                    let Some(letter) = self.escaped() else {
                        return Err(self.syntax(begin, "invalid escape code in string"));
                    };
                    out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(_) => break,
                None => return Err(self.syntax(begin, "unexpected EOF")),
            }
        }
        String::from_utf8(out).map_err(|_| self.syntax(begin, "invalid UTF-8 in string"))
    }

    /// The letter after a backslash. None if it is half of a pair.
    fn escaped(&mut self) -> Option<char> {
        let byte = *self.rest().first()?;
        self.advance(1);
        Some(match byte {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex()?;
                let Some(high) = first.checked_sub(0xd800).filter(|high| *high < 0x400) else {
                    return char::from_u32(first);
                };
                if !self.rest().starts_with(b"\\u") {
                    return None;
                }
                self.advance(2);
                let low = self.hex()?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                return char::from_u32((high << 10 | low).checked_add(0x1_0000)?);
            }
            other => char::from(other),
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = std::str::from_utf8(self.rest().get(..4)?).ok()?;
        self.advance(4);
        u32::from_str_radix(digits, 16).ok()
    }

    fn unexpected(&mut self) -> String {
        self.peek();
        let begin = self.at;
        let token = self.token();
        self.syntax(begin, &format!("unexpected token {token}"))
    }

    fn syntax(&self, at: usize, text: &str) -> String {
        let (line, column) = self.position(at);
        format!("proto: syntax error (line {line}:{column}): {text}")
    }

    fn fault(&self, at: usize, text: &str) -> String {
        let (line, column) = self.position(at);
        format!("proto: (line {line}:{column}): {text}")
    }

    /// Line and column of a place, from 1, in letters.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.iter().filter(|byte| **byte == b'\n').count().saturating_add(1);
        let last = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        (line, String::from_utf8_lossy(last).chars().count().saturating_add(1))
    }
}

enum Scalar {
    Number(u64),
    Bytes(Vec<u8>),
    Skipped,
}

/// A whole number written in any of JSON's ways (`1e2`, `1.50e1`), without point and exponent. None if it is not whole, or longer
/// than any that fits.
fn decimal(text: &str) -> Option<String> {
    let (sign, text) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    // Only a number in quotes can be malformed: elsewhere the scanner has seen to it.
    let is_well_formed = !whole.is_empty()
        && is_number(whole)
        && is_number(fraction)
        && !(mantissa.contains('.') && fraction.is_empty())
        && !(whole.len() > 1 && whole.starts_with('0'));
    if !is_well_formed {
        return None;
    }
    let exponent: i64 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some("0".into());
    }
    let trailing = digits.len().checked_sub(significant.len())?;
    let zeros = exponent.checked_sub_unsigned(fraction.len() as u64)?.checked_add_unsigned(trailing as u64)?;
    // No number of 64 bits has more digits.
    let zeros = usize::try_from(zeros).ok().filter(|zeros| *zeros <= 20)?;
    Some(format!("{sign}{significant}{}", "0".repeat(zeros)))
}

/// Standard and URL-safe base64, padded or not, with line ends wherever they are.
fn base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
    let engine = if text.contains(['-', '_']) { URL_SAFE } else { STANDARD };
    if text.contains(['\r', '\n']) {
        return engine.decode(text.replace(['\r', '\n'], "")).ok();
    }
    engine.decode(text).ok()
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "bool",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Uint32 => "uint32",
        Kind::Uint64 => "uint64",
        Kind::String => "string",
        Kind::Bytes => "bytes",
        Kind::Enum(_) => "enum",
        Kind::Message(_) => "message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Values;
    use api::etcdserverpb::{LeaseGrantRequest, RangeRequest, TxnRequest, WatchRequest, request_op, watch_request};

    fn scanned(json: &str) -> Result<Value, String> {
        let mut values = Values::new(1 << 20);
        values.push(json.as_bytes());
        Ok(values.next(true)?.expect("a value"))
    }

    fn decode<M: api::Message + Default>(name: &str, json: &str) -> Result<M, String> {
        let of = Message::find(name).expect("a message of the API");
        Ok(M::decode(&message(&scanned(json)?, of)?[..]).expect("a valid message"))
    }

    fn range(json: &str) -> Result<RangeRequest, String> {
        decode("etcdserverpb.RangeRequest", json)
    }

    #[test]
    fn all_spellings_are_taken() {
        let wanted = RangeRequest {
            key: b"foo"[..].into(),
            range_end: vec![0xfb, 0xff].into(),
            limit: 100,
            sort_order: 2,
            serializable: true,
            ..Default::default()
        };
        for json in [
            r#"{"key":"Zm9v","range_end":"+/8=","limit":"100","sort_order":"DESCEND","serializable":true}"#,
            r#" { "key" : "Zm9v" , "rangeEnd" : "-_8" , "limit" : 1e2 , "sortOrder" : 2 , "serializable" : true } "#,
            r#"{"key":"\u005am9v","range_end":"+/8","limit":"1.0e2","sort_order":2,"serializable":true,"x":[{"y":"]"}]}"#,
            r#"{"revision":null,"x":null,"key":"Zm9v","range_end":"-_8=","limit":100.0,"sort_order":2,"serializable":true}"#,
        ] {
            assert_eq!(range(json), Ok(wanted.clone()), "{json}");
        }
        assert_eq!(range(r#"{"sort_order":"NOTHING"}"#), Ok(RangeRequest::default()));
        let grant = LeaseGrantRequest { ttl: -5, id: i64::MIN };
        assert_eq!(decode("etcdserverpb.LeaseGrantRequest", r#"{"TTL":"-5","ID":-9223372036854775808}"#), Ok(grant));
    }

    #[test]
    fn faults_say_where() {
        for (json, text) in [
            (r#"{"key":5}"#, "proto: (line 1:8): invalid value for bytes field key: 5"),
            (r#"{"key":"Zm9v","limit":"abc"}"#, r#"proto: (line 1:23): invalid value for int64 field limit: "abc""#),
            (r#"{"key":"Zm9v","limit":1.5}"#, "proto: (line 1:23): invalid value for int64 field limit: 1.5"),
            (r#"{"key":"Zm9v","key":"Zm9v"}"#, r#"proto: (line 1:15): duplicate field "key""#),
            ("[]", "proto: syntax error (line 1:1): unexpected token ["),
            ("null", "proto: syntax error (line 1:1): unexpected token null"),
            (r#""x""#, r#"proto: syntax error (line 1:1): unexpected token "x""#),
            ("{\n\"key\":{}}", "proto: (line 2:7): invalid value for bytes field key: {"),
            (r#"{"limit":" 1"}"#, r#"proto: (line 1:10): invalid value for int64 field limit: " 1""#),
            (
                r#"{"limit":9223372036854775808}"#,
                "proto: (line 1:10): invalid value for int64 field limit: 9223372036854775808",
            ),
            (
                r#"{"limit":1e99999999999999999999}"#,
                "proto: (line 1:10): invalid value for int64 field limit: 1e99999999999999999999",
            ),
            (r#"{"key":"*"}"#, r#"proto: (line 1:8): invalid value for bytes field key: "*""#),
            (r#"{"serializable":"true"}"#, r#"proto: (line 1:17): invalid value for bool field serializable: "true""#),
        ] {
            assert_eq!(range(json).err().as_deref(), Some(text), "{json}");
        }
        let twice = r#"{"success":[{"requestRange":{"key":"Zm9v"},"requestPut":{}}]}"#;
        assert_eq!(
            decode::<TxnRequest>("etcdserverpb.TxnRequest", twice).err().as_deref(),
            Some(
                r#"proto: (line 1:44): error parsing "requestPut", oneof etcdserverpb.RequestOp.request is already set"#
            )
        );
    }

    /// As the library encodes the same, with lengths of one byte and of several.
    #[test]
    fn lengths_are_those_of_what_is_within() {
        for value_len in [0, 1, 100, 120, 127, 128, 16_200, 16_383, 16_384] {
            let value = "A".repeat(value_len * 4);
            let put = format!(r#"{{"request_put":{{"key":"AAAA","value":"{value}"}}}}"#);
            let mut json = format!("[{put},{put}]");
            for _ in 0..5 {
                json = format!(
                    r#"[{{"request_txn":{{"compare":[{{"key":"AAAA"}},{{}}],"success":{json},"failure":[{put}]}}}}]"#
                );
            }
            let json = format!(r#"{{"success":{json}}}"#);
            let of = Message::find("etcdserverpb.TxnRequest").expect("a message of the API");
            let mut values = Values::new(16 << 20);
            values.push(json.as_bytes());
            let value = values.next(true).expect("well-formed").expect("a value");
            let wire = message(&value, of).expect("a transaction");
            let decoded = <TxnRequest as api::Message>::decode(&wire[..]).expect("a valid message");
            assert_eq!(api::Message::encode_to_vec(&decoded), wire, "{value_len}");
        }
    }

    #[test]
    fn groups_keep_what_is_empty() {
        let txn: TxnRequest =
            decode("etcdserverpb.TxnRequest", r#"{"compare":[{"version":0}],"success":[{"request_range":{}}]}"#)
                .expect("a transaction");
        assert!(txn.compare[0].target_union.is_some());
        assert_eq!(txn.success[0].request, Some(request_op::Request::RequestRange(RangeRequest::default())));
        let watch: WatchRequest =
            decode("etcdserverpb.WatchRequest", r#"{"create_request":{"filters":["NOPUT",1]}}"#).expect("a watch");
        let Some(watch_request::RequestUnion::CreateRequest(create)) = watch.request_union else {
            panic!("a creation")
        };
        assert_eq!(create.filters, [0, 1]);
    }

    #[test]
    fn deep_transactions_fit_the_stack() {
        let depth = 300;
        let json = format!(
            "{}{}{}",
            r#"{"success":[{"request_txn":"#.repeat(depth),
            r#"{"compare":[{"key":"Zm9v"}]}"#,
            "}]}".repeat(depth)
        );
        let of = Message::find("etcdserverpb.TxnRequest").expect("a message of the API");
        let wire = message(&scanned(&json).expect("syntax without faults"), of).expect("a transaction");
        assert!(matches!(api::decode::txn(wire.into(), usize::MAX), Err(api::decode::Error::TooDeep)));
    }

    /// Behind a hole in the scanner, or without it, a text costs an error: no panic, no loop without end.
    #[test]
    fn texts_that_nobody_scanned_are_harmless() {
        let whole = r#"{"compare":[{"key":"\ud83d\ude00","version":"-1.5e1","x":{"y":["]",1]}}],"success":[{"requestRange":{"limit":1}}]}"#;
        let of = Message::find("etcdserverpb.TxnRequest").expect("a message of the API");
        for end in 0..whole.len() {
            assert!(message(&Value::unchecked(&whole.as_bytes()[..end]), of).is_err(), "{}", &whole[..end]);
        }
        let tokens =
            ["{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "\"key\"", "\"success\"", "\u{e9}", "nul", "-", " "];
        for first in tokens {
            for second in tokens {
                for third in tokens {
                    for fourth in tokens {
                        let _ = message(&Value::unchecked([first, second, third, fourth].concat().as_bytes()), of);
                    }
                }
            }
        }
    }
}
