//! HTTP beside gRPC.

use super::values::Values;
use super::{ConfigError, url};

/// What is answered over HTTP, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Answer JSON.
    pub gateway: bool,
    /// Answer under `/debug/pprof/`.
    pub pprof: bool,
    /// Origins that a browser may ask from; `None` for all.
    pub cors: Option<Vec<String>>,
    /// Host names that requests without TLS may name; `None` for all.
    pub host_whitelist: Option<Vec<String>>,
}

/// Words, unless they are to mean everything.
fn some(values: &Values, flag: &str) -> Option<Vec<String>> {
    let words = values.words(flag);
    (!words.is_empty() && words.iter().all(|word| word != "*")).then_some(words)
}

pub(super) fn read(values: &Values) -> Result<Http, ConfigError> {
    let cors = some(values, "cors");
    if let Some(origins) = &cors {
        url::check_list(&origins.join(",")).map_err(|why| super::values::unusable("cors", values.get("cors"), why))?;
    }
    Ok(Http {
        gateway: values.is_on("enable-grpc-gateway"),
        pprof: values.is_on("enable-pprof"),
        cors,
        host_whitelist: some(values, "host-whitelist"),
    })
}
