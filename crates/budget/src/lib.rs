//! The memory that all clients together may make the member hold: one budget of bytes for the process, in pools that do not take from
//! each other.
//!
//! Code that builds an answer or keeps part of a request claims its bytes first, and the claim lives as long as they do: a [`Claim`] that
//! is given bytes ([`Claim::hold`]) is released when the last of them has left or their stream has ended. Answers that find no room
//! wait, for a while and in bounded number, in the [`line`] of their pool. Of the shared part of a pool a connection may have a quarter
//! and a host half, so that a client that reads nothing delays only itself. `docs/design/memory-budget.md` has the whole idea.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod budget;
mod claim;
mod figures;
mod line;
mod pool;
mod refusals;
mod shares;
#[cfg(test)]
mod tests;

pub use budget::Budget;
pub use claim::Claim;
pub use figures::PoolUsage;
pub use pool::Pool;
