//! The cluster around a member: bootstrap, configuration changes, and calls between members.
//!
//! ```text
//! start     bootstrap ─▶ discovery (grpc) │ srv (dns) │ /members of a running cluster (remote); force: one member from a copy
//! changes   services/cluster ─▶ change (rules) ─▶ log
//! calls     peers ─▶ calls ─▶ change, leases;   remote ─▶ another member's calls
//! running   versions, downgrade, corruption, publish, leaderless (streams that need a leader), checkpoints (of leases),
//!           handover (SIGTERM), retire (a removed member), cluster_mismatch (peers of another cluster)
//! ```

mod addresses;
mod bootstrap;
pub(crate) mod calls;
pub(crate) mod change;
pub(crate) mod checkpoints;
pub(crate) mod cluster_mismatch;
pub(crate) mod corruption;
mod discovery;
pub(crate) mod downgrade;
pub(crate) mod force;
pub(crate) mod forward;
pub(crate) mod forward_pool;
mod grpc;
pub(crate) mod handover;
pub(crate) mod leader_watch;
pub(crate) mod leaderless;
pub(crate) mod leases;
pub(crate) mod metrics;
pub(crate) mod publish;
mod remote;
mod retire;
mod rules;
mod srv;
pub(crate) mod versions;

pub use bootstrap::BootstrapError;
pub(crate) use bootstrap::{FirstStart, begin};
pub use corruption::Inconsistent;
pub(crate) use forward::leader_urls;
