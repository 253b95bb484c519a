//! What the members say of themselves at one moment.

use super::settings::Joiner;
use crate::print::go;
use api::etcdserverpb::StatusResponse;
use client::Endpoint;
use std::fmt;

/// Which program a member runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Etcd,
    Cairn,
}

impl Kind {
    pub(super) fn other(self) -> Kind {
        match self {
            Kind::Etcd => Kind::Cairn,
            Kind::Cairn => Kind::Etcd,
        }
    }

    /// As it is called on command lines and in variables.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Etcd => "etcd",
            Kind::Cairn => "cairn",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Etcd => "etcd",
            Kind::Cairn => "Cairn",
        })
    }
}

/// The answers of a member that runs.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// Where it answered.
    pub(super) endpoint: Endpoint,
    pub(super) kind: Kind,
    /// The version that all members share, as far as this one shows it (`3.7`).
    pub(super) cluster_version: Option<String>,
    pub(super) status: StatusResponse,
}

impl Told {
    pub(super) fn id(&self) -> u64 {
        self.status.header.as_ref().map_or(0, |header| header.member_id)
    }

    pub(super) fn cluster(&self) -> u64 {
        self.status.header.as_ref().map_or(0, |header| header.cluster_id)
    }
}

/// A member of the list, and what it says.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) peer_urls: Vec<String>,
    pub(super) client_urls: Vec<String>,
    pub(super) is_learner: bool,
    /// Or why it says nothing.
    pub(super) told: Result<Told, String>,
}

impl Seen {
    pub(super) fn kind(&self) -> Option<Kind> {
        self.told.as_ref().ok().map(|told| told.kind)
    }

    /// Whether it is the member that `joiner` describes.
    pub(super) fn is(&self, joiner: &Joiner) -> bool {
        self.peer_urls.iter().any(|url| joiner.peer_urls.contains(url))
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { write!(f, "{:x}", self.id) } else { f.write_str(&plain(&self.name)) }
    }
}

/// A cluster.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) members: Vec<Seen>,
}

impl View {
    pub(super) fn member(&self, id: u64) -> Option<&Seen> {
        self.members.iter().find(|member| member.id == id)
    }

    pub(super) fn voters(&self) -> impl Iterator<Item = &Seen> {
        self.members.iter().filter(|member| !member.is_learner)
    }

    pub(super) fn learners(&self) -> impl Iterator<Item = &Seen> {
        self.members.iter().filter(|member| member.is_learner)
    }

    /// Members with a vote that do not answer.
    pub(super) fn silent(&self) -> impl Iterator<Item = &Seen> {
        self.voters().filter(|member| member.told.is_err())
    }

    /// The leader, if all that answer name the same and it is one of them.
    pub(super) fn leader(&self) -> Option<&Seen> {
        let mut named = self.voters().filter_map(|member| Some(member.told.as_ref().ok()?.status.leader));
        let first = named.next().filter(|leader| *leader != 0)?;
        let leader = self.member(first).filter(|leader| leader.told.is_ok());
        leader.filter(|_| named.all(|leader| leader == first))
    }

    /// Whether all voters answer and agree on a leader.
    pub(super) fn is_whole(&self) -> bool {
        self.silent().next().is_none() && self.leader().is_some()
    }
}

/// A text from the cluster as it can be shown on a terminal.
pub(super) fn plain(text: &str) -> String {
    if text.chars().any(char::is_control) { go::quote(text.as_bytes()) } else { text.into() }
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;
    use api::etcdserverpb::ResponseHeader;

    /// A member of that name, at ports made of its id; `leader` is whom it takes for the leader.
    pub(in crate::takeover) fn member(id: u64, name: &str, kind: Option<Kind>, leader: u64) -> Seen {
        let endpoint: Endpoint = format!("http://10.0.0.{id}:2379").parse().expect("an endpoint");
        let header = Some(ResponseHeader { cluster_id: 7, member_id: id, revision: 9, raft_term: 2 });
        let status = StatusResponse {
            header,
            version: "3.7.3".into(),
            leader,
            raft_index: 10,
            raft_applied_index: 10,
            db_size: 4096,
            ..Default::default()
        };
        let told = |kind| Told { endpoint, kind, cluster_version: Some("3.7".into()), status };
        Seen {
            id,
            name: name.into(),
            peer_urls: vec![format!("http://10.0.0.{id}:2380")],
            client_urls: vec![format!("http://10.0.0.{id}:2379")],
            is_learner: false,
            told: kind.map(told).ok_or_else(|| "connection refused".to_string()),
        }
    }

    pub(in crate::takeover) fn learner(id: u64, name: &str, kind: Option<Kind>, leader: u64) -> Seen {
        Seen { is_learner: true, ..member(id, name, kind, leader) }
    }

    pub(in crate::takeover) fn view(members: &[Seen]) -> View {
        View { members: members.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{member, view};
    use super::*;

    #[test]
    fn leaders_are_those_that_all_name() {
        let etcd = Some(Kind::Etcd);
        let leader = |members: &[Seen]| view(members).leader().map(|leader| leader.id);
        assert_eq!(leader(&[member(1, "a", etcd, 2), member(2, "b", etcd, 2)]), Some(2));
        assert_eq!(leader(&[member(1, "a", etcd, 2), member(2, "b", etcd, 1)]), None);
        assert_eq!(leader(&[member(1, "a", etcd, 2), member(2, "b", None, 2)]), None);
        assert_eq!(leader(&[member(1, "a", etcd, 0), member(2, "b", etcd, 0)]), None);
        assert_eq!(leader(&[member(1, "a", etcd, 9)]), None);
        assert_eq!(leader(&[]), None);
        assert!(view(&[member(1, "a", etcd, 1)]).is_whole());
    }

    #[test]
    fn names_cannot_drive_the_terminal() {
        assert_eq!(plain("m1"), "m1");
        assert_eq!(plain("a\x1b[2J"), "\"a\\x1b[2J\"");
    }
}
