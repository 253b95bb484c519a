//! Certificates of members and clients: `files` reads them, `certificate` parses them, `verify` decides about those of the other side,
//! `revocation` knows which were revoked, `selfsigned` makes some, `suites` are the ciphers by name, and `text` words errors as etcd does.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod certificate;
mod files;
mod revocation;
mod selfsigned;
mod suites;
mod text;
mod verify;

pub use certificate::Certificate;
pub use files::{Pair, PairError, authorities, pair, read, system_authorities};
pub use revocation::Revocations;
pub use selfsigned::{SelfSigned, host_of_url, self_signed};
pub use suites::provider;
pub use text::{describe, describe_io};
pub use verify::{Anybody, Authorities, Hosts, Visitors};
