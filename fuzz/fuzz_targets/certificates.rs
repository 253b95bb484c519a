//! Files of certificates, keys and revocation lists: any bytes, as PEM and as DER, and good ones changed here and there.
#![no_main]

#[path = "file.rs"]
mod file;

use file::File;
use libfuzzer_sys::fuzz_target;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use std::sync::OnceLock;
use std::time::SystemTime;
use trust::{Certificate, Revocations};

/// Good ones of each kind.
struct Good {
    certificate: Vec<u8>,
    list: Vec<u8>,
    pem: String,
    key: String,
}

fn good() -> &'static Good {
    static GOOD: OnceLock<Good> = OnceLock::new();
    GOOD.get_or_init(|| make().unwrap_or_else(|error| panic!("{error}")))
}

fn make() -> Result<Good, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["a.example".into(), "*.b.example".into()])?;
    params.subject_alt_names.push(SanType::IpAddress(std::net::Ipv6Addr::LOCALHOST.into()));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?;
    let (this_update, next_update) = (date_time_ymd(2026, 1, 1), date_time_ymd(2036, 1, 1));
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from(77u64),
        revocation_time: this_update,
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update,
        next_update,
        crl_number: SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let (pem, key_pem) = (certificate.pem(), key.serialize_pem());
    let list = list.signed_by(&Issuer::new(params, key))?;
    Ok(Good { certificate: certificate.der().to_vec(), list: list.der().to_vec(), pem, key: key_pem })
}

/// Bytes with some of them changed, as the fuzzer says.
fn edited(bytes: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let (edits, _) = data.as_chunks::<3>();
    for [low, high, value] in edits.iter().take(32) {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % bytes.len();
        bytes[at] = *value;
    }
    bytes
}

fn certificate(der: &[u8]) {
    let Ok(parsed) = Certificate::parse(&CertificateDer::from(der)) else { return };
    assert!(parsed.serial.first() != Some(&0), "numbers have no zeros in front");
    let _ = parsed.is_valid_at(SystemTime::now());
    for host in ["a.example", "x.b.example", "::1", "127.0.0.1", ""] {
        let _ = parsed.check_host(host);
    }
}

fn list(bytes: &[u8]) {
    if let (Ok(list), Ok(certificate)) = (Revocations::parse(bytes), Certificate::parse(&CertificateDer::from(&good().certificate[..]))) {
        let _ = list.check(&certificate);
    }
}

fn files(cert: &[u8], key: &[u8]) {
    let (cert, key) = (File::new("cert", cert), File::new("key", key));
    let _ = trust::authorities(cert.path());
    let _ = trust::pair(cert.path(), key.path());
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else { return };
    let good = good();
    match mode % 8 {
        0 => certificate(rest),
        1 => list(rest),
        2 => certificate(&edited(&good.certificate, rest)),
        3 => list(&edited(&good.list, rest)),
        4 => files(rest, good.key.as_bytes()),
        5 => files(good.pem.as_bytes(), rest),
        6 => files(&edited(good.pem.as_bytes(), rest), good.key.as_bytes()),
        _ => files(good.pem.as_bytes(), &edited(good.key.as_bytes(), rest)),
    }
});
