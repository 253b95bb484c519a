//! Files of certificates, keys and revocation lists: any bytes, as PEM and as DER, and good ones changed here and there.
#![no_main]

#[path = "file.rs"]
mod file;

use file::File;
use libfuzzer_sys::fuzz_target;
use rustls::pki_types::CertificateDer;
use std::time::{Duration, SystemTime};
use trust::{Certificate, Revocations};

/// Good ones of each kind, which an input changes. The same bytes in every process, so that an input does the same again: an authority's certificate
/// for `a.example`, `*.b.example` and `::1`, in both forms, its key, made for this and used nowhere else, and a list signed by it that has the number
/// 77. Made by `openssl` (`genpkey` of P-256, `req -x509`, `ca -gencrl`) on 2026-11-28, for 30 years.
const CERTIFICATE: &[u8] = include_bytes!("../data/certificates/certificate.der");
const PEM: &[u8] = include_bytes!("../data/certificates/certificate.pem");
const KEY: &[u8] = include_bytes!("../data/certificates/key.pem");
const LIST: &[u8] = include_bytes!("../data/certificates/list.der");
/// The time at which certificates are looked at: 2027-01-15.
const NOW_S: u64 = 1_800_000_000;

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
    let _ = parsed.is_valid_at(SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S));
    for host in ["a.example", "x.b.example", "::1", "127.0.0.1", ""] {
        let _ = parsed.check_host(host);
    }
}

fn list(bytes: &[u8]) {
    if let (Ok(list), Ok(certificate)) =
        (Revocations::parse(bytes), Certificate::parse(&CertificateDer::from(CERTIFICATE)))
    {
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
    match mode % 8 {
        0 => certificate(rest),
        1 => list(rest),
        2 => certificate(&edited(CERTIFICATE, rest)),
        3 => list(&edited(LIST, rest)),
        4 => files(rest, KEY),
        5 => files(PEM, rest),
        6 => files(&edited(PEM, rest), KEY),
        _ => files(PEM, &edited(KEY, rest)),
    }
});
