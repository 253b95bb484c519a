//! Older spellings: names of flags in etcd 3.3 to 3.6, which published guides still use.

use super::table::{self, Flag};

/// The meaning of an older spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A flag that has another name today.
    Flag(&'static str),
    /// A feature gate.
    Gate(&'static str),
    /// Nothing any more.
    Nothing,
    /// What this server cannot do: only `false` is accepted.
    Impossible(&'static str),
}

const PREFIX: &str = "experimental-";

/// Names that lost `experimental-`.
const GRADUATED: [&str; 18] = [
    "corrupt-check-time",
    "compact-hash-check-time",
    "compaction-batch-limit",
    "compaction-sleep-interval",
    "watch-progress-notify-interval",
    "warning-apply-duration",
    "warning-unary-request-duration",
    "peer-skip-client-san-verification",
    "memory-mlock",
    "bootstrap-defrag-threshold-megabytes",
    "max-learners",
    "snapshot-catchup-entries",
    "downgrade-check-time",
    "enable-distributed-tracing",
    "distributed-tracing-address",
    "distributed-tracing-service-name",
    "distributed-tracing-instance-id",
    "distributed-tracing-sampling-rate",
];

/// Flags that are feature gates today, and others of those times.
const OTHERS: [(&str, Meaning); 12] = [
    ("experimental-initial-corrupt-check", Meaning::Gate("InitialCorruptCheck")),
    ("experimental-compact-hash-check-enabled", Meaning::Gate("CompactHashCheck")),
    ("experimental-enable-lease-checkpoint", Meaning::Gate("LeaseCheckpoint")),
    ("experimental-enable-lease-checkpoint-persist", Meaning::Gate("LeaseCheckpointPersist")),
    ("experimental-txn-mode-write-with-shared-buffer", Meaning::Gate("TxnModeWriteWithSharedBuffer")),
    ("experimental-stop-grpc-service-on-defrag", Meaning::Gate("StopGRPCServiceOnDefrag")),
    ("experimental-set-member-localaddr", Meaning::Gate("SetMemberLocalAddr")),
    ("experimental-backend-bbolt-freelist-type", Meaning::Flag("backend-bbolt-freelist-type")),
    ("experimental-wait-cluster-ready-timeout", Meaning::Nothing),
    ("experimental-snapshot-catch-up-entries", Meaning::Flag("snapshot-catchup-entries")),
    ("enable-v2", Meaning::Impossible("there is no v2 API any more")),
    ("experimental-enable-v2v3", Meaning::Impossible("there is no v2 API any more")),
];

/// What an older spelling means; `None` for a name that never was one.
pub(super) fn find(name: &str) -> Option<Meaning> {
    let graduated = || {
        let name = name.strip_prefix(PREFIX)?;
        GRADUATED.into_iter().find(|known| *known == name).map(Meaning::Flag)
    };
    graduated().or_else(|| OTHERS.iter().find(|other| other.0 == name).map(|other| other.1))
}

impl Meaning {
    /// Whether the flag needs no value.
    pub(super) fn is_switch(self) -> bool {
        match self {
            Meaning::Flag(name) => table::find(name).is_some_and(Flag::is_switch),
            Meaning::Gate(_) | Meaning::Impossible(_) => true,
            Meaning::Nothing => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_leads_somewhere() {
        let old = GRADUATED.iter().map(|name| format!("{PREFIX}{name}")).chain(OTHERS.map(|other| other.0.to_string()));
        for name in old {
            assert!(table::find(&name).is_none(), "{name}");
            if let Some(Meaning::Flag(new)) = find(&name) {
                assert!(table::find(new).is_some(), "{name}");
            }
        }
        assert_eq!(find("experimental-max-learners"), Some(Meaning::Flag("max-learners")));
        assert_eq!((find("max-learners"), find("experimental-name")), (None, None));
        assert!(Meaning::Flag("memory-mlock").is_switch() && !Meaning::Flag("max-learners").is_switch());
    }
}
