//! What processes have used.

use std::time::Duration;

use crate::BenchError;

/// Processor time of this process, all its threads together.
pub(crate) fn own() -> Duration {
    // SAFETY: all zeroes is a value of this plain struct of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a struct of ours for the kernel to write to.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert!(outcome == 0, "a process can always ask for its own use");
    let time = |time: libc::timeval| Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Processor time of other processes together, as the kernel accounts for it.
pub(crate) fn of(pids: &[u32]) -> Result<Duration, BenchError> {
    // SAFETY: asks for a number; no memory is involved.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let mut ticks = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/stat");
        let text = std::fs::read_to_string(&path).map_err(|error| BenchError::Io(path, error))?;
        // The name in brackets may hold blanks, so the fields are counted from behind it.
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
        ticks += fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    }
    Ok(Duration::from_micros(ticks * 1_000_000 / ticks_per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen() {
        let (own_before, before) = (own(), of(&[std::process::id()]).expect("we are running"));
        while own() - own_before < Duration::from_millis(50) {}
        assert!(of(&[std::process::id()]).expect("we are running") > before);
        assert!(of(&[u32::MAX]).is_err());
    }
}
