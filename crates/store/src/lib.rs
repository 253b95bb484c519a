//! The replicated state machine: what a cluster agrees on, and what its clients read.
//!
//! Committed entries go in through [`Applier::apply`], in order, on one thread; answers come out through its [`Sink`]. Any number
//! of threads read through [`Store`]. No clock, no randomness, no socket and no thread lives here, and what an entry does depends
//! on replicated state alone.
//!
//! The path of a write: [`apply`] stages committed entries in strides → [`log`] (the revision log: the database) → [`index`] (keys to
//! their versions) → [`watch`] (watchers). The path of a read: [`store`] → [`read`], which finds versions in the index and refers to
//! stored bytes of the log. [`state`] is what the cluster agrees on beside the keys. [`recovery`] opens a store, [`snapshot`] carries it
//! to another member or to a client, and [`upkeep`] writes checkpoints, compacts and gives space back.

mod apply;
mod index;
mod keyfile;
mod mistake;
mod options;
mod read;
mod recovery;
mod snapshot;
mod sorting;
mod state;
mod store;
mod sync;
#[cfg(test)]
mod test_support;
mod upkeep;

pub mod log;
pub mod types;
#[cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]
pub mod watch;

pub use mistake::CAN_BE_MISTAKEN;
#[cfg(feature = "mistakes")]
pub use mistake::Mistake;

pub use apply::no_space::NoSpaceAlarm;
pub use apply::quota::{LEASE_BYTES, Space, cost, put as put_cost, txn as txn_cost};
pub use apply::{
    Applier, Counts, Fatal, Reservation, Response, Share, Sink, TxnAnswer, is_read_only, is_request, sorts_by_value,
};
pub use options::Options;
pub use read::{Allowance, Kvs, RangeAnswer, RangeChunk, RangeEnd, RangeStream, Reached, Unread};
pub use recovery::{
    Applied, FOUNDING_REVISION_MAX, Founding, FoundingError, Inspection, OpenError, Opened, encode_auth, inspect,
    leftover_bytes, open,
};
pub use snapshot::SnapshotJob;
pub use snapshot::image::{self, Image};
pub use snapshot::increment;
pub use snapshot::transfer::{Export, ExportError, Intake, IntakeError, Prepared};
pub use state::auth::{Ask, Auth, AuthEvent, Author, Password, Permissions, ROOT};
pub use state::{ConfChangeContext, Downgrade, Lease, Leases, Member, Members};
pub use store::{SecondIndex, Store, Usage};
pub use upkeep::{CheckpointJob, Progress, Work, checkpoint};
