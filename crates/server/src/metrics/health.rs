//! Health checks and what they found.

use contain::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use telemetry::metrics::Page;

/// Answers to `/health`, and the checks of `/livez` and `/readyz`.
#[derive(Default)]
pub(crate) struct Health {
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// By endpoint and check.
    checks: Mutex<BTreeMap<(&'static str, &'static str), Check>>,
}

#[derive(Default)]
struct Check {
    is_well: bool,
    succeeded: u64,
    failed: u64,
}

impl Health {
    /// Counts an answer to `/health`.
    pub(crate) fn answered(&self, well: bool) {
        let counter = if well { &self.succeeded } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one check: `kind` is `livez` or `readyz`.
    pub(crate) fn checked(&self, kind: &'static str, name: &'static str, well: bool) {
        let mut checks = lock(&self.checks);
        let check = checks.entry((kind, name)).or_default();
        check.is_well = well;
        *if well { &mut check.succeeded } else { &mut check.failed } += 1;
    }

    pub(super) fn write(&self, page: &mut Page) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counter("etcd_server_health_success", "Health checks answered well.", load(&self.succeeded));
        page.counter("etcd_server_health_failures", "Health checks answered badly.", load(&self.failed));
        let checks = lock(&self.checks);
        page.family("etcd_server_healthcheck", "gauge", "What a check found last: 1 is well.");
        for ((kind, name), check) in checks.iter() {
            let value = u8::from(check.is_well);
            page.labelled("etcd_server_healthcheck", &[("type", kind), ("name", name)], value);
        }
        page.family("etcd_server_healthchecks_total", "counter", "Checks made, by what they found.");
        for ((kind, name), check) in checks.iter() {
            for (status, count) in [("success", check.succeeded), ("error", check.failed)] {
                if count > 0 {
                    let labels = [("type", *kind), ("name", *name), ("status", status)];
                    page.labelled("etcd_server_healthchecks_total", &labels, count);
                }
            }
        }
    }
}
