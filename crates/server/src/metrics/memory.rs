//! The memory of the process, as the memory budget counts it.

use super::load;
use std::sync::atomic::AtomicU64;
use telemetry::metrics::Page;

/// What is known of it.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) used_bytes: AtomicU64,
    pub(crate) budget_bytes: AtomicU64,
}

/// Appends the families.
pub(super) fn write(page: &mut Page, memory: &Memory) {
    page.gauge(
        "cairn_memory_used_bytes",
        "Memory of the process, without files and what clients have it hold, swapped out or not, in bytes.",
        load(&memory.used_bytes),
    );
    page.gauge(
        "cairn_memory_budget_bytes",
        "Memory of the process at which writes are refused (--memory-budget), in bytes.",
        load(&memory.budget_bytes),
    );
}
