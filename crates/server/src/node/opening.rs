//! What a member may show before it is published.
//!
//! A member waits for a quorum before it is ready: its name goes through the log. Some answers need no quorum, and are of most use while
//! there is none.

use super::Node;
use api::RaftRequest;
use api::raftpb::{Entry, EntryType};
use std::sync::atomic::{AtomicBool, Ordering};

/// How far a member is on its way to serving everything.
#[derive(Debug)]
pub(crate) struct Opening {
    published: AtomicBool,
    /// The last entry that this member's log knew to be committed when it was opened.
    committed: u64,
    /// An entry behind that one, of which nobody knows yet whether it is committed, changes users or permissions: an earlier run may have
    /// served under them.
    is_auth_open: bool,
}

impl Opening {
    /// For a member whose log knows that its entries up to `committed` are committed.
    pub(super) fn new(committed: u64, entries: &[Entry]) -> Opening {
        let is_auth_open = entries.iter().any(|entry| entry.index() > committed && may_change_auth(entry));
        Opening { published: AtomicBool::new(false), committed, is_auth_open }
    }

    /// Whether this run of the member has been published: then it serves every call.
    pub(crate) fn is_published(&self) -> bool {
        self.published.load(Ordering::Acquire)
    }

    /// The last entry that was known to be committed before the start.
    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    /// The member is published.
    pub(crate) fn publish(&self) {
        self.published.store(true, Ordering::Release);
    }
}

fn may_change_auth(entry: &Entry) -> bool {
    let data = entry.data();
    entry.r#type() == EntryType::EntryNormal
        && !data.is_empty()
        && RaftRequest::of_entry(data)
            .is_none_or(|kind| kind != RaftRequest::Authenticate && kind.name().starts_with("Auth"))
}

impl Node {
    /// Whether a member that is not published yet may show its data. It has applied what its log knew to be committed, and with that
    /// the entry by which an earlier run was published. A new member has not: it may still be without the users and permissions that
    /// guard the keys it has. Nor may one show them whose log ends with changes of users that may be in force.
    pub(crate) fn shows_local_data(&self) -> bool {
        if self.is_observer() {
            return self.was_level.load(Ordering::Relaxed) && self.status.applied() >= self.opening.committed;
        }
        let members = self.store.members().members;
        let was_published = members.get(&self.member_id).is_some_and(|own| !own.client_urls.is_empty());
        was_published && !self.opening.is_auth_open && self.status.applied() >= self.opening.committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::RequestHeader;

    fn entry(index: u64, kind: RaftRequest) -> Entry {
        let data = kind.encode(&RequestHeader { id: 1, ..Default::default() }, &[]);
        Entry { index: Some(index), data: Some(data.into()), ..Default::default() }
    }

    #[test]
    fn changes_of_users_that_may_be_in_force_hide_the_data() {
        let hides =
            |committed, kind| Opening::new(committed, &[entry(7, kind), entry(8, RaftRequest::Put)]).is_auth_open;
        assert!(hides(6, RaftRequest::AuthEnable) && hides(6, RaftRequest::AuthUserRevokeRole));
        assert!(!hides(7, RaftRequest::AuthEnable), "it is known to be committed");
        assert!(!hides(6, RaftRequest::Authenticate) && !hides(6, RaftRequest::DeleteRange));
        let unknown = Entry { index: Some(9), data: Some(vec![0xff; 12].into()), ..Default::default() };
        assert!(Opening::new(8, &[unknown]).is_auth_open);
        assert!(
            !Opening::new(8, &[Entry { index: Some(9), ..Default::default() }]).is_auth_open,
            "a leader's first entry"
        );
    }
}
