//! Leases that are kept alive, each on a stream of its own, as fast as the server answers.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rpc::Status;
use rpc::client::{Broken, CallKey, Calls, Link, Refused, Release, RequestHead};
use tokio::task::JoinSet;

use crate::BenchError;
use crate::cutter::Cutter;
use crate::lane::never;
use crate::link::{Place, SharedBuffer, block_on, connect};
use crate::meter::{Cost, Meter};
use crate::plan::Plan;
use crate::report::Report;
use crate::socket::Socket;
use crate::usage;
use crate::wire;
use api::varint::put_nonzero;

/// Runs the load: grants the leases, opens the streams, then renews.
pub(crate) fn run(plan: &Plan) -> Result<Report, BenchError> {
    block_on(async {
        let buffer = SharedBuffer::default();
        let budget = Rc::new(Budget {
            left: Cell::new(plan.requests.unwrap_or(u64::MAX)),
            until: Cell::new(never(Instant::now())),
        });
        let meter = Rc::<RefCell<Meter>>::default();
        let mut lanes = Vec::new();
        for number in 0..plan.connections {
            let place = plan.endpoints[number % plan.endpoints.len()].into();
            let link = connect(&place, &buffer).await?;
            let mut lane = KeepLane::new(plan, link, &place, budget.clone(), meter.clone())?;
            poll_fn(|cx| lane.poll_grants(cx, &buffer)).await?;
            lanes.push(lane);
        }
        let (servers_before, own_before) = (usage::of(&plan.pids)?, usage::own());
        let began = Instant::now();
        budget.until.set(plan.seconds.map_or(never(began), |seconds| began + seconds));
        let mut running = JoinSet::new();
        for mut lane in lanes {
            let buffer = buffer.clone();
            lane.begin()?;
            running.spawn_local(async move { poll_fn(|cx| lane.poll(cx, &buffer)).await });
        }
        let work = async { while running.join_next().await.is_some() {} };
        let late = |_| BenchError::Server(format!("not done within {:?}", plan.timeout));
        tokio::time::timeout(plan.timeout, work).await.map_err(late)?;
        let meter = meter.take();
        let cost = Cost {
            time: meter.last.map_or(Duration::ZERO, |last| last - began),
            own_cpu: usage::own() - own_before,
            servers_cpu: usage::of(&plan.pids)? - servers_before,
        };
        Ok(Report::new(plan, &meter, cost))
    })
}

/// The number of requests that may still be sent.
struct Budget {
    left: Cell<u64>,
    until: Cell<Instant>,
}

impl Budget {
    fn take(&self, now: Instant) -> bool {
        let some = self.left.get() > 0 && now < self.until.get();
        if some {
            self.left.set(self.left.get() - 1);
        }
        some
    }
}

/// A connection and its leases.
struct KeepLane {
    link: Link<Socket>,
    head: RequestHead,
    leases: Leases,
    budget: Rc<Budget>,
    meter: Rc<RefCell<Meter>>,
    /// Streams that are still at work.
    open: usize,
    message: Vec<u8>,
}

#[derive(Default)]
struct Leases {
    each: Vec<Lease>,
    /// Leases whose answer has arrived, with the verdict on it.
    answered: Vec<(usize, Result<(), &'static str>)>,
    ended: Vec<(usize, Status)>,
    granted: usize,
    data_bytes: u64,
}

#[derive(Default)]
struct Lease {
    id: u64,
    call: Option<CallKey>,
    since: Option<Instant>,
    cutter: Cutter,
}

impl Calls for Leases {
    fn data(&mut self, tag: usize, data: &[u8]) {
        let Lease { id, cutter, call, .. } = &mut self.each[tag];
        if call.is_some() {
            self.data_bytes += data.len() as u64;
        }
        let (answered, granted, renews) = (&mut self.answered, &mut self.granted, call.is_some());
        cutter.push(data, |message| {
            let (Some(number), Some(ttl)) = (wire::number(message, 2), wire::number(message, 3)) else {
                return answered.push((tag, Err("an answer that cannot be read")));
            };
            let alive = number != 0 && i64::try_from(ttl).is_ok_and(|ttl| ttl > 0);
            if renews {
                let right = alive && number == *id;
                answered.push((tag, if right { Ok(()) } else { Err("a lease that is not renewed") }));
            } else if alive {
                *id = number;
                *granted += 1;
            }
        });
    }

    fn end(&mut self, tag: usize, status: Status) {
        self.ended.push((tag, status));
    }
}

impl KeepLane {
    fn new(
        plan: &Plan,
        link: Link<Socket>,
        place: &Place,
        budget: Rc<Budget>,
        meter: Rc<RefCell<Meter>>,
    ) -> Result<KeepLane, BenchError> {
        let mut lane = KeepLane {
            link,
            head: place.head("/etcdserverpb.Lease/LeaseKeepAlive"),
            leases: Leases { each: (0..plan.streams).map(|_| Lease::default()).collect(), ..Leases::default() },
            budget,
            meter,
            open: 0,
            message: Vec::new(),
        };
        let mut head = place.head("/etcdserverpb.Lease/LeaseGrant");
        put_nonzero(&mut lane.message, 1, plan.ttl_seconds);
        for tag in 0..plan.streams {
            lane.link.connection.unary(&mut head, None, tag, &lane.message).map_err(refused)?;
        }
        Ok(lane)
    }

    /// Ready when every lease is granted.
    fn poll_grants(&mut self, cx: &mut Context<'_>, buffer: &SharedBuffer) -> Poll<Result<(), BenchError>> {
        let failed = |text: String| Poll::Ready(Err(BenchError::Server(format!("cannot grant a lease: {text}"))));
        if let Err(broken) = self.link.read(cx, &mut buffer.borrow_mut(), &mut self.leases) {
            return failed(broken.to_string());
        }
        if let Poll::Ready(Err(error)) = self.link.flush(cx) {
            return failed(error.to_string());
        }
        if let Some((_, status)) = self.leases.ended.iter().find(|(_, status)| *status != Status::OK) {
            return failed(status.message.to_string());
        }
        let all = self.leases.each.len();
        match (self.leases.ended.len() == all, self.leases.granted == all) {
            (true, true) => Poll::Ready(Ok(())),
            (true, false) => failed("the answer has none".into()),
            (false, _) => Poll::Pending,
        }
    }

    /// Opens the streams and sends the first renewals.
    fn begin(&mut self) -> Result<(), BenchError> {
        self.leases.ended.clear();
        let now = Instant::now();
        for tag in 0..self.leases.each.len() {
            let call = self.link.connection.open(&mut self.head, None, tag, Release::AtOnce).map_err(refused)?;
            self.leases.each[tag].call = Some(call);
            self.open += 1;
            self.renew(tag, now);
        }
        Ok(())
    }

    /// Sends one renewal, or ends the stream if there have been enough.
    fn renew(&mut self, tag: usize, now: Instant) {
        let lease = &mut self.leases.each[tag];
        let Some(call) = lease.call else { return };
        if !self.budget.take(now) {
            lease.call = None;
            self.open -= 1;
            return self.link.connection.cancel(call);
        }
        self.message.clear();
        put_nonzero(&mut self.message, 1, lease.id);
        lease.since = Some(now);
        self.link.connection.send(call, &self.message, false);
        self.meter.borrow_mut().sent += 1;
    }

    /// One turn. Ready when all streams have ended.
    fn poll(&mut self, cx: &mut Context<'_>, buffer: &SharedBuffer) -> Poll<()> {
        let read = self.link.read(cx, &mut buffer.borrow_mut(), &mut self.leases);
        let now = Instant::now();
        if let Err(broken) = read {
            return self.give_up(&broken, now);
        }
        self.settle(now);
        if let Poll::Ready(Err(error)) = self.link.flush(cx) {
            return self.give_up(&Broken::Io(error), now);
        }
        if self.open == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    fn settle(&mut self, now: Instant) {
        let mut answered = std::mem::take(&mut self.leases.answered);
        for (tag, verdict) in answered.drain(..) {
            let since = self.leases.each[tag].since.take();
            let verdict = if since.is_some() { verdict } else { Err("an answer to nothing") };
            self.meter.borrow_mut().count(&Status::OK, verdict, since.unwrap_or(now), now);
            self.renew(tag, now);
        }
        self.leases.answered = answered;
        let mut meter = self.meter.borrow_mut();
        meter.data_bytes += std::mem::take(&mut self.leases.data_bytes);
        for (tag, status) in self.leases.ended.drain(..) {
            if self.leases.each[tag].call.take().is_some() {
                self.open -= 1;
                let status = if status == Status::OK {
                    Status::new(api::Code::Unknown, "a stream ended by itself")
                } else {
                    status
                };
                meter.fail(&status);
            }
        }
    }

    fn give_up(&mut self, broken: &Broken, now: Instant) -> Poll<()> {
        self.link.connection.abandon(&Status::from(broken), &mut self.leases);
        self.settle(now);
        Poll::Ready(())
    }
}

fn refused(why: Refused) -> BenchError {
    BenchError::Server(format!("the server takes no more streams: {why:?}"))
}
