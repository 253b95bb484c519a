//! The times at which an open loop sends: fixed before anything is sent, whatever the answers do.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;

/// Times closer to each other than this share a wake-up.
const STEP: Duration = Duration::from_micros(100);
/// Times further away than this count as this far away.
const FAR_SECONDS: f64 = 1e9;

/// Distributes the requests of an open loop over the lanes of a thread, `rate` per second in all. It computes due
/// requests and stores none.
#[derive(Debug)]
pub(crate) struct Schedule {
    begin: Instant,
    rate: f64,
    most: u64,
    until: Cell<Instant>,
    /// Wakers of lanes that have nothing to send yet.
    asleep: RefCell<Vec<Option<Waker>>>,
}

/// The next action of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Send the request that was due at this time.
    Due(Instant),
    /// Wait for the next one.
    Later,
    /// Nothing more will become due.
    Over,
}

impl Schedule {
    /// A schedule from `begin` until `until`, or until `most` requests were due.
    pub(crate) fn new(lanes: usize, rate: f64, most: u64, begin: Instant, until: Instant) -> Schedule {
        Schedule { begin, rate, most, until: Cell::new(until), asleep: RefCell::new(vec![None; lanes]) }
    }

    fn at(&self, number: u64) -> Instant {
        self.begin + Duration::from_secs_f64((number as f64 / self.rate).min(FAR_SECONDS))
    }

    /// How many requests are due by `now`.
    fn due(&self, now: Instant) -> u64 {
        let passed = now.min(self.until.get()).saturating_duration_since(self.begin).as_secs_f64();
        ((passed * self.rate) as u64).saturating_add(1).min(self.most)
    }

    /// How many requests become due before the end.
    pub(crate) fn all(&self) -> u64 {
        let until = self.until.get();
        let passed = until.saturating_duration_since(self.begin).as_secs_f64();
        let about = ((passed * self.rate) as u64).min(self.most);
        // Rounding may have made the number one too large or too small.
        match about {
            0.. if about < self.most && self.at(about) < until => about + 1,
            1.. if self.at(about - 1) >= until => about - 1,
            _ => about,
        }
    }

    /// Ends the schedule: nothing more becomes due.
    pub(crate) fn stop(&self, now: Instant) {
        self.until.set(self.until.get().min(now));
        let lanes = self.asleep.borrow().len() as u64;
        (0..lanes).for_each(|lane| self.wake(lane));
    }

    /// The turn of a lane that has sent `count` requests.
    pub(crate) fn turn(&self, lane: usize, count: u64, now: Instant, waker: &Waker) -> Turn {
        let mut asleep = self.asleep.borrow_mut();
        let number = count.saturating_mul(asleep.len() as u64).saturating_add(lane as u64);
        let at = self.at(number);
        if number >= self.most || at >= self.until.get() {
            return Turn::Over;
        }
        if at <= now {
            return Turn::Due(at);
        }
        asleep[lane] = Some(waker.clone());
        Turn::Later
    }

    /// Wakes the lanes when they have something to send, until all requests were due.
    pub(crate) async fn run(&self) -> io::Result<()> {
        let timer = Timer::new()?;
        let lanes = self.asleep.borrow().len() as u64;
        let mut seen = 0;
        while seen < self.most && lanes > 0 {
            let now = Instant::now();
            let due = self.due(now);
            // Only lanes with a new due request are woken.
            for step in 0..(due - seen).min(lanes) {
                self.wake((seen % lanes + step) % lanes);
            }
            seen = due;
            if now >= self.until.get() {
                break;
            }
            timer.sleep_until(self.at(due).min(self.until.get()).max(now + STEP)).await?;
        }
        (0..lanes).for_each(|lane| self.wake(lane));
        Ok(())
    }

    fn wake(&self, lane: u64) {
        let waker = self.asleep.borrow_mut()[lane as usize].take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A timer of the kernel: the runtime's timers have a resolution of only a millisecond.
struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    fn new() -> io::Result<Timer> {
        // SAFETY: makes a descriptor; no memory is involved.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the descriptor stays open and the same for as long as it is owned, which is until the `AsyncFd` is dropped.
        let timer = unsafe { AsyncFd::register(fd) };
        timer.map(Timer).map_err(io::Error::from)
    }

    async fn sleep_until(&self, at: Instant) -> io::Result<()> {
        let wait = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value =
            libc::timespec { tv_sec: wait.as_secs() as libc::time_t, tv_nsec: libc::c_long::from(wait.subsec_nanos()) };
        let setting = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: the descriptor is open, and the kernel only reads `setting`.
        let outcome =
            unsafe { libc::timerfd_settime(self.0.get_ref().as_raw_fd(), 0, &raw const setting, std::ptr::null_mut()) };
        if outcome < 0 {
            return Err(io::Error::last_os_error());
        }
        loop {
            let mut ready = self.0.readable().await?;
            let mut count = 0_u64;
            let outcome = ready.try_io(|fd| {
                // SAFETY: `count` is eight bytes of ours, which is what a timer writes.
                let read = unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
                if read < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
            });
            match outcome {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                // The timer had not expired yet.
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_due_once_and_in_order() {
        let begin = Instant::now();
        let schedule = Schedule::new(3, 10_000.0, u64::MAX, begin, begin + Duration::from_millis(50));
        let end = begin + Duration::from_secs(1);
        let mut total = 0;
        for lane in 0..3 {
            let mut count = 0;
            while let Turn::Due(at) = schedule.turn(lane, count, end, Waker::noop()) {
                let wanted = Duration::from_micros(100) * (3 * count as u32 + lane as u32);
                assert!((at - begin).abs_diff(wanted) < Duration::from_micros(1), "{at:?} {wanted:?}");
                count += 1;
            }
            total += count;
        }
        assert_eq!((total, schedule.all()), (500, 500));
        assert_eq!(schedule.turn(1, 9, begin, Waker::noop()), Turn::Later);
        schedule.stop(begin + Duration::from_micros(950));
        assert_eq!((schedule.turn(1, 3, begin, Waker::noop()), schedule.all()), (Turn::Over, 10));
    }

    #[test]
    fn all_that_is_due_is_known_at_any_rate() {
        let begin = Instant::now();
        let all = |rate, most, ms| Schedule::new(1, rate, most, begin, begin + Duration::from_millis(ms)).all();
        for rate in [1.0, 7.0, 50.0, 333.0, 9_999.0] {
            for ms in [0, 1, 999, 1000, 4000, 12_345] {
                assert_eq!(all(rate, u64::MAX, ms), (rate * ms as f64 / 1000.0).ceil() as u64, "{rate} {ms}");
            }
        }
        assert_eq!((all(1e300, 5, 1), all(1e300, u64::MAX, 1), all(1e-300, u64::MAX, 1)), (5, u64::MAX, 1));
    }

    #[test]
    fn a_schedule_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let begin = Instant::now();
        let until = begin + Duration::from_millis(20);
        for (rate, most) in [(1e12, u64::MAX), (1e-300, u64::MAX), (1e12, 10), (1e-300, 1)] {
            runtime.block_on(Schedule::new(3, rate, most, begin, until).run()).expect("a timer");
        }
        assert!(begin.elapsed() >= Duration::from_millis(20));
        runtime
            .block_on(Schedule::new(0, 1.0, u64::MAX, begin, begin + Duration::from_secs(9)).run())
            .expect("a timer");
    }
}
