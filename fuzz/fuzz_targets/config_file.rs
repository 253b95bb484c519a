//! Files of `--config-file`: any bytes, and files of keys and values that there are. Whatever comes is refused with a reason or is a configuration,
//! the same one each time, and the same as JSON as it is in blocks.
#![no_main]

#[path = "file.rs"]
mod file;

use file::File;
use libfuzzer_sys::fuzz_target;
use server::{Asked, Config};
use std::fmt::Write;
use std::path::Path;
use std::sync::OnceLock;

/// What is written for a key that fits it.
#[derive(Clone, Copy)]
enum Fitting {
    Switch,
    Number,
    Text,
    List,
    Section(&'static [(&'static str, Fitting)]),
}

use Fitting::{List, Number, Section, Switch, Text};

/// Sections, and keys of theirs.
const SECTIONS: [(&str, Fitting); 5] = [
    ("client-transport-security", Section(TRANSPORT)),
    ("peer-transport-security", Section(TRANSPORT)),
    ("socket-options", Section(&[("reuse-port", Switch), ("reuse-address", Switch)])),
    ("discovery-config", Section(&[("token", Text), ("client", Section(DISCOVERY))])),
    ("<<", Section(&[("name", Text), ("heartbeat-interval", Number), ("log-outputs", List)])),
];
const TRANSPORT: &[(&str, Fitting)] = &[
    ("cert-file", Text),
    ("key-file", Text),
    ("client-cert-auth", Switch),
    ("trusted-ca-file", Text),
    ("auto-tls", Switch),
    ("allowed-cn", List),
    ("allowed-hostname", List),
    ("skip-client-san-verification", Switch),
    ("crl-file", Text),
];
const DISCOVERY: &[(&str, Fitting)] = &[
    ("endpoints", List),
    ("dial-timeout", Number),
    ("keepalive-time", Number),
    ("secure", Section(&[("cacert", Text), ("insecure-transport", Switch)])),
    ("auth", Section(&[("username", Text), ("password", Text)])),
];
/// Flags that are lists in files.
const LISTS: [&str; 2] = ["log-outputs", "cipher-suites"];

/// Values that mean something to some key: texts between numbers and lists.
const WORDS: [&str; 32] = [
    "true",
    "false",
    "null",
    "0",
    "1",
    "100",
    "1000",
    "50000",
    "-1",
    "9223372036854775807",
    "18446744073709551615",
    "600000000000",
    "\"\"",
    "\"a\"",
    "\"new\"",
    "\"existing\"",
    "\"a=http://localhost:2380\"",
    "\"a=http://[::1]:2380,b=https://b.example:2380\"",
    "\"http://localhost:2379\"",
    "\"https://127.0.0.1:2379,unix://x:0\"",
    "\"unix:/tmp/x\"",
    "\"*\"",
    "\"jwt,sign-method=HS256,priv-key=/k,ttl=5m\"",
    "\"revision\"",
    "\"1h30m\"",
    "\"InitialCorruptCheck=true\"",
    "\"TLS1.3\"",
    "\"{\\\"maxsize\\\": 5}\"",
    "\"reads=5,writes=7\"",
    "\"realtime:3\"",
    "[\"stderr\", \"/x\"]",
    "[\"TLS_AES_128_GCM_SHA256\"]",
];

const TEXTS_BEGIN: usize = 12;
const TEXTS_END: usize = 30;

/// What is said elsewhere than in the file.
const PASSED_OVER: &str = "passed-over";

/// A value, or keys with values.
enum Node {
    Value(String),
    Map(Vec<(String, Node)>),
}

/// Every flag there is.
fn flags() -> &'static [(String, Fitting)] {
    static FLAGS: OnceLock<Vec<(String, Fitting)>> = OnceLock::new();
    FLAGS.get_or_init(|| {
        let flags = server::page().flags.into_iter().map(|flag| {
            let is_number = flag.default.starts_with(|letter: char| letter.is_ascii_digit());
            let fitting = match flag.takes_value {
                _ if LISTS.contains(&flag.name.as_str()) => List,
                false => Switch,
                // Times are numbers in files.
                true if is_number => Number,
                true => Text,
            };
            (flag.name, fitting)
        });
        flags.collect()
    })
}

/// A text in quotes, as JSON and YAML have it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        // Writing to a text cannot fail.
        let _ = match letter {
            '"' | '\\' => write!(quoted, "\\{letter}"),
            ' '..='~' => write!(quoted, "{letter}"),
            letter if letter <= '\u{ffff}' => write!(quoted, "\\u{:04x}", u32::from(letter)),
            letter => write!(quoted, "\\U{:08x}", u32::from(letter)),
        };
    }
    quoted + "\""
}

/// Takes the fuzzer's choices, one after the other.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn text(&mut self) -> std::borrow::Cow<'a, str> {
        let (text, rest) = self.0.split_at(usize::from(self.byte() % 64).min(self.0.len()));
        self.0 = rest;
        String::from_utf8_lossy(text)
    }

    fn fitting(&mut self, fitting: Fitting) -> Node {
        Node::Value(match fitting {
            Section(keys) => {
                let mut pairs: Vec<(String, Node)> = Vec::new();
                for _ in 0..self.byte() % 4 {
                    let (key, fitting) = keys[usize::from(self.byte()) % keys.len()];
                    if pairs.iter().all(|(known, _)| known != key) {
                        pairs.push((key.into(), self.fitting(fitting)));
                    }
                }
                return Node::Map(pairs);
            }
            _ if self.byte() % 8 == 0 => return self.value(),
            Switch => ["false", "true"][usize::from(self.byte()) % 2].into(),
            Number => (u64::from(self.byte()) << (self.byte() % 48)).to_string(),
            Text => self.word(),
            List => format!("[{}]", (0..self.byte() % 3).map(|_| self.word()).collect::<Vec<_>>().join(", ")),
        })
    }

    /// A text that means something to some key.
    fn word(&mut self) -> String {
        let texts = &WORDS[TEXTS_BEGIN..TEXTS_END];
        texts[usize::from(self.byte()) % texts.len()].into()
    }

    fn value(&mut self) -> Node {
        Node::Value(match self.byte() % 8 {
            0..4 => WORDS[usize::from(self.byte()) % WORDS.len()].into(),
            4 => i64::from_le_bytes(std::array::from_fn(|_| self.byte())).to_string(),
            5 => u16::from_le_bytes([self.byte(), self.byte()]).to_string(),
            6 => quoted(&self.text()),
            _ => {
                let words: Vec<_> = (0..self.byte() % 4).map(|_| quoted(&self.text())).collect();
                format!("[{}]", words.join(", "))
            }
        })
    }

    /// Keys that there are, a few older names and others.
    fn map(&mut self) -> Vec<(String, Node)> {
        let mut pairs = Vec::new();
        while !self.0.is_empty() && pairs.len() < 64 {
            let kind = self.byte();
            let (flag, fitting) = &flags()[usize::from(self.byte()) % flags().len()];
            let (key, node): (String, Node) = match kind % 16 {
                0 => (self.text().into(), self.value()),
                1 => (format!("experimental-{flag}"), self.value()),
                2..5 => {
                    let (section, keys) = SECTIONS[usize::from(self.byte()) % SECTIONS.len()];
                    (section.into(), self.fitting(keys))
                }
                _ => (flag.clone(), self.fitting(*fitting)),
            };
            // A key that is there twice is refused, and nothing else is looked at then.
            if kind == 0 || pairs.iter().all(|(known, _)| *known != key) {
                pairs.push((key, node));
            }
        }
        pairs
    }
}

fn blocks(pairs: &[(String, Node)], indent: usize, out: &mut String) {
    for (key, node) in pairs {
        let key = quoted(key);
        // Writing to a text cannot fail.
        let _ = match node {
            Node::Value(value) => writeln!(out, "{:indent$}{key}: {value}", ""),
            Node::Map(pairs) if pairs.is_empty() => writeln!(out, "{:indent$}{key}: {{}}", ""),
            Node::Map(_) => writeln!(out, "{:indent$}{key}:", ""),
        };
        if let Node::Map(pairs) = node {
            blocks(pairs, indent + 2, out);
        }
    }
}

fn json(pairs: &[(String, Node)]) -> String {
    let pair = |(key, node): &(String, Node)| match node {
        Node::Value(value) => format!("{}: {value}", quoted(key)),
        Node::Map(pairs) => format!("{}: {}", quoted(key), json(pairs)),
    };
    format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
}

fn parse(path: &Path) -> Result<Box<Config>, String> {
    let args = [format!("--config-file={}", path.display()), format!("--name={PASSED_OVER}")];
    match server::parse(args, [("ETCD_DATA_DIR".to_string(), PASSED_OVER.to_string())]) {
        Ok(Asked::Serve(config)) => Ok(config),
        Ok(_) => panic!("a file asks for no version and no usage"),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a file: the configuration as text.
fn check(bytes: &[u8]) -> Option<String> {
    let file = File::new("config", bytes);
    let (one, other) = (parse(file.path()), parse(file.path()));
    match (one, other) {
        (Ok(config), Ok(again)) => {
            let shown = format!("{config:?}");
            assert!(shown == format!("{again:?}"), "the same file is another configuration");
            let is_said = bytes.windows(PASSED_OVER.len()).any(|part| part == PASSED_OVER.as_bytes());
            assert!(is_said || !shown.contains(PASSED_OVER), "something else than the file counts");
            // What a member computes of it before anything else.
            assert!(config.election_ticks() >= 5 && config.lease_ttl_seconds_min() >= 1, "an election is longer");
            assert!(config.request_timeout() > config.election_timeout, "a request outlasts an election");
            let _ = config.local_address();
            Some(shown)
        }
        (Err(why), Err(again)) => {
            assert!(why == again, "{why}, and then {again}");
            let place = format!("cannot read --config-file {}:", file.path().display());
            assert!(!why.strip_prefix(&place).unwrap_or(&why).trim().is_empty(), "no reason: {why:?}");
            None
        }
        (one, other) => panic!("{:?}, and then {:?}", one.err(), other.err()),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else { return };
    if mode % 2 == 0 {
        check(rest);
        return;
    }
    let pairs = Choices(rest).map();
    let mut text = String::new();
    blocks(&pairs, 0, &mut text);
    let (in_blocks, in_json) = (check(text.as_bytes()), check(json(&pairs).as_bytes()));
    assert!(in_blocks == in_json, "JSON means something else:\n{text}");
});
