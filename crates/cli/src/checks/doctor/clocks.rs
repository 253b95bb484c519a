//! Whether the clocks are right. Nothing in the Raft log depends on them, but certificates, tokens and the comparison of log lines do.

use super::{Finding, Report};
use crate::checks::format::{Grade, time};
use std::time::Duration;

/// Clocks of members that are further apart are worth a warning, as members think too.
const APART_MAX_SECONDS: f64 = 1.0;

/// What wrong clocks cost.
const WHY: &str = "the validity of certificates and tokens is judged by the clock, and log lines are put in order by it; run chrony or \
                   another NTP client";

/// The findings about them.
pub(super) fn findings(report: &Report) -> Vec<Finding> {
    let mut findings = vec![own()];
    let told = report.reached().iter().filter_map(|trip| {
        let clock = trip.outcome.as_ref().ok()?.clock?;
        Some((trip, clock))
    });
    let farthest = told.max_by(|(_, one), (_, other)| one.ahead_seconds.abs().total_cmp(&other.ahead_seconds.abs()));
    if let Some((trip, clock)) = farthest {
        let apart = clock.ahead_seconds.abs();
        let side = if clock.ahead_seconds < 0.0 { "behind" } else { "ahead of" };
        let shown = |seconds: f64| time(Duration::from_secs_f64(seconds.min(1e9)));
        let text = format!(
            "members are at most {} apart from here: {} is {side} this machine, give or take {}",
            shown(apart),
            trip.target,
            shown(clock.error_seconds)
        );
        findings.push(if apart - clock.error_seconds > APART_MAX_SECONDS {
            let text = format!("{text}, more than {}: {WHY}", shown(APART_MAX_SECONDS));
            Finding::new("clocks", Grade::Warn, text)
        } else {
            Finding::new("clocks", Grade::Pass, text)
        });
    }
    findings
}

/// What the kernel says of its own clock.
fn own() -> Finding {
    // SAFETY: plain numbers, for which zero is a value: it asks, and changes nothing.
    let mut found: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call.
    let state = unsafe { libc::adjtimex(&raw mut found) };
    if state < 0 {
        let error = std::io::Error::last_os_error();
        return Finding::new(
            "clock",
            Grade::Info,
            format!("the kernel does not say whether it is synchronised: {error}"),
        );
    }
    if state == libc::TIME_ERROR || found.status & libc::STA_UNSYNC != 0 {
        return Finding::new("clock", Grade::Warn, format!("not synchronised, says the kernel: {WHY}"));
    }
    let error = Duration::from_micros(u64::try_from(found.maxerror).unwrap_or_default());
    Finding::new("clock", Grade::Pass, format!("synchronised, at most {} wrong", time(error)))
}
