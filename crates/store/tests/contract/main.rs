//! The contract of the store, by parts. One program, because linking one for each part takes long.

#[path = "../support/mod.rs"]
mod support;

mod concurrency;
mod depth;
mod full_disk;
mod housekeeping;
mod long_model;
mod model;
mod power_cut;
mod rules;
mod transfer;
mod transfer_power;
mod transfer_readers;
mod watching;
mod weighing;
