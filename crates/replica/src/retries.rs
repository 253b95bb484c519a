//! When a snapshot that a member did not take is sent again: at once, then after longer and longer.

use std::collections::BTreeMap;
use std::time::Duration;

/// The pause after the second failure; each further one doubles it.
const WAIT_MIN: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Members to which sending has failed.
#[derive(Default)]
pub(crate) struct Retries(BTreeMap<u64, Retry>);

#[derive(Default)]
struct Retry {
    /// The pause after the next failure.
    wait: Duration,
    due: Option<Duration>,
}

impl Retries {
    /// Notes that sending to a member failed. It is repeated when [`Retries::due`] names the member.
    pub(crate) fn failed(&mut self, id: u64, now: Duration) {
        let retry = self.0.entry(id).or_default();
        retry.due = Some(now.saturating_add(retry.wait));
        retry.wait = retry.wait.saturating_mul(2).clamp(WAIT_MIN, WAIT_MAX);
    }

    /// Notes that sending to a member succeeded.
    pub(crate) fn succeeded(&mut self, id: u64) {
        self.0.remove(&id);
    }

    /// Members whose pause is over, each once.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<u64> {
        let due = self.0.iter_mut().filter_map(|(id, retry)| retry.due.take_if(|due| *due <= now).map(|_| *id));
        due.collect()
    }

    /// Forgets all failures.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_is_waited_for_longer() {
        let (mut retries, mut now) = (Retries::default(), Duration::ZERO);
        let mut waits = Vec::new();
        for _ in 0..10 {
            let failed = now;
            retries.failed(7, now);
            while retries.due(now) != [7] {
                now += Duration::from_millis(1);
            }
            assert!(retries.due(now + WAIT_MAX).is_empty(), "it was due already");
            waits.push((now - failed).as_millis());
        }
        assert_eq!(waits, [0, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000]);
    }

    #[test]
    fn success_is_a_new_beginning() {
        let (mut retries, now) = (Retries::default(), Duration::ZERO);
        retries.failed(7, now);
        retries.failed(7, now);
        retries.failed(8, now);
        assert_eq!(retries.due(now), [8]);
        retries.succeeded(7);
        retries.failed(7, now);
        assert_eq!(retries.due(now), [7]);
    }
}
