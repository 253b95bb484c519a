//! Families of etcd that count what this server does not have: Go's run time, bbolt's pages, the v2 store, the gRPC proxy.
//!
//! They are on the page, at zero, because dashboards and tests ask for them by name.

use telemetry::metrics::{Histogram, Page};

const COUNTERS: &[&str] = &[
    "etcd_debugging_store_expires_total",
    "etcd_debugging_store_watch_requests_total",
    "etcd_grpc_proxy_events_coalescing_total",
    "go_memstats_alloc_bytes_total",
    "go_memstats_frees_total",
    "go_memstats_mallocs_total",
];

const GAUGES: &[&str] = &[
    "etcd_debugging_store_watchers",
    "etcd_grpc_proxy_cache_hits_total",
    "etcd_grpc_proxy_cache_keys_total",
    "etcd_grpc_proxy_cache_misses_total",
    "etcd_grpc_proxy_watchers_coalescing_total",
    "go_gc_gogc_percent",
    "go_gc_gomemlimit_bytes",
    "go_goroutines",
    "go_memstats_alloc_bytes",
    "go_memstats_buck_hash_sys_bytes",
    "go_memstats_gc_sys_bytes",
    "go_memstats_heap_alloc_bytes",
    "go_memstats_heap_idle_bytes",
    "go_memstats_heap_inuse_bytes",
    "go_memstats_heap_objects",
    "go_memstats_heap_released_bytes",
    "go_memstats_heap_sys_bytes",
    "go_memstats_last_gc_time_seconds",
    "go_memstats_mcache_inuse_bytes",
    "go_memstats_mcache_sys_bytes",
    "go_memstats_mspan_inuse_bytes",
    "go_memstats_mspan_sys_bytes",
    "go_memstats_next_gc_bytes",
    "go_memstats_other_sys_bytes",
    "go_memstats_stack_inuse_bytes",
    "go_memstats_stack_sys_bytes",
    "go_memstats_sys_bytes",
];

const HISTOGRAMS: &[&str] = &[
    "etcd_debugging_disk_backend_commit_rebalance_duration_seconds",
    "etcd_debugging_disk_backend_commit_spill_duration_seconds",
    "etcd_debugging_disk_backend_commit_write_duration_seconds",
    "etcd_debugging_snap_save_marshalling_duration_seconds",
    "etcd_snap_fsync_duration_seconds",
    "etcd_snap_db_fsync_duration_seconds",
];

const HELP: &str = "Always 0: nothing here to count.";

/// Appends all of them.
pub(super) fn write(page: &mut Page) {
    for name in COUNTERS {
        page.counter(name, HELP, 0);
    }
    for name in GAUGES {
        page.gauge(name, HELP, 0);
    }
    let nothing = Histogram::<14>::default();
    for name in HISTOGRAMS {
        nothing.write(page, name, HELP);
    }
    page.family("go_gc_duration_seconds", "summary", HELP);
    for quantile in ["0", "0.25", "0.5", "0.75", "1"] {
        page.labelled("go_gc_duration_seconds", &[("quantile", quantile)], 0);
    }
    page.labelled("go_gc_duration_seconds_sum", &[], 0);
    page.labelled("go_gc_duration_seconds_count", &[], 0);
    page.family("go_info", "gauge", "The Go release: none.");
    page.labelled("go_info", &[("version", "none")], 1);
    page.family("etcd_server_go_version", "gauge", "The Go release: none.");
    page.labelled("etcd_server_go_version", &[("server_go_version", "none")], 1);
}
