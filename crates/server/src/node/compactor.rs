//! Auto compaction: by time or by number of revisions.

use super::Node;
use crate::config::AutoCompaction;
use api::etcdserverpb::CompactionRequest;
use api::{Message, RaftRequest};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// Decides when to compact, and to which revision. The time and the current revision are inputs.
pub(super) struct Compactor {
    mode: AutoCompaction,
    /// Revisions seen, oldest first (periodic mode).
    samples: VecDeque<(Instant, i64)>,
    last: Instant,
    next: Instant,
}

impl Compactor {
    pub(super) fn new(mode: AutoCompaction, now: Instant) -> Compactor {
        Compactor { mode, samples: VecDeque::new(), last: now, next: now }
    }

    /// The revision to compact to, if it is time.
    pub(super) fn due(&mut self, now: Instant, revision: i64) -> Option<i64> {
        if now < self.next {
            return None;
        }
        match self.mode {
            AutoCompaction::Off => {
                self.next = now + Duration::from_secs(3600);
                None
            }
            AutoCompaction::Revisions(keep) => {
                self.next = now + Duration::from_secs(300);
                Some(revision - keep).filter(|to| *to > 0)
            }
            AutoCompaction::Periodic(period) => {
                let interval = period.min(Duration::from_secs(3600));
                self.next = now + interval / 10;
                self.samples.push_back((now, revision));
                if now.saturating_duration_since(self.last) < interval {
                    return None;
                }
                let mut to = None;
                while let Some((_, old)) =
                    self.samples.pop_front_if(|(at, _)| now.saturating_duration_since(*at) >= period)
                {
                    to = Some(old);
                }
                if to.is_some() {
                    self.last = now;
                }
                to
            }
        }
    }
}

/// The lines of one compaction, in etcd's words.
fn lines(mode: AutoCompaction) -> [&'static str; 3] {
    match mode {
        AutoCompaction::Revisions(_) => [
            "starting auto revision compaction",
            "completed auto revision compaction",
            "failed auto revision compaction",
        ],
        AutoCompaction::Off | AutoCompaction::Periodic(_) => [
            "starting auto periodic compaction",
            "completed auto periodic compaction",
            "failed auto periodic compaction",
        ],
    }
}

/// Runs until the member stops.
pub(super) fn run(node: &Arc<Node>) {
    let mut compactor = Compactor::new(node.config.auto_compaction, Instant::now());
    let mut last = 0;
    while !node.stopping.load(std::sync::atomic::Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        let due = compactor.due(Instant::now(), node.store.revision()).filter(|to| *to > last);
        if let Some(revision) = due.filter(|_| node.status.is_leader()) {
            last = revision;
            let began = Instant::now();
            let [starting, completed, failed] = lines(node.config.auto_compaction);
            logging::info(starting, &[("revision", revision.into())]);
            let request = CompactionRequest { revision, physical: false };
            let done = move |outcome: super::Outcome| {
                let took = format!("{:?}", began.elapsed());
                let fields = [("revision", revision.into()), ("took", Value::from(&took))];
                match outcome {
                    Ok(_) => logging::info(completed, &fields),
                    Err(error) => {
                        let [revision, took] = fields;
                        logging::warn(failed, &[revision, took, ("error", error.message().into())]);
                    }
                }
            };
            node.propose(node.as_member(), RaftRequest::Compaction, &request.encode_to_vec(), Box::new(done));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periodic_keeps_the_period() {
        let start = Instant::now();
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        let mut compactor = Compactor::new(AutoCompaction::Periodic(Duration::from_secs(600)), start);
        let due: Vec<(u64, i64)> = (0..=30)
            .filter_map(|minute| compactor.due(at(minute), minute as i64 * 100).map(|to| (minute, to)))
            .collect();
        assert_eq!(due, [(10, 0), (20, 1000), (30, 2000)]);
    }

    #[test]
    fn revisions_keep_a_number() {
        let start = Instant::now();
        let mut compactor = Compactor::new(AutoCompaction::Revisions(100), start);
        assert_eq!(compactor.due(start, 50), None);
        assert_eq!(compactor.due(start + Duration::from_secs(300), 1_050), Some(950));
        assert_eq!(compactor.due(start + Duration::from_secs(301), 2_000), None);
    }
}
