//! `--config-file`: YAML or JSON whose keys are the flags', durations in nanoseconds, TLS in sections of its own.

use super::legacy;
use super::table::{self, Flag, Kind};
use super::values::{Origin, Values};
use super::yaml::{self, Node};
use super::{ConfigError, number};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// No configuration is larger.
const BYTES_MAX: u64 = 256 << 10;

/// Flags that a file does not set in etcd, and so not here: a file must mean the same to both.
const NOT_IN_FILES: [&str; 4] = ["config-file", "version", "help", "discovery-fallback"];

/// Sections, and the flags that their keys set.
const SECTIONS: [(&str, &[(&str, &str)]); 4] = [
    (
        "client-transport-security",
        &[
            ("cert-file", "cert-file"),
            ("key-file", "key-file"),
            ("client-cert-file", "client-cert-file"),
            ("client-key-file", "client-key-file"),
            ("client-cert-auth", "client-cert-auth"),
            ("trusted-ca-file", "trusted-ca-file"),
            ("auto-tls", "auto-tls"),
            ("allowed-cn", "client-cert-allowed-cn"),
            ("allowed-hostname", "client-cert-allowed-hostname"),
            ("crl-file", "client-crl-file"),
        ],
    ),
    (
        "peer-transport-security",
        &[
            ("cert-file", "peer-cert-file"),
            ("key-file", "peer-key-file"),
            ("client-cert-file", "peer-client-cert-file"),
            ("client-key-file", "peer-client-key-file"),
            ("client-cert-auth", "peer-client-cert-auth"),
            ("trusted-ca-file", "peer-trusted-ca-file"),
            ("auto-tls", "peer-auto-tls"),
            ("allowed-cn", "peer-cert-allowed-cn"),
            ("allowed-hostname", "peer-cert-allowed-hostname"),
            ("skip-client-san-verification", "peer-skip-client-san-verification"),
            ("crl-file", "peer-crl-file"),
        ],
    ),
    ("socket-options", &[("reuse-port", "socket-reuse-port"), ("reuse-address", "socket-reuse-address")]),
    ("discovery-config", &[("token", "discovery-token")]),
];

/// `discovery-config` says how to reach the other cluster in `client`, and that in `secure` and `auth`.
const DISCOVERY_CLIENT: &[(&str, &str)] = &[
    ("endpoints", "discovery-endpoints"),
    ("dial-timeout", "discovery-dial-timeout"),
    ("request-timeout", "discovery-request-timeout"),
    ("keepalive-time", "discovery-keepalive-time"),
    ("keepalive-timeout", "discovery-keepalive-timeout"),
];
const DISCOVERY_SECURE: &[(&str, &str)] = &[
    ("cert", "discovery-cert"),
    ("key", "discovery-key"),
    ("cacert", "discovery-cacert"),
    ("insecure-transport", "discovery-insecure-transport"),
    ("insecure-skip-tls-verify", "discovery-insecure-skip-tls-verify"),
];
const DISCOVERY_AUTH: &[(&str, &str)] = &[("username", "discovery-user"), ("password", "discovery-password")];

/// Words that are lists in a file; the other comma-separated ones are texts.
const LISTS: [&str; 7] = [
    "log-outputs",
    "cipher-suites",
    "discovery-endpoints",
    "client-cert-allowed-cn",
    "client-cert-allowed-hostname",
    "peer-cert-allowed-cn",
    "peer-cert-allowed-hostname",
];

/// Reads a file. What the command line and the environment say does not count then.
pub(super) fn read(path: &Path) -> Result<Values, ConfigError> {
    let wrong = |why: String| ConfigError::Value(format!("cannot read --config-file {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(wrong(format!("it has more than {BYTES_MAX} bytes")));
    }
    parse(&text).map_err(|error| match error {
        ConfigError::Flag(error) => wrong(error.to_string()),
        ConfigError::Value(error) => wrong(error),
    })
}

fn parse(text: &str) -> Result<Values, ConfigError> {
    let mut values = Values::of_file();
    let pairs = match yaml::parse(text).map_err(ConfigError::Value)? {
        Node::Map(pairs) => pairs,
        Node::Null => Vec::new(),
        other => return Err(ConfigError::Value(format!("it holds {}, not keys and values", other.kind()))),
    };
    for (key, node) in pairs {
        if let Some((section, keys)) = SECTIONS.iter().find(|section| section.0 == key) {
            section_of(&mut values, section, keys, node)?;
        } else if let Some(flag) = table::find(&key).filter(|flag| in_files(flag)) {
            put(&mut values, &key, flag, node)?;
        } else if let Some(meaning) = legacy::find(&key) {
            let origin = Origin::Key(key.clone());
            let value = match meaning {
                legacy::Meaning::Flag(new) => match table::find(new) {
                    Some(flag) => written(&key, flag, node)?,
                    None => None,
                },
                _ => match node {
                    Node::Plain(word) | Node::Quoted(word) => Some(word),
                    _ => None,
                },
            };
            if let Some(value) = value {
                values.set_old(&key, meaning, value, origin)?;
            }
        } else {
            // etcd ignores such keys too, but without a warning.
            values.warnings.push(format!("key {key:?} of --config-file is ignored: no such key"));
        }
    }
    Ok(values)
}

fn in_files(flag: &Flag) -> bool {
    flag.kind != Kind::Ignored && !NOT_IN_FILES.contains(&flag.name) && !is_in_section(flag.name)
}

fn is_in_section(name: &str) -> bool {
    let sections = SECTIONS.iter().flat_map(|section| section.1);
    let discovery = DISCOVERY_CLIENT.iter().chain(DISCOVERY_SECURE).chain(DISCOVERY_AUTH);
    sections.chain(discovery).any(|(_, flag)| *flag == name)
}

fn section_of(values: &mut Values, section: &str, keys: &[(&str, &str)], node: Node) -> Result<(), ConfigError> {
    let pairs = match node {
        Node::Map(pairs) => pairs,
        Node::Null => return Ok(()),
        _ => return Err(ConfigError::Value(format!("invalid {section}"))),
    };
    for (key, node) in pairs {
        let shown = format!("{section}.{key}");
        let inner = match (section, key.as_str()) {
            ("discovery-config", "client") => Some(DISCOVERY_CLIENT),
            ("discovery-config.client", "secure") => Some(DISCOVERY_SECURE),
            ("discovery-config.client", "auth") => Some(DISCOVERY_AUTH),
            _ => None,
        };
        if let Some(inner) = inner {
            section_of(values, &shown, inner, node)?;
            continue;
        }
        let flag = keys.iter().find(|(name, _)| *name == key).and_then(|(_, flag)| table::find(flag));
        match flag {
            Some(flag) => put(values, &shown, flag, node)?,
            None => values.warnings.push(format!("key {shown:?} of --config-file is ignored: no such key")),
        }
    }
    Ok(())
}

fn put(values: &mut Values, key: &str, flag: &'static Flag, node: Node) -> Result<(), ConfigError> {
    match written(key, flag, node)? {
        Some(value) => values.set(flag, value, &Origin::Key(key.into())),
        None => Ok(()),
    }
}

/// The value as the command line has it; `None` leaves the default.
fn written(key: &str, flag: &Flag, node: Node) -> Result<Option<String>, ConfigError> {
    let is_list = LISTS.contains(&flag.name);
    let wanted = match flag.kind {
        _ if is_list => "a list",
        Kind::Switch => "true or false",
        Kind::Number(..) => "a whole number",
        Kind::Period => "a whole number of nanoseconds",
        _ => "a text",
    };
    let wrong = |given: &str| Err(ConfigError::Value(format!("{key} must be {wanted}, not {given}")));
    match (node, flag.kind) {
        (Node::Null, _) => Ok(None),
        (Node::List(nodes), _) if is_list => {
            let mut words = Vec::new();
            for node in nodes {
                match node {
                    Node::Plain(word) | Node::Quoted(word) => words.push(word),
                    other => {
                        return Err(ConfigError::Value(format!(
                            "{key} must be a list of words, not of {}",
                            other.kind()
                        )));
                    }
                }
            }
            Ok(Some(words.join(",")))
        }
        (Node::Plain(word), Kind::Switch) => match word.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Ok(Some("true".into())),
            "false" | "no" | "off" => Ok(Some("false".into())),
            _ => wrong(&format!("{word:?}")),
        },
        (Node::Plain(word), Kind::Number(low, high)) => match number::parse(&word, low, high) {
            Ok(number) => Ok(Some(number.to_string())),
            Err(_) => wrong(&format!("{word:?}")),
        },
        (Node::Plain(word), Kind::Period) => match number::parse(&word, i64::MIN.into(), i64::MAX.into()) {
            Ok(number) => Ok(Some(format!("{number}ns"))),
            Err(_) => wrong(&format!("{word:?}")),
        },
        (Node::Quoted(text), Kind::Switch | Kind::Number(..) | Kind::Period) => wrong(&format!("the text {text:?}")),
        (Node::Plain(text) | Node::Quoted(text), _) if !is_list => Ok(Some(text).filter(|text| !text.is_empty())),
        (other, _) => wrong(other.kind()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_flags() {
        let text = "name: m1\nheartbeat-interval: 50\ncorrupt-check-time: 600000000000\nlog-outputs: [stderr, /var/log/x]\n\
                    auto-compaction-retention: 1\npre-vote: no\ndata-dir:\nproxy: 'off'\n\
                    peer-transport-security:\n  cert-file: c\n  allowed-cn: [a, b]\n  nothing: 1\n\
                    discovery-config:\n  token: t\n  client:\n    endpoints: ['http://x:1']\n    dial-timeout: 1000000000\n    secure: {cacert: f}\n\
                    experimental-initial-corrupt-check: true\nexperimental-watch-progress-notify-interval: 5000000000\n";
        let values = parse(text).expect("valid");
        assert_eq!((values.get("name"), values.get("heartbeat-interval")), ("m1", "50"));
        assert_eq!(
            (values.get("corrupt-check-time"), values.get("log-outputs")),
            ("600000000000ns", "stderr,/var/log/x")
        );
        assert!(!values.is_given("data-dir") && !values.is_on("pre-vote"));
        assert_eq!((values.get("peer-cert-file"), values.get("peer-cert-allowed-cn")), ("c", "a,b"));
        assert_eq!((values.get("discovery-endpoints"), values.get("discovery-cacert")), ("http://x:1", "f"));
        assert_eq!(values.get("discovery-dial-timeout"), "1000000000ns");
        assert_eq!(values.gates, [("InitialCorruptCheck", true)]);
        assert_eq!(values.get("watch-progress-notify-interval"), "5000000000ns");
        assert_eq!(values.warnings.len(), 4, "{:?}", values.warnings);
    }

    #[test]
    fn wrong_types_are_refused() {
        for bad in [
            "heartbeat-interval: '50'",
            "heartbeat-interval: soon",
            "heartbeat-interval: -1",
            "corrupt-check-time: 10m",
            "pre-vote: maybe",
            "pre-vote: 'true'",
            "log-outputs: stderr",
            "log-outputs: [[a]]",
            "name: [a]",
            "name: {a: b}",
            "peer-transport-security: x",
            "feature-gates: Nothing=true",
            "listen-client-urls: nowhere",
            "- a",
            "name",
            "name: a\nname: b",
            "proxy: 'on'",
            "discovery: https://x/y",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("").expect("empty is valid").warnings.is_empty());
    }

    #[test]
    fn every_flag_can_be_set_in_a_file_somewhere() {
        for flag in table::shown().filter(|flag| !NOT_IN_FILES.contains(&flag.name)) {
            assert!(in_files(flag) || is_in_section(flag.name), "{}", flag.name);
        }
    }
}
