//! What the store promises, by parts. One program: each of its own would be linked anew.

#[path = "../support/mod.rs"]
mod support;

mod concurrency;
mod depth;
mod housekeeping;
mod model;
mod power_cut;
mod rules;
mod transfer;
mod transfer_power;
mod transfer_readers;
mod watching;
