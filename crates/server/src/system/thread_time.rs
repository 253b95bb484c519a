//! How long the calling thread has worked.

use std::time::Duration;

/// The processor's time that the calling thread has had since it began.
pub(crate) fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure outlives the call. This clock is one that every thread has; if it could not be read, all would be 0.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::now;
    use std::time::{Duration, Instant};

    #[test]
    fn sleeping_is_no_work() {
        let (before, began) = (now(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let slept = now() - before;
        assert!(slept < began.elapsed() / 2, "{slept:?}");
        let before = now();
        while now() - before < Duration::from_millis(1) {}
    }
}
