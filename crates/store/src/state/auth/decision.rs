//! The one function that permits or refuses a request.

use super::permissions::Permissions;
use crate::state::Leases;
use api::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest,
    request_op::Request,
};
use api::{Error, KeyRange};

/// A request, as far as permissions depend on it.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    /// Something that everybody may have, users or not.
    Anyone,
    /// Something that every user may have.
    Login,
    /// Something that only a user with the role `root` may have.
    Root,
    /// A range of keys.
    Range(&'a RangeRequest),
    /// A put.
    Put(&'a PutRequest),
    /// A deletion.
    DeleteRange(&'a DeleteRangeRequest),
    /// A transaction with all that is nested in it.
    Txn(&'a TxnRequest),
    /// A watch.
    Watch(&'a WatchCreateRequest),
    /// The end of a lease, or more time for it: its keys are written, or not deleted.
    Lease(i64),
    /// Which keys are on a lease.
    LeaseKeys(i64),
    /// Which leases there are.
    AllLeases,
    /// What roles a user has.
    User(&'a str),
    /// What a role may do.
    Role(&'a str),
}

impl Ask<'_> {
    /// Whether everybody may have it, users or not: it asks for nothing.
    pub fn is_for_all(&self) -> bool {
        match self {
            Ask::Anyone => true,
            Ask::Txn(request) => asks_for_nothing(request),
            // No user has this name.
            Ask::User("") => true,
            _ => false,
        }
    }

    /// Whether it is about keys, or leases with keys on them.
    pub fn is_about_keys(&self) -> bool {
        match self {
            Ask::Anyone | Ask::Login | Ask::Root | Ask::User(_) | Ask::Role(_) => false,
            Ask::Range(_) | Ask::Put(_) | Ask::DeleteRange(_) | Ask::Txn(_) | Ask::Watch(_) => true,
            Ask::Lease(_) | Ask::LeaseKeys(_) | Ask::AllLeases => true,
        }
    }
}

/// Recurses by nesting, at most `TXN_NESTING_MAX` deep.
fn asks_for_nothing(request: &TxnRequest) -> bool {
    let does_nothing = |op: &RequestOp| match &op.request {
        Some(Request::RequestTxn(txn)) => asks_for_nothing(txn),
        Some(_) => false,
        None => true,
    };
    request.compare.is_empty() && request.success.iter().chain(&request.failure).all(does_nothing)
}

impl Permissions {
    /// Whether the user may do everything that the request asks for, in every branch and depth.
    pub fn decide(&self, ask: Ask<'_>, leases: &Leases) -> Result<(), Error> {
        if self.is_root {
            return Ok(());
        }
        let permitted = match ask {
            Ask::Anyone | Ask::Login => true,
            Ask::Root => false,
            Ask::Range(request) => self.reads(&request.key, &request.range_end),
            Ask::Put(request) => self.puts(request, leases),
            Ask::DeleteRange(request) => self.deletes(request),
            Ask::Txn(request) => self.txn(request, leases),
            Ask::Watch(request) => self.reads(&request.key, &request.range_end),
            Ask::Lease(id) => self.may_write_leased(id, leases),
            Ask::LeaseKeys(id) => self.may_read_leased(Some(id), leases),
            Ask::AllLeases => self.may_read_leased(None, leases),
            Ask::User(name) => name == self.user,
            Ask::Role(name) => self.roles.iter().any(|role| role == name),
        };
        if permitted { Ok(()) } else { Err(Error::PermissionDenied) }
    }

    fn reads(&self, key: &[u8], range_end: &[u8]) -> bool {
        self.may_read(KeyRange::new(key, range_end))
    }

    /// A user who attaches a key to a lease decides when the lease's other keys end, so the user must be allowed to write those too.
    fn puts(&self, request: &PutRequest, leases: &Leases) -> bool {
        let key = KeyRange::One(&request.key);
        self.may_write(key)
            && (!request.prev_kv || self.may_read(key))
            && (request.lease == 0 || self.may_write_leased(request.lease, leases))
    }

    fn deletes(&self, request: &DeleteRangeRequest) -> bool {
        let range = KeyRange::new(&request.key, &request.range_end);
        self.may_write(range) && (!request.prev_kv || self.may_read(range))
    }

    /// Every comparison and every operation counts, of the branches that do not run too: which one runs tells about keys.
    /// Recurses by nesting, at most `TXN_NESTING_MAX` deep.
    fn txn(&self, request: &TxnRequest, leases: &Leases) -> bool {
        let compares = |compare: &Compare| self.reads(&compare.key, &compare.range_end);
        let does = |op: &RequestOp| match &op.request {
            Some(Request::RequestRange(range)) => self.reads(&range.key, &range.range_end),
            Some(Request::RequestPut(put)) => self.puts(put, leases),
            Some(Request::RequestDeleteRange(delete)) => self.deletes(delete),
            Some(Request::RequestTxn(txn)) => self.txn(txn, leases),
            None => true,
        };
        request.compare.iter().all(compares) && request.success.iter().chain(&request.failure).all(does)
    }
}
