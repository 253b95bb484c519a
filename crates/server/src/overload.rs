//! Overload control: what may wait for what, by class. Each class has a queue of its own with a bound of its own, so that a flood
//! of one kind of request refuses that kind (`etcdserver: too many requests`) and keeps nobody else waiting.

use api::{RaftRequest, limits, raft_request};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident $text:literal $default:expr;)*) => {
        /// What a request is, and so which queue it waits in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Class { $($(#[$doc])* $name,)* }

        impl Class {
            /// Every class.
            pub const ALL: &[Class] = &[$(Class::$name,)*];

            /// Its name in metrics and in `--queue-limits`.
            pub fn name(self) -> &'static str {
                match self { $(Class::$name => $text,)* }
            }

            /// How many may wait if nothing else is said.
            fn default_max(self) -> usize {
                match self { $(Class::$name => $default,)* }
            }
        }
    };
}

classes! {
    /// Linearizable reads, until this member has what was acknowledged before.
    Read "reads" limits::PROPOSAL_QUEUE_MAX;
    /// Writes, transactions, compactions and lease grants of clients, until they are applied.
    Write "writes" limits::PROPOSAL_QUEUE_MAX;
    /// Changes of users and roles, until they are applied.
    Auth "auth" limits::AUTH_QUEUE_MAX;
    /// Ends of leases, and what is noted of the time they have left. Ahead of all writes.
    Lease "leases" limits::PROPOSAL_QUEUE_MAX;
    /// What members say of themselves: alarms, names, versions. Ahead of all writes.
    Upkeep "upkeep" limits::CHANGE_QUEUE_MAX;
    /// Configuration changes, until they are applied.
    Member "members" limits::CHANGE_QUEUE_MAX;
    /// Sorted lists, hashes and snapshots, until a thread takes them up.
    Slow "slow" limits::SLOW_QUEUE_MAX;
    /// Questions that only the leader can answer, until a thread takes them up.
    Forward "forwards" limits::FORWARD_QUEUE_MAX;
    /// Calls of clients that have taken more than their share, until these are even.
    Share "shares" limits::SHARE_QUEUE_MAX;
}

impl Class {
    /// How many there are.
    pub const COUNT: usize = Class::ALL.len();

    /// The class of a request that goes through the log.
    pub(crate) fn of(request: RaftRequest) -> Class {
        match request.class() {
            raft_request::Class::Write => Class::Write,
            raft_request::Class::Auth => Class::Auth,
            raft_request::Class::Lease => Class::Lease,
            raft_request::Class::Upkeep => Class::Upkeep,
        }
    }

    /// Whether it goes ahead of what clients write, and is taken however far applying is behind.
    pub(crate) fn is_urgent(self) -> bool {
        matches!(self, Class::Lease | Class::Upkeep)
    }
}

/// How many of each class may wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits([usize; Class::COUNT]);

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits(std::array::from_fn(|place| Class::ALL[place].default_max()))
    }
}

impl QueueLimits {
    /// How many of this class may wait.
    pub fn of(&self, class: Class) -> usize {
        self.0[class as usize]
    }

    /// Sets the bound of the class of this name; false if there is none.
    pub fn set(&mut self, name: &str, most: usize) -> bool {
        let class = Class::ALL.iter().find(|class| class.name() == name);
        class.map(|class| self.0[*class as usize] = most).is_some()
    }
}

impl fmt::Debug for QueueLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(Class::ALL.iter().map(|class| (class.name(), self.of(*class)))).finish()
    }
}

/// Requests refused, by class.
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; Class::COUNT]);

impl Refusals {
    /// Counts one.
    pub(crate) fn count(&self, class: Class) {
        self.0[class as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    pub(crate) fn of(&self, class: Class) -> u64 {
        self.0[class as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_bounds_and_names() {
        let mut limits = QueueLimits::default();
        for class in Class::ALL {
            assert!(limits.of(*class) >= 1024, "{class:?}");
            assert!(limits.set(class.name(), 7));
            assert_eq!(limits.of(*class), 7);
        }
        assert!(!limits.set("other", 7));
    }

    #[test]
    fn leases_and_upkeep_go_first() {
        let of = |class: Class| RaftRequest::ALL.iter().filter(move |request| Class::of(**request) == class);
        assert!(of(Class::Lease).eq(&[RaftRequest::LeaseRevoke, RaftRequest::LeaseCheckpoint]));
        let upkeep = [RaftRequest::Alarm, RaftRequest::ClusterVersionSet, RaftRequest::ClusterMemberAttrSet];
        assert!(of(Class::Upkeep).eq(&upkeep));
        assert!(of(Class::Auth).all(|request| (1000..1300).contains(&request.number())));
        assert!(Class::of(RaftRequest::AuthEnable) == Class::Auth && Class::of(RaftRequest::Put) == Class::Write);
        let urgent = Class::ALL.iter().filter(|class| class.is_urgent());
        assert!(urgent.eq(&[Class::Lease, Class::Upkeep]));
    }
}
