//! Feature gates: `--feature-gates A=true,B=false`.

use super::ConfigError;
use super::kind::boolean;
use super::values::Values;

/// A feature that can be switched on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are etcd's and explained at each row of the table")]
pub enum Gate {
    AllAlpha,
    AllBeta,
    CompactHashCheck,
    FastLeaseKeepAlive,
    InitialCorruptCheck,
    LeaseCheckpoint,
    LeaseCheckpointPersist,
    PriorityRequest,
    SetMemberLocalAddr,
    StopGrpcServiceOnDefrag,
    TxnModeWriteWithSharedBuffer,
}

/// How settled a feature is: what `AllAlpha` and `AllBeta` choose by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Stage {
    Alpha,
    Beta,
}

struct Row {
    gate: Gate,
    name: &'static str,
    stage: Stage,
    default: bool,
    /// The fixed behaviour of a gate without effect; `None` if the gate decides.
    fixed: Option<(bool, &'static str)>,
}

const fn row(gate: Gate, name: &'static str, stage: Stage, default: bool) -> Row {
    Row { gate, name, stage, default, fixed: None }
}

const fn fixed(gate: Gate, name: &'static str, stage: Stage, default: bool, here: bool, why: &'static str) -> Row {
    Row { gate, name, stage, default, fixed: Some((here, why)) }
}

/// Every gate of etcd 3.7, in the order tools list them.
const ROWS: [Row; 11] = [
    row(Gate::AllAlpha, "AllAlpha", Stage::Alpha, false),
    row(Gate::AllBeta, "AllBeta", Stage::Beta, false),
    // Members compare what compactions left.
    row(Gate::CompactHashCheck, "CompactHashCheck", Stage::Alpha, false),
    // A leader that was confirmed lately renews leases without asking the others whether it still is.
    row(Gate::FastLeaseKeepAlive, "FastLeaseKeepAlive", Stage::Beta, true),
    // A member compares its data with the others' before it serves.
    row(Gate::InitialCorruptCheck, "InitialCorruptCheck", Stage::Alpha, false),
    // The leader notes now and then how much time leases have left.
    row(Gate::LeaseCheckpoint, "LeaseCheckpoint", Stage::Alpha, false),
    fixed(
        Gate::LeaseCheckpointPersist,
        "LeaseCheckpointPersist",
        Stage::Alpha,
        false,
        true,
        "checkpoints of leases are always kept",
    ),
    // Requests of operators are answered when others are refused for lack of room.
    row(Gate::PriorityRequest, "PriorityRequest", Stage::Alpha, false),
    // Connections to peers come from the address that this member advertises.
    row(Gate::SetMemberLocalAddr, "SetMemberLocalAddr", Stage::Alpha, false),
    fixed(
        Gate::StopGrpcServiceOnDefrag,
        "StopGRPCServiceOnDefrag",
        Stage::Alpha,
        false,
        false,
        "defragmentation holds nothing up, so there is nothing to stop",
    ),
    fixed(
        Gate::TxnModeWriteWithSharedBuffer,
        "TxnModeWriteWithSharedBuffer",
        Stage::Beta,
        true,
        true,
        "transactions never copy such a buffer",
    ),
];

/// Which features are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gates {
    on: [bool; ROWS.len()],
}

impl Default for Gates {
    fn default() -> Gates {
        Gates { on: ROWS.each_ref().map(|row| row.default) }
    }
}

impl Gates {
    /// Whether this feature is on.
    pub fn is_on(&self, gate: Gate) -> bool {
        self.on.iter().zip(&ROWS).any(|(on, row)| row.gate == gate && *on)
    }

    /// Every gate: its name, its stage as metrics name it, and whether it is on.
    pub fn list(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> + '_ {
        self.on.iter().zip(&ROWS).map(|(on, row)| (row.name, row.stage.name(), *on))
    }
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Stage::Alpha => "ALPHA",
            Stage::Beta => "BETA",
        }
    }
}

/// The pairs of a `--feature-gates` value, in order.
fn pairs(text: &str) -> Result<Vec<(&'static Row, bool)>, String> {
    let mut pairs = Vec::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let Some((name, value)) = pair.split_once('=') else { return Err(format!("missing bool value for {pair}")) };
        let (name, value) = (name.trim(), value.trim());
        let Some(row) = ROWS.iter().find(|row| row.name == name) else {
            return Err(format!("unrecognized feature gate: {name}"));
        };
        let Some(on) = boolean(value) else {
            return Err(format!("invalid value of {name}={value}, err: parsing {value:?}: invalid syntax"));
        };
        pairs.push((row, on));
    }
    Ok(pairs)
}

/// Refuses a value that names an unknown gate or no boolean.
pub(super) fn check(text: &str) -> Result<(), String> {
    pairs(text).map(drop)
}

/// The gates that result, with a warning for each value that changes nothing.
pub(super) fn read(values: &mut Values) -> Result<Gates, ConfigError> {
    let text = values.get("feature-gates").to_string();
    let mut given = pairs(&text).map_err(|why| super::values::unusable("feature-gates", &text, why))?;
    for (name, on) in &values.gates {
        let Some(row) = ROWS.iter().find(|row| row.name == *name) else { continue };
        if given.iter().any(|pair| pair.0.gate == row.gate) {
            return Err(ConfigError::Value(format!(
                "{name} is set both in --feature-gates and as a flag of its own: give one of them"
            )));
        }
        given.push((row, *on));
    }
    let said = |gate: Gate| given.iter().rfind(|pair| pair.0.gate == gate).map(|pair| pair.1);
    let on = ROWS.each_ref().map(|row| {
        let all = match row.stage {
            Stage::Alpha => said(Gate::AllAlpha),
            Stage::Beta => said(Gate::AllBeta),
        };
        said(row.gate).or(all).unwrap_or(row.default)
    });
    let gates = Gates { on };
    if gates.is_on(Gate::LeaseCheckpointPersist) && !gates.is_on(Gate::LeaseCheckpoint) {
        return Err(ConfigError::Value(
            "enabling feature gate LeaseCheckpointPersist requires enabling feature gate LeaseCheckpoint".into(),
        ));
    }
    for (row, on) in &given {
        if let Some((here, why)) = row.fixed
            && here != *on
        {
            values.warnings.push(format!("feature gate {}={on} has no effect: {why}", row.name));
        }
    }
    Ok(gates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(args: &[&str]) -> Result<(Gates, usize), ConfigError> {
        let mut values = crate::config::flags::parse(args.iter().map(|arg| arg.to_string()))?;
        let gates = read(&mut values)?;
        Ok((gates, values.warnings.len()))
    }

    #[test]
    fn gates_are_known_and_boolean() {
        for bad in ["Foo=true", "InitialCorruptCheck", "InitialCorruptCheck=maybe", "LeaseCheckpointPersist=true"] {
            assert!(gates(&[&format!("--feature-gates={bad}")]).is_err(), "{bad}");
        }
        let (gates, warnings) = gates(&["--feature-gates=InitialCorruptCheck=1, FastLeaseKeepAlive=f"]).expect("valid");
        assert_eq!(warnings, 0);
        assert!(gates.is_on(Gate::InitialCorruptCheck) && !gates.is_on(Gate::FastLeaseKeepAlive));
        assert!(gates.list().any(|row| row == ("CompactHashCheck", "ALPHA", false)));
    }

    #[test]
    fn all_of_a_stage() {
        let (some, _) = gates(&["--feature-gates=AllAlpha=true,CompactHashCheck=false,AllBeta=false"]).expect("valid");
        assert!(some.is_on(Gate::LeaseCheckpoint) && some.is_on(Gate::LeaseCheckpointPersist));
        assert!(!some.is_on(Gate::CompactHashCheck) && !some.is_on(Gate::FastLeaseKeepAlive));
    }

    #[test]
    fn fixed_gates_warn_when_they_are_moved() {
        assert_eq!(gates(&["--feature-gates=StopGRPCServiceOnDefrag=true"]).expect("valid").1, 1);
        assert_eq!(gates(&["--feature-gates=StopGRPCServiceOnDefrag=false"]).expect("valid").1, 0);
    }

    #[test]
    fn gates_under_older_names() {
        let old = "--experimental-initial-corrupt-check=true";
        assert!(gates(&[old]).expect("valid").0.is_on(Gate::InitialCorruptCheck));
        assert!(gates(&[old, "--feature-gates=InitialCorruptCheck=true"]).is_err());
    }
}
