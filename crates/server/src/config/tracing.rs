//! The flags of OpenTelemetry traces.

use super::ConfigError;
use super::values::Values;
use telemetry::tracing::Options;

const MILLION: i64 = 1_000_000;

pub(super) fn read(values: &Values) -> Result<Option<Options>, ConfigError> {
    if !values.is_on("enable-distributed-tracing") {
        return Ok(None);
    }
    let wrong = |why: &str| Err(ConfigError::Value(format!("distributed tracing configurition is not valid: ({why})")));
    let samples_per_million = match values.number("distributed-tracing-sampling-rate", i64::MIN, i64::MAX)? {
        ..0 => return wrong("tracing sampling rate must be positive"),
        samples @ 0..=MILLION => samples as u32,
        _ => return wrong("tracing sampling rate must be less than 1000000"),
    };
    Ok(Some(Options {
        address: values.get("distributed-tracing-address").into(),
        service_name: values.get("distributed-tracing-service-name").into(),
        instance_id: values.text("distributed-tracing-instance-id"),
        samples_per_million,
    }))
}
