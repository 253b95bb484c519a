//! What a process tells about itself: log lines, traces, histograms and the page of metrics.
//!
//! A leaf: it knows nothing of members, requests or transports, so that every crate can use it. Nothing here makes a caller wait: lines
//! and spans go through bounded queues, of which the overflow is dropped and counted; counters need no locked instruction.

// `print!` and `eprint!` end the process where nobody reads.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod logging;
pub mod metrics;
pub mod tracing;
