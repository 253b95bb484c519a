//! The times at which an open loop sends: fixed before anything is sent, whatever the answers do.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;

/// Times closer to each other than this share a wake-up.
const STEP: Duration = Duration::from_micros(100);

/// The requests that one connection has to send, by the times at which they were due.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub(crate) times: VecDeque<Instant>,
    /// No more will come.
    pub(crate) over: bool,
    pub(crate) waker: Option<Waker>,
}

/// Gives `connections` their requests in turn, `rate` a second altogether, until `until` or until there were `most`.
pub(crate) async fn pace(
    connections: &[Rc<RefCell<Due>>],
    rate: f64,
    most: u64,
    begin: Instant,
    until: Instant,
) -> io::Result<()> {
    let timer = Timer::new()?;
    let at = |number: u64| begin + Duration::from_secs_f64(number as f64 / rate);
    let mut number = 0;
    while number < most && at(number) < until {
        let now = Instant::now();
        let first = number;
        while number < most && at(number) <= now && at(number) < until {
            let mut due = connections[number as usize % connections.len()].borrow_mut();
            due.times.push_back(at(number));
            number += 1;
        }
        // Those who got nothing are not woken.
        for index in 0..(number - first).min(connections.len() as u64) {
            wake(&connections[(first + index) as usize % connections.len()]);
        }
        timer.sleep_until(at(number).max(now + STEP)).await?;
    }
    for due in connections {
        due.borrow_mut().over = true;
        wake(due);
    }
    Ok(())
}

fn wake(due: &RefCell<Due>) {
    let waker = due.borrow_mut().waker.take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A timer of the kernel: those of the runtime are only good to a millisecond.
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
                // It was not up yet.
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let connections: Vec<Rc<RefCell<Due>>> = (0..3).map(|_| Rc::default()).collect();
        let begin = Instant::now();
        let done = pace(&connections, 10_000.0, u64::MAX, begin, begin + Duration::from_millis(50));
        runtime.block_on(done).expect("a timer");
        assert!(begin.elapsed() >= Duration::from_millis(49));
        let counts = connections.iter().map(|due| due.borrow().times.len());
        assert_eq!(counts.sum::<usize>(), 500);
        for (index, due) in connections.iter().enumerate() {
            let due = due.borrow();
            assert!(due.over);
            for (round, time) in due.times.iter().enumerate() {
                let wanted = Duration::from_micros(100) * (3 * round + index) as u32;
                let offset = *time - begin;
                assert!(offset.abs_diff(wanted) < Duration::from_micros(1), "{offset:?} {wanted:?}");
            }
        }
    }
}
