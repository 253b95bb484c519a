//! One connection that sends single requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rpc::Status;
use rpc::client::{Broken, Calls, Link, Refused, RequestHead};
use tokio::net::TcpStream;

use crate::answer::{self, Expected};
use crate::cutter::Cutter;
use crate::link::SharedRoom;
use crate::listing::Listing;
use crate::meter::Meter;
use crate::pacer::Due;
use crate::plan::{Load, Plan};
use crate::request::Requests;

/// How often the token may be another one on one connection.
const TOKENS_MAX: usize = 1000;

/// What the lanes of a thread have in common.
pub(crate) struct Thread {
    pub(crate) requests: RefCell<Requests>,
    pub(crate) meter: RefCell<Meter>,
    pub(crate) room: SharedRoom,
    /// Requests that may still be sent.
    pub(crate) left: Cell<u64>,
    /// Nothing is sent from then on.
    pub(crate) until: Cell<Instant>,
}

/// A connection and its calls.
pub(crate) struct Lane {
    link: Link<TcpStream>,
    head: RequestHead,
    thread: Rc<Thread>,
    threads: u64,
    slots: Slots,
    free: Vec<usize>,
    /// The times of an open loop.
    due: Option<Rc<RefCell<Due>>>,
    message: Vec<u8>,
}

/// The calls of a connection. Their memory is used again and again.
struct Slots {
    load: Load,
    expected: Expected,
    keys_due: Option<u64>,
    each: Vec<Slot>,
    /// Those that have ended since they were looked at last.
    ended: Vec<(usize, Status)>,
    data_bytes: u64,
    tokens: Tokens,
}

#[derive(Default)]
struct Slot {
    since: Option<Instant>,
    key: u64,
    cutter: Cutter,
    listing: Listing,
    messages: u32,
    wrong: Option<&'static str>,
}

impl Calls for Slots {
    fn data(&mut self, tag: usize, data: &[u8]) {
        self.data_bytes += data.len() as u64;
        let Slot { key, cutter, listing, messages, wrong, .. } = &mut self.each[tag];
        if self.load == Load::List {
            return listing.push(data, &self.expected.key, self.expected.value_bytes);
        }
        cutter.push(data, |message| {
            *messages += 1;
            let verdict = match self.load {
                Load::Put => answer::put(message),
                Load::Authenticate => answer::token(message).and_then(|token| self.tokens.note(token)),
                _ => self.expected.range(*key, message),
            };
            if let Err(why) = verdict {
                *wrong = Some(why);
            }
        });
    }

    fn end(&mut self, tag: usize, status: Status) {
        self.ended.push((tag, status));
    }
}

/// Tokens that were told.
#[derive(Default)]
struct Tokens {
    /// Mostly the same one comes again and again.
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

impl Slot {
    fn verdict(&self, load: Load, keys_due: Option<u64>) -> Result<(), &'static str> {
        match (load, self.wrong) {
            (Load::List, _) => self.listing.verdict(keys_due),
            (_, Some(why)) => Err(why),
            (_, None) if self.messages == 1 && self.cutter.is_empty() => Ok(()),
            _ => Err("not exactly one message"),
        }
    }

    fn begin(&mut self, since: Instant, key: u64, load: Load) {
        (self.since, self.key, self.messages, self.wrong) = (Some(since), key, 0, None);
        if load == Load::List {
            self.listing.clear();
        } else {
            self.cutter.clear();
        }
    }
}

impl Lane {
    pub(crate) fn new(
        plan: &Plan,
        link: Link<TcpStream>,
        authority: &str,
        thread: Rc<Thread>,
        due: Option<Rc<RefCell<Due>>>,
    ) -> Lane {
        let path = match plan.load {
            Load::Put => "/etcdserverpb.KV/Put",
            Load::Authenticate => "/etcdserverpb.Auth/Authenticate",
            _ => "/etcdserverpb.KV/Range",
        };
        let metadata = plan.token.iter().map(|token| ("token", token)).collect();
        Lane {
            link,
            head: RequestHead::new(path, authority).with_metadata(metadata),
            thread,
            threads: plan.threads as u64,
            slots: Slots {
                load: plan.load,
                expected: Expected::new(&plan.key, plan.keys, plan.value_bytes),
                keys_due: plan.expect,
                each: (0..plan.streams).map(|_| Slot::default()).collect(),
                ended: Vec::with_capacity(plan.streams),
                data_bytes: 0,
                tokens: Tokens::default(),
            },
            free: (0..plan.streams).rev().collect(),
            due,
            message: Vec::new(),
        }
    }

    /// One turn: reads what is there, sends what can be sent, writes once. Ready when there is nothing more to do.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let read = {
            let thread = self.thread.clone();
            let mut room = thread.room.borrow_mut();
            self.link.read(cx, &mut room, &mut self.slots)
        };
        let now = Instant::now();
        if let Err(broken) = read {
            return self.give_up(&broken, now);
        }
        self.settle(now);
        let over = self.send(cx, now);
        if let Poll::Ready(Err(error)) = self.link.flush(cx) {
            return self.give_up(&Broken::Io(error), now);
        }
        if over && self.free.len() == self.slots.each.len() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Counts the calls that have ended.
    fn settle(&mut self, now: Instant) {
        let mut meter = self.thread.meter.borrow_mut();
        for (index, status) in self.slots.ended.drain(..) {
            let slot = &mut self.slots.each[index];
            let verdict = slot.verdict(self.slots.load, self.slots.keys_due);
            if self.slots.load == Load::List {
                meter.items += slot.listing.keys;
            }
            meter.count(&status, verdict, slot.since.take().unwrap_or(now), now);
            self.free.push(index);
        }
        meter.data_bytes += std::mem::take(&mut self.slots.data_bytes);
        meter.tokens.extend(self.slots.tokens.fresh.drain(..));
    }

    /// Begins as many calls as there can be. True if none will follow.
    fn send(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        loop {
            if self.thread.left.get() == 0 || (self.due.is_none() && now >= self.thread.until.get()) {
                return true;
            }
            let since = match &self.due {
                None => now,
                Some(due) => {
                    let mut due = due.borrow_mut();
                    match due.times.front() {
                        Some(&since) => since,
                        None if due.over => return true,
                        None => {
                            due.waker = Some(cx.waker().clone());
                            return false;
                        }
                    }
                }
            };
            let Some(index) = self.free.pop() else { return false };
            let key = self.thread.requests.borrow_mut().make(self.threads, &mut self.message);
            match self.link.connection.unary(&mut self.head, None, index, &self.message) {
                Ok(_) => {}
                Err(Refused::Full) => {
                    self.free.push(index);
                    return false;
                }
                Err(Refused::Closing) => {
                    self.free.push(index);
                    let status = Status::new(api::Code::Unavailable, "the server takes no more requests");
                    self.thread.meter.borrow_mut().fail(&status);
                    return true;
                }
            }
            self.slots.each[index].begin(since, key, self.slots.load);
            if let Some(due) = &self.due {
                due.borrow_mut().times.pop_front();
            }
            self.thread.left.set(self.thread.left.get() - 1);
            self.thread.meter.borrow_mut().sent += 1;
        }
    }

    fn give_up(&mut self, broken: &Broken, now: Instant) -> Poll<()> {
        let status = Status::from(broken);
        self.link.connection.abandon(&status, &mut self.slots);
        self.settle(now);
        // It would have gone on.
        self.thread.meter.borrow_mut().fail(&status);
        Poll::Ready(())
    }
}

/// A time that never comes.
pub(crate) fn never(now: Instant) -> Instant {
    now + Duration::from_secs(365 * 24 * 3600)
}
