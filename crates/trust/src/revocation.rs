//! Revoked certificates.

use crate::certificate::{Certificate, trim};
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use std::collections::HashSet;
use x509_parser::prelude::{CertificateRevocationList, FromDer};

/// The serial numbers in a file of revocation lists. As with etcd, a number counts whoever issued the certificate: a list that was made
/// for another authority can refuse too much, but never too little. The signature of the list is not looked at: whoever can write the
/// file could as well replace the authorities.
#[derive(Clone, Debug, Default)]
pub struct Revocations(HashSet<Vec<u8>>);

impl Revocations {
    /// Reads lists as PEM, or one as DER.
    pub fn parse(bytes: &[u8]) -> Result<Revocations, String> {
        let mut lists: Vec<Vec<u8>> = Vec::new();
        for list in CertificateRevocationListDer::pem_slice_iter(bytes) {
            lists.push(list.map_err(|error| format!("no PEM: {error}"))?.to_vec());
        }
        if lists.is_empty() {
            lists.push(bytes.to_vec());
        }
        let mut numbers = HashSet::new();
        for list in &lists {
            let (rest, list) =
                CertificateRevocationList::from_der(list).map_err(|_| "x509: malformed crl".to_string())?;
            if !rest.is_empty() {
                return Err("x509: malformed crl: something follows it".into());
            }
            numbers.extend(list.iter_revoked_certificates().map(|revoked| trim(revoked.raw_serial())));
        }
        Ok(Revocations(numbers))
    }

    /// Refuses a certificate that is on the list. The error is etcd's.
    pub fn check(&self, certificate: &Certificate) -> Result<(), String> {
        if !self.0.contains(&certificate.serial) {
            return Ok(());
        }
        let serial: String = certificate.serial.iter().map(|byte| format!("{byte:02x}")).collect();
        Err(format!("transport: certificate serial {} revoked", serial.trim_start_matches('0')))
    }
}
