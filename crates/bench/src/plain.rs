//! The loads of single requests that a plan can have: `range`, `put`, `list` and `authenticate`.

use crate::answer::{self, Expected};
use crate::cutter::Cutter;
use crate::listing::Listing;
use crate::meter::Meter;
use crate::plan::{Load, Plan};
use crate::request::Requests;
use crate::work::{Request, Work};

/// Limit of different tokens that a thread keeps.
const TOKENS_MAX: usize = 1000;

/// The requests of a plan.
pub(crate) struct Plain {
    load: Load,
    requests: Requests,
    /// The step of a sequence of keys.
    step: u64,
    expected: Expected,
    keys_due: Option<u64>,
    tokens: Tokens,
}

impl Plain {
    /// The requests of thread `thread` of `threads`.
    pub(crate) fn new(plan: &Plan, thread: usize, threads: usize) -> Plain {
        Plain {
            load: plan.load,
            requests: Requests::new(plan, thread),
            step: threads as u64,
            expected: Expected::new(&plan.key, plan.keys, plan.value_bytes),
            keys_due: plan.expect,
            tokens: Tokens::default(),
        }
    }
}

/// The state of an answer that is being received.
#[derive(Default)]
pub(crate) struct Answer {
    cutter: Cutter,
    listing: Listing,
    messages: u32,
    wrong: Option<&'static str>,
}

impl Work for Plain {
    type Answer = Answer;

    fn methods(&self) -> &'static [&'static str] {
        match self.load {
            Load::Put => &["/etcdserverpb.KV/Put"],
            Load::Authenticate => &["/etcdserverpb.Auth/Authenticate"],
            _ => &["/etcdserverpb.KV/Range"],
        }
    }

    fn make(&mut self, message: &mut Vec<u8>) -> Request {
        Request { number: self.requests.make(self.step, message), ..Request::default() }
    }

    fn begin(&mut self, answer: &mut Answer) {
        (answer.messages, answer.wrong) = (0, None);
        if self.load == Load::List {
            answer.listing.clear();
        } else {
            answer.cutter.clear();
        }
    }

    fn data(&mut self, request: Request, answer: &mut Answer, data: &[u8]) {
        let Answer { cutter, listing, messages, wrong } = answer;
        if self.load == Load::List {
            return listing.push(data, &self.expected.key, self.expected.value_bytes);
        }
        cutter.push(data, |message| {
            *messages += 1;
            let verdict = match self.load {
                Load::Put => answer::put(message),
                Load::Authenticate => answer::token(message).and_then(|token| self.tokens.note(token)),
                _ => self.expected.range(request.number, message),
            };
            if let Err(why) = verdict {
                *wrong = Some(why);
            }
        });
    }

    fn end(&mut self, _: Request, answer: &mut Answer, meter: &mut Meter) -> Result<(), &'static str> {
        meter.tokens.extend(self.tokens.fresh.drain(..));
        match (self.load, answer.wrong) {
            (Load::List, _) => {
                meter.items += answer.listing.keys;
                answer.listing.verdict(self.keys_due)
            }
            (_, Some(why)) => Err(why),
            (_, None) if answer.messages == 1 && answer.cutter.is_empty() => Ok(()),
            _ => Err("not exactly one message"),
        }
    }
}

/// Tokens in answers.
#[derive(Default)]
struct Tokens {
    /// The last token: most answers have the same one.
    last: String,
    fresh: Vec<String>,
    changes: usize,
}

impl Tokens {
    fn note(&mut self, token: &str) -> Result<(), &'static str> {
        if self.last == token {
            return Ok(());
        }
        self.changes += 1;
        if self.changes > TOKENS_MAX {
            return Err("too many different tokens");
        }
        self.last.replace_range(.., token);
        self.fresh.push(token.to_owned());
        Ok(())
    }
}
