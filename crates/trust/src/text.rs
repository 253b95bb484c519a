//! Error texts, in the words that etcd's operators and tests know.

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use std::cell::RefCell;
use std::io;

thread_local! {
    /// Why this thread has refused a certificate just now: the error that TLS passes on has no room for it.
    static REASON: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Refuses a certificate for `reason`. The other side is told that its certificate is bad.
pub(crate) fn refuse(reason: impl Into<String>) -> Error {
    REASON.set(Some(reason.into()));
    Error::InvalidCertificate(CertificateError::NotValidForName)
}

/// What is wrong with a session of this thread.
pub fn describe(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::NotValidForName) if REASON.with_borrow(Option::is_some) => {
            REASON.take().unwrap_or_default()
        }
        Error::InvalidCertificate(why) => format!("tls: failed to verify certificate: {}", certificate(why)),
        Error::NoCertificatesPresented => "tls: client didn't provide a certificate".into(),
        Error::AlertReceived(alert) => format!("remote error: tls: {}", self::alert(*alert)),
        Error::InvalidMessage(_) => "tls: first record does not look like a TLS handshake".into(),
        Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
            "tls: no cipher suite supported by both client and server".into()
        }
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13,
        ) => "tls: client offered only unsupported versions".into(),
        Error::NoApplicationProtocol => "tls: client requested unsupported application protocols".into(),
        other => format!("tls: {other}"),
    }
}

/// The same for what reading and writing a session returns.
pub fn describe_io(error: &io::Error) -> String {
    if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return describe(inner);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "EOF".into(),
        _ => error.to_string(),
    }
}

fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => "x509: certificate has expired or is not yet valid".into(),
        CertificateError::UnknownIssuer => "x509: certificate signed by unknown authority".into(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "x509: certificate specifies an incompatible key usage".into()
        }
        CertificateError::BadEncoding => "x509: malformed certificate".into(),
        other => format!("x509: {other}"),
    }
}

/// Go's words for what the other side says.
fn alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::BadCertificate => "bad certificate",
        AlertDescription::UnsupportedCertificate => "unsupported certificate",
        AlertDescription::CertificateRevoked => "revoked certificate",
        AlertDescription::CertificateExpired => "expired certificate",
        AlertDescription::CertificateUnknown => "unknown certificate",
        AlertDescription::CertificateRequired => "certificate required",
        AlertDescription::UnknownCA => "unknown certificate authority",
        AlertDescription::AccessDenied => "access denied",
        AlertDescription::HandshakeFailure => "handshake failure",
        AlertDescription::ProtocolVersion => "protocol version not supported",
        AlertDescription::InsufficientSecurity => "insufficient security level",
        AlertDescription::InternalError => "internal error",
        AlertDescription::DecryptError => "error decrypting message",
        AlertDescription::DecodeError => "error decoding message",
        AlertDescription::BadRecordMac => "bad record MAC",
        AlertDescription::UnexpectedMessage => "unexpected message",
        AlertDescription::UnrecognisedName => "unrecognized name",
        AlertDescription::NoApplicationProtocol => "no application protocol",
        AlertDescription::UserCanceled => "user canceled",
        other => return format!("{other:?}"),
    }
    .into()
}
