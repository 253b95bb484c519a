//! What the cluster agrees on beside the keys: [`leases`], [`alarms`], [`members`], users and roles ([`auth`]).

mod alarms;
pub(crate) mod auth;
mod lease_pieces;
mod leases;
mod members;

pub(crate) use alarms::{Alarms, is_known as is_known_alarm};
pub(crate) use leases::{Additions, LeaseCapture, Reach};
pub use leases::{Lease, Leases};
pub use members::{ConfChangeContext, Downgrade, Member, Members};
