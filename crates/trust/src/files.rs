//! Files of certificates and keys.

use crate::Certificate;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};

/// Bytes of a file: more is none of ours.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Where systems keep the authorities that everybody trusts.
const SYSTEM_AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A certificate with those that vouch for it, and its key.
pub type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Which of two files cannot be used, and why, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairError {
    /// The file of the certificate.
    Cert(String),
    /// The file of the key.
    Key(String),
}

/// The bytes of a file that is not too large.
///
/// # Errors
/// What the operating system says, as Go says it.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let told = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("open {}: no such file or directory", path.display()),
        _ => error.to_string(),
    };
    let length = std::fs::metadata(path).map_err(told)?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!("it has {length} bytes, more than {FILE_BYTES_MAX}"));
    }
    std::fs::read(path).map_err(told)
}

fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    all.map_err(|error| format!("tls: malformed PEM in certificate input: {error}"))
}

/// Whether a file in PEM has a private key that only a passphrase opens: as PKCS #8 has it, or as older programs wrote it, with a header.
fn is_encrypted(pem: &[u8]) -> bool {
    let mut lines = pem.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    while let Some(line) = lines.next() {
        if line == b"-----BEGIN ENCRYPTED PRIVATE KEY-----" {
            return true;
        }
        let begins_key = line.starts_with(b"-----BEGIN ") && line.ends_with(b" PRIVATE KEY-----");
        if begins_key
            && lines.next().is_some_and(|header| header.starts_with(b"Proc-Type:") && header.ends_with(b"ENCRYPTED"))
        {
            return true;
        }
    }
    false
}

/// Reads a certificate and its key, which must belong together. Whether it is still valid is not looked at.
///
/// # Errors
/// Which file cannot be used.
pub fn pair(cert: &Path, key: &Path) -> Result<Pair, PairError> {
    let (bad_cert, bad_key) = (PairError::Cert, PairError::Key);
    let chain = read(cert).and_then(|bytes| {
        let chain = certificates(&bytes)?;
        match chain.is_empty() {
            true if bytes.windows(5).any(|five| five == b"-----") => {
                Err("tls: failed to find \"CERTIFICATE\" PEM block in certificate input".into())
            }
            true => Err("tls: failed to find any PEM data in certificate input".into()),
            false => Ok(chain),
        }
    });
    let chain = chain.map_err(bad_cert)?;
    let bytes = read(key).map_err(bad_key)?;
    if is_encrypted(&bytes) {
        let text = "tls: failed to parse private key: it is encrypted with a passphrase, and nobody is asked for one: write it without \
                    (`openssl pkey -in FILE -out NEW`), readable by its owner only";
        return Err(bad_key(text.into()));
    }
    let key = PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| bad_key("tls: failed to find any PEM data in key input".into()))?;
    for own in chain.iter().take(1) {
        Certificate::parse(own).map_err(bad_cert)?;
    }
    let signer = ring::sign::any_supported_type(&key).map_err(|error| {
        bad_key(format!(
            "tls: failed to parse private key: {error} (RSA, ECDSA with P-256 or P-384, and Ed25519 are known)"
        ))
    })?;
    match CertifiedKey::new(chain.clone(), signer).keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok((chain, key)),
        Err(_) => Err(bad_key("tls: private key does not match public key".into())),
    }
}

/// The certificates of a file of authorities.
///
/// # Errors
/// What is wrong with the file.
pub fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = certificates(&read(path)?)?;
    if all.is_empty() {
        return Err("it holds no certificate".into());
    }
    for certificate in &all {
        let parsed = Certificate::parse(certificate)?;
        if !parsed.is_authority && !parsed.is_self_issued() {
            let name = &parsed.common_name;
            return Err(format!("the certificate of {name:?} is none of an authority, nor signed by itself"));
        }
        RootCertStore::empty().add(certificate.clone()).map_err(|error| error.to_string())?;
    }
    Ok(all)
}

/// The authorities that this system trusts.
///
/// # Errors
/// If it has none.
pub fn system_authorities() -> Result<Vec<CertificateDer<'static>>, String> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let known = SYSTEM_AUTHORITIES.iter().map(PathBuf::from);
    for path in named.into_iter().chain(known) {
        if let Ok(bytes) = read(&path)
            && let Ok(certificates) = certificates(&bytes)
            && !certificates.is_empty()
        {
            return Ok(certificates);
        }
    }
    Err("no file of authorities is named, and the system has none".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_need_a_passphrase_are_found() {
        for pem in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\r\nMIIF\r\n",
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMIIF\n",
            "-----BEGIN EC PARAMETERS-----\nBggq\n-----END EC PARAMETERS-----\n-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n",
        ] {
            assert!(is_encrypted(pem.as_bytes()), "{pem}");
        }
        for pem in ["", "-----BEGIN PRIVATE KEY-----\nMIIF\n", "-----BEGIN PRIVATE KEY-----", "ENCRYPTED PRIVATE KEY"] {
            assert!(!is_encrypted(pem.as_bytes()), "{pem}");
        }
    }
}
