//! Notices that the cluster has been without a leader for a while.

use crate::node::Node;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Election time-outs without a leader after which the streams end.
const TIMEOUTS: u32 = 3;

/// Ends the streams when there has been no leader for too long. Runs until the member stops.
pub(crate) fn run(node: &Node) {
    let mut seen = Instant::now();
    let pause = (node.config.election_timeout / 10).clamp(Duration::from_millis(10), Duration::from_millis(100));
    while !node.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(pause);
        if node.status.leader() != 0 {
            seen = Instant::now();
        } else if seen.elapsed() >= TIMEOUTS * node.config.election_timeout {
            node.leaderless.end_all();
        }
    }
}
