//! One connection that sends single requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use rpc::Status;
use rpc::client::{Broken, Calls, Link, RequestHead};

use crate::limits::TIME_MAX;
use crate::link::{Place, SharedBuffer};
use crate::meter::Meter;
use crate::pacer::{Schedule, Turn};
use crate::pass::Pass;
use crate::seeker::{Seeker, Seeking};
use crate::socket::Socket;
use crate::work::{Request, Work};

/// The state that the lanes of a thread share.
pub(crate) struct Thread<W: Work> {
    pub(crate) work: RefCell<W>,
    /// A meter for each group of requests.
    pub(crate) meters: RefCell<Vec<Meter>>,
    pub(crate) buffer: SharedBuffer,
    /// Requests that may still be sent.
    pub(crate) left: Cell<u64>,
    /// The time from which nothing is sent.
    pub(crate) until: Cell<Instant>,
    /// Requests without an answer so far, of each group.
    pub(crate) under_way: Vec<Cell<u64>>,
    /// Longer requests are not sent, and count as failed.
    pub(crate) request_bytes_max: usize,
    /// Finds a new connection when one is lost. If there is none, a lane ends with its connection.
    pub(crate) seeker: Option<Rc<Seeker>>,
    pub(crate) pass: Rc<Pass>,
}

impl<W: Work> Thread<W> {
    /// Whether no answer is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.iter().all(|count| count.get() == 0)
    }

    fn heads(&self, place: &Place) -> Vec<RequestHead> {
        let head = |path: &&str| place.head(path).with_metadata(self.pass.metadata());
        self.work.borrow().methods().iter().map(head).collect()
    }
}

/// A lane counts at most this many unsendable requests in a row, before other lanes have their turn.
const REFUSALS_MAX: u32 = 1000;

/// A connection and its calls.
pub(crate) struct Lane<W: Work> {
    link: Link<Socket>,
    /// The new connection, after the old one was lost.
    seeking: Option<Seeking>,
    /// Number of the place to which the connection goes.
    place: usize,
    /// A head for each method.
    heads: Vec<RequestHead>,
    /// Number of the pass that the heads carry.
    pass: u64,
    /// Whether that pass was refused: then nothing is sent until there is a new one.
    is_refused: bool,
    thread: Rc<Thread<W>>,
    slots: Slots<W::Answer>,
    free: Vec<usize>,
    /// The schedule of an open loop, and this lane's number in it.
    schedule: Option<(Rc<Schedule>, usize)>,
    /// Requests sent.
    sent: u64,
    /// Whether the requests that were due before the end have been sent.
    is_late: bool,
    message: Vec<u8>,
}

/// The calls of a connection. Their memory is reused.
struct Slots<A> {
    each: Vec<Slot<A>>,
    /// Calls that have ended since the last check.
    ended: Vec<(usize, Status)>,
    data_bytes: u64,
}

#[derive(Default)]
struct Slot<A> {
    since: Option<Instant>,
    request: Request,
    answer: A,
}

/// The calls while the connection reads.
struct Receiving<'a, W: Work> {
    work: &'a mut W,
    slots: &'a mut Slots<W::Answer>,
}

impl<W: Work> Calls for Receiving<'_, W> {
    fn data(&mut self, tag: usize, data: &[u8]) {
        self.slots.data_bytes += data.len() as u64;
        let slot = &mut self.slots.each[tag];
        self.work.data(slot.request, &mut slot.answer, data);
    }

    fn end(&mut self, tag: usize, status: Status) {
        self.slots.ended.push((tag, status));
    }
}

impl<W: Work> Lane<W> {
    /// A lane with `calls` calls in flight, over a connection to place number `number`.
    pub(crate) fn new(link: Link<Socket>, place: &Place, number: usize, calls: usize, thread: Rc<Thread<W>>) -> Self {
        let slot = |_| Slot { since: None, request: Request::default(), answer: W::Answer::default() };
        Lane {
            link,
            seeking: None,
            place: number,
            heads: thread.heads(place),
            pass: thread.pass.number(),
            is_refused: false,
            thread,
            slots: Slots { each: (0..calls).map(slot).collect(), ended: Vec::with_capacity(calls), data_bytes: 0 },
            free: (0..calls).rev().collect(),
            schedule: None,
            sent: 0,
            is_late: false,
            message: Vec::new(),
        }
    }

    /// How many calls the lane has in flight at most.
    pub(crate) fn calls(&self) -> usize {
        self.slots.each.len()
    }

    /// Sends as lane `number` of an open loop.
    pub(crate) fn keep_to(&mut self, schedule: Rc<Schedule>, number: usize) {
        self.schedule = Some((schedule, number));
    }

    /// One turn: reads all available bytes, sends as many requests as possible, writes once. Ready when the lane is
    /// done.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let (Some(seeking), Some(seeker)) = (&mut self.seeking, &self.thread.seeker) {
            let Poll::Ready((link, number)) = seeking.as_mut().poll(cx) else { return Poll::Pending };
            self.heads = self.thread.heads(&seeker.places[number]);
            (self.pass, self.is_refused) = (self.thread.pass.number(), false);
            (self.link, self.place, self.seeking) = (link, number, None);
            self.is_late = Instant::now() >= self.thread.until.get();
        }
        let idle = self.free.len();
        let read = {
            let mut work = self.thread.work.borrow_mut();
            let mut receiving = Receiving { work: &mut *work, slots: &mut self.slots };
            self.link.read(cx, &mut self.thread.buffer.borrow_mut(), &mut receiving)
        };
        let now = Instant::now();
        if let Err(broken) = read {
            return self.give_up(&broken, now, cx);
        }
        self.settle(now);
        let most = self.most(now, idle);
        let over = self.send(cx, now, most);
        if let Poll::Ready(Err(error)) = self.link.flush(cx) {
            return self.give_up(&Broken::Io(error), now, cx);
        }
        let is_idle = self.free.len() == self.slots.each.len();
        if is_idle && !over && (self.link.connection.is_closing() || self.is_refused) && self.thread.seeker.is_some() {
            self.seek(cx);
            return Poll::Pending;
        }
        if over && is_idle { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Counts the calls that have ended.
    fn settle(&mut self, now: Instant) {
        let thread = &*self.thread;
        let (mut meters, mut work) = (thread.meters.borrow_mut(), thread.work.borrow_mut());
        for (index, status) in self.slots.ended.drain(..) {
            let Slot { since, request, answer } = &mut self.slots.each[index];
            let meter = &mut meters[request.group];
            let verdict = if status == Status::OK { work.end(*request, answer, meter) } else { Ok(()) };
            if status == Status::OK
                && verdict.is_ok()
                && let Some(next) = work.follow(*request, answer, &mut self.message)
            {
                let sent = self.link.connection.unary(&mut self.heads[next.method], None, index, &self.message);
                if sent.is_ok() {
                    work.begin(answer);
                    *request = next;
                    continue;
                }
                meter.fail(&closing());
            } else {
                self.is_refused |= thread.pass.is_stale(&status);
                let before = meter.succeeded;
                meter.count(&status, verdict, since.unwrap_or(now), now);
                if now <= thread.until.get() {
                    meter.in_time += meter.succeeded - before;
                }
            }
            *since = None;
            let under_way = &thread.under_way[request.group];
            under_way.set(under_way.get() - 1);
            self.free.push(index);
        }
        meters[0].data_bytes += std::mem::take(&mut self.slots.data_bytes);
    }

    /// How many requests may be sent in a turn that begins with `idle` idle calls. In an open loop there is one such
    /// turn after the end: for requests that were due before, whose lane was only not woken yet.
    fn most(&mut self, now: Instant, idle: usize) -> usize {
        match now < self.thread.until.get() {
            true => usize::MAX,
            false if self.schedule.is_none() || std::mem::replace(&mut self.is_late, true) => 0,
            false => idle,
        }
    }

    /// Begins as many calls as possible, at most `most`. Returns true if none will follow.
    fn send(&mut self, cx: &mut Context<'_>, now: Instant, most: usize) -> bool {
        let thread = self.thread.clone();
        let mut work = thread.work.borrow_mut();
        let (mut refusals, first) = (0, self.sent);
        loop {
            if thread.left.get() == 0 || self.sent - first >= most as u64 {
                return true;
            }
            if self.is_refused {
                return false;
            }
            let since = match &self.schedule {
                None => now,
                Some((schedule, number)) => match schedule.turn(*number, self.sent, now, cx.waker()) {
                    Turn::Due(at) => at,
                    Turn::Later => return false,
                    Turn::Over => return true,
                },
            };
            let Some(index) = self.free.pop() else { return false };
            if self.link.connection.free_calls() == 0 {
                self.free.push(index);
                if !self.link.connection.is_closing() || thread.seeker.is_some() {
                    return false;
                }
                thread.meters.borrow_mut()[0].fail(&closing());
                return true;
            }
            let request = work.make(&mut self.message);
            self.sent += 1;
            thread.left.set(thread.left.get() - 1);
            let mut meters = thread.meters.borrow_mut();
            meters[request.group].sent += 1;
            let sent = match self.message.len() > thread.request_bytes_max {
                true => Err(too_long(self.message.len(), thread.request_bytes_max)),
                false => {
                    let head = &mut self.heads[request.method];
                    // This cannot fail for lack of room: there was a free call.
                    self.link.connection.unary(head, None, index, &self.message).map_err(|_| closing())
                }
            };
            if let Err(status) = sent {
                meters[request.group].count(&status, Ok(()), now, now);
                self.free.push(index);
                refusals += 1;
                if refusals == REFUSALS_MAX {
                    cx.waker().wake_by_ref();
                    return false;
                }
                continue;
            }
            let under_way = &thread.under_way[request.group];
            under_way.set(under_way.get() + 1);
            let slot = &mut self.slots.each[index];
            (slot.since, slot.request) = (Some(since), request);
            work.begin(&mut slot.answer);
        }
    }

    fn give_up(&mut self, broken: &Broken, now: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let status = Status::from(broken);
        {
            let mut work = self.thread.work.borrow_mut();
            let mut receiving = Receiving { work: &mut *work, slots: &mut self.slots };
            self.link.connection.abandon(&status, &mut receiving);
        }
        self.settle(now);
        if self.thread.seeker.is_some() {
            self.seek(cx);
            return Poll::Pending;
        }
        // The lane would have continued, so the failed request counts.
        self.thread.meters.borrow_mut()[0].fail(&status);
        Poll::Ready(())
    }

    /// Begins to reconnect.
    fn seek(&mut self, cx: &mut Context<'_>) {
        let Some(seeker) = self.thread.seeker.clone() else { return };
        let first = self.place;
        let refused = self.is_refused.then_some(self.pass);
        self.seeking = Some(Box::pin(async move {
            if let Some(number) = refused {
                seeker.renew(number, first).await;
            }
            seeker.seek(first).await
        }));
        cx.waker().wake_by_ref();
    }
}

/// The status of requests that are too long, as in etcd's clients.
fn too_long(bytes: usize, max: usize) -> Status {
    Status::new(api::Code::ResourceExhausted, format!("trying to send message larger than max ({bytes} vs. {max})"))
}

/// The status of requests that a closing connection does not take.
fn closing() -> Status {
    Status::new(api::Code::Unavailable, "the server takes no more requests")
}

/// A time that never comes.
pub(crate) fn never(now: Instant) -> Instant {
    now + TIME_MAX
}
