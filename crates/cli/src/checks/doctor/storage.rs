//! Findings of the disk test.

use super::{Finding, Report};
use crate::checks::disk::{SYNC_MAX, Steady};
use crate::checks::format::{Grade, bytes, number, time};

/// A member that has less room than this raises the alarm that its disk is full before long.
const FREE_BYTES_MIN: u64 = 4 << 30;

/// The findings about it; `is_named`: the directory was named on the command line.
pub(super) fn findings(report: &Report, is_named: bool) -> Vec<Finding> {
    let place = match &report.place {
        Ok(place) => place,
        Err(failure) if is_named => return vec![Finding::new("disk", Grade::Fail, failure.text.clone())],
        Err(_) => {
            let text = "not tested: there is no directory `default.etcd` here; name the data's with --data-dir";
            return vec![Finding::new("disk", Grade::Info, text)];
        }
    };
    let room = match place.free_bytes() {
        free if free < FREE_BYTES_MIN => {
            let text = format!(
                "{} are free in {}, less than {}: a member whose disk is full raises the alarm NOSPACE and takes no writes",
                bytes(free),
                place.shown(),
                bytes(FREE_BYTES_MIN)
            );
            Finding::new("disk space", Grade::Warn, text)
        }
        _ => Finding::new("disk space", Grade::Pass, place.shown()),
    };
    let speed = match &report.disk {
        Some(Ok(_)) if place.is_memory() => {
            Finding::new("disk", Grade::Warn, "the directory is in memory: acknowledged writes are lost with it")
        }
        Some(Ok(steady)) => Finding::new("disk", steady.grade(), speed(steady)),
        Some(Err(failure)) => Finding::new("disk", Grade::Fail, failure.text.clone()),
        None => return vec![room],
    };
    vec![room, speed]
}

fn speed(steady: &Steady) -> String {
    let (p99, iops) = (time(steady.syncs.p99()), number(steady.iops()));
    let bound = time(SYNC_MAX);
    if steady.grade() == Grade::Pass {
        return format!("fdatasync p99 {p99} < {bound}, {iops} synced writes a second");
    }
    format!(
        "fdatasync p99 {p99} is not < {bound}, {iops} synced writes a second: every write waits for a sync, and heartbeats behind it may \
         come too late; give the log a faster disk, or one of its own (--wal-dir)"
    )
}
