//! Telemetry of a process: log lines, an audit log, traces, histograms and the page of metrics.
//!
//! A leaf: it knows nothing of members, requests or transports, so that every crate can use it. No caller ever waits: lines and spans go
//! through bounded queues, whose overflow is dropped and counted; counters need no locked instruction.

// `print!` and `eprint!` panic if the reader is gone.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod audit;
pub mod logging;
pub mod metrics;
pub mod tracing;
