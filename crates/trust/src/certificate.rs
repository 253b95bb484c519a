//! The fields of a certificate.

use rustls::pki_types::CertificateDer;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The parts of a certificate that decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The subject's common name; empty if it has none.
    pub common_name: String,
    /// Names it is for.
    pub dns_names: Vec<String>,
    /// Addresses it is for.
    pub ips: Vec<IpAddr>,
    /// Its number among those of its issuer, without leading zeros.
    pub serial: Vec<u8>,
    /// The issuer, encoded.
    pub issuer: Vec<u8>,
    /// The subject, encoded.
    pub subject: Vec<u8>,
    /// When it begins to be valid.
    pub not_before: SystemTime,
    /// When it ends.
    pub not_after: SystemTime,
    /// It says that it may sign others.
    pub is_authority: bool,
    /// For what it may be used: servers, clients.
    pub usage: (bool, bool),
}

impl Certificate {
    /// Takes a certificate apart.
    pub fn parse(der: &CertificateDer<'_>) -> Result<Certificate, String> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|_| "x509: malformed certificate".to_string())?;
        let text = |name: &x509_parser::x509::AttributeTypeAndValue<'_>| name.as_str().unwrap_or_default().to_string();
        // Of several the last counts, as with Go.
        let common_name = parsed.subject().iter_common_name().last().map(text).unwrap_or_default();
        let (mut dns_names, mut ips) = (Vec::new(), Vec::new());
        if let Ok(Some(names)) = parsed.subject_alternative_name() {
            for name in &names.value.general_names {
                match name {
                    GeneralName::DNSName(name) => dns_names.push((*name).to_string()),
                    GeneralName::IPAddress(bytes) => ips.extend(ip(bytes)),
                    _ => {}
                }
            }
        }
        let usage = match parsed.extended_key_usage() {
            Ok(Some(usage)) => (usage.value.any || usage.value.server_auth, usage.value.any || usage.value.client_auth),
            _ => (true, true),
        };
        Ok(Certificate {
            common_name,
            dns_names,
            ips,
            serial: trim(parsed.raw_serial()),
            issuer: parsed.issuer().as_raw().to_vec(),
            subject: parsed.subject().as_raw().to_vec(),
            not_before: time(parsed.validity().not_before.timestamp())?,
            not_after: time(parsed.validity().not_after.timestamp())?,
            is_authority: parsed.is_ca(),
            usage,
        })
    }

    /// Whether it is valid at `now`.
    pub fn is_valid_at(&self, now: SystemTime) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Whether it is signed with its own key, as far as the names tell.
    pub fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// Whether it is for `host`, a name or an address. The error is Go's.
    pub fn check_host(&self, host: &str) -> Result<(), String> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            if self.ips.contains(&ip) {
                return Ok(());
            }
            if self.ips.is_empty() {
                return Err(format!(
                    "x509: cannot validate certificate for {ip} because it doesn't contain any IP SANs"
                ));
            }
            let ips: Vec<String> = self.ips.iter().map(IpAddr::to_string).collect();
            return Err(format!("x509: certificate is valid for {}, not {ip}", ips.join(", ")));
        }
        if self.dns_names.iter().any(|name| matches_name(name, host)) {
            return Ok(());
        }
        if self.dns_names.is_empty() {
            return Err(format!("x509: certificate is not valid for any names, but wanted to match {host}"));
        }
        Err(format!("x509: certificate is valid for {}, not {host}", self.dns_names.join(", ")))
    }
}

/// A name in lower case and without its last dot; a star matches exactly the first label (RFC 6125 section 6.4.3).
fn matches_name(pattern: &str, host: &str) -> bool {
    let (pattern, host) = (pattern.to_ascii_lowercase(), host.to_ascii_lowercase());
    let host = host.strip_suffix('.').unwrap_or(&host);
    if host.is_empty() || host.split('.').any(str::is_empty) {
        return false;
    }
    match pattern.strip_prefix("*.") {
        Some(rest) => !rest.is_empty() && host.split_once('.').is_some_and(|(_, parent)| parent == rest),
        None => pattern == host,
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// A time of a certificate; those before 1970 are 1970.
fn time(seconds: i64) -> Result<SystemTime, String> {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    UNIX_EPOCH.checked_add(since).ok_or_else(|| "x509: malformed certificate".into())
}

/// A number without the zeros in front of it.
pub(crate) fn trim(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|byte| *byte == 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (pattern, host, matches) in [
            ("a.b", "a.b", true),
            ("a.b", "A.B.", true),
            ("*.b", "a.b", true),
            ("*.b", "x.a.b", false),
            ("*.b", "b", false),
            ("*.b", ".b", false),
            ("*", "a", false),
            ("a*.b", "ac.b", false),
        ] {
            assert_eq!(matches_name(pattern, host), matches, "{pattern} {host}");
        }
    }
}
