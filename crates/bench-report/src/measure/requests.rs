//! Makes the requests of a load, and judges their answers.

use api::varint::{put_bytes, put_nonempty, put_nonzero};
use bench::wire::{self, Value};
use bench::{Cutter, Listing, Meter, Request, Work, answer, prefix_range};

use super::load::{Kind, Load};
use super::numbered::{DIGITS, Numbered};

/// Numbers of the used values and fields of `Compare` and `RequestOp`.
const COMPARE_GREATER: u64 = 1;
const COMPARE_KEY: u32 = 3;
const OPERATION_PUT: u32 = 2;

/// The requests of one thread.
pub(super) struct Requests {
    kind: Kind,
    user: (String, String),
    keys: u64,
    is_sequential: bool,
    key: Numbered,
    value: Numbered,
    value_bytes: usize,
    /// How many keys share the same leading digits, and the number of these digits.
    group: (u64, usize),
    next: u64,
    step: u64,
    random: u64,
    /// Parts of a transaction.
    parts: [Vec<u8>; 2],
    /// The first token in an answer.
    token: Option<String>,
}

/// The state of an answer that is being received.
#[derive(Default)]
pub(super) struct Answer {
    cutter: Cutter,
    listing: Listing,
    messages: u32,
    wrong: Option<&'static str>,
}

impl Requests {
    /// The requests of thread `thread` of `threads`.
    pub(super) fn new(load: &Load, thread: usize, threads: usize) -> Requests {
        let letters: Vec<u8> = (b'a'..=b'z').cycle().take(load.value_bytes.saturating_sub(DIGITS)).collect();
        let keys = if let Kind::List { keys } = load.kind { keys } else { 1 };
        Requests {
            kind: load.kind,
            user: load.user.clone(),
            keys: load.keys.max(1),
            is_sequential: load.is_sequential,
            key: Numbered::new(&load.key_prefix),
            value: Numbered::new(&letters),
            value_bytes: letters.len() + DIGITS,
            group: (keys, DIGITS - keys.max(1).ilog10() as usize),
            next: thread as u64,
            step: threads as u64,
            random: 0x9e37_79b9_7f4a_7c15 ^ (thread as u64 + 1) << 32,
            parts: Default::default(),
            token: None,
        }
    }

    fn number(&mut self) -> u64 {
        if self.is_sequential {
            let number = self.next % self.keys;
            self.next += self.step;
            return number;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // The number of the first key of a group, which one answer contains.
        let groups = (self.keys / self.group.0).max(1);
        self.random % groups * self.group.0
    }

    /// The prefix of the list that begins with key `number`.
    fn prefix(&mut self, number: u64) -> &[u8] {
        let key = self.key.with(number);
        &key[..key.len() - DIGITS + self.group.1]
    }

    fn put(&mut self, number: u64, out: &mut Vec<u8>) {
        put_nonempty(out, 1, self.key.with(number));
        put_nonempty(out, 2, self.value.with(number));
    }

    fn txn(&mut self, number: u64, out: &mut Vec<u8>) {
        let [mut part, mut operation] = std::mem::take(&mut self.parts);
        part.clear();
        // A version greater than 0.
        put_nonzero(&mut part, 1, COMPARE_GREATER);
        put_nonempty(&mut part, COMPARE_KEY, self.key.with(number));
        put_bytes(out, 1, &part);
        part.clear();
        self.put(number, &mut part);
        operation.clear();
        put_bytes(&mut operation, OPERATION_PUT, &part);
        put_bytes(out, 2, &operation);
        put_bytes(out, 3, &operation);
        self.parts = [part, operation];
    }

    fn verdict(&mut self, number: u64, message: &[u8]) -> Result<(), &'static str> {
        match self.kind {
            Kind::Put => answer::put(message),
            Kind::Txn => txn(message),
            Kind::Authenticate => {
                let token = answer::token(message)?;
                self.token.get_or_insert_with(|| token.to_owned());
                Ok(())
            }
            Kind::Range { .. } | Kind::List { .. } => range(message, self.key.with(number), self.value.with(number)),
        }
    }
}

impl Work for Requests {
    type Answer = Answer;

    fn methods(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Put => &["/etcdserverpb.KV/Put"],
            Kind::Txn => &["/etcdserverpb.KV/Txn"],
            Kind::Authenticate => &["/etcdserverpb.Auth/Authenticate"],
            Kind::Range { .. } | Kind::List { .. } => &["/etcdserverpb.KV/Range"],
        }
    }

    fn make(&mut self, message: &mut Vec<u8>) -> Request {
        message.clear();
        let number = self.number();
        match self.kind {
            Kind::Put => self.put(number, message),
            Kind::Txn => self.txn(number, message),
            Kind::Range { serializable } => {
                put_nonempty(message, 1, self.key.with(number));
                put_nonzero(message, 7, u64::from(serializable));
            }
            Kind::List { .. } => {
                let (from, until) = prefix_range(self.prefix(number));
                put_nonempty(message, 1, &from);
                put_nonempty(message, 2, &until);
            }
            Kind::Authenticate => {
                put_nonempty(message, 1, self.user.0.as_bytes());
                put_nonempty(message, 2, self.user.1.as_bytes());
            }
        }
        Request { number, ..Request::default() }
    }

    fn begin(&mut self, answer: &mut Answer) {
        (answer.messages, answer.wrong) = (0, None);
        answer.cutter.clear();
        answer.listing.clear();
    }

    fn data(&mut self, request: Request, answer: &mut Answer, data: &[u8]) {
        let Answer { cutter, listing, messages, wrong } = answer;
        if let Kind::List { .. } = self.kind {
            let value_bytes = self.value_bytes;
            return listing.push(data, self.prefix(request.number), value_bytes);
        }
        cutter.push(data, |message| {
            *messages += 1;
            if let Err(why) = self.verdict(request.number, message) {
                *wrong = Some(why);
            }
        });
    }

    fn end(&mut self, _: Request, answer: &mut Answer, meter: &mut Meter) -> Result<(), &'static str> {
        if let Kind::List { keys } = self.kind {
            meter.items += answer.listing.keys;
            return answer.listing.verdict(Some(keys));
        }
        if meter.tokens.is_empty() {
            meter.tokens.extend(self.token.clone());
        }
        match answer.wrong {
            Some(why) => Err(why),
            None if answer.messages == 1 && answer.cutter.is_empty() => Ok(()),
            None => Err("not exactly one message"),
        }
    }
}

/// Checks a RangeResponse: it must have exactly this key and this value.
fn range(message: &[u8], key: &[u8], value: &[u8]) -> Result<(), &'static str> {
    let (mut found, mut others) = (None, false);
    let whole = wire::fields(message, |field, content| {
        if let (2, Value::Bytes(kv)) = (field, content) {
            others |= found.replace(kv).is_some();
        }
    });
    let (Some(kv), true, false) = (found, whole, others) else {
        return Err("an answer without the key, or with others");
    };
    let (mut has_key, mut has_value) = (false, false);
    let whole = wire::fields(kv, |field, content| match (field, content) {
        (1, Value::Bytes(own)) => has_key = own == key,
        (5, Value::Bytes(own)) => has_value = own == value,
        _ => {}
    });
    match (whole && has_key, has_value) {
        (false, _) => Err("an answer with another key"),
        (_, false) => Err("an answer with another value"),
        _ => Ok(()),
    }
}

/// Checks a TxnResponse: it must have one operation.
fn txn(message: &[u8]) -> Result<(), &'static str> {
    let (mut revision, mut responses) = (None, 0);
    let whole = wire::fields(message, |field, content| match (field, content) {
        (1, Value::Bytes(header)) => revision = wire::number(header, 3),
        (3, Value::Bytes(_)) => responses += 1,
        _ => {}
    });
    let is_right = whole && responses == 1 && revision.is_some_and(|revision| revision > 0);
    if is_right { Ok(()) } else { Err("an answer that is no TxnResponse of one operation") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use api::etcdserverpb::request_op::Request as Operation;
    use api::etcdserverpb::{PutRequest, RangeRequest, RangeResponse, TxnRequest};
    use api::mvccpb::KeyValue;

    fn made(load: &Load) -> (Requests, Request, Vec<u8>) {
        let (mut requests, mut message) = (Requests::new(load, 0, 1), b"what was there".to_vec());
        let request = requests.make(&mut message);
        (requests, request, message)
    }

    #[test]
    fn requests_are_what_the_load_says() {
        let load = Load::new(Kind::Put, b"k-".to_vec(), 12, 5).sequential();
        let (mut requests, _, message) = made(&load);
        let put = PutRequest::decode(&message[..]).expect("a put");
        assert_eq!((&put.key[..], &put.value[..]), (&b"k-000000000"[..], &b"abc000000000"[..]));
        let numbers: Vec<u64> = (0..5).map(|_| requests.make(&mut Vec::new()).number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 0]);

        let (_, request, message) = made(&Load { kind: Kind::List { keys: 1000 }, keys: 1_000_000, ..load.clone() });
        let list = RangeRequest::decode(&message[..]).expect("a range");
        assert_eq!(list.key, format!("k-{:06}", request.number / 1000));
        assert!(list.range_end > list.key && request.number.is_multiple_of(1000) && request.number < 1_000_000);

        let (_, _, message) = made(&Load { kind: Kind::Txn, ..load });
        let txn = TxnRequest::decode(&message[..]).expect("a transaction");
        assert_eq!((txn.compare.len(), txn.compare[0].result), (1, COMPARE_GREATER as i32));
        assert_eq!(txn.compare[0].key, "k-000000000");
        for operation in [&txn.success, &txn.failure] {
            assert!(matches!(&operation[0].request, Some(Operation::RequestPut(put)) if put.key == "k-000000000"));
        }
    }

    #[test]
    fn the_right_answer_alone_is_right() {
        let load = Load::new(Kind::Range { serializable: false }, b"k-".to_vec(), 12, 1);
        let (mut requests, request, _) = made(&load);
        let answer = |key: &str, value: &str| {
            let kv = KeyValue { key: key.to_owned().into(), value: value.to_owned().into(), ..KeyValue::default() };
            RangeResponse { kvs: vec![kv], ..RangeResponse::default() }.encode_to_vec()
        };
        let mut verdict = |message: &[u8]| requests.verdict(request.number, message);
        assert_eq!(verdict(&answer("k-000000000", "abc000000000")), Ok(()));
        assert!(verdict(&answer("k-000000001", "abc000000000")).is_err());
        assert!(verdict(&answer("k-000000000", "abd000000000")).is_err());
        assert!(verdict(&[]).is_err());
        assert!(txn(&[]).is_err());
    }
}
