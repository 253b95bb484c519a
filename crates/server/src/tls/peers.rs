//! The keeper of peers, as the connector of crate `peer` uses it.

use super::Keeper;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};
use std::sync::Arc;

impl peer::Credentials for Keeper {
    fn server(&self) -> Option<Arc<ServerConfig>> {
        self.server()
    }

    fn client(&self) -> Result<Arc<ClientConfig>, String> {
        self.client()
    }

    fn check_revoked(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        self.check_revoked(chain)
    }

    fn skips_addresses(&self) -> bool {
        self.options().skip_client_san_verification
    }
}
