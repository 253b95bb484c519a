//! Observers: processes outside of the cluster's configuration that have what members have, and serve what members serve (ADR 0012).
//!
//! ```text
//! what is followed                        observer
//! feed, followers ──applied entries──▶ follow ──▶ inbox of consensus ──▶ log, store, watch hub as on a member
//! cluster/calls ◀──read indexes── forward ◀── consensus
//! POST /raft    ◀──proposals───── forward ◀── consensus
//! ```
//!
//! Every member and every observer can be followed. `link` is what an observer knows about what it follows; `replica::consensus` has the
//! rules by which it takes entries.

mod caught_up;
mod feed;
mod follow;
mod followers;
mod forward;
mod link;

pub(crate) use feed::feed;
pub(crate) use follow::start;
pub(crate) use followers::Followers;
pub(crate) use forward::READ_INDEX;
pub(crate) use link::Link;
