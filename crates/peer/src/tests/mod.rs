//! Peers on loopback, and what is done to them.

mod exchange;
mod hostile;
mod refusals;
mod rig;
mod stalls;
mod states;
