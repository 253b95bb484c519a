//! Schedules from a seed.

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Schedules of each of the two kinds, unless the environment has `SCHEDULES`.
const SCHEDULES: u64 = 5_000;
/// Threads that are preempted at the worst moment, in a schedule of the second kind: most races need one or two.
const PREEMPTIONS_MAX: usize = 3;
/// For decoders and maps in code that is hardly optimised.
const STACK_BYTES: usize = 256 * 1024;

thread_local! {
    /// The mistake that the code under test makes. All its threads are coroutines of this one.
    static PLANTED: Cell<Option<u8>> = const { Cell::new(None) };
}

/// Runs `test` under random schedules, and under as many that preempt few threads (PCT). `SEED` in the environment gives the same
/// schedules again, `SCHEDULES` how many.
pub fn explore(test: impl Fn() + Send + Sync + 'static) {
    let seed = from_environment("SEED").unwrap_or_else(|| RandomState::new().hash_one(0u64));
    let schedules = from_environment("SCHEDULES").unwrap_or(SCHEDULES) as usize;
    let test = Arc::new(test);
    run("random", seed, RandomScheduler::new_from_seed(seed, schedules), test.clone());
    run("PCT", seed, PctScheduler::new_from_seed(seed, PREEMPTIONS_MAX, schedules), test);
}

fn run(
    kind: &'static str,
    seed: u64,
    scheduler: impl Scheduler + 'static,
    test: Arc<impl Fn() + Send + Sync + 'static>,
) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    let _failure = Failure { kind, seed };
    Runner::new(scheduler, config).run(move || test());
}

/// Says how to see a failure again.
struct Failure {
    kind: &'static str,
    seed: u64,
}

impl Drop for Failure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed under a {} schedule: SEED={} gives the same schedules again", self.kind, self.seed);
        }
    }
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}

/// Runs `test` while the code makes `mistake`: a schedule must fail.
pub fn finds(mistake: u8, test: impl Fn() + Send + Sync + 'static) {
    PLANTED.set(Some(mistake));
    let passed = catch_unwind(AssertUnwindSafe(|| explore(test))).is_ok();
    PLANTED.set(None);
    assert!(!passed, "no schedule shows the planted mistake");
}

/// Whether the code under test is to make this mistake.
pub fn is_planted(mistake: u8) -> bool {
    PLANTED.get() == Some(mistake)
}

/// A number below `sides`, of the seed.
pub fn roll(sides: u64) -> u64 {
    thread_rng().gen_range(0..sides)
}
