//! Certificates, as members and clients deal with them: `files` reads them, `certificate` takes them apart, `verify` decides about those
//! of others, `revocation` knows which were called back, and `text` says what happened as etcd says it.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]

mod certificate;
mod files;
mod revocation;
mod text;
mod verify;

pub use certificate::Certificate;
pub use files::{Pair, PairError, authorities, pair, read, system_authorities};
pub use revocation::Revocations;
pub use text::{describe, describe_io};
pub use verify::{Anybody, Authorities, Hosts, Visitors};
