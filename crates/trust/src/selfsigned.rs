//! Certificates that a program makes for itself: `--auto-tls` and `--peer-auto-tls`.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Certificate;

/// A year as etcd counts it for this.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The files of a pair that was made here.
#[derive(Clone, Debug)]
pub struct SelfSigned {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The host of a URL: a name or an address; of a Unix socket, what stands before a colon.
pub fn host_of_url(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then(|| host.to_string())
}

/// The pair in `dir`, made if it is not there, not valid any more, or nothing that can be used (as etcd's own, which are of P-521).
///
/// # Errors
/// If it cannot be made or written.
pub fn self_signed(dir: &Path, hosts: &[String], years: u32) -> Result<SelfSigned, String> {
    let files = SelfSigned { cert: dir.join("cert.pem"), key: dir.join("key.pem") };
    if !is_usable(&files) {
        make(dir, &files, hosts, years)?;
    }
    Ok(files)
}

fn is_usable(files: &SelfSigned) -> bool {
    let certificate = CertificateDer::from_pem_file(&files.cert).ok().and_then(|der| Certificate::parse(&der).ok());
    let key = PrivateKeyDer::from_pem_file(&files.key).ok();
    certificate.is_some_and(|certificate| certificate.is_valid_at(SystemTime::now()))
        && key.is_some_and(|key| ring::sign::any_supported_type(&key).is_ok())
}

fn make(dir: &Path, files: &SelfSigned, hosts: &[String], years: u32) -> Result<(), String> {
    let mut names: Vec<String> = hosts.to_vec();
    names.sort_unstable();
    names.dedup();
    let failed = |error: rcgen::Error| format!("cannot make a certificate: {error}");
    let mut params = CertificateParams::new(names).map_err(failed)?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "etcd");
    params.distinguished_name = subject;
    let now = SystemTime::now();
    let end = YEAR.checked_mul(years).and_then(|lasting| now.checked_add(lasting));
    params.not_before = now.into();
    params.not_after = end.ok_or_else(|| format!("no certificate is valid for {years} years"))?.into();
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let told = |error: std::io::Error| format!("cannot write below {}: {error}", dir.display());
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(told)?;
    write(&files.key, key.serialize_pem().as_bytes(), 0o600).map_err(told)?;
    write(&files.cert, certificate.pem().as_bytes(), 0o644).map_err(told)
}

/// Replaces a file as a whole.
fn write(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let new = path.with_extension("new");
    // A file that is left of an interrupted start keeps its mode, and whoever opened it keeps it open.
    if let Err(error) = std::fs::remove_file(&new)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (url, wanted) in [
            ("https://a.b:1", Some("a.b")),
            ("https://[::1]:1", Some("::1")),
            ("https://127.0.0.1:1/x", Some("127.0.0.1")),
            ("unixs://localhost:20001", Some("localhost")),
            ("https://", None),
        ] {
            assert_eq!(host_of_url(url).as_deref(), wanted, "{url}");
        }
    }

    #[test]
    fn pairs_are_made_once_and_anew_when_they_are_of_no_use() {
        let dir = std::env::temp_dir().join(format!("cairn-selfsigned-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let hosts = ["127.0.0.1".to_string(), "localhost".to_string()];
        let files = self_signed(&dir, &hosts, 2).expect("made");
        let first = std::fs::read(&files.cert).expect("there");
        let certificate =
            Certificate::parse(&CertificateDer::from_pem_file(&files.cert).expect("PEM")).expect("parsed");
        assert!(certificate.check_host("127.0.0.1").is_ok() && certificate.check_host("localhost").is_ok());
        assert!(certificate.not_after > SystemTime::now() + YEAR);
        self_signed(&dir, &hosts, 2).expect("kept");
        assert_eq!(std::fs::read(&files.cert).expect("there"), first);
        std::fs::write(&files.key, "half").expect("written");
        self_signed(&dir, &hosts, 2).expect("made anew");
        assert_ne!(std::fs::read(&files.cert).expect("there"), first);
        let _ = std::fs::remove_dir_all(&dir);
    }
}
