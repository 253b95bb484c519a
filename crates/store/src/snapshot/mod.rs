//! Everything after one entry, for others: for a member ([`transfer`]), or for a [`client`], as the file that etcd's tools restore from
//! ([`image`]) or as what that has more than an earlier one ([`increment`]).

mod client;
pub mod image;
pub mod increment;
pub(crate) mod transfer;

pub use client::SnapshotJob;
