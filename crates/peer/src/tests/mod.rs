//! Peers on loopback, in good and bad conditions.

mod exchange;
mod follow;
mod hostile;
mod images;
mod refusals;
mod snapshots;
mod stalls;
mod test_support;
