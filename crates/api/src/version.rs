//! The versions Cairn reports. Clients and Kubernetes switch features on by the etcd version, so that is the one on the wire; Cairn's own
//! is reported beside it.

/// The etcd release whose behaviour Cairn has (`Status.version`, `/version`, `etcd --version`).
pub const ETCD: &str = "3.7.3";
/// The cluster version: the minor release all members share.
pub const CLUSTER: &str = "3.7.0";
/// The storage version reported by `Status` and `/version`.
pub const STORAGE: &str = "3.7.0";
/// The lowest cluster version a member of this release joins.
pub const MIN_CLUSTER: &str = "3.0.0";
/// Cairn's own version.
pub const CAIRN: &str = env!("CARGO_PKG_VERSION");
