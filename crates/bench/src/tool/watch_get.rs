//! `watch-get`: reads while many watchers catch up.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use api::Message;
use api::etcdserverpb::{PutRequest, PutResponse, RangeRequest};
use flags::{Parsed, int};
use rpc::Status;
use tokio::sync::Notify;

use super::command::{Action, Command};
use super::failure::{Failure, Outcome};
use super::say;
use super::session::Session;
use super::watching::{self, Audience, Order};
use crate::link::block_on;
use crate::meter::{Cost, Meter, told};
use crate::progress::Bar;
use crate::{BenchError, answer};

pub(crate) const COMMAND: Command = Command {
    name: "watch-get",
    arguments: "",
    short: "Benchmark watch with get",
    long: "Benchmark for serialized key gets with many unsynced watchers: one client reads while watchers hear of events that were there \
           before them",
    flags: &[
        int("events", "8", "events for each watcher"),
        int("streams", "1", "watch streams"),
        int("watchers", "10000", "watchers"),
    ],
    action: Action::Run(run),
};

/// The key that is watched, and read.
const KEY: &str = "watchkey";
const READ: &str = "abc";

fn run(parsed: &Parsed) -> Outcome {
    let streams = watching::count("streams", parsed.int("streams"))?;
    let watchers = watching::count("watchers", parsed.int("watchers"))?;
    let events = watching::count("events", parsed.int("events"))? as u64;
    if streams == 0 && watchers > 0 {
        return Err(Failure::new("expected positive --streams, got (0)"));
    }
    if parsed.is_given("duration") {
        return Err(Failure::new("watch-get has no --duration: it ends with its --events"));
    }
    let session = Session::open(parsed)?;
    let mut from_revision = 0;
    for number in (0..events).filter(|_| session.has_work()) {
        let put = PutRequest { key: KEY.into(), value: number.to_string().into(), ..PutRequest::default() };
        let answer: Result<PutResponse, _> = session.ask("/etcdserverpb.KV/Put", &put);
        let answer = answer.map_err(|status| Failure::new(format!("cannot put: {}", told(&status))))?;
        if number == 0 {
            from_revision = answer.header.map_or(0, |header| header.revision);
        }
    }
    let order = Order {
        keys: vec![KEY.into()],
        streams,
        watchers: if events == 0 { 0 } else { watchers },
        from_revision,
        prev_kv: false,
        at_once: true,
    };
    let meter = RefCell::new(session.meter());
    let began = Instant::now();
    let mut outcome = Ok(());
    if order.watchers > 0 && session.has_work() {
        let done = block_on(async { Ok::<_, BenchError>(watch(&session, &order, events, &meter).await) });
        outcome = done.map_err(Failure::from).flatten();
    }
    let meter = meter.into_inner();
    let time = meter.last.map_or(Duration::ZERO, |last| last - began);
    say(&format!("Get during watch summary:\n{}", session.tell("watch-get", &meter, Cost { time, ..Cost::default() })));
    outcome.and_then(|()| session.end())
}

async fn watch(session: &Session<'_>, order: &Order, events: u64, meter: &RefCell<Meter>) -> Outcome {
    let all = Rc::<Notify>::default();
    let crowd = Rc::new(RefCell::new(Crowd {
        left: vec![events; order.watchers],
        waiting: order.watchers,
        came: 0,
        is_done: all.clone(),
    }));
    let mut bar = Bar::new(Some(events.saturating_mul(order.watchers as u64)));
    // Connects before there are events, so that reads run during the whole measurement.
    let channel = session.reach().await;
    let lanes = watching::open(session, order, &crowd).await?;
    let is_over = Cell::new(false);
    let read = async {
        let request = RangeRequest { key: READ.into(), serializable: true, ..RangeRequest::default() };
        let message = bytes::Bytes::from(request.encode_to_vec());
        while !is_over.get() {
            session.connect(&channel).await;
            let since = Instant::now();
            let answer = channel.unary("/etcdserverpb.KV/Range", &session.metadata(), message.clone(), None).await;
            let mut meter = meter.borrow_mut();
            meter.sent += 1;
            let (status, verdict) = match &answer {
                Ok(message) => (Status::OK, answer::put(message)),
                Err(status) => (status.clone(), Ok(())),
            };
            meter.count(&status, verdict, since, Instant::now());
            bar.draw(crowd.borrow().came);
        }
    };
    let work = async {
        let listening = async {
            all.notified().await;
            is_over.set(true);
        };
        tokio::join!(listening, read);
        Ok(())
    };
    let outcome = watching::attend(lanes, work).await;
    bar.end(crowd.borrow().came);
    outcome
}

/// The watchers, and the events that each still has to get.
struct Crowd {
    left: Vec<u64>,
    waiting: usize,
    came: u64,
    is_done: Rc<Notify>,
}

impl Audience for Crowd {
    fn created(&mut self, _: Instant, _: Instant) {}

    fn events(&mut self, watcher: usize, count: u64, _: Instant) {
        self.came += count;
        let left = &mut self.left[watcher];
        if *left > 0 && *left <= count {
            self.waiting -= 1;
        }
        *left = left.saturating_sub(count);
        if self.waiting == 0 {
            self.is_done.notify_one();
        }
    }
}
