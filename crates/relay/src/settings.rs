//! The flags, which are etcd's.

use flags::{Command, Flag, Parsed, Program, duration, list, switch, text};
use std::path::PathBuf;
use std::time::Duration;

/// What `--retry-delay=0` means.
const RETRY_DELAY_OF_ZERO: Duration = Duration::from_secs(5 * 60);

const FLAGS: &[Flag] = &[
    text("listen-addr", "127.0.0.1:23790", "host and port to listen at"),
    text("discovery-srv", "", "domain whose SRV records name the members; without records, --endpoints counts"),
    text("discovery-srv-name", "", "what the name of the service ends with in DNS, after a dash"),
    switch("insecure-discovery", "take members that DNS names without checking that they answer and are for TLS"),
    text("trusted-ca-file", "", "file of the authorities that must vouch for members that DNS names"),
    list("endpoints", "127.0.0.1:2379", "members to pass connections on to"),
    duration("retry-delay", "1m0s", "how long a member that does not answer is left out before it is asked again"),
];

/// `gateway start`.
pub(crate) const PROGRAM: Program = Program {
    name: "gateway",
    help: "Passes TCP connections on to the members of a cluster",
    commands: &[Command {
        name: "start",
        help: "Starts the gateway",
        notes: "Connections go to the members in turn. A member that does not answer is left out for --retry-delay.",
        flags: FLAGS,
    }],
};

/// What a gateway is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Host and port to listen at.
    pub(crate) listen: String,
    /// Where members are looked for in DNS.
    pub(crate) discovery: Option<Discovery>,
    /// Members as they were given: with a scheme or without.
    pub(crate) endpoints: Vec<String>,
    /// How long a member is left out.
    pub(crate) retry_delay: Duration,
}

/// Members in DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Discovery {
    pub(crate) domain: String,
    /// What the service's name ends with; may be empty.
    pub(crate) suffix: String,
    /// Whether members are taken unseen.
    pub(crate) is_insecure: bool,
    pub(crate) authorities: Option<PathBuf>,
}

impl Settings {
    /// The settings of a command line.
    pub(crate) fn read(parsed: &Parsed) -> Settings {
        let given = |name: &str| Some(parsed.text(name)).filter(|text| !text.is_empty());
        let discovery = given("discovery-srv").map(|domain| Discovery {
            domain: domain.into(),
            suffix: parsed.text("discovery-srv-name").into(),
            is_insecure: parsed.switch("insecure-discovery"),
            authorities: given("trusted-ca-file").map(PathBuf::from),
        });
        let retry_delay = Some(parsed.duration("retry-delay")).filter(|delay| !delay.is_zero());
        Settings {
            listen: parsed.text("listen-addr").into(),
            discovery,
            endpoints: parsed.texts("endpoints").into_iter().map(String::from).collect(),
            retry_delay: retry_delay.unwrap_or(RETRY_DELAY_OF_ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Settings {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let Ok(flags::Asked::Run("start", parsed)) = PROGRAM.asked("gateway", &words) else { panic!("{line}") };
        Settings::read(&parsed)
    }

    #[test]
    fn the_defaults_are_etcds() {
        let settings = read("start");
        assert_eq!((settings.listen.as_str(), settings.endpoints), ("127.0.0.1:23790", vec!["127.0.0.1:2379".into()]));
        assert_eq!((settings.retry_delay, settings.discovery), (Duration::from_secs(60), None));
        assert_eq!(read("start --retry-delay=0").retry_delay, Duration::from_secs(300));
        let found = read("start --discovery-srv=x.org --discovery-srv-name blue --trusted-ca-file=ca.pem").discovery;
        let wanted = Discovery {
            domain: "x.org".into(),
            suffix: "blue".into(),
            is_insecure: false,
            authorities: Some("ca.pem".into()),
        };
        assert_eq!(found, Some(wanted));
    }

    #[test]
    fn every_flag_is_on_the_page_about_configuration() {
        let page = include_str!("../../../docs/configuration.md");
        let (_, section) = page.split_once("\n## `cairn gateway start`\n").expect("a section of its own");
        let section = section.split("\n## ").next().unwrap_or_default();
        for flag in FLAGS {
            assert!(section.contains(&format!("| `--{}` |", flag.name)), "--{}", flag.name);
        }
    }
}
