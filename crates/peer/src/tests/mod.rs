//! Peers on loopback, in good and bad conditions.

mod exchange;
mod hostile;
mod images;
mod refusals;
mod snapshots;
mod stalls;
mod test_support;
