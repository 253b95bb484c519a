//! The replicated state machine: what a cluster agrees on, and what its clients read.
//!
//! Committed entries go in through [`Applier::apply`], in order, on one thread; answers come out through its [`Sink`]. Any number
//! of threads read through [`Store`]. No clock, no randomness, no socket and no thread lives here, and what an entry does depends
//! on replicated state alone.
//!
//! The path of a write: [`command`] (what an entry asks for) → [`applier`] ([`put`], [`delete`], [`txn`] with [`compare`], against
//! [`staging`] and its [`overlay`]) → [`log`] (the revision log: the database) → [`index`] (keys to their versions) →
//! [`watch`] (watchers). The path of a read: [`store`] → [`range`] or [`stream`] on a [`read_view`] → [`kvs`] (references to stored
//! bytes).

mod alarms;
mod allowance;
mod applier;
mod auth;
mod capture;
#[cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]
mod command;
mod compare;
mod delete;
mod delete_reserve;
mod founding;
mod hash;
mod index;
mod kvs;
mod leases;
mod maintain;
mod members;
mod mistake;
mod open;
mod options;
mod overlay;
mod pins;
mod put;
mod quota;
mod range;
mod read_view;
mod recovery;
mod rewrite;
mod snapshot;
mod staging;
mod store;
mod stored;
mod stream;
mod sync;
#[cfg(test)]
mod test_support;
mod transfer;
mod txn;
mod unpublished;
mod view;

pub mod checkpoint;
pub mod image;
pub mod log;
pub mod types;
#[cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]
pub mod watch;

pub use allowance::{Allowance, Unread};
pub use applier::{Applier, Fatal, Response, Sink};
pub use auth::{Ask, Auth, AuthEvent, Author, Password, Permissions, ROOT};
pub use capture::CheckpointJob;
pub use command::is_request;
pub use delete_reserve::{Reservation, Share};
pub use founding::{FOUNDING_REVISION_MAX, Founding, FoundingError, encode_auth};
pub use image::Image;
pub use kvs::Kvs;
pub use leases::{Lease, Leases};
pub use maintain::{Progress, Work};
pub use members::{ConfChangeContext, Downgrade, Member, Members};
pub use open::{Applied, Opened, open};
pub use options::Options;
pub use quota::{LEASE_BYTES, Space, cost, put as put_cost, txn as txn_cost};
pub use range::RangeAnswer;
pub use recovery::{Inspection, OpenError, inspect};
pub use snapshot::SnapshotJob;
pub use store::{Store, Usage};
pub use stream::{RangeChunk, RangeEnd, RangeStream};
pub use transfer::{Export, ExportError, Intake, IntakeError, Prepared};
pub use txn::{TxnAnswer, is_read_only};
