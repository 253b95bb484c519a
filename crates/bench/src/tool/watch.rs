//! `watch`: many watchers, and puts that they all hear of.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use flags::{Parsed, int, switch};
use rpc::Status;
use tokio::sync::Notify;

use super::command::{Action, Command};
use super::failure::{Failure, Outcome};
use super::keys::Keys;
use super::say;
use super::session::{Pace, Session};
use super::single::Simple;
use super::watching::{self, Audience, Order};
use crate::interrupt::is_interrupted;
use crate::link::block_on;
use crate::meter::{Cost, Meter};
use crate::progress::Bar;
use crate::series::Series;
use crate::work::Request;
use crate::{BenchError, answer};
use api::varint::put_nonempty;

pub(crate) const COMMAND: Command = Command {
    name: "watch",
    arguments: "",
    short: "Benchmark watch",
    long: "Benchmark watch: creates watchers of --watched-key-total keys, one behind the other on each stream, then puts those keys. Tells \
           how long it took to create a watcher, and how long an event waited between its arrival and being looked at.",
    flags: &[
        int("key-size", "32", "bytes of a key"),
        int("key-space-size", "1", "different keys"),
        int("put-rate", "0", "puts per second (0: each client puts when it has its answer)"),
        int("put-total", "1000", "puts altogether"),
        switch("sequential-keys", "go through the keys in order"),
        int("streams", "10", "watch streams"),
        int("watch-per-stream", "100", "watchers on each stream"),
        int("watched-key-total", "1", "keys to watch"),
    ],
    action: Action::Run(run),
};

/// The value of puts.
const VALUE: &[u8] = b"data";

fn run(parsed: &Parsed) -> Outcome {
    let rate = parsed.int("put-rate").max(0);
    let mut keys = Keys::new("", parsed.int("key-size"), parsed.int("key-space-size"))?;
    let is_sequential = parsed.switch("sequential-keys");
    let watched = watching::count("watched-key-total", parsed.int("watched-key-total"))? as u64;
    if watched == 0 {
        return Err(Failure::new("expected positive --watched-key-total, got (0)"));
    }
    let keys: Vec<Vec<u8>> =
        (0..watched).map(|number| if is_sequential { keys.at(number) } else { keys.any() }.to_vec()).collect();
    let streams = watching::count("streams", parsed.int("streams"))?;
    let each = watching::count("watch-per-stream", parsed.int("watch-per-stream"))?;
    let watchers = watching::count("watch-per-stream", (streams * each) as i64)?;
    let puts = parsed.int("put-total").max(0) as u64;
    let order = Order { keys, streams, watchers, ..Order::default() };
    let session = Session::open(parsed)?;
    let pace = Pace { total: Some(puts), rate, shows_bar: false };
    let hall = Rc::new(RefCell::new(Hall::new(&session, &order, puts)));
    let outcome = block_on(async { Ok::<_, BenchError>(watch(&session, &order, &hall, pace).await) });
    let outcome = outcome.map_err(Failure::from).flatten();
    if is_interrupted() || outcome.is_err() {
        hall.borrow_mut().tell(&session);
    }
    outcome.and_then(|()| session.end())
}

async fn watch(session: &Session<'_>, order: &Order, hall: &Rc<RefCell<Hall>>, pace: Pace) -> Outcome {
    let is_silent = order.watchers == 0 || order.streams == 0 || !session.has_work();
    let lanes = watching::open(session, order, hall).await?;
    let complete = hall.borrow().complete.clone();
    let work = async {
        if !is_silent {
            complete.notified().await;
        }
        hall.borrow_mut().tell(session);
        hall.borrow_mut().listen();
        if !is_silent && hall.borrow().due > 0 {
            let puts = Puts { keys: order.keys.clone(), next: 0 };
            let (meter, _) = session.measure_here(pace, puts).await?;
            if let Some(text) = meter.trouble() {
                return Err(Failure::new(format!("cannot put: {text}")));
            }
            if meter.unsent > 0 {
                // The summary does not show puts.
                flags::say!("warning: {} puts were due before the end and not sent", meter.unsent);
            }
            // The time may have been over before all puts were sent.
            hall.borrow_mut().expect(due(order, meter.sent));
            complete.notified().await;
        }
        hall.borrow_mut().tell(session);
        Ok(())
    };
    watching::attend(lanes, work).await
}

/// Counts watchers: first until they exist, then until they have all events.
struct Hall {
    meter: Meter,
    bar: Bar,
    began: Instant,
    is_listening: bool,
    watchers: u64,
    /// Number of events that are expected in all.
    due: u64,
    /// Notified when all watchers exist, and when all events have arrived.
    complete: Rc<Notify>,
}

impl Hall {
    fn new(session: &Session, order: &Order, puts: u64) -> Hall {
        let watchers = order.watchers as u64;
        Hall {
            meter: session.meter(),
            bar: Bar::new(Some(watchers)),
            began: Instant::now(),
            is_listening: false,
            watchers,
            due: due(order, puts),
            complete: Rc::default(),
        }
    }

    /// Counts events from now on.
    fn listen(&mut self) {
        let series = self.meter.series.take().map(|_| Series::default());
        self.meter = Meter { series, ..Meter::default() };
        (self.bar, self.began, self.is_listening) = (Bar::new(Some(self.due)), Instant::now(), true);
    }

    /// Sets the number of expected events.
    fn expect(&mut self, due: u64) {
        self.due = due;
        if self.meter.succeeded >= due {
            self.complete.notify_one();
        }
    }

    fn count(&mut self, since: Instant, now: Instant, all: u64) {
        self.meter.sent += 1;
        self.meter.count(&Status::OK, Ok(()), since, now);
        self.bar.draw(self.meter.succeeded);
        if self.meter.succeeded == all {
            self.complete.notify_one();
        }
    }

    /// Prints what was measured in this part.
    fn tell(&mut self, session: &Session) {
        let (title, load) = match self.is_listening {
            false => ("Watch creation summary:", "watch-creation"),
            true => ("Watch events received summary:", "watch-events"),
        };
        self.bar.end(self.meter.succeeded);
        let time = self.meter.last.map_or(Duration::ZERO, |last| last - self.began);
        let cost = Cost { time, ..Cost::default() };
        say(&format!("{title}\n{}", session.tell(load, &self.meter, cost)));
    }
}

impl Audience for Hall {
    fn created(&mut self, since: Instant, now: Instant) {
        self.count(since, now, self.watchers);
    }

    fn events(&mut self, _: usize, count: u64, now: Instant) {
        for _ in 0..count {
            self.count(now, Instant::now(), self.due);
        }
    }
}

/// How many events `puts` puts cause: one for each watcher of the key.
fn due(order: &Order, puts: u64) -> u64 {
    let mut watchers = BTreeMap::<&[u8], u64>::new();
    let keys = order.keys.len();
    for (number, key) in order.keys.iter().enumerate() {
        // The keys rotate over the watchers, and several keys may be equal.
        *watchers.entry(key).or_default() +=
            (order.watchers / keys + usize::from(number < order.watchers % keys)) as u64;
    }
    let of = |key: &Vec<u8>| watchers.get(&key[..]).copied().unwrap_or(0);
    let round: u64 = order.keys.iter().map(of).sum();
    let rest: u64 = order.keys.iter().take((puts % keys as u64) as usize).map(of).sum();
    (puts / keys as u64).saturating_mul(round).saturating_add(rest)
}

struct Puts {
    keys: Vec<Vec<u8>>,
    next: usize,
}

impl Simple for Puts {
    const METHODS: &'static [&'static str] = &["/etcdserverpb.KV/Put"];

    fn make(&mut self, message: &mut Vec<u8>) -> Request {
        message.clear();
        put_nonempty(message, 1, &self.keys[self.next]);
        put_nonempty(message, 2, VALUE);
        self.next = (self.next + 1) % self.keys.len();
        Request::default()
    }

    fn check(&mut self, _: Request, message: &[u8]) -> Result<(), &'static str> {
        answer::put(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_put_is_an_event_for_each_watcher_of_its_key() {
        let order = |keys: &[&str], watchers| Order {
            keys: keys.iter().map(|key| key.as_bytes().to_vec()).collect(),
            watchers,
            ..Order::default()
        };
        assert_eq!(due(&order(&["a"], 1000), 20), 20_000);
        assert_eq!(due(&order(&["a", "b", "c"], 4), 4), 2 + 1 + 1 + 2);
        assert_eq!(due(&order(&["a", "a"], 3), 3), 9);
        assert_eq!(due(&order(&["a"], 0), 3), 0);
        assert_eq!(due(&order(&["a"], 1000), u64::MAX), u64::MAX);
    }
}
