//! Lines about those who are turned away.

use telemetry::logging::{self, Pace, Value};

/// Says why somebody was turned away.
pub(crate) fn rejected(address: &str, error: &dyn std::fmt::Display) {
    static PACE: Pace = Pace::new();
    if let Some(left_out) = PACE.line() {
        logging::warn(
            "rejected connection on peer endpoint",
            &[("remote-addr", address.into()), ("error", Value::Shown(error)), ("lines-left-out", left_out.into())],
        );
    }
}
