//! The replicated membership table: who belongs to the cluster, who was removed, and what the cluster agreed on.
//!
//! Raft knows only the ids of members. Their URLs, names and roles travel separately: in the context of a configuration change (JSON, as
//! etcd writes it) and in entries of their own.

use api::Error;
use api::membershippb::{ClusterMemberAttrSetRequest, DowngradeInfoSetRequest};
use api::raftpb::{ConfChange, ConfChangeType};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// One member. Serialises to the JSON that etcd keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Raft id.
    pub id: u64,
    /// Where peers reach it.
    #[serde(rename = "peerURLs", default, deserialize_with = "null_is_empty")]
    pub peer_urls: Vec<String>,
    /// A member that follows the log without a vote.
    #[serde(rename = "isLearner", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_learner: bool,
    /// Human-readable name; empty until the member has started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Where clients reach it; empty until the member has started.
    #[serde(rename = "clientURLs", default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub client_urls: Vec<String>,
    /// Where it runs, as its `--zone` says; empty if it does not say. Not in etcd's JSON: what a member of etcd writes has none.
    #[serde(skip)]
    pub zone: String,
}

/// What the context of a configuration change says about the member it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfChangeContext {
    /// The member to add or change.
    #[serde(flatten)]
    pub member: Member,
    /// A learner becomes a voter.
    #[serde(rename = "isPromote", default)]
    pub is_promote: bool,
}

/// A Go `nil` slice is written as `null`.
fn null_is_empty<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::<Vec<String>>::deserialize(from)?.unwrap_or_default())
}

impl ConfChangeContext {
    /// That of a change.
    pub fn of(change: &ConfChange) -> Result<ConfChangeContext, Error> {
        // Every proposer writes it. A context that does not parse names no URLs, and a member needs some.
        serde_json::from_slice(change.context()).map_err(|_| Error::MemberBadUrls)
    }

    /// The bytes that travel in a `ConfChange`.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// A job that takes the cluster to an older minor release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Downgrade {
    /// Whether there is one.
    pub enabled: bool,
    /// The release it goes to; empty when there is none.
    pub target_version: String,
}

/// The membership of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// By id.
    pub members: BTreeMap<u64, Member>,
    /// Ids that were removed and may never come back.
    pub removed: BTreeSet<u64>,
    /// The minor release all members share (`3.7.0`); empty until it was agreed on.
    pub cluster_version: String,
    /// The downgrade under way.
    pub downgrade: Downgrade,
}

impl Members {
    /// Applies a configuration change, or says why the cluster cannot have it; then nothing changes.
    pub(crate) fn change(&mut self, change: &ConfChange, learners_max: usize) -> Result<(), Error> {
        let id = change.node_id();
        if self.removed.contains(&id) {
            return Err(Error::MemberNotFound);
        }
        match change.r#type() {
            kind @ (ConfChangeType::ConfChangeAddNode | ConfChangeType::ConfChangeAddLearnerNode) => {
                let context = ConfChangeContext::of(change)?;
                if context.is_promote {
                    return self.promote(id);
                }
                let learner = kind == ConfChangeType::ConfChangeAddLearnerNode;
                self.add(id, Member { id, is_learner: learner, ..context.member }, learners_max)
            }
            ConfChangeType::ConfChangeRemoveNode => {
                self.members.remove(&id).ok_or(Error::MemberNotFound)?;
                self.removed.insert(id);
                Ok(())
            }
            ConfChangeType::ConfChangeUpdateNode => {
                if !self.members.contains_key(&id) {
                    return Err(Error::MemberNotFound);
                }
                let peer_urls = ConfChangeContext::of(change)?.member.peer_urls;
                self.urls_are_free(&peer_urls, id)?;
                if let Some(member) = self.members.get_mut(&id) {
                    member.peer_urls = peer_urls;
                }
                Ok(())
            }
        }
    }

    fn add(&mut self, id: u64, member: Member, learners_max: usize) -> Result<(), Error> {
        if self.members.contains_key(&id) {
            return Err(Error::MemberExist);
        }
        self.urls_are_free(&member.peer_urls, id)?;
        let learners = self.members.values().filter(|member| member.is_learner).count();
        if member.is_learner && learners >= learners_max {
            return Err(Error::TooManyLearners);
        }
        self.members.insert(id, member);
        Ok(())
    }

    fn promote(&mut self, id: u64) -> Result<(), Error> {
        let member = self.members.get_mut(&id).ok_or(Error::MemberNotFound)?;
        if !std::mem::replace(&mut member.is_learner, false) {
            return Err(Error::MemberNotLearner);
        }
        Ok(())
    }

    fn urls_are_free(&self, urls: &[String], id: u64) -> Result<(), Error> {
        // As fast however many an older build has let in.
        let urls: HashSet<&String> = urls.iter().collect();
        let mut others = self.members.values().filter(|member| member.id != id);
        let taken = others.any(|member| member.peer_urls.iter().any(|url| urls.contains(url)));
        if taken { Err(Error::PeerUrlExist) } else { Ok(()) }
    }

    /// Sets a member's name and client URLs. Those of a member that was removed meanwhile are ignored.
    pub(crate) fn set_attributes(&mut self, request: ClusterMemberAttrSetRequest) {
        if let Some(member) = self.members.get_mut(&request.member_id) {
            let attributes = request.member_attributes.unwrap_or_default();
            member.name = attributes.name;
            member.client_urls = attributes.client_urls;
            member.zone = attributes.zone;
        }
    }

    pub(crate) fn set_downgrade(&mut self, request: DowngradeInfoSetRequest) {
        let target_version = if request.enabled { request.ver } else { String::new() };
        self.downgrade = Downgrade { enabled: request.enabled, target_version };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use api::membershippb::Attributes;

    fn change(kind: ConfChangeType, id: u64, context: &str) -> ConfChange {
        ConfChange {
            r#type: Some(kind as i32),
            node_id: Some(id),
            context: Some(context.to_owned().into()),
            ..Default::default()
        }
    }

    fn add(members: &mut Members, kind: ConfChangeType, id: u64, url: &str) -> Result<(), Error> {
        let context = ConfChangeContext {
            member: Member { id, peer_urls: vec![url.into()], ..Default::default() },
            is_promote: false,
        };
        members.change(&change(kind, id, &String::from_utf8(context.encode()).unwrap()), 1)
    }

    #[test]
    fn context_as_etcd_writes_it() {
        let text =
            r#"{"id":18446744073709551615,"peerURLs":["http://a:1"],"name":"n","clientURLs":null,"isPromote":false}"#;
        let context: ConfChangeContext = serde_json::from_str(text).unwrap();
        assert_eq!((context.member.id, context.member.name.as_str()), (u64::MAX, "n"));
        assert_eq!(context.member.client_urls, Vec::<String>::new());
        let member = Member { id: 3, peer_urls: vec!["http://a:1".into()], is_learner: true, ..Default::default() };
        let written = ConfChangeContext { member, is_promote: false }.encode();
        assert_eq!(written, br#"{"id":3,"peerURLs":["http://a:1"],"isLearner":true,"isPromote":false}"#);
    }

    #[test]
    fn life_of_a_member() {
        use ConfChangeType::*;
        let mut members = Members::default();
        assert_eq!(add(&mut members, ConfChangeAddNode, 1, "http://a:1"), Ok(()));
        assert_eq!(add(&mut members, ConfChangeAddNode, 1, "http://b:1"), Err(Error::MemberExist));
        assert_eq!(add(&mut members, ConfChangeAddNode, 2, "http://a:1"), Err(Error::PeerUrlExist));
        assert_eq!(add(&mut members, ConfChangeAddLearnerNode, 2, "http://b:1"), Ok(()));
        assert_eq!(add(&mut members, ConfChangeAddLearnerNode, 3, "http://c:1"), Err(Error::TooManyLearners));
        let promote = |id| change(ConfChangeAddNode, id, &format!(r#"{{"id":{id},"isPromote":true}}"#));
        assert_eq!(members.change(&promote(9), 1), Err(Error::MemberNotFound));
        assert_eq!(members.change(&promote(2), 1), Ok(()));
        assert_eq!(members.change(&promote(2), 1), Err(Error::MemberNotLearner));
        let update = change(ConfChangeUpdateNode, 2, r#"{"id":2,"peerURLs":["http://a:1"]}"#);
        assert_eq!(members.change(&update, 1), Err(Error::PeerUrlExist));
        let update = change(ConfChangeUpdateNode, 2, r#"{"id":2,"peerURLs":["http://b:1","http://b:2"]}"#);
        assert_eq!(members.change(&update, 1), Ok(()));
        assert_eq!(members.members[&2].peer_urls.len(), 2);
        assert_eq!(members.change(&change(ConfChangeAddNode, 8, "{"), 1), Err(Error::MemberBadUrls));
        let remove = |id| change(ConfChangeRemoveNode, id, "");
        assert_eq!(members.change(&remove(2), 1), Ok(()));
        assert_eq!(members.change(&remove(2), 1), Err(Error::MemberNotFound));
        assert_eq!(members.change(&remove(7), 1), Err(Error::MemberNotFound));
        assert_eq!(add(&mut members, ConfChangeAddNode, 2, "http://z:1"), Err(Error::MemberNotFound));
        assert_eq!(members.members.len(), 1);
    }

    #[test]
    fn attributes_and_versions() {
        let mut members = Members::default();
        assert_eq!(add(&mut members, ConfChangeType::ConfChangeAddNode, 1, "http://a:1"), Ok(()));
        for member_id in [1, 2] {
            let attributes =
                Attributes { name: "one".into(), client_urls: vec!["http://c:1".into()], zone: "z".into() };
            members.set_attributes(ClusterMemberAttrSetRequest { member_id, member_attributes: Some(attributes) });
        }
        assert_eq!((members.members[&1].name.as_str(), members.members[&1].zone.as_str()), ("one", "z"));
        let json = serde_json::to_string(&members.members[&1]).unwrap();
        assert!(!json.contains("zone") && !json.contains("\"z\""), "etcd's JSON has no zone: {json}");
        // As checkpoints keep it.
        let kept = api::etcdserverpb::Member::from(members.members[&1].clone());
        assert_eq!(Member::from(kept), members.members[&1]);
        members.set_downgrade(DowngradeInfoSetRequest { enabled: true, ver: "3.6.0".into() });
        assert_eq!(members.downgrade, Downgrade { enabled: true, target_version: "3.6.0".into() });
        members.set_downgrade(DowngradeInfoSetRequest { enabled: false, ver: "3.6.0".into() });
        assert_eq!(members.downgrade, Downgrade::default());
    }
}
