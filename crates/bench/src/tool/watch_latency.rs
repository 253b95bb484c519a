//! `watch-latency`: how long after a put its event comes.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use api::Message;
use api::etcdserverpb::PutRequest;
use flags::{Parsed, int, switch};
use rpc::Status;
use tokio::sync::Notify;

use super::command::{Action, Command};
use super::failure::{Failure, Outcome};
use super::keys::{length, noise};
use super::say;
use super::session::Session;
use super::watching::{self, Audience, Order};
use crate::link::block_on;
use crate::meter::{Cost, Meter, told};
use crate::progress::Bar;
use crate::{BenchError, answer};

pub(crate) const COMMAND: Command = Command {
    name: "watch-latency",
    arguments: "",
    short: "Benchmark watch latency",
    long: "Benchmarks the latency for watches: one client puts a key, one put behind the other, that all watchers watch. Latency counts from \
           the answer to the put; an event that came before that took no time.",
    flags: &[
        int("key-size", "32", "bytes of the key"),
        switch("prevkv", "have events tell the value before"),
        int("put-rate", "100", "puts per second at most"),
        int("put-total", "1000", "puts altogether"),
        int("streams", "10", "watch streams"),
        int("val-size", "32", "bytes of a value"),
        int("watchers-per-stream", "10", "watchers on each stream"),
    ],
    action: Action::Run(run),
};

fn run(parsed: &Parsed) -> Outcome {
    let rate = parsed.int("put-rate");
    if rate <= 0 {
        return Err(Failure::new(format!("expected positive --put-rate, got ({rate})")));
    }
    let streams = watching::count("streams", parsed.int("streams"))?;
    let each = watching::count("watchers-per-stream", parsed.int("watchers-per-stream"))?;
    let watchers = watching::count("watchers-per-stream", (streams * each) as i64)?;
    let key = noise(length("key-size", parsed.int("key-size"))?);
    let value = noise(length("val-size", parsed.int("val-size"))?);
    let puts = parsed.int("put-total").max(0) as u64;
    let put = PutRequest { key: key.clone().into(), value: value.into(), ..PutRequest::default() };
    let prev_kv = parsed.switch("prevkv");
    let order = Order { keys: vec![key], streams, watchers, prev_kv, ..Order::default() };
    let session = Session::open(parsed)?;
    let room = Rc::new(RefCell::new(Echo {
        put: session.meter(),
        events: session.meter(),
        began: Instant::now(),
        answered: Vec::new(),
        heard: vec![0; watchers],
        created: 0,
        came: Rc::default(),
        bar: Bar::new(Some(puts.saturating_mul(watchers as u64))),
    }));
    let mut outcome = Ok(());
    if puts > 0 {
        let load = Load { message: put.encode_to_vec().into(), puts, rate: rate as f64 };
        let done = block_on(async { Ok::<_, BenchError>(watch(&session, &order, &load, &room).await) });
        outcome = done.map_err(Failure::from).flatten();
    }
    let mut room = room.borrow_mut();
    let came = room.events.succeeded;
    room.bar.end(came);
    let cost =
        |meter: &Meter| Cost { time: meter.last.map_or(Duration::ZERO, |last| last - room.began), ..Cost::default() };
    say(&format!("\nPut summary:\n{}", session.tell("watch-latency-put", &room.put, cost(&room.put))));
    say(&format!(
        "\nWatch events summary:\n{}",
        session.tell("watch-latency-events", &room.events, cost(&room.events))
    ));
    outcome.and_then(|()| session.end())
}

/// The puts: their key and value, number and rate.
struct Load {
    message: bytes::Bytes,
    puts: u64,
    rate: f64,
}

async fn watch(session: &Session<'_>, order: &Order, load: &Load, room: &Rc<RefCell<Echo>>) -> Outcome {
    let lanes = watching::open(session, order, room).await?;
    let came = room.borrow().came.clone();
    let watchers = if lanes.is_empty() { 0 } else { order.watchers as u64 };
    let work = async {
        while room.borrow().created < watchers {
            came.notified().await;
        }
        let channel = session.channel(0);
        room.borrow_mut().began = Instant::now();
        let began = tokio::time::Instant::now();
        let until = session.time().map(|time| began + time);
        for number in 0..load.puts {
            // As with etcd's tool, the puts of the first second are sent as fast as they are answered.
            let due = ((number + 1) as f64 - load.rate).max(0.0) / load.rate;
            tokio::time::sleep_until(began + Duration::from_secs_f64(due.min(1e9))).await;
            if until.is_some_and(|until| tokio::time::Instant::now() >= until) {
                break;
            }
            // No put is sent while there is no server, so none fails for that reason.
            session.connect(&channel).await;
            let since = Instant::now();
            let answer = channel.unary("/etcdserverpb.KV/Put", &session.metadata(), load.message.clone(), None).await;
            let failed = |why: String| Failure::new(format!("Failed to Put for watch latency benchmark: {why}"));
            let answer = answer.map_err(|status| failed(told(&status)))?;
            answer::put(&answer).map_err(|why| failed(why.into()))?;
            let mut room = room.borrow_mut();
            let now = Instant::now();
            room.put.sent += 1;
            room.put.count(&Status::OK, Ok(()), since, now);
            room.answered.push(now);
        }
        let puts = room.borrow().put.succeeded;
        while room.borrow().events.succeeded < puts.saturating_mul(watchers) {
            came.notified().await;
        }
        Ok(())
    };
    watching::attend(lanes, work).await
}

/// Puts and their events.
struct Echo {
    put: Meter,
    events: Meter,
    began: Instant,
    /// When each put was answered.
    answered: Vec<Instant>,
    /// Number of events that each watcher has got so far.
    heard: Vec<usize>,
    created: u64,
    came: Rc<Notify>,
    bar: Bar,
}

impl Audience for Echo {
    fn created(&mut self, _: Instant, _: Instant) {
        self.created += 1;
        self.came.notify_one();
    }

    fn events(&mut self, watcher: usize, count: u64, now: Instant) {
        for _ in 0..count {
            let number = &mut self.heard[watcher];
            // If the put is not answered yet, its event has arrived before the answer and counts as taking no time.
            let since = self.answered.get(*number).map_or(now, |answered| (*answered).min(now));
            *number += 1;
            self.events.sent += 1;
            self.events.count(&Status::OK, Ok(()), since, now);
        }
        self.bar.draw(self.events.succeeded);
        self.came.notify_one();
    }
}
