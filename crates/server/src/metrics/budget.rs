//! The budget of memory that clients may make the member hold.

use ::budget::{Budget, PoolUsage};
use telemetry::metrics::Page;

pub(super) fn write(page: &mut Page, budget: &Budget) {
    let usage = budget.usage();
    let mut family = |name: &str, kind: &str, help: &str, value: fn(&PoolUsage) -> u64| {
        page.family(name, kind, help);
        for pool in &usage {
            page.labelled(name, &[("pool", pool.pool.name())], value(pool));
        }
    };
    let help = "Bytes that clients have this member hold, by what for.";
    family("cairn_budget_held_bytes", "gauge", help, |pool| pool.held_bytes);
    let help = "Bytes that they may have it hold, by what for.";
    family("cairn_budget_limit_bytes", "gauge", help, |pool| pool.limit_bytes);
    let help = "Answers that waited for others to be taken, by what they needed.";
    family("cairn_budget_waits_total", "counter", help, |pool| pool.waits);
    let help = "Requests refused because clients had too much held, by what they needed.";
    family("cairn_budget_refused_total", "counter", help, |pool| pool.refusals);
}
