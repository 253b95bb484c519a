//! A process and its machine: what the programs that serve (members, the gateway) ask of the operating system alike.

mod memory;
pub mod names;
pub mod notify;
mod open_files;
mod signals;

pub use memory::{
    allocated_bytes, anonymous_bytes, incomplete_bytes_max, memory_limit_bytes, return_freed_memory, return_memory_soon,
};
pub use open_files::{connections_max, open_files_limit, raise_open_files};
pub use signals::end_at_signals;
