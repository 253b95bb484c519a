//! What is to be done on the host of one member.

use super::settings::{Dirs, Goal, Joiner, Way};
use super::view::{Kind, Seen, View};
use api::url::{At, split};

/// A member that is to be stopped, started, or both.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) id: u64,
    pub(super) peer_urls: Vec<String>,
    pub(super) client_urls: Vec<String>,
    /// `--initial-cluster`: all members, this one included.
    pub(super) initial_cluster: String,
    /// Whether it has no other beside it.
    is_alone: bool,
    pub(super) to: Kind,
    pub(super) way: Way,
    pub(super) dirs: Dirs,
}

impl Host {
    /// That of `member`. `joiner` says what the cluster does not know of it before it is started.
    pub(super) fn new(view: &View, member: &Seen, joiner: Option<&Joiner>, goal: &Goal, dirs: &Dirs) -> Host {
        let known = |urls: &[String], described: Option<&Vec<String>>| match (urls, described) {
            ([], Some(described)) => described.clone(),
            _ => urls.to_vec(),
        };
        let name = match joiner {
            Some(joiner) if member.name.is_empty() => joiner.name.clone(),
            _ => member.name.clone(),
        };
        let pairs = view.members.iter().flat_map(|other| {
            let name = if other.id == member.id { name.clone() } else { named(other) };
            other.peer_urls.iter().map(move |url| format!("{name}={url}"))
        });
        Host {
            initial_cluster: pairs.collect::<Vec<_>>().join(","),
            is_alone: view.members.iter().all(|other| other.id == member.id),
            id: member.id,
            peer_urls: member.peer_urls.clone(),
            client_urls: known(&member.client_urls, joiner.map(|joiner| &joiner.client_urls)),
            name,
            to: goal.to,
            way: goal.way,
            dirs: dirs.clone(),
        }
    }

    /// The variables that its commands get.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("CAIRN_MEMBER_NAME", self.name.clone()),
            ("CAIRN_MEMBER_ID", format!("{:x}", self.id)),
            ("CAIRN_PEER_URLS", self.peer_urls.join(",")),
            ("CAIRN_CLIENT_URLS", self.client_urls.join(",")),
            ("CAIRN_INITIAL_CLUSTER", self.initial_cluster.clone()),
            ("CAIRN_INITIAL_CLUSTER_STATE", self.initial_state().into()),
            ("CAIRN_TAKEOVER_TO", self.to.word().into()),
            ("CAIRN_TAKEOVER_WAY", self.way.word().into()),
        ]
    }

    /// Where the program that is started has its data.
    pub(super) fn data_dir(&self) -> &str {
        match (self.way, self.to) {
            // Cairn takes etcd's directory over where it lies; the way back makes another one.
            (Way::InPlace, Kind::Cairn) => &self.dirs.old,
            _ => &self.dirs.new,
        }
    }

    /// `--initial-cluster-state`. In place the data is there, and this is not looked at. Should the directory be empty by mistake, `new` is
    /// refused, for the others know the member, and `existing` would make it one that has forgotten its log. A member that is alone has
    /// nobody who knows it: there `existing` is what is refused.
    fn initial_state(&self) -> &'static str {
        if self.way == Way::InPlace && !self.is_alone { "new" } else { "existing" }
    }

    /// What must be run between stop and start.
    pub(super) fn conversion(&self) -> Option<Vec<String>> {
        let is_needed = self.way == Way::InPlace && self.to == Kind::Etcd;
        let words = ["cairn", "util", "export", "--data-dir", &self.dirs.old, "--to", &self.dirs.new];
        is_needed.then(|| words.map(String::from).to_vec())
    }

    /// Whether something runs there that has to be stopped first.
    pub(super) fn stops(&self) -> bool {
        self.way != Way::NewAddresses
    }

    /// The flags of the program that is started.
    pub(super) fn flags(&self) -> Vec<String> {
        let adopts = self.way == Way::InPlace && self.to == Kind::Cairn;
        let mut flags: Vec<String> = adopts.then(|| "--adopt-etcd-data".to_string()).into_iter().collect();
        let mut set = |name: &str, value: &str| {
            if !value.is_empty() {
                flags.push(format!("--{name}={value}"));
            }
        };
        set("name", &self.name);
        set("data-dir", self.data_dir());
        set("listen-peer-urls", &listened(&self.peer_urls));
        set("initial-advertise-peer-urls", &self.peer_urls.join(","));
        set("listen-client-urls", &listened(&self.client_urls));
        set("advertise-client-urls", &self.client_urls.join(","));
        set("initial-cluster", &self.initial_cluster);
        set("initial-cluster-state", self.initial_state());
        flags
    }

    /// What the flags leave out.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.way != Way::NewAddresses {
            remarks.push(format!("and the other flags that this member's {} has", self.to.other()));
        }
        let urls = || self.peer_urls.iter().chain(&self.client_urls);
        if urls().any(|url| split(url).is_ok_and(|parts| parts.secure)) {
            remarks.push("and the files for TLS: --cert-file, --key-file, --peer-cert-file and so on".into());
        }
        if self.client_urls.is_empty() {
            remarks.push("and --listen-client-urls and --advertise-client-urls".into());
        }
        if self.way != Way::InPlace {
            remarks.push(format!("{} must be empty or not there", self.data_dir()));
        }
        remarks
    }
}

/// A member's name in `--initial-cluster`: one that has not started yet has none.
fn named(member: &Seen) -> String {
    if member.name.is_empty() { format!("{:x}", member.id) } else { member.name.clone() }
}

/// URLs to listen on: a name is no address that can be bound.
fn listened(urls: &[String]) -> String {
    let listen = |url: &String| match split(url) {
        Ok(parts) => match parts.at {
            At::Host(host, port) if host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_err() => {
                format!("{}://0.0.0.0:{port}", if parts.secure { "https" } else { "http" })
            }
            _ => url.clone(),
        },
        Err(_) => url.clone(),
    };
    urls.iter().map(listen).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::view::samples::{learner, member, view};
    use super::*;

    pub(in crate::takeover) fn dirs() -> Dirs {
        Dirs { old: "/var/lib/etcd".into(), new: "/var/lib/cairn".into() }
    }

    pub(in crate::takeover) fn host(way: Way, to: Kind) -> Host {
        let view = view(&[member(1, "a", Some(Kind::Etcd), 1), member(2, "b", Some(Kind::Etcd), 1)]);
        let goal = Goal { to, way, joining: Vec::new() };
        Host::new(&view, &view.members[1], None, &goal, &dirs())
    }

    #[test]
    fn in_place_the_flags_are_the_members_own() {
        assert_eq!(
            host(Way::InPlace, Kind::Cairn).flags(),
            [
                "--adopt-etcd-data",
                "--name=b",
                "--data-dir=/var/lib/etcd",
                "--listen-peer-urls=http://10.0.0.2:2380",
                "--initial-advertise-peer-urls=http://10.0.0.2:2380",
                "--listen-client-urls=http://10.0.0.2:2379",
                "--advertise-client-urls=http://10.0.0.2:2379",
                "--initial-cluster=a=http://10.0.0.1:2380,b=http://10.0.0.2:2380",
                "--initial-cluster-state=new",
            ]
        );
        let state = |host: Host| {
            let variables = host.variables();
            let (_, state) = variables.into_iter().find(|(name, _)| name.ends_with("_STATE")).expect("a state");
            assert_eq!(host.flags().last(), Some(&format!("--initial-cluster-state={state}")));
            state
        };
        for to in [Kind::Cairn, Kind::Etcd] {
            assert_eq!(state(host(Way::InPlace, to)), "new");
            assert_eq!(state(host(Way::EmptyDisk, to)), "existing");
            assert_eq!(state(host(Way::NewAddresses, to)), "existing");
            let alone = view(&[member(1, "a", Some(Kind::Etcd), 1)]);
            let goal = Goal { to, way: Way::InPlace, joining: Vec::new() };
            assert_eq!(state(Host::new(&alone, &alone.members[0], None, &goal, &dirs())), "existing");
        }
        let back = host(Way::InPlace, Kind::Etcd);
        assert_eq!(back.flags()[1], "--data-dir=/var/lib/cairn");
        let words = back.conversion().expect("a conversion").join(" ");
        assert_eq!(words, "cairn util export --data-dir /var/lib/etcd --to /var/lib/cairn");
        assert_eq!(host(Way::InPlace, Kind::Cairn).conversion(), None);
    }

    #[test]
    fn who_has_not_started_is_described() {
        let view = view(&[member(1, "a", Some(Kind::Etcd), 1), learner(2, "", None, 1)]);
        let mut unstarted = view.members[1].clone();
        unstarted.client_urls.clear();
        let joiner = Joiner {
            name: "n".into(),
            peer_urls: unstarted.peer_urls.clone(),
            client_urls: vec!["https://node-2:2379".into()],
        };
        let goal = Goal { to: Kind::Cairn, way: Way::NewAddresses, joining: vec![joiner.clone()] };
        let host = Host::new(&view, &unstarted, Some(&joiner), &goal, &dirs());
        assert_eq!(host.initial_cluster, "a=http://10.0.0.1:2380,n=http://10.0.0.2:2380");
        let flags = host.flags().join(" ");
        assert!(
            flags.contains("--listen-client-urls=https://0.0.0.0:2379 --advertise-client-urls=https://node-2:2379")
        );
        assert!(flags.contains("--name=n --data-dir=/var/lib/cairn"), "{flags}");
        assert!(host.remarks().iter().any(|remark| remark.contains("TLS")));
        assert!(!host.stops());
        let variables = host.variables();
        assert!(variables.contains(&("CAIRN_MEMBER_ID", "2".into())), "{variables:?}");
        assert!(variables.contains(&("CAIRN_CLIENT_URLS", "https://node-2:2379".into())), "{variables:?}");
    }
}
