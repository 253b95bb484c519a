//! Restoring a member from its data at start: its log, and the identity that the log records.

use super::start::StartError;
use crate::cluster::{self, BootstrapError, FirstStart};
use crate::config::Config;
use api::Message;
use api::etcdserverpb::Metadata;
use api::raftpb::{Entry, HardState};
use disk::Disk;
use disk::data_dir::DataDir;
use replica::Restored;
use std::collections::BTreeSet;
use std::sync::Arc;
use telemetry::logging;
use wal::{EntryRef, Wal};

/// An open log and its contents.
pub(super) struct Opened {
    /// The log, open for appending.
    pub(super) wal: Wal,
    /// The member's identity.
    pub(super) identity: Metadata,
    /// The state with which consensus starts.
    pub(super) restored: Restored,
    /// Members of a joined cluster, while this member has nothing of its log.
    pub(super) remotes: Vec<store::Member>,
}

/// Opens the log from the store's applied index on. The empty log of a founder gets the founding entries. `begin` finds
/// the identity of this member; `removed` are the removed members that the store knows.
pub(super) fn open(
    config: &Config,
    disk: Arc<dyn Disk>,
    dir: &DataDir,
    applied: &store::Applied,
    options: wal::Options,
    begin: impl FnOnce() -> Result<FirstStart, BootstrapError>,
    removed: &BTreeSet<u64>,
) -> Result<Opened, StartError> {
    let state = api::walpb::Snapshot {
        index: Some(applied.index),
        term: Some(applied.term),
        conf_state: Some(applied.conf_state.clone()),
    };
    // An observer has acknowledged nothing: what its log lacks comes again.
    let observes = !config.follow.is_empty();
    let opened = match applied.installed || config.unsafe_ignore_lost_log || observes {
        true => Wal::open_installed(disk, &dir.wal, &state, options),
        false => Wal::open(disk, &dir.wal, &state, options),
    };
    let (mut wal, recovered) = opened.map_err(|error| match error {
        error @ (wal::Error::Ends { .. } | wal::Error::Differs { .. }) => StartError::LogLost(error),
        error => error.into(),
    })?;
    if let Some(cut) = &recovered.cut {
        logging::warn("cut an unfinished write off the Raft log", &[("cut", logging::Value::Shown(cut))]);
    }
    if recovered.restarted && !applied.installed && !observes {
        logging::warn(
            "the Raft log ends before what was applied from it, or has another entry there: acknowledged entries may be lost; it goes on \
             behind the store because of --unsafe-ignore-lost-log",
            &[("applied-index", applied.index.into())],
        );
    } else if recovered.restarted {
        logging::info(
            "Recovering from snapshot backend: the Raft log goes on behind a snapshot that it was not told of before the last stop",
            &[("snapshot-index", applied.index.into())],
        );
    }
    let identity = Metadata::decode(recovered.metadata).map_err(|error| StartError::Metadata(error.to_string()))?;
    let mut restored = Restored {
        hard_state: recovered.hard_state,
        entries: recovered.entries,
        newest_applied: if observes { recovered.applied } else { Vec::new() },
        applied: applied.index,
        applied_term: applied.term,
        conf_state: applied.conf_state.clone(),
        joined: Vec::new(),
        observes,
    };
    let mut remotes = Vec::new();
    if observes {
        // What it follows checks the cluster.
    } else if restored.applied == 0 && restored.entries.is_empty() {
        // The process may have ended between creating the log and its first entry.
        let first_start = begin()?;
        if ids(&first_start) != (identity.node_id(), identity.cluster_id()) {
            return Err(StartError::OtherMember);
        }
        match first_start {
            FirstStart::Found(first) => {
                append(&mut wal, &first.entries, &first.hard_state)?;
                restored.hard_state = first.hard_state;
                restored.entries = first.entries;
            }
            FirstStart::Observe(_) => unreachable!("an observer founds and joins nothing"),
            FirstStart::Join(joining) => {
                restored.joined = joining.remotes.iter().map(|member| member.id).collect();
                remotes = joining.remotes;
            }
        }
    } else {
        tell_ignored(config, &identity);
    }
    if config.force_new_cluster {
        // The state is checked before an entry is appended to it.
        restored.check()?;
        let urls = &config.advertise_peer_urls;
        let forced = cluster::force::force(&mut restored, identity.node_id(), urls, removed)?;
        if !forced.entries.is_empty() {
            append(&mut wal, &forced.entries, &restored.hard_state)?;
        }
        let removed: Vec<String> = forced.removed.iter().map(|id| format!("{id:x}")).collect();
        logging::warn(
            "forcing a new cluster: this member goes on alone",
            &[("removed-members", (&removed.join(",")).into()), ("commit-index", restored.hard_state.commit().into())],
        );
    }
    Ok(Opened { wal, identity, restored, remotes })
}

fn append(wal: &mut Wal, entries: &[Entry], hard_state: &HardState) -> Result<(), StartError> {
    let mut entries = entries.iter().map(|entry| EntryRef {
        term: entry.term(),
        index: entry.index(),
        kind: entry.r#type() as i32,
        data: entry.data.as_deref().unwrap_or_default(),
    });
    wal.append(&mut entries, Some(hard_state));
    Ok(wal.commit(true)?)
}

fn ids(first_start: &FirstStart) -> (u64, u64) {
    match first_start {
        FirstStart::Found(first) => (first.member_id, first.cluster_id),
        FirstStart::Join(joining) => (joining.member_id, joining.cluster_id),
        FirstStart::Observe(observing) => (observing.id, observing.cluster_id),
    }
}

/// The identity of a member with data comes from its data. Flags that contradict it are ignored with a warning.
fn tell_ignored(config: &Config, identity: &Metadata) {
    if config.join_existing || config.srv.is_some() || (config.discovery.is_none() && !config.initial_is_given) {
        return;
    }
    if config.discovery.is_some() {
        logging::warn("discovery token is ignored since cluster already initialized; valid logs are found", &[]);
        return;
    }
    let Some(first) = replica::bootstrap(&config.initial_cluster, &config.name, &config.cluster_token) else { return };
    if first.cluster_id != identity.cluster_id() {
        logging::warn(
            "the data directory belongs to a cluster other than --initial-cluster and --initial-cluster-token would give; \
             these flags are ignored, as the cluster may have changed its members since",
            &[
                ("data-cluster-id", logging::Value::Id(identity.cluster_id())),
                ("flags-cluster-id", logging::Value::Id(first.cluster_id)),
                ("local-member-id", logging::Value::Id(identity.node_id())),
            ],
        );
    }
}

/// The identity record of a new log.
pub(super) fn metadata(first_start: &FirstStart) -> Vec<u8> {
    let (node_id, cluster_id) = ids(first_start);
    Metadata { node_id: Some(node_id), cluster_id: Some(cluster_id) }.encode_to_vec()
}
