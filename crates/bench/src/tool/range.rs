//! `range`: reads keys.

use flags::{Parsed, int, switch, text};

use super::command::{Action, Command};
use super::failure::{Failure, Outcome};
use super::say;
use super::session::Session;
use super::single::Single;
use crate::answer;
use crate::meter::Meter;
use crate::request::prefix_range;
use crate::wire::{self, Value};
use crate::work::{Request, Work};
use api::varint::{put_nonempty, put_nonzero};

/// Keys of a page.
const PAGE: u64 = 10_000;

pub(crate) const COMMAND: Command = Command {
    name: "range",
    arguments: " key [end-range]",
    short: "Benchmark range",
    long: "Benchmark range: reads one key, or those from KEY to END-RANGE. With --rate requests are sent at times that are fixed \
           beforehand, and latency counts from those times.",
    flags: &[
        text("consistency", "l", "linearizable (l) or serializable (s)"),
        switch("count-only", "ask for the number of keys alone"),
        switch("keys-only", "ask for keys without their values"),
        int("limit", "0", "keys of an answer (0: all)"),
        switch("paginate", "read in pages of 10,000 keys; all pages count as one request"),
        switch("prefix", "read the keys that begin with KEY"),
        int(
            "rate",
            "0",
            "requests per second, sent whatever the answers do (0: each client sends when it has its answer)",
        ),
        switch("stream", "have answers streamed (RangeStream)"),
        int("total", "10000", "requests altogether"),
    ],
    action: Action::Run(run),
};

/// Prints the consistency of the reads, and returns whether it is serializable.
pub(crate) fn consistency(parsed: &Parsed) -> Outcome<bool> {
    let (name, is_serializable) = match parsed.text("consistency") {
        "l" => ("linearizable", false),
        "s" => ("serializable", true),
        _ => return Err(Failure::usage()),
    };
    say(&format!("bench with {name} range\n"));
    Ok(is_serializable)
}

fn run(parsed: &Parsed) -> Outcome {
    let (key, end) = match parsed.args.as_slice() {
        [key] if parsed.switch("prefix") => prefix_range(key.as_bytes()),
        [key] => (key.clone().into_bytes(), Vec::new()),
        [key, end] if !parsed.switch("prefix") => (key.clone().into_bytes(), end.clone().into_bytes()),
        _ => return Err(Failure::usage()),
    };
    let is_serializable = consistency(parsed)?;
    let (is_stream, is_paged) = (parsed.switch("stream"), parsed.switch("paginate"));
    if is_stream && is_paged {
        return Err(Failure::new("expected one of --stream and --paginate, got both"));
    }
    let ranges = Ranges {
        key,
        end,
        limit: parsed.int("limit"),
        is_serializable,
        keys_only: parsed.switch("keys-only"),
        count_only: parsed.switch("count-only"),
        is_stream,
        is_paged,
    };
    let session = Session::open(parsed)?;
    let (meters, cost) = session.measure(session.pace()?, 1, || ranges.clone())?;
    say(&session.tell("range", &meters[0], cost));
    session.end()
}

#[derive(Clone)]
struct Ranges {
    key: Vec<u8>,
    end: Vec<u8>,
    limit: i64,
    is_serializable: bool,
    keys_only: bool,
    count_only: bool,
    is_stream: bool,
    is_paged: bool,
}

/// The state of an answer, and the beginning of the next page.
#[derive(Default)]
pub(crate) struct Page {
    single: Single,
    last_key: Vec<u8>,
    has_more: bool,
    keys: u64,
    /// Keys read so far, of all pages of the request.
    read: u64,
}

impl Ranges {
    fn request(&self, key: &[u8], limit: u64, message: &mut Vec<u8>) {
        message.clear();
        put_nonempty(message, 1, key);
        put_nonempty(message, 2, &self.end);
        put_nonzero(message, 3, limit);
        put_nonzero(message, 7, u64::from(self.is_serializable));
        put_nonzero(message, 8, u64::from(self.keys_only));
        put_nonzero(message, 9, u64::from(self.count_only));
    }

    /// The limit of the page that follows `read` keys.
    fn page(&self, read: u64) -> u64 {
        match u64::try_from(self.limit) {
            Ok(limit @ 1..) if self.is_paged => limit.saturating_sub(read).min(PAGE),
            _ if self.is_paged => PAGE,
            // The limit is passed on as it was given, even if it is negative.
            _ => self.limit as u64,
        }
    }
}

impl Work for Ranges {
    type Answer = Page;

    fn methods(&self) -> &'static [&'static str] {
        if self.is_stream { &["/etcdserverpb.KV/RangeStream"] } else { &["/etcdserverpb.KV/Range"] }
    }

    fn make(&mut self, message: &mut Vec<u8>) -> Request {
        self.request(&self.key, self.page(0), message);
        Request::default()
    }

    fn begin(&mut self, page: &mut Page) {
        page.single.clear();
        (page.has_more, page.keys) = (false, 0);
    }

    fn data(&mut self, _: Request, page: &mut Page, data: &[u8]) {
        let Page { single, last_key, has_more, keys, .. } = page;
        let (is_stream, is_paged) = (self.is_stream, self.is_paged);
        single.push(data, |message| match (is_stream, is_paged) {
            (true, _) => piece(message),
            (_, true) => {
                *has_more = look(message, last_key, keys)?;
                answer::put(message)
            }
            _ => answer::put(message),
        });
    }

    fn end(&mut self, _: Request, page: &mut Page, _: &mut Meter) -> Result<(), &'static str> {
        if self.is_stream { page.single.verdict_of_many() } else { page.single.verdict() }
    }

    fn follow(&mut self, _: Request, page: &mut Page, message: &mut Vec<u8>) -> Option<Request> {
        page.read += page.keys;
        let next = self.page(page.read);
        if !self.is_paged || !page.has_more || page.keys == 0 || next == 0 {
            page.read = 0;
            return None;
        }
        // The key right behind the last one.
        page.last_key.push(0);
        self.request(&page.last_key, next, message);
        Some(Request::default())
    }
}

/// Checks a RangeStreamResponse: it must contain a RangeResponse.
fn piece(message: &[u8]) -> Result<(), &'static str> {
    let mut has_answer = false;
    let whole = wire::fields(message, |field, value| has_answer |= matches!((field, value), (1, Value::Bytes(_))));
    if whole && has_answer { Ok(()) } else { Err("an answer that is no RangeStreamResponse") }
}

/// Notes the last key of a RangeResponse and the number of keys. Returns whether there are more keys.
fn look(message: &[u8], last_key: &mut Vec<u8>, keys: &mut u64) -> Result<bool, &'static str> {
    let (mut has_more, mut last) = (false, None);
    let whole = wire::fields(message, |field, value| match (field, value) {
        (2, Value::Bytes(kv)) => {
            *keys += 1;
            last = Some(kv);
        }
        (3, Value::Number(more)) => has_more = more != 0,
        _ => {}
    });
    let in_kv = wire::fields(last.unwrap_or_default(), |field, value| {
        if let (1, Value::Bytes(key)) = (field, value) {
            last_key.clear();
            last_key.extend_from_slice(key);
        }
    });
    if whole && in_kv { Ok(has_more) } else { Err("an answer that is no RangeResponse") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use api::etcdserverpb::{RangeRequest, RangeResponse, ResponseHeader};
    use api::mvccpb::KeyValue;

    #[test]
    fn pages_follow_each_other() {
        let mut ranges = Ranges {
            key: b"a".to_vec(),
            end: b"z".to_vec(),
            limit: 10_005,
            is_serializable: true,
            keys_only: false,
            count_only: false,
            is_stream: false,
            is_paged: true,
        };
        let (mut message, mut page) = (Vec::new(), Page::default());
        let request = ranges.make(&mut message);
        let sent = RangeRequest::decode(&message[..]).expect("a request");
        assert_eq!(
            (&sent.key[..], &sent.range_end[..], sent.limit, sent.serializable),
            (&b"a"[..], &b"z"[..], 10_000, true)
        );
        ranges.begin(&mut page);
        let kvs = (0..10_000).map(|n| KeyValue { key: format!("k{n:05}").into(), ..KeyValue::default() }).collect();
        let header = Some(ResponseHeader { revision: 2, ..ResponseHeader::default() });
        let answer = RangeResponse { header, kvs, more: true, count: 20_000 }.encode_to_vec();
        let framed = [&[0][..], &(answer.len() as u32).to_be_bytes(), &answer].concat();
        framed.chunks(1000).for_each(|piece| ranges.data(request, &mut page, piece));
        assert_eq!(ranges.end(request, &mut page, &mut Meter::default()), Ok(()));
        assert!(ranges.follow(request, &mut page, &mut message).is_some());
        let sent = RangeRequest::decode(&message[..]).expect("a request");
        assert_eq!((&sent.key[..], sent.limit), (&b"k09999\0"[..], 5));
        ranges.begin(&mut page);
        assert!(ranges.follow(request, &mut page, &mut message).is_none());
        assert_eq!(page.read, 0);
    }
}
