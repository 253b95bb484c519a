//! Flags that are read and checked, but whose feature does not look at them yet. Whoever wires one takes it off this list.

use super::Config;
use super::values::Values;

const FLAGS: &[&str] = &[];

/// Gates of the same kind.
const GATES: &[&str] = &[];

/// Warns of every such flag that is not at its default.
pub(super) fn warn(values: &mut Values, config: &Config) {
    for flag in FLAGS {
        let default = super::table::find(flag).map_or("", |flag| flag.default);
        if values.is_given(flag) && values.get(flag) != default {
            values.warnings.push(format!("flag --{flag} has no effect yet"));
        }
    }
    let default = super::gates::Gates::default();
    for ((name, _, on), (_, _, usual)) in config.gates.list().zip(default.list()) {
        if on != usual && GATES.contains(&name) {
            values.warnings.push(format!("feature gate {name}={on} has no effect yet"));
        }
    }
}
