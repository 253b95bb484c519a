//! Runs loads of single requests: connections and threads of them, in a closed loop or at the times of a schedule.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rpc::Metadata;
use tokio::task::JoinSet;

use crate::BenchError;
use crate::interrupt::{Interruptions, is_interrupted};
use crate::lane::{Lane, Thread, never};
use crate::limits::TIME_MAX;
use crate::link::{Place, SharedBuffer, block_on, connect};
use crate::meter::{Cost, Meter};
use crate::pacer::Schedule;
use crate::pass::{Pass, User};
use crate::plain::Plain;
use crate::plan::Plan;
use crate::progress::Bar;
use crate::report::Report;
use crate::seeker::Seeker;
use crate::series::Series;
use crate::usage;
use crate::work::Work;

/// How long connecting may take in a run that is not attended.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// How often an attended run checks its state and draws its progress.
const TICK: Duration = Duration::from_millis(50);

/// How a load is driven.
#[derive(Clone, Debug)]
pub struct Course {
    /// The places to which the connections go, in rotation.
    pub places: Vec<Place>,
    /// Number of connections.
    pub connections: usize,
    /// Calls in flight on all connections together; they are distributed evenly.
    pub calls: usize,
    /// Threads, each with its share of the connections.
    pub threads: usize,
    /// Number of groups of requests that are counted separately.
    pub groups: usize,
    /// The run ends after this many requests.
    pub requests: Option<u64>,
    /// The run ends after this time.
    pub time: Option<Duration>,
    /// Open loop: requests a second.
    pub rate: Option<f64>,
    /// A run that takes longer than this fails.
    pub timeout: Option<Duration>,
    /// How long the run waits for outstanding answers after its time is over. Requests without an answer by then have
    /// failed.
    pub grace: Duration,
    /// Processes whose processor time is reported.
    pub pids: Vec<u32>,
    /// Sent with every request.
    pub metadata: Metadata,
    /// Longer requests are not sent, and count as failed.
    pub request_bytes_max: usize,
    /// Options of an attended run; `None` if the run is not attended.
    pub attended: Option<Attended>,
}

/// An attended run: one with a person at the terminal. Lost connections are replaced, however long that takes. Ctrl-C
/// ends the run and reports what was measured so far.
#[derive(Clone, Debug)]
pub struct Attended {
    /// How long connecting to one place may take.
    pub connect_timeout: Duration,
    /// Records latencies for each second.
    pub in_seconds: bool,
    /// Shows a progress bar.
    pub shows_bar: bool,
    /// The user who logs in again when the token is refused.
    pub user: Option<User>,
}

/// Runs the load of a plan.
pub(crate) fn run(plan: &Plan) -> Result<Report, BenchError> {
    let (meter, cost) = measure(plan)?;
    Ok(Report::new(plan, &meter, cost))
}

/// Runs the load of a plan, and returns what was measured.
pub(crate) fn measure(plan: &Plan) -> Result<(Meter, Cost), BenchError> {
    let course = Course {
        places: plan.endpoints.iter().map(|&address| address.into()).collect(),
        connections: plan.connections,
        calls: plan.connections.saturating_mul(plan.streams),
        threads: plan.threads,
        groups: 1,
        requests: plan.requests,
        time: plan.seconds,
        rate: plan.rate,
        timeout: Some(plan.timeout),
        grace: plan.timeout,
        pids: plan.pids.clone(),
        metadata: plan.token.iter().map(|token| ("token", token)).collect(),
        request_bytes_max: usize::MAX,
        attended: None,
    };
    let (mut meters, cost) = drive(&course, |thread, threads| Plain::new(plan, thread, threads))?;
    Ok((meters.swap_remove(0), cost))
}

/// Runs a load. `work` makes the work of a thread, given its number and the number of threads. Returns the measurements
/// of each group.
pub fn drive<W: Work>(
    course: &Course,
    work: impl Fn(usize, usize) -> W + Sync,
) -> Result<(Vec<Meter>, Cost), BenchError> {
    let threads = course.threads.min(course.connections);
    let barrier = Barrier::new(threads);
    let outcomes: Vec<Result<Outcome, BenchError>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || block_on(run_thread(course, thread, threads, barrier, work(thread, threads))))
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(BenchError::Server("a thread has panicked".into()))))
            .collect()
    });
    let mut meters = vec![Meter::default(); course.groups];
    let (mut began, mut ended) = (None, None);
    let mut servers_cpu = Duration::ZERO;
    let mut own_before = Duration::MAX;
    for outcome in outcomes {
        let outcome = outcome?;
        meters.iter_mut().zip(&outcome.meters).for_each(|(meter, other)| meter.merge(other));
        began = Some(began.map_or(outcome.began, |began: Instant| began.min(outcome.began)));
        ended = ended.max(Some(outcome.ended));
        servers_cpu = servers_cpu.max(outcome.servers_cpu);
        own_before = own_before.min(outcome.own_before);
    }
    let time = ended.zip(began).map_or(Duration::ZERO, |(ended, began)| ended - began);
    Ok((meters, Cost { time, own_cpu: usage::own() - own_before, servers_cpu }))
}

/// Runs a load on this thread, within its runtime.
pub(crate) async fn drive_here<W: Work>(course: &Course, work: W) -> Result<(Vec<Meter>, Cost), BenchError> {
    let outcome = run_thread(course, 0, 1, &Barrier::new(1), work).await?;
    let time = outcome.ended - outcome.began;
    let own_cpu = usage::own() - outcome.own_before;
    Ok((outcome.meters, Cost { time, own_cpu, servers_cpu: outcome.servers_cpu }))
}

struct Outcome {
    meters: Vec<Meter>,
    began: Instant,
    ended: Instant,
    own_before: Duration,
    servers_cpu: Duration,
}

async fn run_thread<W: Work>(
    course: &Course,
    thread: usize,
    threads: usize,
    barrier: &Barrier,
    work: W,
) -> Result<Outcome, BenchError> {
    let shared = share_out(course, thread, threads, work);
    let all = shared.left.get();
    let mut interruptions = interruptions(course)?;
    let opened = tokio::select! {
        opened = open(course, thread, threads, &shared) => opened,
        () = pressed(interruptions.as_mut()) => Ok(Vec::new()),
    };
    // All threads begin together. A thread that could not connect waits here too, so that it does not hold up the
    // others.
    barrier.wait();
    let mut lanes = opened?;
    let (servers_before, own_before) = (usage::of(&course.pids)?, usage::own());
    let began = Instant::now();
    shared.until.set(course.time.map_or(never(began), |time| began + time));
    let schedule = course.rate.map(|rate| keep_time(rate / threads as f64, &mut lanes, &shared, began));
    attend(course, send(lanes, schedule.as_deref()), &shared, schedule.as_deref(), interruptions.as_mut()).await?;
    let servers_cpu = usage::of(&course.pids)? - servers_before;
    let ended = close(&shared, schedule.map(|schedule| schedule.all()), all);
    Ok(Outcome { meters: shared.meters.take(), began, ended, own_before, servers_cpu })
}

/// Makes the state that the lanes of a thread share.
fn share_out<W: Work>(course: &Course, thread: usize, threads: usize, work: W) -> Rc<Thread<W>> {
    let buffer = SharedBuffer::default();
    let attended = course.attended.as_ref();
    let pass = Rc::new(Pass::new(&course.metadata, attended.and_then(|attended| attended.user.clone())));
    let seeker =
        attended.map(|attended| Rc::new(Seeker::new(&course.places, &buffer, attended.connect_timeout, &pass)));
    let series = attended.filter(|attended| attended.in_seconds).map(|_| Series::default());
    Rc::new(Thread {
        work: RefCell::new(work),
        meters: RefCell::new(vec![Meter { series, ..Meter::default() }; course.groups]),
        buffer,
        left: Cell::new(course.requests.map_or(u64::MAX, |total| share(total, thread, threads))),
        until: Cell::new(never(Instant::now())),
        under_way: vec![Cell::default(); course.groups],
        request_bytes_max: course.request_bytes_max,
        seeker,
        pass,
    })
}

/// Lets lanes send at the times of an open loop.
fn keep_time<W: Work>(rate: f64, lanes: &mut [Lane<W>], shared: &Thread<W>, began: Instant) -> Rc<Schedule> {
    // Only connections that have a call send requests.
    let senders = lanes.iter().filter(|lane| lane.calls() > 0).count();
    let schedule = Rc::new(Schedule::new(senders, rate, shared.left.get(), began, shared.until.get()));
    let senders = lanes.iter_mut().filter(|lane| lane.calls() > 0);
    senders.enumerate().for_each(|(number, lane)| lane.keep_to(schedule.clone(), number));
    schedule
}

/// Runs lanes until none has work left.
async fn send<W: Work>(lanes: Vec<Lane<W>>, schedule: Option<&Schedule>) -> Result<(), BenchError> {
    let mut running = JoinSet::new();
    for mut lane in lanes {
        running.spawn_local(async move { poll_fn(|cx| lane.poll(cx)).await });
    }
    let pacing = async {
        match schedule {
            None => Ok(()),
            Some(schedule) => schedule.run().await,
        }
    };
    let (paced, ()) = tokio::join!(pacing, async { while running.join_next().await.is_some() {} });
    paced.map_err(|error| BenchError::Io("cannot set a timer".into(), error))
}

/// Runs `work` until it ends by itself, no answer is outstanding, or the user interrupts it.
async fn attend<W: Work>(
    course: &Course,
    work: impl Future<Output = Result<(), BenchError>>,
    shared: &Thread<W>,
    schedule: Option<&Schedule>,
    interruptions: Option<&mut Interruptions>,
) -> Result<(), BenchError> {
    let attended = course.attended.as_ref();
    let bar = attended.filter(|attended| attended.shows_bar).map(|_| Bar::new(course.requests));
    let bar = RefCell::new(bar);
    let done = || shared.meters.borrow().iter().map(Meter::done).sum();
    let halt = || {
        let now = Instant::now();
        if now < shared.until.get() {
            shared.until.set(now);
            schedule.inspect(|schedule| schedule.stop(now));
        }
    };
    // Lanes that are reconnecting do not notice that the other lanes have finished the work.
    let over = async {
        loop {
            tokio::time::sleep(TICK).await;
            let now = Instant::now();
            if is_interrupted() {
                halt();
            }
            let until = shared.until.get();
            if now >= until + course.grace || shared.is_idle() && (shared.left.get() == 0 || now >= until + TICK) {
                return;
            }
            if let Some(bar) = bar.borrow_mut().as_mut() {
                bar.draw(done());
            }
        }
    };
    let interrupted = async {
        let mut interruptions = interruptions;
        pressed(interruptions.as_deref_mut()).await;
        halt();
        // After the first Ctrl-C the run still waits for answers, as at any other end. A second Ctrl-C ends that wait.
        pressed(interruptions).await;
    };
    let timeout = course.timeout.unwrap_or(TIME_MAX);
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = over => Ok(()),
        () = interrupted => Ok(()),
        () = tokio::time::sleep(timeout) => {
            let answered: u64 = shared.meters.borrow().iter().map(|meter| meter.succeeded).sum();
            let sent: u64 = shared.meters.borrow().iter().map(|meter| meter.sent).sum();
            Err(BenchError::Server(format!("not done after {timeout:?}: {answered} of {sent} requests answered")))
        }
    };
    if let Some(mut bar) = bar.into_inner() {
        bar.end(done());
    }
    outcome
}

/// Counts the requests without an answer, and those of the `due` requests of an open loop that were never sent; `all`
/// is the limit of requests. Returns the end of the run.
fn close<W: Work>(shared: &Thread<W>, due: Option<u64>, all: u64) -> Instant {
    let mut meters = shared.meters.borrow_mut();
    let last = meters.iter().filter_map(|meter| meter.last).max();
    let is_complete = shared.left.get() == 0 && shared.is_idle();
    meters.iter_mut().zip(&shared.under_way).for_each(|(meter, count)| meter.lose(count.get()));
    meters[0].miss(due.map_or(0, |due| due.saturating_sub(all - shared.left.get())));
    let now = Instant::now();
    match last.filter(|_| is_complete) {
        Some(last) => last,
        // If answers are missing, the time of waiting for them belongs to the run.
        None => last.max(Some(shared.until.get().min(now))).unwrap_or(now),
    }
}

/// The interruptions of an attended run by Ctrl-C.
fn interruptions(course: &Course) -> Result<Option<Interruptions>, BenchError> {
    let listening = course.attended.as_ref().map(|_| Interruptions::listen()).transpose();
    listening.map_err(|error| BenchError::Io("cannot wait for signals".into(), error))
}

async fn pressed(interruptions: Option<&mut Interruptions>) {
    match interruptions {
        Some(interruptions) => interruptions.next().await,
        None => std::future::pending().await,
    }
}

/// The connections of a thread.
async fn open<W: Work>(
    course: &Course,
    thread: usize,
    threads: usize,
    shared: &Rc<Thread<W>>,
) -> Result<Vec<Lane<W>>, BenchError> {
    let mut lanes = Vec::new();
    for number in (thread..course.connections).step_by(threads) {
        let calls = share(course.calls as u64, number, course.connections) as usize;
        let mut number = number % course.places.len();
        let link = match &shared.seeker {
            None => {
                let place = &course.places[number];
                let connected = tokio::time::timeout(CONNECT_MAX, connect(place, &shared.buffer)).await;
                let late = |_| BenchError::Server(format!("{}: no connection within {CONNECT_MAX:?}", place.address));
                connected.map_err(late)??
            }
            Some(seeker) => {
                let (link, found) = seeker.seek(number).await;
                number = found;
                link
            }
        };
        lanes.push(Lane::new(link, &course.places[number], number, calls, shared.clone()));
    }
    Ok(lanes)
}

/// The share of `total` that belongs to number `index` of `all`.
fn share(total: u64, index: usize, all: usize) -> u64 {
    total / all as u64 + u64::from((index as u64) < total % all as u64)
}
