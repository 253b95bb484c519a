//! What is asked for.

use super::forms::Form;
use super::view::Kind;
use crate::failure::{Failure, Outcome};
use crate::flags::{Flag, Kind as Takes, Parsed, duration, switch, text};
use crate::raw;
use std::time::Duration;

pub(super) const FLAGS: &[Flag] = &[
    text("way", "in-place", "in-place, empty-disk or new-addresses"),
    switch("back", "from Cairn to etcd"),
    switch("dry-run", "check and show the plan, change nothing"),
    Flag { kind: Takes::List, ..text("new-members", "", "new-addresses: names and peer URLs, as name=URL,name=URL") },
    Flag { kind: Takes::List, ..text("new-client-urls", "", "their client URLs, as name=URL, for lines and commands") },
    text("print", "shell", "form of the lines for a host: shell, systemd, compose or static-pod"),
    text("data-dir", "", "data directory on the hosts, for the lines (/var/lib/etcd; --back in place needs it named)"),
    text("new-data-dir", "", "the other program's, if it is another (/var/lib/cairn; with --back /var/lib/etcd-new)"),
    text("stop-command", "", "command that stops a member, run by sh with CAIRN_MEMBER_NAME, _ID and others set"),
    text("start-command", "", "command that starts it as the other program; returns while that runs"),
    duration("timeout", "10m", "longest wait of a step"),
];

/// How a member is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The same member on the same data.
    InPlace,
    /// Another member with the same addresses.
    EmptyDisk,
    /// Another member with other addresses.
    NewAddresses,
}

impl Way {
    fn parse(name: &str) -> Outcome<Way> {
        match name {
            "in-place" => Ok(Way::InPlace),
            "empty-disk" => Ok(Way::EmptyDisk),
            "new-addresses" => Ok(Way::NewAddresses),
            _ => Err(Failure::args(format!("--way={name} is none of in-place, empty-disk and new-addresses"))),
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Way::InPlace => "in-place",
            Way::EmptyDisk => "empty-disk",
            Way::NewAddresses => "new-addresses",
        }
    }

    /// What this way promises, and what it costs.
    pub(super) fn guarantee(self) -> &'static str {
        match self {
            Way::InPlace => {
                "in place: the same members, data and addresses; one restart of each. While one restarts, the cluster \
                 tolerates one failure less, as with any restart"
            }
            Way::EmptyDisk => {
                "the same addresses, empty disks: each member is removed, and joins as a learner under the same addresses. \
                 WARNING: from its removal to its promotion, a cluster of three tolerates no further failure"
            }
            Way::NewAddresses => {
                "new addresses: a new member joins as a learner, gets its vote, and only then an old one is removed. The \
                 cluster never tolerates less than before"
            }
        }
    }
}

/// A member that is to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Joiner {
    pub(super) name: String,
    pub(super) peer_urls: Vec<String>,
    /// Empty if only the operator knows.
    pub(super) client_urls: Vec<String>,
}

impl Joiner {
    /// The flags that name it.
    pub(super) fn flags(&self) -> String {
        let pairs =
            |urls: &[String]| urls.iter().map(|url| format!("{}={url}", self.name)).collect::<Vec<_>>().join(",");
        format!("--new-members '{}' --new-client-urls '{}'", pairs(&self.peer_urls), pairs(&self.client_urls))
    }
}

/// What the cluster is to become.
#[derive(Clone, Debug)]
pub(super) struct Goal {
    pub(super) to: Kind,
    pub(super) way: Way,
    /// Members that join, in this order. With empty disks: those that were removed already.
    pub(super) joining: Vec<Joiner>,
}

/// Commands for the hosts.
#[derive(Clone, Debug)]
pub(super) struct Hooks {
    pub(super) stop: String,
    pub(super) start: String,
}

/// Data directories on the hosts.
#[derive(Clone, Debug)]
pub(super) struct Dirs {
    pub(super) old: String,
    pub(super) new: String,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) goal: Goal,
    pub(super) is_dry: bool,
    pub(super) form: Form,
    pub(super) dirs: Dirs,
    /// None: lines for the hosts are printed.
    pub(super) hooks: Option<Hooks>,
    pub(super) timeout: Duration,
}

impl Settings {
    pub(super) fn read(parsed: &Parsed) -> Outcome<Settings> {
        if !parsed.args.is_empty() {
            return Err(Failure::args("takeover takes no arguments: name members with --endpoints"));
        }
        let to = if parsed.switch("back") { Kind::Etcd } else { Kind::Cairn };
        let way = Way::parse(parsed.text("way"))?;
        let joining =
            joiners(&raw::string(parsed.text("new-members"))?, &raw::string(parsed.text("new-client-urls"))?)?;
        match way {
            Way::InPlace if !joining.is_empty() => {
                return Err(Failure::args("--new-members is for --way=new-addresses; in place there are none"));
            }
            Way::NewAddresses if joining.is_empty() => {
                return Err(Failure::args("--way=new-addresses needs --new-members"));
            }
            _ => {}
        }
        let hooks = match (parsed.text("stop-command"), parsed.text("start-command")) {
            ("", "") => None,
            ("", _) | (_, "") => {
                return Err(Failure::args("--stop-command and --start-command belong together"));
            }
            (stop, start) => Some(Hooks { stop: stop.into(), start: start.into() }),
        };
        // Cairn may be where etcd was, or in a directory of its own: a wrong guess would start a member without its data.
        if to == Kind::Etcd && way == Way::InPlace && hooks.is_none() && parsed.text("data-dir").is_empty() {
            return Err(Failure::args(
                "--back in place needs --data-dir, the directory that Cairn runs on (/var/lib/etcd if it took that over), or commands",
            ));
        }
        let timeout = parsed.duration("timeout");
        if timeout.is_zero() {
            return Err(Failure::args("--timeout must be more than 0"));
        }
        let or = |name: &str, usual: [&str; 2]| match parsed.text(name) {
            "" => usual[usize::from(to == Kind::Etcd)].to_string(),
            given => given.to_string(),
        };
        Ok(Settings {
            goal: Goal { to, way, joining },
            is_dry: parsed.switch("dry-run"),
            form: Form::parse(parsed.text("print"))?,
            dirs: Dirs {
                old: or("data-dir", ["/var/lib/etcd", "/var/lib/cairn"]),
                new: or("new-data-dir", ["/var/lib/cairn", "/var/lib/etcd-new"]),
            },
            hooks,
            timeout,
        })
    }
}

/// The members that `name=URL,...` lists describe.
fn joiners(peers: &str, clients: &str) -> Outcome<Vec<Joiner>> {
    let mut joiners: Vec<Joiner> = Vec::new();
    for (name, url) in pairs("new-members", peers)? {
        match joiners.iter_mut().find(|joiner| joiner.name == name) {
            Some(joiner) => joiner.peer_urls.push(url),
            None => joiners.push(Joiner { name, peer_urls: vec![url], client_urls: Vec::new() }),
        }
    }
    for (name, url) in pairs("new-client-urls", clients)? {
        let joiner = joiners.iter_mut().find(|joiner| joiner.name == name);
        let unknown = || Failure::args(format!("--new-client-urls names `{name}`, --new-members does not"));
        joiner.ok_or_else(unknown)?.client_urls.push(url);
    }
    let mut urls: Vec<&String> = joiners.iter().flat_map(|joiner| &joiner.peer_urls).collect();
    urls.sort();
    match urls.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(Failure::args(format!("--new-members has {} twice", two[0]))),
        None => Ok(joiners),
    }
}

fn pairs(flag: &str, list: &str) -> Outcome<Vec<(String, String)>> {
    let read = |pair: &str| {
        let (name, url) = pair
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| Failure::args(format!("--{flag}: `{pair}` is not name=URL")))?;
        api::url::split(url).map_err(|why| Failure::args(format!("--{flag}: {why}")))?;
        Ok((name.to_string(), url.to_string()))
    };
    list.split(',').map(str::trim).filter(|pair| !pair.is_empty()).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Outcome<Settings> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        Settings::read(&crate::flags::parse(&words, FLAGS).expect("a command line"))
    }

    #[test]
    fn flags_that_do_not_go_together_are_refused() {
        let refused = |line: &str| read(line).expect_err("refused").text;
        assert!(refused("m1").contains("no arguments"));
        assert!(refused("--way=sideways").contains("none of"));
        assert!(refused("--way=new-addresses").contains("needs --new-members"));
        assert!(refused("--new-members=a=http://h:1").contains("in place"));
        assert!(refused("--stop-command=x").contains("belong together"));
        assert!(refused("--back").contains("needs --data-dir"));
        assert!(refused("--back --dry-run").contains("needs --data-dir"));
        for line in ["--back --stop-command=x --start-command=y", "--back --way=empty-disk"] {
            assert!(read(line).is_ok(), "{line}");
        }
        assert!(refused("--timeout=0s").contains("more than 0"));
        assert!(refused("--print=tape").contains("--print=tape"));
        assert!(refused("--way=new-addresses --new-members=a=h:1").contains("URL scheme"));
        assert!(refused("--way=new-addresses --new-members=http://h:1").contains("not name=URL"));
        assert!(refused("--way=new-addresses --new-members=a=http://h:1,b=http://h:1").contains("twice"));
        let other = "--way=new-addresses --new-members=a=http://h:1 --new-client-urls=b=http://h:2";
        assert!(refused(other).contains("names `b`"));
        assert_eq!(read("m1").expect_err("refused").code, crate::failure::code::BAD_ARGS);
    }

    #[test]
    fn new_members_may_have_several_urls() {
        let line =
            "--way=new-addresses --new-members=a=http://h:1,a=http://i:1,b=http://j:1 --new-client-urls=b=http://j:2";
        let joining = read(line).expect("settings").goal.joining;
        assert_eq!(joining.len(), 2);
        assert_eq!(joining[0].peer_urls, ["http://h:1", "http://i:1"]);
        assert_eq!(joining[1].flags(), "--new-members 'b=http://j:1' --new-client-urls 'b=http://j:2'");
    }

    #[test]
    fn directories_are_those_of_the_direction() {
        let forth = read("").expect("settings");
        assert_eq!((forth.dirs.old.as_str(), forth.dirs.new.as_str()), ("/var/lib/etcd", "/var/lib/cairn"));
        let back = read("--back --data-dir=/d").expect("settings");
        assert_eq!((back.dirs.old.as_str(), back.dirs.new.as_str()), ("/d", "/var/lib/etcd-new"));
        assert_eq!((back.goal.to, back.goal.way, back.timeout), (Kind::Etcd, Way::InPlace, Duration::from_secs(600)));
    }
}
