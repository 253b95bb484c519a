//! Cipher suites, by the names that etcd's flags have for them.

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, ring};

/// Suites that etcd knows and that are not to be had here: without forward secrecy, or with modes that were attacked.
const OUT_OF_DATE: &[&str] = &[
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];

/// The suite of a name.
fn find(name: &str) -> Option<CipherSuite> {
    Some(match name {
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => {
            CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        }
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => {
            CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        }
        "TLS_AES_128_GCM_SHA256" => CipherSuite::TLS13_AES_128_GCM_SHA256,
        "TLS_AES_256_GCM_SHA384" => CipherSuite::TLS13_AES_256_GCM_SHA384,
        "TLS_CHACHA20_POLY1305_SHA256" => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        _ => return None,
    })
}

/// The algorithms with the suites that `names` allow; all good ones if it is empty. As in Go, the list is one for TLS 1.2: with TLS 1.3 there is
/// no bad choice.
///
/// # Errors
/// If there is no suite of such a name, or none that TLS 1.2 and HTTP/2 can do with. `flag` is what the names were given with.
pub fn provider(names: &[String], flag: &str) -> Result<CryptoProvider, String> {
    let mut provider = ring::default_provider();
    if names.is_empty() {
        return Ok(provider);
    }
    let mut wanted = Vec::new();
    for name in names {
        match find(name) {
            Some(suite) => wanted.push(suite),
            None if OUT_OF_DATE.contains(&name.as_str()) => {}
            None => return Err(format!("unexpected TLS cipher suite {name:?}")),
        }
    }
    let is_wanted = |suite: CipherSuite| wanted.contains(&suite);
    provider.cipher_suites.retain(|suite| suite.tls13().is_some() || is_wanted(suite.suite()));
    // In the order of the flag, as far as it has one.
    provider.cipher_suites.sort_by_key(|suite| wanted.iter().position(|wanted| *wanted == suite.suite()));
    if !provider.cipher_suites.iter().any(|suite| suite.tls13().is_none()) {
        let names = names.join(",");
        return Err(format!(
            "--{flag} {names}: none of them can be used with HTTP/2 and TLS1.2; name at least one of \
             TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        ));
    }
    Ok(provider)
}
