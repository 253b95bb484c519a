//! Everything after one entry, for others: for a member ([`transfer`]), or for a [`client`] as the file that etcd's tools restore from
//! ([`image`]).

mod client;
pub mod image;
pub(crate) mod transfer;

pub use client::SnapshotJob;
