//! Older spellings: names of flags in etcd 3.0 to 3.6, which published guides, tools and units still use.

use super::table::{self, Flag};

/// The meaning of an older spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A flag that has another name today.
    Flag(&'static str),
    /// A feature gate.
    Gate(&'static str),
    /// Nothing that a client of version 3 would notice: passed over, with a warning that gives the reason.
    Nothing(Shape, &'static str),
    /// What would promise something else than what this server does: only these values, which ask for nothing, are passed over.
    Only(&'static [&'static str], &'static str),
}

/// Whether a flag is followed by a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// True or false; no value means true.
    Switch,
    /// Any text.
    Text,
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

const NO_V2: &str = "there is no API of version 2";
const NO_V2_DISCOVERY: &str = "there is no discovery of version 2: use --discovery-token and --discovery-endpoints";
const NO_PROXY: &str = "a member is no proxy: use `etcd grpc-proxy start` or `etcd gateway start`";
const NO_PROXY_TUNING: &str = "a member is no proxy";
const LEVELS: &str = "--log-level is for the whole log";

/// Flags that are feature gates today, and others of those times.
const OTHERS: [(&str, Meaning); 23] = [
    ("experimental-initial-corrupt-check", Meaning::Gate("InitialCorruptCheck")),
    ("experimental-compact-hash-check-enabled", Meaning::Gate("CompactHashCheck")),
    ("experimental-enable-lease-checkpoint", Meaning::Gate("LeaseCheckpoint")),
    ("experimental-enable-lease-checkpoint-persist", Meaning::Gate("LeaseCheckpointPersist")),
    ("experimental-txn-mode-write-with-shared-buffer", Meaning::Gate("TxnModeWriteWithSharedBuffer")),
    ("experimental-stop-grpc-service-on-defrag", Meaning::Gate("StopGRPCServiceOnDefrag")),
    ("experimental-set-member-localaddr", Meaning::Gate("SetMemberLocalAddr")),
    ("experimental-backend-bbolt-freelist-type", Meaning::Flag("backend-bbolt-freelist-type")),
    (
        "experimental-wait-cluster-ready-timeout",
        Meaning::Nothing(Shape::Text, "a member that starts waits as long as it must"),
    ),
    ("experimental-snapshot-catch-up-entries", Meaning::Flag("snapshot-catchup-entries")),
    ("enable-v2", Meaning::Nothing(Shape::Switch, NO_V2)),
    ("experimental-enable-v2v3", Meaning::Only(&[""], NO_V2)),
    ("log-output", Meaning::Flag("log-outputs")),
    ("log-package-levels", Meaning::Nothing(Shape::Text, LEVELS)),
    ("debug", Meaning::Nothing(Shape::Switch, "it is --log-level=debug today")),
    ("discovery", Meaning::Only(&[""], NO_V2_DISCOVERY)),
    ("discovery-proxy", Meaning::Nothing(Shape::Text, NO_V2_DISCOVERY)),
    ("proxy", Meaning::Only(&["", "off"], NO_PROXY)),
    ("proxy-failure-wait", Meaning::Nothing(Shape::Text, NO_PROXY_TUNING)),
    ("proxy-refresh-interval", Meaning::Nothing(Shape::Text, NO_PROXY_TUNING)),
    ("proxy-dial-timeout", Meaning::Nothing(Shape::Text, NO_PROXY_TUNING)),
    ("proxy-write-timeout", Meaning::Nothing(Shape::Text, NO_PROXY_TUNING)),
    ("proxy-read-timeout", Meaning::Nothing(Shape::Text, NO_PROXY_TUNING)),
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
            Meaning::Gate(_) => true,
            Meaning::Nothing(shape, _) => shape == Shape::Switch,
            Meaning::Only(..) => false,
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
        assert!(find("enable-v2").is_some_and(Meaning::is_switch) && !find("proxy").is_some_and(Meaning::is_switch));
        assert!(Meaning::Flag("memory-mlock").is_switch() && !Meaning::Flag("max-learners").is_switch());
    }
}
