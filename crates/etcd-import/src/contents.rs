//! The contents of an etcd database apart from the keys.

use crate::database::{Visit, revision};
use crate::{Database, Error};
use api::Message;
use api::authpb::{Role, User};
use api::etcdserverpb::{AlarmMember, DowngradeInfo};
use api::leasepb::Lease;
use api::limits::{SNAPSHOT_ALARMS_MAX, SNAPSHOT_LISTED_LEASES_MAX, SNAPSHOT_MEMBERS_MAX};
use api::raftpb::ConfState;
use bytes::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use store::Member;
use store::checkpoint::Checkpoint;

/// Bytes of a bucket that is kept in memory, apart from leases. etcd keeps some dozens of bytes of settings; of users and roles, 16 MiB
/// are a hundred thousand.
const TABLE_BYTES_MAX: usize = 16 << 20;
/// Rows of a bucket of settings.
const TABLE_ROWS_MAX: usize = 10_000;
/// Leases: 24 bytes of memory each.
const LEASES_MAX: usize = SNAPSHOT_LISTED_LEASES_MAX;
/// Members that are no more: 8 bytes of memory each.
const REMOVED_MAX: usize = 1 << 20;

/// Everything in a database but the changes to keys.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Index of the last entry of the log that is in it.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Raft's configuration; versions before 3.5 did not store it.
    pub conf_state: Option<ConfState>,
    /// The revision that the history is compacted to, finished or not; -1 if never.
    pub compact_revision: i64,
    /// The version of etcd that it is for; empty before 3.6.
    pub storage_version: String,
    /// The leases.
    pub leases: Vec<Lease>,
    /// Alarms that are on.
    pub alarms: Vec<AlarmMember>,
    /// The version that the cluster has agreed on.
    pub cluster_version: String,
    /// The downgrade under way.
    pub downgrade: Option<DowngradeInfo>,
    /// The members.
    pub members: Vec<Member>,
    /// Those that are no more.
    pub removed: Vec<u64>,
    /// Users and roles, as a checkpoint has them.
    pub auth: Bytes,
}

/// etcd's JSON of Raft's configuration.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Voters {
    voters: Option<Vec<u64>>,
    learners: Option<Vec<u64>>,
    voters_outgoing: Option<Vec<u64>>,
    learners_next: Option<Vec<u64>>,
    auto_leave: Option<bool>,
}

/// etcd's JSON for a downgrade.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Downgrade {
    #[serde(rename = "target-version")]
    target_version: String,
    enabled: bool,
}

impl Database {
    /// Reads everything but the keys.
    ///
    /// # Errors
    /// If the file is damaged, or something in it is none of etcd's.
    pub fn contents(&self) -> Result<Contents, Error> {
        let mut contents = Contents { compact_revision: -1, ..Contents::default() };
        let meta = self.table("meta")?;
        contents.index = number(&meta, "meta", "consistent_index")?.unwrap_or(0);
        contents.term = number(&meta, "meta", "term")?.unwrap_or(0);
        contents.storage_version = text(&meta, "meta", "storageVersion")?.unwrap_or_default();
        if let Some(json) = meta.get(&b"confState"[..]) {
            let found: Voters = parse("meta", json)?;
            contents.conf_state = Some(ConfState {
                voters: found.voters.unwrap_or_default(),
                learners: found.learners.unwrap_or_default(),
                voters_outgoing: found.voters_outgoing.unwrap_or_default(),
                learners_next: found.learners_next.unwrap_or_default(),
                auto_leave: found.auto_leave,
            });
        }
        contents.compact_revision = compact_revision(&meta)?;
        self.walk("lease", &mut |_, value| {
            if contents.leases.len() >= LEASES_MAX {
                return Err(Error::contents("lease", format!("it has more than {LEASES_MAX} leases")));
            }
            contents.leases.push(decode("lease", value)?);
            Ok(())
        })?;
        self.rows("alarm", SNAPSHOT_ALARMS_MAX, &mut |key, _| {
            contents.alarms.push(decode("alarm", key)?);
            Ok(())
        })?;
        self.cluster(&mut contents)?;
        self.auth(&mut contents)?;
        Ok(contents)
    }

    fn cluster(&self, contents: &mut Contents) -> Result<(), Error> {
        let cluster = self.table("cluster")?;
        contents.cluster_version = text(&cluster, "cluster", "clusterVersion")?.unwrap_or_default();
        if let Some(json) = cluster.get(&b"downgrade"[..]) {
            let Downgrade { target_version, enabled } = parse("cluster", json)?;
            contents.downgrade = enabled.then_some(DowngradeInfo { enabled, target_version });
        }
        self.rows("members", SNAPSHOT_MEMBERS_MAX, &mut |_, value| {
            contents.members.push(parse("members", value)?);
            Ok(())
        })?;
        self.rows("members_removed", REMOVED_MAX, &mut |key, _| {
            let id = std::str::from_utf8(key).ok().and_then(|key| u64::from_str_radix(key, 16).ok());
            contents.removed.push(id.ok_or_else(|| Error::contents("members_removed", "a key that is no id"))?);
            Ok(())
        })
    }

    fn auth(&self, contents: &mut Contents) -> Result<(), Error> {
        let auth = self.table("auth")?;
        let enabled = auth.get(&b"authEnabled"[..]).is_some_and(|value| value == &[1]);
        // etcd makes 1 of 0 at its start, too.
        let revision = number(&auth, "auth", "authRevision")?.unwrap_or(1).max(1);
        let (mut users, mut roles): (Vec<User>, Vec<Role>) = (Vec::new(), Vec::new());
        self.rows("authUsers", usize::MAX, &mut |_, value| {
            users.push(decode("authUsers", value)?);
            Ok(())
        })?;
        self.rows("authRoles", usize::MAX, &mut |_, value| {
            roles.push(decode("authRoles", value)?);
            Ok(())
        })?;
        contents.auth =
            store::encode_auth(enabled, revision, users, roles).map_err(|what| Error::contents("auth", what))?;
        Ok(())
    }

    /// The revision that the history is compacted to, finished or not; -1 if never.
    pub(crate) fn compact_revision(&self) -> Result<i64, Error> {
        compact_revision(&self.table("meta")?)
    }

    /// A bucket of a few rows.
    fn table(&self, name: &str) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
        let mut rows = BTreeMap::new();
        self.rows(name, TABLE_ROWS_MAX, &mut |key, value| {
            rows.insert(key.to_vec(), value.to_vec());
            Ok(())
        })?;
        Ok(rows)
    }

    /// Goes through a bucket that is kept in memory: of so many rows at most, and of [`TABLE_BYTES_MAX`].
    fn rows(&self, name: &str, rows_max: usize, visit: &mut Visit<'_>) -> Result<(), Error> {
        let (mut bytes_left, mut rows_left) = (TABLE_BYTES_MAX, rows_max);
        self.walk(name, &mut |key, value| {
            let left = bytes_left.checked_sub(key.len()).and_then(|left| left.checked_sub(value.len()));
            let too_large = || format!("it has more than {TABLE_BYTES_MAX} bytes");
            bytes_left = left.ok_or_else(|| Error::contents(name, too_large()))?;
            let too_many = || format!("it has more than {rows_max} rows");
            rows_left = rows_left.checked_sub(1).ok_or_else(|| Error::contents(name, too_many()))?;
            visit(key, value)
        })
    }
}

impl Contents {
    /// The same as a checkpoint has it, for a store that ends at `revision`.
    pub(crate) fn checkpoint(self, revision: i64) -> Checkpoint {
        Checkpoint {
            applied_index: self.index,
            applied_term: self.term,
            revision: revision.max(self.compact_revision).max(1),
            compact_revision: self.compact_revision,
            conf_state: self.conf_state.unwrap_or_default(),
            leases: self.leases,
            alarms: self.alarms,
            members: self.members.into_iter().map(Into::into).collect(),
            removed: self.removed,
            cluster_version: self.cluster_version,
            downgrade: self.downgrade,
            auth: self.auth,
            ..Checkpoint::initial()
        }
    }
}

/// The revision that the history is compacted to, by the bucket `meta`; -1 if never.
pub(crate) fn compact_revision(meta: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<i64, Error> {
    let mut found = -1;
    for name in ["scheduledCompactRev", "finishedCompactRev"] {
        if let Some(bytes) = meta.get(name.as_bytes()) {
            let (rev, _) = revision(bytes).ok_or_else(|| Error::contents("meta", format!("{name} is no revision")))?;
            found = rev.main.max(found);
        }
    }
    Ok(found)
}

fn decode<M: Message + Default>(bucket: &str, bytes: &[u8]) -> Result<M, Error> {
    M::decode(bytes).map_err(|error| Error::contents(bucket, error.to_string()))
}

fn parse<'a, T: Deserialize<'a>>(bucket: &str, json: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(json).map_err(|error| Error::contents(bucket, error.to_string()))
}

fn number(rows: &BTreeMap<Vec<u8>, Vec<u8>>, bucket: &str, name: &str) -> Result<Option<u64>, Error> {
    let Some(value) = rows.get(name.as_bytes()) else { return Ok(None) };
    let wrong = |_| Error::contents(bucket, format!("{name} has {} bytes, not 8", value.len()));
    Ok(Some(u64::from_be_bytes(value.as_slice().try_into().map_err(wrong)?)))
}

fn text(rows: &BTreeMap<Vec<u8>, Vec<u8>>, bucket: &str, name: &str) -> Result<Option<String>, Error> {
    let Some(value) = rows.get(name.as_bytes()) else { return Ok(None) };
    let wrong = |_| Error::contents(bucket, format!("{name} is no text"));
    Ok(Some(String::from_utf8(value.clone()).map_err(wrong)?))
}
