//! Counting, and the text in which Prometheus reads the counts.
//!
//! `histogram` and `shard` count without locked instructions, `page` writes the text, [`process`] the part of it that every process has.

mod histogram;
mod page;
pub mod process;
mod shard;

pub use histogram::Histogram;
pub use page::Page;
