//! OpenTelemetry traces.

use super::ConfigError;
use super::values::Values;

const MILLION: i64 = 1_000_000;

/// Where traces go, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// Host and port of the collector (OTLP over gRPC).
    pub address: String,
    /// Name of the service in them.
    pub service_name: String,
    /// Name of this member in them, if it has one.
    pub instance_id: Option<String>,
    /// Traces per million requests.
    pub samples_per_million: u32,
}

pub(super) fn read(values: &Values) -> Result<Option<Tracing>, ConfigError> {
    if !values.is_on("enable-distributed-tracing") {
        return Ok(None);
    }
    let wrong = |why: &str| Err(ConfigError::Value(format!("distributed tracing configurition is not valid: ({why})")));
    let samples_per_million = match values.number("distributed-tracing-sampling-rate", i64::MIN, i64::MAX)? {
        ..0 => return wrong("tracing sampling rate must be positive"),
        samples @ 0..=MILLION => samples as u32,
        _ => return wrong("tracing sampling rate must be less than 1000000"),
    };
    Ok(Some(Tracing {
        address: values.get("distributed-tracing-address").into(),
        service_name: values.get("distributed-tracing-service-name").into(),
        instance_id: values.text("distributed-tracing-instance-id"),
        samples_per_million,
    }))
}
