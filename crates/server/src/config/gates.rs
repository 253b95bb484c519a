//! Feature gates (`--feature-gates A=true,B=false`), and flags that tune parts of etcd's storage engine which this one lacks.
//!
//! Both stand in published configurations, so they are read and checked; a value that changes nothing here is warned of.

use super::{ConfigError, flags::Values, invalid};

/// Every gate of etcd 3.7, and whether this server acts as with the gate on; `None` where nothing here depends on it.
const GATES: [(&str, Option<bool>); 11] = [
    ("StopGRPCServiceOnDefrag", None), // defragmentation pauses nothing
    ("InitialCorruptCheck", Some(false)),
    ("CompactHashCheck", Some(false)),
    ("TxnModeWriteWithSharedBuffer", None), // no such buffer
    (LEASE_CHECKPOINT, None),
    ("LeaseCheckpointPersist", None), // checkpoints of leases are always kept
    ("SetMemberLocalAddr", Some(false)),
    ("FastLeaseKeepAlive", Some(true)),
    ("PriorityRequest", None), // Raft and leases are never behind clients
    ("AllAlpha", Some(false)),
    ("AllBeta", Some(true)),
];

/// The leader notes now and then how much time leases have left.
pub(super) const LEASE_CHECKPOINT: &str = "LeaseCheckpoint";

/// Flags that tune bbolt, its batches or its compaction.
const WITHOUT_EFFECT: [&str; 7] = [
    "backend-bbolt-freelist-type",
    "backend-batch-interval",
    "backend-batch-limit",
    "compaction-batch-limit",
    "compaction-sleep-interval",
    "bootstrap-defrag-threshold-megabytes",
    "memory-mlock",
];

/// Checks the gates and adds a warning for each value that has no effect.
pub(super) fn check(values: &mut Values) -> Result<(), ConfigError> {
    let text = values.get("feature-gates").to_string();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = match pair.split_once('=') {
            Some((name, value)) => (name.trim(), value.trim()),
            None => return invalid("feature-gates", &text, format_args!("missing bool value for {pair}")),
        };
        let Some((_, here)) = GATES.iter().find(|gate| gate.0 == name) else {
            return invalid("feature-gates", &text, format_args!("unrecognized feature gate: {name}"));
        };
        let on = match value {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => {
                let why = format_args!("invalid value of {name}={value}, err: parsing {value:?}: invalid syntax");
                return invalid("feature-gates", &text, why);
            }
        };
        if here.is_some_and(|here| here != on) {
            values.warnings.push(format!("feature gate {name}={on} has no effect"));
        }
    }
    for flag in WITHOUT_EFFECT {
        if values.is_given(flag) {
            values.warnings.push(format!("flag --{flag} has no effect: it tunes a storage engine that this is not"));
        }
    }
    Ok(())
}

/// Whether a gate that is off by default was switched on, by its name or with all of its kind. The values are checked.
pub(super) fn is_on(values: &Values, gate: &str) -> bool {
    let pairs = values.get("feature-gates").split(',').filter_map(|pair| pair.split_once('='));
    let given = |name: &str| {
        let value = pairs.clone().rfind(|pair| pair.0.trim() == name)?.1.trim();
        Some(matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
    };
    given(gate).or_else(|| given("AllAlpha")).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(gates: &str) -> Option<usize> {
        let args = [format!("--feature-gates={gates}")];
        let mut values = crate::config::flags::parse(args, []).ok()?;
        check(&mut values).ok().map(|()| values.warnings.len())
    }

    #[test]
    fn gates_are_known_and_boolean() {
        assert_eq!(warnings(""), Some(0));
        assert_eq!(warnings("FastLeaseKeepAlive=true,StopGRPCServiceOnDefrag=1"), Some(0));
        assert_eq!(warnings("InitialCorruptCheck=true, FastLeaseKeepAlive=f"), Some(2));
        for bad in ["Foo=true", "InitialCorruptCheck", "InitialCorruptCheck=maybe"] {
            assert_eq!(warnings(bad), None, "{bad}");
        }
    }
}
