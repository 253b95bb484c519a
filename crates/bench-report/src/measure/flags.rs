//! Which cluster is talked to, and how.

use bench::{Arguments, BenchError, Place};
use client::{Endpoint, Security};

/// The flags that [`Access::take`] reads, for usage texts.
pub(crate) const CONNECTION_FLAGS: &str = "  --user NAME:PASSWORD    (or --user NAME --password PASSWORD)
  --cacert FILE, --cert FILE, --key FILE, --insecure-skip-tls-verify
                          TLS, as with `cairn ctl`
";
/// The flags that [`Access::of_peer`] reads.
pub(crate) const PEER_FLAGS: &str = "  --peer-user NAME:PASSWORD, --peer-cacert FILE, --peer-cert FILE, --peer-key FILE
                          for B, if they are others than for A; an empty user is none
";
/// Flags that need no value.
pub(crate) const SWITCHES: [&str; 1] = ["insecure-skip-tls-verify"];

/// How to connect to the members of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) security: Security,
    /// Name and password.
    pub(crate) user: Option<(String, String)>,
}

impl Access {
    /// Reads the flags; the flag `--<endpoints>` has the endpoints.
    pub(crate) fn take(flags: &mut Arguments, endpoints: &str, otherwise: Option<&str>) -> Result<Access, BenchError> {
        let list: Option<String> = flags.take(endpoints)?;
        let Some(list) = list.or(otherwise.map(str::to_owned)) else {
            return Err(BenchError::Usage(format!("`--{endpoints}` is missing")));
        };
        let security = Security {
            authorities: flags.take("cacert")?,
            cert: flags.take("cert")?,
            key: flags.take("key")?,
            skips_verification: flags.or("insecure-skip-tls-verify", false)?,
            ..Security::default()
        };
        let (user, password): (Option<String>, Option<String>) = (flags.take("user")?, flags.take("password")?);
        let user = match (user, password) {
            (None, None) => None,
            (None, Some(_)) => return Err(BenchError::Usage("`--password` needs `--user`".into())),
            (Some(name), Some(password)) => Some((name, password)),
            (Some(both), None) => Some(split_user("user", &both)?),
        };
        Ok(Access { endpoints: Access::parse(&list)?, security, user })
    }

    /// How to connect to the members of another cluster: as in `other`, unless a flag says otherwise.
    pub(crate) fn of_peer(flags: &mut Arguments, other: &Access, endpoints: &str) -> Result<Access, BenchError> {
        let mut peer = Access { endpoints: Access::parse(endpoints)?, ..other.clone() };
        if let Some(file) = flags.take("peer-cacert")? {
            peer.security.authorities = Some(file);
        }
        match (flags.take("peer-cert")?, flags.take("peer-key")?) {
            (None, None) => {}
            (Some(cert), Some(key)) => (peer.security.cert, peer.security.key) = (Some(cert), Some(key)),
            _ => return Err(BenchError::Usage("`--peer-cert` and `--peer-key` need each other".into())),
        }
        match flags.take::<String>("peer-user")? {
            None => {}
            Some(none) if none.is_empty() => peer.user = None,
            Some(both) => peer.user = Some(split_user("peer-user", &both)?),
        }
        Ok(peer)
    }

    /// The endpoints in a list with commas.
    pub(crate) fn parse(list: &str) -> Result<Vec<Endpoint>, BenchError> {
        let named = list.split(',').map(str::trim).filter(|text| !text.is_empty());
        let found: Result<Vec<Endpoint>, _> = named.map(str::parse).collect();
        match found {
            Ok(found) if found.is_empty() => Err(BenchError::Usage("there is no endpoint".into())),
            found => found.map_err(|error| BenchError::Usage(error.to_string())),
        }
    }

    /// The place for a load's connections to `endpoint`.
    pub(crate) fn place(&self, endpoint: &Endpoint) -> Result<Place, BenchError> {
        let encryption = self.security.encryption(endpoint).map_err(BenchError::Server)?;
        Ok(Place { address: endpoint.address().to_owned(), encryption })
    }

    /// The place for pages over HTTP, which send no protocol name in the handshake.
    pub(super) fn page_place(&self, endpoint: &Endpoint) -> Result<Place, BenchError> {
        let mut place = self.place(endpoint)?;
        if let Some(encryption) = &mut place.encryption {
            let of_calls = encryption.config.clone();
            encryption.config = std::sync::Arc::new(move || {
                let mut config = of_calls()?.as_ref().clone();
                config.alpn_protocols.clear();
                Ok(std::sync::Arc::new(config))
            });
        }
        Ok(place)
    }
}

fn split_user(flag: &str, both: &str) -> Result<(String, String), BenchError> {
    match both.split_once(':') {
        Some((name, password)) => Ok((name.to_owned(), password.to_owned())),
        None => Err(BenchError::Usage(format!("`--{flag} {both}` has no password: NAME:PASSWORD"))),
    }
}

/// A command line for the file: without passwords.
pub(crate) fn safe_words(words: &[String]) -> Vec<String> {
    const HIDDEN: &str = "***";
    let user = |text: &str| text.split_once(':').map_or(text.to_owned(), |(name, _)| format!("{name}:{HIDDEN}"));
    let mut safe: Vec<String> = Vec::with_capacity(words.len());
    let mut before = "";
    for word in words {
        safe.push(match (before, word.split_once('=')) {
            ("--password", _) => HIDDEN.to_owned(),
            ("--user" | "--peer-user", _) => user(word),
            (_, Some(("--password", _))) => format!("--password={HIDDEN}"),
            (_, Some((flag @ ("--user" | "--peer-user"), value))) => format!("{flag}={}", user(value)),
            _ => word.clone(),
        });
        before = word;
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_kept() {
        let words = [
            "sweep",
            "--user=a:secret",
            "--password",
            "secret",
            "--password=secret",
            "--user",
            "b:secret",
            "--user",
            "c",
            "--peer-user",
            "d:secret",
            "--peer-user=e:secret",
        ];
        let words: Vec<String> = words.map(str::to_owned).into();
        let safe = safe_words(&words).join(" ");
        assert_eq!(
            safe,
            "sweep --user=a:*** --password *** --password=*** --user b:*** --user c --peer-user d:*** --peer-user=e:***"
        );
    }

    #[test]
    fn users_have_passwords() {
        let take = |line: &str| {
            let mut flags = Arguments::parse(line.split_whitespace().map(str::to_owned)).expect("flags");
            Access::take(&mut flags, "endpoints", Some("127.0.0.1:2379"))
                .map(|access| access.user)
                .map_err(|error| error.to_string())
        };
        let user = |name: &str, password: &str| Ok(Some((name.to_owned(), password.to_owned())));
        assert_eq!(take("--user a:b:c"), user("a", "b:c"));
        assert_eq!(take("--user a:b --password c"), user("a:b", "c"));
        assert_eq!(take(""), Ok(None));
        assert!(take("--user a").is_err() && take("--password a").is_err() && take("--endpoints ,").is_err());
    }
}
