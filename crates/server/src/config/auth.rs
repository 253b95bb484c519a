//! Tokens and passwords.

use super::ConfigError;
use super::values::Values;

/// bcrypt knows no other costs.
const COSTS: std::ops::RangeInclusive<i64> = 4..=31;
const COST_DEFAULT: i64 = 10;

/// How users are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// `simple`, or `jwt` with its options.
    pub token: String,
    /// Cost of hashing a password: 4 to 31.
    pub bcrypt_cost: u32,
    /// Seconds that a simple token lives without use.
    pub token_ttl_seconds: u64,
}

pub(super) fn read(values: &mut Values) -> Result<Auth, ConfigError> {
    let given = values.number("bcrypt-cost", 0, i64::MAX)?;
    let cost = if COSTS.contains(&given) { given } else { COST_DEFAULT };
    if cost != given {
        values.warnings.push(format!("--bcrypt-cost={given} is not in 4..=31: {COST_DEFAULT} is used"));
    }
    Ok(Auth {
        token: values.get("auth-token").into(),
        bcrypt_cost: cost as u32,
        token_ttl_seconds: values.number("auth-token-ttl", 0, i64::from(u32::MAX))? as u64,
    })
}
