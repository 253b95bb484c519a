//! Archives of a cluster: what its members have applied, in an object store, and states made of it again (ADR 0013).
//!
//! An archive has *bases*, which are snapshots of a member's database ([`Base`]), and *pieces*, which are runs of the entries that
//! members have applied ([`piece`]). [`Archive`] lists and reads one, [`Vault`] is the store that it is in. [`Follower`] writes one:
//! it asks a member for entries ([`Source`]) and ships them every few seconds. [`make`] makes the state at an entry, a
//! revision or a time, of the last base before it and the entries behind that. [`prune`] removes what is older than is wanted.
//!
//! An object counts only once it is whole: a piece by its checksum, a base by the description that is written after it.

mod archive;
mod base;
mod chain;
mod error;
mod follow;
pub mod piece;
mod prune;
mod restore;
mod ship;
mod source;
mod time;
mod vault;

#[cfg(test)]
mod tests;

pub use archive::{Archive, Mark};
pub use base::Base;
pub use chain::Gap;
pub use error::Error;
pub use follow::{Follower, Options};
pub use piece::{At, Piece, PieceName};
pub use prune::{Pruned, prune};
pub use restore::{Made, Wanted, make};
pub use source::{Answer, Found, Source, SourceError};
pub use time::{now_ms, parse, shown};
pub use vault::{S3, Vault};
