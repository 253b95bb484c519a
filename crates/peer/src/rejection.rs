//! Log lines about connections and requests that are refused.

use telemetry::logging::{self, Pace, Value};

/// Logs why a connection or request was refused.
pub(crate) fn rejected(address: &str, error: &dyn std::fmt::Display) {
    static PACE: Pace = Pace::new();
    if let Some(left_out) = PACE.line() {
        logging::warn(
            "rejected connection on peer endpoint",
            &[("remote-addr", address.into()), ("error", Value::Shown(error)), ("lines-left-out", left_out.into())],
        );
    }
}
