//! The comparison before a member serves: its own data with the other members'.

use super::{Hash, ask};
use crate::config::Config;
use peer::Connector;
use store::Store;
use telemetry::logging::{self, Value};

/// The member's data differs from another's; it must not serve.
#[derive(Debug, thiserror::Error)]
#[error("{0:x} found data inconsistency with peers")]
pub struct Inconsistent(u64);

/// Compares this member's hash with that of every member that answers. `ids` are the ids of this member and the
/// cluster. A member that does not answer, or has compacted to another revision, does not count.
pub(crate) fn check(
    config: &Config,
    connector: &Connector,
    ids: (u64, u64),
    store: &Store,
) -> Result<(), Inconsistent> {
    let member = ids.0;
    let timeout = config.request_timeout();
    let own_id = ("local-member-id", Value::Id(member));
    logging::info("starting initial corruption check", &[own_id]);
    // Hashing at the current revision fails only if the store cannot be read at all.
    let Ok(told) = store.hash_kv(0) else { return Ok(()) };
    let own = Hash::from(&told);
    let mut differ = 0;
    let members = store.members().members.into_values().collect();
    for other in ask(connector, members, ids, told.hash_revision, timeout) {
        let Some(hash) = other.hash.filter(|hash| hash.hash != own.hash) else { continue };
        let fields = [
            ("local-member-id", Value::Id(member)),
            ("local-member-revision", own.revision.into()),
            ("local-member-compact-revision", own.compact_revision.into()),
            ("local-member-hash", u64::from(own.hash).into()),
            ("remote-peer-id", Value::Id(other.id)),
            ("remote-peer-revision", hash.revision.into()),
            ("remote-peer-compact-revision", hash.compact_revision.into()),
            ("remote-peer-hash", u64::from(hash.hash).into()),
        ];
        if hash.compact_revision == own.compact_revision {
            logging::warn("found different hash values from remote peer", &fields);
            differ += 1;
        } else {
            logging::warn("found different compact revision values from remote peer", &fields);
        }
    }
    if differ > 0 {
        return Err(Inconsistent(member));
    }
    logging::info("initial corruption checking passed; no corruption", &[("local-member-id", Value::Id(member))]);
    Ok(())
}
