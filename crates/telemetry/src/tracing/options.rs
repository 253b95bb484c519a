//! Where traces go, and how many.

/// Where traces go, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Host and port of the collector (OTLP over gRPC).
    pub address: String,
    /// Name of the service in them.
    pub service_name: String,
    /// Name of this member in them, if it has one.
    pub instance_id: Option<String>,
    /// Traces per million requests.
    pub samples_per_million: u32,
}
