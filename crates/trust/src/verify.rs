//! Decisions about certificates of the other side.

use crate::certificate::Certificate;
use crate::revocation::Revocations;
use crate::text::refuse;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// The authorities that must have signed certificates, and the revoked certificates.
#[derive(Debug)]
pub struct Authorities {
    /// Those that may have signed.
    pub roots: Arc<RootCertStore>,
    /// The certificates that `roots` was made of.
    pub certificates: Vec<CertificateDer<'static>>,
    /// Revoked certificates.
    pub revoked: Revocations,
    /// Common names, one of which a certificate must have; empty for any.
    pub allowed_cns: Vec<String>,
    /// Names, one of which a certificate must be for; empty for any.
    pub allowed_hostnames: Vec<String>,
}

impl Authorities {
    /// Nothing in a chain may have been revoked, and the certificate must have an allowed name.
    fn check(&self, leaf: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Result<Certificate, Error> {
        let certificate = Certificate::parse(leaf).map_err(refuse)?;
        self.revoked.check(&certificate).map_err(refuse)?;
        for signer in rest {
            let signer = Certificate::parse(signer).map_err(refuse)?;
            self.revoked.check(&signer).map_err(refuse)?;
        }
        let is_named = self.allowed_cns.is_empty() || self.allowed_cns.contains(&certificate.common_name);
        let is_for_host = self.allowed_hostnames.is_empty()
            || self.allowed_hostnames.iter().any(|host| certificate.check_host(host).is_ok());
        if is_named && is_for_host { Ok(certificate) } else { Err(refuse("client certificate authentication failed")) }
    }

    /// A certificate that is trusted by itself: it stands among the authorities, and still has time. Which is how small clusters
    /// share one self-signed certificate.
    fn is_pinned(&self, leaf: &CertificateDer<'_>, now: UnixTime) -> bool {
        let Some(now) = UNIX_EPOCH.checked_add(Duration::from_secs(now.as_secs())) else { return false };
        self.certificates.iter().any(|trusted| trusted == leaf)
            && Certificate::parse(leaf).is_ok_and(|certificate| certificate.is_valid_at(now))
    }
}

/// Decides about clients, and about peers that connect.
#[derive(Debug)]
pub struct Visitors {
    authorities: Authorities,
    inner: Arc<dyn ClientCertVerifier>,
}

impl Visitors {
    /// Lets those in whom `authorities` vouch for.
    ///
    /// # Errors
    /// If there are no authorities.
    pub fn new(authorities: Authorities, provider: &Arc<CryptoProvider>) -> Result<Visitors, String> {
        let inner = WebPkiClientVerifier::builder_with_provider(authorities.roots.clone(), provider.clone())
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Visitors { authorities, inner })
    }
}

impl ClientCertVerifier for Visitors {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = match self.inner.verify_client_cert(leaf, rest, now) {
            Err(Error::InvalidCertificate(CertificateError::Other(_) | CertificateError::UnknownIssuer))
                if self.authorities.is_pinned(leaf, now) && Certificate::parse(leaf).is_ok_and(|leaf| leaf.usage.1) =>
            {
                ClientCertVerified::assertion()
            }
            other => other?,
        };
        self.authorities.check(leaf, rest)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Decides about members that are connected to.
#[derive(Debug)]
pub struct Hosts {
    /// The authorities that must have signed them.
    pub authorities: Authorities,
    /// How signatures are checked.
    pub provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Hosts {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = rustls::server::ParsedCertificate::try_from(leaf)?;
        let signed = rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.authorities.roots,
            rest,
            now,
            self.provider.signature_verification_algorithms.all,
        );
        match signed {
            Err(Error::InvalidCertificate(CertificateError::Other(_) | CertificateError::UnknownIssuer))
                if self.authorities.is_pinned(leaf, now) && Certificate::parse(leaf).is_ok_and(|leaf| leaf.usage.0) => {
            }
            other => other?,
        }
        let certificate = self.authorities.check(leaf, rest)?;
        certificate
            .check_host(&name.to_str())
            .map_err(|why| refuse(format!("tls: failed to verify certificate: {why}")))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes every member for what it says it is: `--peer-auto-tls` has no authority that could say otherwise, and
/// `--insecure-skip-tls-verify` wants none. The connection is
/// encrypted, and that is all; so signatures prove nothing and are not looked at, which lets in etcd's certificates of P-521 too.
#[derive(Debug)]
pub struct Anybody {
    /// What schemes of signatures are offered.
    pub provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _rest: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _leaf: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _leaf: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.provider.signature_verification_algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}
