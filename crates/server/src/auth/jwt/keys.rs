//! The algorithms that sign tokens, and their keys.

use super::options::OptionsError;
use super::{SignError, der};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p521::ecdsa::signature::{Signer as _, Verifier as _};
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair, UnparsedPublicKey};
use ring::{hmac, signature as ring_signature};
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// How tokens are signed. No other algorithm is accepted: a client that could choose one would need no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
    Hs256,
    Hs384,
    Hs512,
    EdDsa,
}

use Algorithm::*;

const ALL: [(&str, Algorithm); 13] = [
    ("RS256", Rs256),
    ("RS384", Rs384),
    ("RS512", Rs512),
    ("PS256", Ps256),
    ("PS384", Ps384),
    ("PS512", Ps512),
    ("ES256", Es256),
    ("ES384", Es384),
    ("ES512", Es512),
    ("HS256", Hs256),
    ("HS384", Hs384),
    ("HS512", Hs512),
    ("EdDSA", EdDsa),
];

impl Algorithm {
    pub(super) fn parse(name: &str) -> Option<Algorithm> {
        ALL.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }

    fn name(self) -> &'static str {
        ALL.iter().find(|(_, algorithm)| *algorithm == self).map_or("", |(name, _)| name)
    }

    fn hmac(self) -> Option<hmac::Algorithm> {
        match self {
            Hs256 => Some(hmac::HMAC_SHA256),
            Hs384 => Some(hmac::HMAC_SHA384),
            Hs512 => Some(hmac::HMAC_SHA512),
            _ => None,
        }
    }

    /// Whether a public key in its algorithm's own form can belong to this algorithm.
    fn can_use(self, key: &[u8]) -> bool {
        /// The tag of a DER sequence: modulus and exponent.
        const SEQUENCE: u8 = 0x30;
        /// The tag of a point with both coordinates.
        const UNCOMPRESSED: u8 = 4;
        let is_point =
            |bytes: usize| key.first() == Some(&UNCOMPRESSED) && key.len().checked_sub(1) == bytes.checked_mul(2);
        match self {
            Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512 => key.first() == Some(&SEQUENCE),
            Es256 => is_point(32),
            Es384 => is_point(48),
            Es512 => is_point(66),
            EdDsa => key.len() == 32,
            Hs256 | Hs384 | Hs512 => false,
        }
    }

    fn verification(self) -> Option<&'static dyn ring_signature::VerificationAlgorithm> {
        Some(match self {
            Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            EdDsa => &signature::ED25519,
            Es512 | Hs256 | Hs384 | Hs512 => return None,
        })
    }
}

enum Signing {
    Rsa(Box<RsaKeyPair>, &'static dyn ring_signature::RsaEncoding),
    Curve(Box<EcdsaKeyPair>),
    Curve521(Box<p521::ecdsa::SigningKey>),
    Edwards(Box<Ed25519KeyPair>),
    Secret(hmac::Key),
}

enum Verifying {
    Public(UnparsedPublicKey<Vec<u8>>),
    Curve521(Box<p521::ecdsa::VerifyingKey>),
    Secret(hmac::Key),
}

/// The keys of one algorithm.
pub(super) struct Keys {
    algorithm: Algorithm,
    /// The first part of every token.
    header: String,
    signing: Option<Signing>,
    verifying: Verifying,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

impl Keys {
    /// Reads the given key files. Signing tokens needs the private key.
    pub(super) fn read(
        algorithm: Algorithm,
        public: Option<PathBuf>,
        private: Option<PathBuf>,
    ) -> Result<Keys, OptionsError> {
        let load = |path: &PathBuf| match std::fs::read(path) {
            Ok(bytes) => Ok(bytes),
            Err(source) => Err(OptionsError::Read { file: path.clone(), source }),
        };
        let unusable = |path: &Path| OptionsError::Key { file: path.into(), method: algorithm.name() };
        let public_bytes = public.as_ref().map(load).transpose()?;
        let private_bytes = private.as_ref().map(load).transpose()?;
        if let Some(kind) = algorithm.hmac() {
            let secret = match (private_bytes, public_bytes) {
                (Some(private), Some(public)) if private != public => return Err(OptionsError::Mismatch),
                (Some(secret), _) | (None, Some(secret)) => secret,
                (None, None) => return Err(OptionsError::NoKey),
            };
            // With an empty secret anyone can sign. A file that is rewritten in place is empty for a moment, and for
            // longer on a full disk.
            if secret.is_empty() {
                return Err(unusable(&private.or(public).unwrap_or_default()));
            }
            let key = hmac::Key::new(kind, &secret);
            return Ok(Keys::new(algorithm, Some(Signing::Secret(key.clone())), Verifying::Secret(key)));
        }
        let given = match (&public, &public_bytes) {
            (Some(path), Some(bytes)) => Some(public_key(bytes).ok_or_else(|| unusable(path))?),
            _ => None,
        };
        let signing = match (&private, &private_bytes) {
            (Some(path), Some(bytes)) => Some(signing(algorithm, bytes).ok_or_else(|| unusable(path))?),
            _ => None,
        };
        let derived = signing.as_ref().map(Signing::public);
        let key = match (given, derived) {
            (Some(given), Some(derived)) if given != derived => return Err(OptionsError::Mismatch),
            (Some(key), _) | (None, Some(key)) => key,
            (None, None) => return Err(OptionsError::NoKey),
        };
        let path = public.or(private).unwrap_or_default();
        if !algorithm.can_use(&key) {
            return Err(unusable(&path));
        }
        let verifying = match algorithm.verification() {
            Some(verification) => Verifying::Public(UnparsedPublicKey::new(verification, key)),
            None => match p521::ecdsa::VerifyingKey::from_sec1_bytes(&key) {
                Ok(key) => Verifying::Curve521(Box::new(key)),
                Err(_) => return Err(unusable(&path)),
            },
        };
        Ok(Keys::new(algorithm, signing, verifying))
    }

    fn new(algorithm: Algorithm, signing: Option<Signing>, verifying: Verifying) -> Keys {
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{}","typ":"JWT"}}"#, algorithm.name()));
        Keys { algorithm, header, signing, verifying }
    }

    /// The claims of a token; `None` if its signature is wrong.
    pub(super) fn verify(&self, token: &[u8]) -> Option<Vec<u8>> {
        let token = std::str::from_utf8(token).ok()?;
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header.alg != self.algorithm.name() {
            return None;
        }
        let (signed, signature) = (signed.as_bytes(), URL_SAFE_NO_PAD.decode(signature).ok()?);
        let is_right = match &self.verifying {
            Verifying::Public(key) => key.verify(signed, &signature).is_ok(),
            Verifying::Secret(key) => hmac::verify(key, signed, &signature).is_ok(),
            Verifying::Curve521(key) => p521::ecdsa::Signature::from_slice(&signature)
                .is_ok_and(|signature| key.verify(signed, &signature).is_ok()),
        };
        if is_right { URL_SAFE_NO_PAD.decode(claims).ok() } else { None }
    }

    /// A token with these claims.
    pub(super) fn sign(&self, claims: &[u8]) -> Result<String, SignError> {
        let signing = self.signing.as_ref().ok_or(SignError::VerifyOnly)?;
        let signed = format!("{}.{}", self.header, URL_SAFE_NO_PAD.encode(claims));
        let signature = signing.sign(signed.as_bytes()).ok_or(SignError::Failed)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl Signing {
    /// The public key that belongs to this private key, in its algorithm's own form.
    fn public(&self) -> Vec<u8> {
        match self {
            Signing::Rsa(pair, _) => pair.public().as_ref().to_vec(),
            Signing::Curve(pair) => pair.public_key().as_ref().to_vec(),
            Signing::Curve521(key) => key.verifying_key().to_sec1_point(false).as_bytes().to_vec(),
            Signing::Edwards(pair) => pair.public_key().as_ref().to_vec(),
            Signing::Secret(_) => Vec::new(),
        }
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Signing::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Signing::Curve(pair) => Some(pair.sign(&random, message).ok()?.as_ref().to_vec()),
            Signing::Curve521(key) => {
                let signature: p521::ecdsa::Signature = key.sign(message);
                Some(signature.to_bytes().to_vec())
            }
            Signing::Edwards(pair) => Some(pair.sign(message).as_ref().to_vec()),
            Signing::Secret(key) => Some(hmac::sign(key, message).as_ref().to_vec()),
        }
    }
}

/// The first public key of a PEM file, in its algorithm's own form.
fn public_key(pem: &[u8]) -> Option<Vec<u8>> {
    sections(pem).find_map(|(kind, der)| match kind {
        SectionKind::PublicKey => Some(der::public_key(&der)?.to_vec()),
        SectionKind::Certificate => Some(der::certified_key(&der)?.to_vec()),
        _ => None,
    })
}

/// The first private key of a PEM file.
fn signing(algorithm: Algorithm, pem: &[u8]) -> Option<Signing> {
    sections(pem).find_map(|(kind, der)| match algorithm {
        Rs256 => rsa(kind, &der, &signature::RSA_PKCS1_SHA256),
        Rs384 => rsa(kind, &der, &signature::RSA_PKCS1_SHA384),
        Rs512 => rsa(kind, &der, &signature::RSA_PKCS1_SHA512),
        Ps256 => rsa(kind, &der, &signature::RSA_PSS_SHA256),
        Ps384 => rsa(kind, &der, &signature::RSA_PSS_SHA384),
        Ps512 => rsa(kind, &der, &signature::RSA_PSS_SHA512),
        Es256 => curve(kind, &der, &signature::ECDSA_P256_SHA256_FIXED_SIGNING),
        Es384 => curve(kind, &der, &signature::ECDSA_P384_SHA384_FIXED_SIGNING),
        Es512 => {
            let (number, _) = curve_key(kind, &der)?;
            Some(Signing::Curve521(Box::new(p521::ecdsa::SigningKey::from_slice(number).ok()?)))
        }
        EdDsa if kind == SectionKind::PrivateKey => {
            Some(Signing::Edwards(Box::new(Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).ok()?)))
        }
        EdDsa | Hs256 | Hs384 | Hs512 => None,
    })
}

fn rsa(kind: SectionKind, der: &[u8], encoding: &'static dyn ring_signature::RsaEncoding) -> Option<Signing> {
    let pair = match kind {
        SectionKind::RsaPrivateKey => RsaKeyPair::from_der(der),
        SectionKind::PrivateKey => RsaKeyPair::from_pkcs8(der),
        _ => return None,
    };
    Some(Signing::Rsa(Box::new(pair.ok()?), encoding))
}

fn curve(kind: SectionKind, der: &[u8], curve: &'static ring_signature::EcdsaSigningAlgorithm) -> Option<Signing> {
    let (number, point) = curve_key(kind, der)?;
    let pair = EcdsaKeyPair::from_private_key_and_public_key(curve, number, point?, &SystemRandom::new());
    Some(Signing::Curve(Box::new(pair.ok()?)))
}

fn curve_key(kind: SectionKind, der: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    match kind {
        SectionKind::EcPrivateKey => der::curve_key(der),
        SectionKind::PrivateKey => der::curve_key(der::enclosed_key(der)?),
        _ => None,
    }
}

fn sections(pem: &[u8]) -> impl Iterator<Item = (SectionKind, Vec<u8>)> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).map_while(Result::ok)
}
