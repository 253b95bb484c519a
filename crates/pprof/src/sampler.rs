//! Sampling the processor's time: a timer interrupts the running thread, and its place in the program is noted. The handler writes one
//! number and calls nothing, so it can interrupt any code.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Time of the processor between two samples.
pub(super) const PERIOD: Duration = Duration::from_millis(10);
/// Samples of one profile: more than ten minutes of one core.
const SAMPLES_MAX: usize = 64 * 1024;

static SAMPLES: [AtomicUsize; SAMPLES_MAX] = [const { AtomicUsize::new(0) }; SAMPLES_MAX];
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static RUNS: AtomicBool = AtomicBool::new(false);

/// The one sampling that runs. Dropped, it ends.
pub(super) struct Sampling(());

impl Sampling {
    /// Begins. None if one runs already.
    pub(super) fn begin() -> Option<io::Result<Sampling>> {
        if RUNS.swap(true, Ordering::SeqCst) {
            return None;
        }
        TAKEN.store(0, Ordering::SeqCst);
        let sampling = Sampling(());
        Some(handle_signal().and_then(|()| set_timer(PERIOD)).map(|()| sampling))
    }

    /// Ends, and returns the places that were noted.
    pub(super) fn end(self) -> Vec<u64> {
        // A timer that cannot be stopped continues; its samples are too late.
        let _ = set_timer(Duration::ZERO);
        let taken = TAKEN.load(Ordering::SeqCst).min(SAMPLES_MAX);
        let places = SAMPLES.iter().take(taken).map(|sample| sample.load(Ordering::SeqCst) as u64);
        places.filter(|place| *place != 0).collect()
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        let _ = set_timer(Duration::ZERO);
        RUNS.store(false, Ordering::SeqCst);
    }
}

/// The handler stays for good: a signal that comes late must not end the process.
fn handle_signal() -> io::Result<()> {
    // SAFETY: a signal action is plain data, for which zeros are valid, and all pointers are valid for the calls.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut())
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_timer(period: Duration) -> io::Result<()> {
    let interval = libc::timeval {
        tv_sec: period.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(period.subsec_micros() as i32),
    };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: the pointer is valid for the call.
    let set = unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut()) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn on_signal(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let place = TAKEN.fetch_add(1, Ordering::Relaxed);
    if let Some(sample) = SAMPLES.get(place) {
        sample.store(interrupted_at(context), Ordering::Relaxed);
    }
}

/// The instruction at which the thread was interrupted; 0 if that is not known.
#[allow(clippy::indexing_slicing, reason = "a constant index into the kernel's array of registers")]
fn interrupted_at(context: *mut libc::c_void) -> usize {
    // SAFETY: the kernel hands a valid context to the handler, which lives as long as the handler runs.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    let place = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] as usize };
    // SAFETY: as above.
    #[cfg(all(target_os = "linux", target_arch = "aarch64"))]
    let place = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc as usize };
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let place = {
        let _ = context;
        0
    };
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_busy_thread_is_seen() {
        let Some(Ok(sampling)) = Sampling::begin() else { panic!("the only one") };
        assert!(Sampling::begin().is_none());
        let (began, mut sum) = (Instant::now(), 0_u64);
        while began.elapsed() < Duration::from_millis(500) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        assert!(!sampling.end().is_empty());
        assert!(matches!(Sampling::begin(), Some(Ok(_))));
    }
}
