//! The first entries of a new cluster's log.

use crate::consensus::identity::{cluster_id, member_id};
use api::{Message, etcdserverpb, raftpb};

/// The initial state of a founding member.
pub struct Bootstrap {
    /// This member.
    pub member_id: u64,
    /// The cluster all founding members share.
    pub cluster_id: u64,
    /// `etcdserverpb.Metadata`, the identity record of the log.
    pub metadata: Vec<u8>,
    /// One configuration change per founding member, term 1, all of them committed.
    pub entries: Vec<raftpb::Entry>,
    /// Term 1 with every entry committed.
    pub hard_state: raftpb::HardState,
}

/// Computes ids and first entries from `--initial-cluster` (name and peer URLs of each member), as every founding member does
/// for itself with the same result. `None` when `name` is not among the members.
pub fn bootstrap(members: &[(String, Vec<String>)], name: &str, token: &str) -> Option<Bootstrap> {
    let mut founders: Vec<(u64, &(String, Vec<String>))> =
        members.iter().map(|member| (member_id(&member.1, token, None), member)).collect();
    founders.sort_by_key(|(id, _)| *id);
    let this = founders.iter().find(|(_, member)| member.0 == name)?.0;
    let ids: Vec<u64> = founders.iter().map(|(id, _)| *id).collect();
    let cluster = cluster_id(&ids);
    let entries = (1u64..)
        .zip(&founders)
        .map(|(index, (id, (_, urls)))| {
            let change = raftpb::ConfChange {
                r#type: Some(raftpb::ConfChangeType::ConfChangeAddNode as i32),
                node_id: Some(*id),
                context: Some(context(*id, urls).into()),
                id: None,
            };
            raftpb::Entry {
                term: Some(1),
                index: Some(index),
                r#type: Some(raftpb::EntryType::EntryConfChange as i32),
                data: Some(change.encode_to_vec().into()),
            }
        })
        .collect::<Vec<_>>();
    let metadata = etcdserverpb::Metadata { node_id: Some(this), cluster_id: Some(cluster) };
    Some(Bootstrap {
        member_id: this,
        cluster_id: cluster,
        metadata: metadata.encode_to_vec(),
        hard_state: raftpb::HardState { term: Some(1), vote: Some(0), commit: Some(entries.len() as u64) },
        entries,
    })
}

/// The JSON that a configuration change carries about its member; a peer of another kind depends on it. The name stays out:
/// it is published through the log once the member runs.
fn context(id: u64, peer_urls: &[String]) -> String {
    serde_json::json!({ "id": id, "peerURLs": peer_urls, "name": "" }).to_string()
}
