//! What a token says.

use serde::{Deserialize, Serialize};

/// The user of a token and its expiry.
#[derive(Debug, PartialEq)]
pub(super) struct Claims {
    pub(super) username: String,
    pub(super) revision: u64,
    /// Seconds since 1970.
    pub(super) expires: u64,
}

#[derive(Serialize)]
struct Written<'a> {
    exp: u64,
    revision: u64,
    username: &'a str,
}

#[derive(Deserialize)]
struct Read {
    username: String,
    revision: f64,
    exp: Option<f64>,
    nbf: Option<f64>,
}

impl Claims {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Claims { username, revision, expires } = self;
        // This cannot fail: it serializes numbers and text.
        serde_json::to_vec(&Written { exp: *expires, revision: *revision, username }).unwrap_or_default()
    }

    /// Reads the claims of a token whose signature is right; `None` if they are not valid now.
    pub(super) fn parse(json: &[u8], now_seconds: u64) -> Option<Claims> {
        let Read { username, revision, exp, nbf } = serde_json::from_slice(json).ok()?;
        let now = now_seconds as f64;
        let is_now = exp.is_none_or(|exp| exp > now) && nbf.is_none_or(|nbf| nbf <= now);
        let is_whole = revision >= 0.0 && revision.is_finite() && !username.is_empty();
        (is_now && is_whole).then(|| Claims {
            username,
            revision: revision as u64,
            expires: exp.map_or(u64::MAX, |exp| exp as u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses on a stack of 2 MiB, the size that threads have.
    #[test]
    fn deep_claims_are_refused() {
        let work = || {
            for (begin, end) in [("[", "]"), ("{\"x\":", "}")] {
                let claims = |levels: usize| {
                    let deep = format!("{}1{}", begin.repeat(levels), end.repeat(levels));
                    Claims::parse(format!("{{\"username\":\"a\",\"revision\":1,\"x\":{deep}}}").as_bytes(), 0)
                };
                assert!(claims(10).is_some());
                // The result does not matter, as long as the stack is large enough.
                let _ = claims(100_000);
                let named = format!("{{\"username\":{}", begin.repeat(100_000));
                assert_eq!(Claims::parse(named.as_bytes(), 0), None);
            }
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn(work).expect("a thread").join().expect("done");
    }

    #[test]
    fn claims_read_back() {
        let claims = Claims { username: "a\"n".into(), revision: 7, expires: 1_000 };
        assert_eq!(Claims::parse(&claims.encode(), 999), Some(claims));
    }

    #[test]
    fn what_is_not_valid_is_nothing() {
        for json in [
            "",
            "[]",
            r#"{"username":"a"}"#,
            r#"{"revision":1}"#,
            r#"{"username":"","revision":1}"#,
            r#"{"username":5,"revision":1}"#,
            r#"{"username":"a","revision":"1"}"#,
            r#"{"username":"a","revision":-1}"#,
            r#"{"username":"a","revision":1,"exp":100}"#,
            r#"{"username":"a","revision":1,"exp":"never"}"#,
            r#"{"username":"a","revision":1,"nbf":101}"#,
        ] {
            assert_eq!(Claims::parse(json.as_bytes(), 100), None, "{json}");
        }
        assert!(Claims::parse(br#"{"username":"a","revision":1.0,"other":[]}"#, 100).is_some());
    }
}
