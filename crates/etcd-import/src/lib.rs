//! The files of etcd members. They are not trusted: a wrong one is refused with the place and the reason, whatever its bytes are.
//!
//! [`bolt`] reads a database file, page by page; [`Database`] knows what etcd keeps in it; [`Status`] and [`HashKv`] sum it up.
//! [`SnapshotFile`] is a database with a checksum after it; [`Predecessor`] is one that an increment is to follow. [`log`] reads etcd's log, and ours, which has its framing. [`restore`] and
//! [`migrate`] make data directories of Cairn: they write the store first and the log last, so that no member starts on half of one.
//! [`adopt`] does so in place of etcd's own. [`store_of_image`] makes a store of the snapshot that a leader of etcd sends. [`export`] is the way back.
//! [`save`] gives the snapshot of a stopped member of Cairn; [`Replay`] applies entries to one.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod adopt;
pub mod bolt;
mod contents;
mod database;
mod error;
mod export;
mod hash;
mod image;
mod increment;
pub mod log;
mod migrate;
mod overlay;
mod replay;
mod restore;
mod save;
mod snapshot;
mod status;
mod steps;
mod target;
mod votes;

pub use adopt::{Adopted, adopt, check_wal_dir};
pub use contents::Contents;
pub use database::{Database, Record};
pub use error::Error;
pub use export::{Exported, export};
pub use hash::HashKv;
pub use image::store_of_image;
pub use increment::{Predecessor, is_increment};
pub use migrate::{Migrated, migrate};
pub use replay::Replay;
pub use restore::{Restore, restore};
pub use save::{Saved, save};
pub use snapshot::SnapshotFile;
pub use status::Status;
