//! Comparing the members' data.

use super::ConfigError;
use super::gates::{Gate, Gates};
use super::values::{Values, unusable};
use std::time::Duration;

/// When members compare their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Time between comparisons of everything, if there are any.
    pub check_interval: Option<Duration>,
    /// Time between comparisons of what compactions left, if there are any.
    pub compact_hash_interval: Option<Duration>,
    /// A member compares its data with the others' before it serves.
    pub initial: bool,
}

pub(super) fn read(values: &Values, gates: &Gates) -> Result<Corruption, ConfigError> {
    let interval = values.period("corrupt-check-time")?;
    let compact_hash = match values.period("compact-hash-check-time") {
        Ok(Duration::ZERO) | Err(_) => {
            let set_to = values.get("compact-hash-check-time");
            return Err(ConfigError::Value(format!("--compact-hash-check-time must be >0 (set to {set_to})")));
        }
        Ok(interval) => interval,
    };
    if !interval.is_zero() && interval < Duration::from_millis(1) {
        return Err(unusable("corrupt-check-time", values.get("corrupt-check-time"), "must be at least a millisecond"));
    }
    Ok(Corruption {
        check_interval: (!interval.is_zero()).then_some(interval),
        compact_hash_interval: gates
            .is_on(Gate::CompactHashCheck)
            .then_some(compact_hash.max(Duration::from_millis(1))),
        initial: gates.is_on(Gate::InitialCorruptCheck),
    })
}
