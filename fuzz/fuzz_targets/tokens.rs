//! JSON web tokens: any bytes, good ones changed here and there, any claims that are signed, and any header with a signature that fits it. What was
//! not signed is never accepted, and what was signed always is.
#![no_main]

#[path = "file.rs"]
mod file;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use file::File;
use libfuzzer_sys::fuzz_target;
use ring::hmac;
use server::harness::{JsonWebTokens, TokenHolder};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Keys that were made for this and are used nowhere else, by `openssl genpkey` on 2026-11-28. The same bytes in every process, so that an input does
/// the same again.
const KEYS: [(&str, &[u8]); 6] = [
    ("secret", SECRET),
    ("rsa.pem", include_bytes!("../data/tokens/rsa.pem")),
    ("p256.pem", include_bytes!("../data/tokens/p256.pem")),
    ("p384.pem", include_bytes!("../data/tokens/p384.pem")),
    ("p521.pem", include_bytes!("../data/tokens/p521.pem")),
    ("ed25519.pem", include_bytes!("../data/tokens/ed25519.pem")),
];
const SECRET: &[u8] = include_bytes!("../data/tokens/secret");
/// A token of each algorithm with [`CLAIMS`], in the order of [`ALGORITHMS`], signed by `openssl` and not by the code that reads it.
const GOOD: &str = include_str!("../data/tokens/good");
const CLAIMS: &[u8] = br#"{"exp":4102444800,"revision":7,"username":"ann"}"#;
/// Each algorithm, and its key.
const ALGORITHMS: [(&str, usize); 13] = [
    ("HS256", 0),
    ("HS384", 0),
    ("HS512", 0),
    ("EdDSA", 5),
    ("ES256", 2),
    ("ES384", 3),
    ("RS256", 1),
    ("RS384", 1),
    ("RS512", 1),
    ("PS256", 1),
    ("PS384", 1),
    ("PS512", 1),
    ("ES512", 4),
];

/// Takes every form of base64 that a lenient reader could.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

struct Site {
    name: &'static str,
    tokens: JsonWebTokens,
    good: &'static [u8],
}

fn site(number: u8) -> &'static Site {
    static SITES: OnceLock<(Vec<Site>, Vec<File>)> = OnceLock::new();
    let (sites, _) = SITES.get_or_init(|| {
        let files: Vec<File> = KEYS.iter().map(|(name, bytes)| File::new(name, bytes)).collect();
        let open = |((name, key), good): ((&'static str, usize), &'static str)| {
            let flag = format!("jwt,sign-method={name},priv-key={}", files[key].path().display());
            let tokens = JsonWebTokens::open(&flag).unwrap_or_else(|error| panic!("{error}"));
            assert!(tokens.verify(good.as_bytes()).as_deref() == Some(CLAIMS), "{name}: the good token is good");
            Site { name, tokens, good: good.as_bytes() }
        };
        let sites: Vec<Site> = ALGORITHMS.into_iter().zip(GOOD.lines()).map(open).collect();
        assert!(sites.len() == ALGORITHMS.len(), "a good token is missing");
        (sites, files)
    });
    // That of the last one takes milliseconds.
    &sites[match usize::from(number) % 64 {
        63 => ALGORITHMS.len() - 1,
        number => number % (ALGORITHMS.len() - 1),
    }]
}

/// What is signed, as it stands, and the bytes of the signature.
fn parts(token: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let dot = token.iter().rposition(|byte| *byte == b'.')?;
    Some((&token[..dot], LENIENT.decode(&token[dot + 1..]).ok()?))
}

/// Whether a token says what the other one says, with the same signature.
fn is_same(token: &[u8], other: &[u8]) -> bool {
    parts(token).is_some_and(|parts_of| Some(parts_of) == parts(other))
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// JSON, in whose names and texts that nobody asks for may be bytes that are no letters.
fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_str(&String::from_utf8_lossy(bytes)).unwrap_or_default()
}

/// Looks a token up as a call does, with these claims if its signature is right.
fn find(site: &Site, token: &[u8], claims: Option<&[u8]>) {
    let expected = |now| claims.and_then(|claims| JsonWebTokens::read(claims, now));
    let before = expected(now_seconds());
    // The second time it is remembered.
    let found = [site.tokens.find(token), site.tokens.find(token)];
    let after = expected(now_seconds());
    assert!(found.iter().all(|found| *found == before || *found == after), "{}: {found:?}, not {before:?}", site.name);
    if let (Some(claims), Some(TokenHolder { user, revision })) = (claims, &found[0]) {
        let value = json(claims);
        // Claims as a list are taken too, in the order of the fields.
        let field = |name: &str, at: usize| value.get(name).or_else(|| value.get(at)).cloned().unwrap_or_default();
        assert!(field("username", 0).as_str() == Some(user) && !user.is_empty(), "another user");
        assert!(field("revision", 1).as_f64().map(|number| number as u64) == Some(*revision), "another revision");
    }
}

/// Checks a token that may only be accepted if it is the good one.
fn check(site: &Site, token: &[u8]) {
    let claims = site.tokens.verify(token);
    match claims {
        Some(_) => assert!(is_same(token, site.good), "{}: a token that nobody signed", site.name),
        None => assert!(token != site.good, "{}: the good token", site.name),
    }
    find(site, token, claims.as_deref());
}

/// A token with pieces changed, put in and taken out, as the fuzzer says.
fn edited(token: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut token = token.to_vec();
    let (edits, _) = edits.as_chunks::<4>();
    for [kind, low, high, value] in edits.iter().take(32) {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % token.len().max(1);
        match kind % 4 {
            _ if token.is_empty() => token.push(*value),
            0 => token.insert(at, *value),
            1 => drop(token.remove(at)),
            2 => token[at] ^= 1 << (value % 8),
            _ => token[at] = *value,
        }
    }
    token
}

/// Any header and claims, with a code that fits them: under the secret for algorithms that have one, and for others under what is none.
fn coded(site: &Site, content: &[u8]) -> Vec<u8> {
    let (header, claims) = match content.split_first() {
        Some((length, rest)) => rest.split_at(usize::from(*length).min(rest.len())),
        None => (content, content),
    };
    let base64 = |bytes: &[u8]| LENIENT.encode(bytes).trim_end_matches('=').to_string();
    let signed = format!("{}.{}", base64(header), base64(claims));
    let (kind, secret) = match site.name {
        "HS384" => (hmac::HMAC_SHA384, SECRET),
        "HS512" => (hmac::HMAC_SHA512, SECRET),
        "HS256" => (hmac::HMAC_SHA256, SECRET),
        // As a reader would take it that lets the header choose: the key's file is the secret.
        _ => (
            hmac::HMAC_SHA256,
            KEYS[ALGORITHMS.iter().find(|(name, _)| *name == site.name).map_or(0, |(_, key)| *key)].1,
        ),
    };
    let code = hmac::sign(&hmac::Key::new(kind, secret), signed.as_bytes());
    format!("{signed}.{}", base64(code.as_ref())).into_bytes()
}

fuzz_target!(|data: &[u8]| {
    let [algorithm, mode, rest @ ..] = data else { return };
    let site = site(*algorithm);
    match mode % 4 {
        0 => check(site, rest),
        1 => check(site, &edited(site.good, rest)),
        2 => {
            let (edit, claims) = rest.split_at(rest.len().min(4));
            let token = site.tokens.sign(claims).unwrap_or_else(|| panic!("{}: not signed", site.name)).into_bytes();
            let verified = site.tokens.verify(&token);
            assert!(verified.as_deref() == Some(claims), "{}: a token that was signed", site.name);
            find(site, &token, Some(claims));
            let changed = edited(&token, edit);
            let accepted = site.tokens.verify(&changed).is_some();
            assert!(!accepted || is_same(&changed, &token), "{}: a changed token", site.name);
        }
        _ => {
            let token = coded(site, rest);
            let claims = site.tokens.verify(&token);
            if claims.is_some() {
                assert!(site.name.starts_with("HS"), "{}: a public key made a token", site.name);
                let header = LENIENT.decode(token.split(|byte| *byte == b'.').next().unwrap_or_default());
                let header = json(&header.unwrap_or_default());
                let named = header.get("alg").or_else(|| header.get(0)).and_then(|name| name.as_str());
                assert!(named == Some(site.name), "{}: the header names {named:?}", site.name);
            }
            find(site, &token, claims.as_deref());
        }
    }
});
