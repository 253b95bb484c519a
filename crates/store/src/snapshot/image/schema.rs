//! What etcd keeps in which bucket, and how it spells it. Sources: etcd's `server/storage/schema`, `server/storage/mvcc/revision.go`.

use std::fmt::Write;
use std::ops::Deref;

use api::Message;
use api::etcdserverpb::{AlarmMember, Member};
use api::leasepb::Lease;
use api::raftpb::ConfState;

use super::Table;
use crate::types::Revision;

/// The key of a version in bucket `key`: main and sub revision as 8 big-endian bytes each, `_` between them, and a `t` after a
/// tombstone's. The value is its stored `KeyValue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevisionKey {
    bytes: [u8; 18],
    len: usize,
}

impl RevisionKey {
    /// Name of the bucket.
    pub const BUCKET: &'static str = "key";

    /// The key of the version written at `rev`.
    pub fn new(rev: Revision, is_tombstone: bool) -> RevisionKey {
        let mut bytes = [b't'; 18];
        bytes[..8].copy_from_slice(&rev.main.to_be_bytes());
        bytes[8] = b'_';
        bytes[9..17].copy_from_slice(&u64::from(rev.sub).to_be_bytes());
        RevisionKey { bytes, len: 17 + usize::from(is_tombstone) }
    }
}

impl Deref for RevisionKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// How far compaction has come. A reader of the file finishes one that is not finished.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compactions {
    /// Asked for.
    pub scheduled: Option<i64>,
    /// Nothing older is left.
    pub finished: Option<i64>,
}

/// Bucket `meta`: the log position that the records stand for.
pub fn meta(
    index: u64,
    term: u64,
    conf_state: &ConfState,
    storage_version: Option<&str>,
    compactions: Compactions,
) -> Table {
    let mut rows = vec![
        row("consistent_index", index.to_be_bytes()),
        row("term", term.to_be_bytes()),
        row("confState", conf_state_json(conf_state)),
    ];
    rows.extend(storage_version.map(|version| row("storageVersion", version)));
    for (name, main) in [("scheduledCompactRev", compactions.scheduled), ("finishedCompactRev", compactions.finished)] {
        if let Some(main) = main {
            rows.push(row(name, &*RevisionKey::new(Revision { main, sub: 0 }, false)));
        }
    }
    Table::new("meta", rows)
}

/// The version of the file in a cluster of this version: a member of an earlier one does not start on a newer file. None before 3.6,
/// which does not know it.
pub fn storage_version(cluster_version: &str) -> Option<&'static str> {
    let mut numbers = cluster_version.split('.').map(|number| number.parse::<u64>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(3), Some(6)) => Some("3.6.0"),
        (Some(3), Some(minor)) if minor < 6 && cluster_version != api::version::MIN_CLUSTER => None,
        _ => Some(api::version::STORAGE),
    }
}

/// Bucket `lease`.
pub fn leases(leases: impl IntoIterator<Item = Lease>) -> Table {
    let rows = leases.into_iter().map(|lease| row(lease.id.to_be_bytes(), lease.encode_to_vec())).collect();
    Table::new("lease", rows)
}

/// Bucket `alarm`.
pub fn alarms(alarms: &[AlarmMember]) -> Table {
    Table::new("alarm", alarms.iter().map(|alarm| row(alarm.encode_to_vec(), "")).collect())
}

/// A downgrade of the cluster's version that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Downgrade<'a> {
    /// The version to go to.
    pub target_version: &'a str,
    /// Whether it is still wanted.
    pub enabled: bool,
}

/// Bucket `cluster`. The version is left out while it is empty.
pub fn cluster(version: &str, downgrade: Option<Downgrade<'_>>) -> Table {
    let mut rows = Vec::new();
    if !version.is_empty() {
        rows.push(row("clusterVersion", version));
    }
    if let Some(Downgrade { target_version, enabled }) = downgrade {
        let target = json_string(target_version);
        rows.push(row("downgrade", format!(r#"{{"target-version":{target},"enabled":{enabled}}}"#)));
    }
    Table::new("cluster", rows)
}

/// Bucket `members`.
pub fn members(members: &[Member]) -> Table {
    Table::new("members", members.iter().map(|member| row(format!("{:x}", member.id), member_json(member))).collect())
}

/// Bucket `members_removed`: ids that may not come back.
pub fn members_removed(ids: &[u64]) -> Table {
    Table::new("members_removed", ids.iter().map(|id| row(format!("{id:x}"), "removed")).collect())
}

/// Bucket `auth`.
pub fn auth(enabled: bool, revision: u64) -> Table {
    let rows = vec![row("authEnabled", [u8::from(enabled)]), row("authRevision", revision.to_be_bytes())];
    Table::new("auth", rows)
}

/// Bucket `authUsers`: name and `authpb.User`.
pub fn auth_users(users: Vec<(Vec<u8>, Vec<u8>)>) -> Table {
    Table::new("authUsers", users)
}

/// Bucket `authRoles`: name and `authpb.Role`.
pub fn auth_roles(roles: Vec<(Vec<u8>, Vec<u8>)>) -> Table {
    Table::new("authRoles", roles)
}

fn row(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> (Vec<u8>, Vec<u8>) {
    (key.as_ref().to_vec(), value.as_ref().to_vec())
}

fn conf_state_json(conf_state: &ConfState) -> String {
    let mut json = String::from("{");
    for (name, ids) in [
        ("voters", &conf_state.voters),
        ("learners", &conf_state.learners),
        ("voters_outgoing", &conf_state.voters_outgoing),
        ("learners_next", &conf_state.learners_next),
    ] {
        if !ids.is_empty() {
            let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
            json += &format!(r#""{name}":[{}],"#, ids.join(","));
        }
    }
    json + &format!(r#""auto_leave":{}}}"#, conf_state.auto_leave())
}

/// The members as etcd's old store has them, which travels in `raftpb.Snapshot.data`: 3.6 reads it, and does not go on without it.
/// Source: etcd's `server/etcdserver/api/v2store`, and what a member of 3.6 has written.
pub fn membership_v2(members: &[Member], removed: &[u64], cluster_version: &str) -> Vec<u8> {
    let path = |dir: &str, name: &str| if dir == "/" { format!("/{name}") } else { format!("{dir}/{name}") };
    let leaf = |dir: &str, name: &str, value: &str| {
        let (name_json, path) = (json_string(name), json_string(&path(dir, name)));
        format!(
            r#"{name_json}:{{"Path":{path},"ExpireTime":"{NEVER}","Value":{},"Children":null}}"#,
            json_string(value)
        )
    };
    let dir = |around: &str, name: &str, children: Vec<String>| {
        let (name_json, path) = (json_string(name), json_string(&path(around, name)));
        format!(
            r#"{name_json}:{{"Path":{path},"ExpireTime":"{NEVER}","Value":"","Children":{{{}}}}}"#,
            children.join(",")
        )
    };
    let of_member = |member: &Member| {
        let (id, mut raft, mut own) = (format!("{:x}", member.id), String::from("{"), String::from("{"));
        raft += &format!(r#""peerURLs":[{}]"#, urls_json(&member.peer_ur_ls));
        if member.is_learner {
            raft += r#","isLearner":true"#;
        }
        if !member.name.is_empty() {
            own += &format!(r#""name":{}"#, json_string(&member.name));
        }
        if !member.client_ur_ls.is_empty() {
            own += if member.name.is_empty() { "" } else { "," };
            own += &format!(r#""clientURLs":[{}]"#, urls_json(&member.client_ur_ls));
        }
        let at = format!("/0/members/{id}");
        let mut leaves = vec![leaf(&at, "raftAttributes", &(raft + "}"))];
        if own != "{" {
            leaves.push(leaf(&at, "attributes", &(own + "}")));
        }
        dir("/0/members", &id, leaves)
    };
    let gone = removed.iter().map(|id| leaf("/0/removed_members", &format!("{id:x}"), "removed")).collect();
    let mut cluster =
        vec![dir("/0", "members", members.iter().map(of_member).collect()), dir("/0", "removed_members", gone)];
    if !cluster_version.is_empty() {
        cluster.push(leaf("/0", "version", cluster_version));
    }
    let root = format!(
        r#"{{"Path":"/","ExpireTime":"{NEVER}","Value":"","Children":{{{},{}}}}}"#,
        dir("/", "0", cluster),
        dir("/", "1", Vec::new())
    );
    format!(r#"{{"Root":{root},"CurrentIndex":0,"CurrentVersion":2}}"#).into_bytes()
}

/// A time of Go's that is none: what has it never expires.
const NEVER: &str = "0001-01-01T00:00:00Z";

fn urls_json(urls: &[String]) -> String {
    urls.iter().map(|url| json_string(url)).collect::<Vec<_>>().join(",")
}

fn member_json(member: &Member) -> String {
    let mut json = format!(r#"{{"id":{},"peerURLs":[{}]"#, member.id, urls_json(&member.peer_ur_ls));
    if member.is_learner {
        json += r#","isLearner":true"#;
    }
    if !member.name.is_empty() {
        json += &format!(r#","name":{}"#, json_string(&member.name));
    }
    if !member.client_ur_ls.is_empty() {
        json += &format!(r#","clientURLs":[{}]"#, urls_json(&member.client_ur_ls));
    }
    json + "}"
}

fn json_string(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json + "\""
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn revisions() {
        let key = RevisionKey::new(Revision { main: 3, sub: 1 }, false);
        assert_eq!(*key, *b"\0\0\0\0\0\0\0\x03_\0\0\0\0\0\0\0\x01");
        assert_eq!(RevisionKey::new(Revision { main: 3, sub: 1 }, true)[17..], *b"t");
    }

    #[test]
    fn files_are_of_the_clusters_version() {
        for (cluster, file) in [
            ("3.7.0", Some("3.7.0")),
            ("3.6.0", Some("3.6.0")),
            ("3.5.0", None),
            ("", Some("3.7.0")),
            ("4.0.0", Some("3.7.0")),
        ] {
            assert_eq!(storage_version(cluster), file, "{cluster}");
        }
    }

    #[test]
    fn members_are_in_the_old_store() {
        let member = Member {
            id: 0xab,
            name: "m0".into(),
            peer_ur_ls: vec!["http://a:1".into()],
            client_ur_ls: vec!["http://a:2".into()],
            ..Member::default()
        };
        let learner = Member { id: 0xcd, peer_ur_ls: vec!["http://b:1".into()], is_learner: true, ..Member::default() };
        let json = String::from_utf8(membership_v2(&[member, learner], &[7], "3.6.0")).unwrap();
        for part in [
            r#""Path":"/0/members/ab/raftAttributes","ExpireTime":"0001-01-01T00:00:00Z","Value":"{\"peerURLs\":[\"http://a:1\"]}""#,
            r#""Value":"{\"name\":\"m0\",\"clientURLs\":[\"http://a:2\"]}""#,
            r#""Value":"{\"peerURLs\":[\"http://b:1\"],\"isLearner\":true}""#,
            r#""7":{"Path":"/0/removed_members/7","#,
            r#""Path":"/0/version","ExpireTime":"0001-01-01T00:00:00Z","Value":"3.6.0""#,
            r#""1":{"Path":"/1","#,
        ] {
            assert!(json.contains(part), "{part} is not in {json}");
        }
        assert!(!json.contains("/0/members/cd/attributes"));
    }

    #[test]
    fn json() {
        let conf_state = ConfState { voters: vec![1, 2], learners: vec![3], ..ConfState::default() };
        assert_eq!(conf_state_json(&conf_state), r#"{"voters":[1,2],"learners":[3],"auto_leave":false}"#);
        let mut member = Member { id: 7, peer_ur_ls: vec!["http://a:1".into()], ..Member::default() };
        assert_eq!(member_json(&member), r#"{"id":7,"peerURLs":["http://a:1"]}"#);
        member =
            Member { is_learner: true, name: "a\"\\\n".into(), client_ur_ls: vec!["x".into(), "y".into()], ..member };
        assert_eq!(
            member_json(&member),
            r#"{"id":7,"peerURLs":["http://a:1"],"isLearner":true,"name":"a\"\\\u000a","clientURLs":["x","y"]}"#
        );
    }
}
