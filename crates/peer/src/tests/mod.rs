//! Peers on loopback, and what is done to them.

mod exchange;
mod hostile;
mod refusals;
mod snapshots;
mod stalls;
mod test_support;
