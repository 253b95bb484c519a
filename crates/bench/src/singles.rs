//! Loads of single requests: `range`, `put` and `list`.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::BenchError;
use crate::lane::{Lane, Thread, never};
use crate::link::{block_on, connect};
use crate::meter::{Cost, Meter};
use crate::pacer::{Due, pace};
use crate::plan::Plan;
use crate::report::Report;
use crate::request::Requests;
use crate::usage;

/// Runs the load on as many threads as the plan has.
pub(crate) fn run(plan: &Plan) -> Result<Report, BenchError> {
    let threads = plan.threads.min(plan.connections);
    let barrier = Barrier::new(threads);
    let outcomes: Vec<Result<Outcome, BenchError>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || block_on(run_thread(plan, thread, threads, barrier)))
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(BenchError::Server("a thread has panicked".into()))))
            .collect()
    });
    let (mut meter, mut began, mut ended) = (Meter::default(), None, None);
    let mut servers_cpu = Duration::ZERO;
    let mut own_before = Duration::MAX;
    for outcome in outcomes {
        let outcome = outcome?;
        meter.merge(&outcome.meter);
        began = Some(began.map_or(outcome.began, |began: Instant| began.min(outcome.began)));
        ended = ended.max(Some(outcome.ended));
        servers_cpu = servers_cpu.max(outcome.servers_cpu);
        own_before = own_before.min(outcome.own_before);
    }
    let time = ended.zip(began).map_or(Duration::ZERO, |(ended, began)| ended - began);
    Ok(Report::new(plan, &meter, Cost { time, own_cpu: usage::own() - own_before, servers_cpu }))
}

struct Outcome {
    meter: Meter,
    began: Instant,
    ended: Instant,
    own_before: Duration,
    servers_cpu: Duration,
}

async fn run_thread(plan: &Plan, thread: usize, threads: usize, barrier: &Barrier) -> Result<Outcome, BenchError> {
    let plan = &Plan { threads, ..plan.clone() };
    let shared = Rc::new(Thread {
        requests: RefCell::new(Requests::new(plan, thread)),
        meter: RefCell::default(),
        room: Rc::default(),
        left: Cell::new(plan.requests.map_or(u64::MAX, |total| share(total, thread, threads))),
        until: Cell::new(never(Instant::now())),
    });
    let mut lanes = Vec::new();
    let mut dues = Vec::new();
    let mut failed = None;
    for number in (thread..plan.connections).step_by(threads) {
        let address = plan.endpoints[number % plan.endpoints.len()];
        match connect(address, &shared.room).await {
            Ok(link) => {
                let due = plan.rate.map(|_| Rc::<RefCell<Due>>::default());
                dues.extend(due.clone());
                lanes.push(Lane::new(plan, link, &address.to_string(), shared.clone(), due));
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    // All threads begin together, and none waits for one that could not connect.
    barrier.wait();
    if let Some(error) = failed {
        return Err(error);
    }
    let (servers_before, own_before) = (usage::of(&plan.pids)?, usage::own());
    let began = Instant::now();
    let until = plan.seconds.map_or(never(began), |seconds| began + seconds);
    shared.until.set(until);
    let mut running = JoinSet::new();
    for mut lane in lanes {
        running.spawn_local(async move { poll_fn(|cx| lane.poll(cx)).await });
    }
    let pacing = async {
        let Some(rate) = plan.rate else { return Ok(()) };
        let most = shared.left.get();
        pace(&dues, rate / threads as f64, most, began, until).await
    };
    let work = async {
        let (paced, ()) = tokio::join!(pacing, async { while running.join_next().await.is_some() {} });
        paced.map_err(|error| BenchError::Io("cannot set a timer".into(), error))
    };
    if tokio::time::timeout(plan.timeout, work).await.map_or(Ok(false), |paced| paced.map(|()| true))? {
        let servers_cpu = usage::of(&plan.pids)? - servers_before;
        let meter = shared.meter.take();
        let ended = meter.last.unwrap_or_else(Instant::now);
        return Ok(Outcome { meter, began, ended, own_before, servers_cpu });
    }
    let meter = shared.meter.borrow();
    let text = format!("not done after {:?}: {} of {} requests answered", plan.timeout, meter.succeeded, meter.sent);
    Err(BenchError::Server(text))
}

fn share(total: u64, thread: usize, threads: usize) -> u64 {
    total / threads as u64 + u64::from((thread as u64) < total % threads as u64)
}
