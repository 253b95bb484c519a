//! Versions and cipher suites that are spoken.

use crate::config::{Tls, TlsVersion};
use rustls::crypto::CryptoProvider;
use rustls::{SupportedProtocolVersion, version};
use std::sync::Arc;

/// What is spoken.
pub(super) struct Dialect {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) versions: Vec<&'static SupportedProtocolVersion>,
}

/// What `options` allow.
pub(super) fn dialect(options: &Tls) -> Result<Dialect, String> {
    let provider = trust::provider(&options.cipher_suites, "cipher-suites")?;
    let mut versions = Vec::new();
    if options.max_version != Some(TlsVersion::V12) {
        versions.push(&version::TLS13);
    }
    if options.min_version == TlsVersion::V12 {
        versions.push(&version::TLS12);
    }
    Ok(Dialect { provider: Arc::new(provider), versions })
}
