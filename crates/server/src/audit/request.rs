//! What a request is about: its keys, users, roles, members. Never what is stored, and never a secret.

use super::Class;
use api::etcdserverpb::alarm_request::AlarmAction;
use api::etcdserverpb::request_op::Request as Op;
use api::etcdserverpb::*;
use api::unread;
use api::v3electionpb::{CampaignRequest, LeaderRequest, ProclaimRequest, ResignRequest};
use api::v3lockpb::{LockRequest, UnlockRequest};
use bytes::Bytes;
use contain::contain;
use std::fmt;

/// Key ranges of one request that are named: all of a transaction whose branches have as many as the default of `--max-txn-ops` lets
/// them have.
const KEYS_MAX: usize = 2 * 128;
/// The levels of transactions inside each other that are told apart.
const LEVELS_MAX: u8 = 8;

/// A range of keys and what is done with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(super) op: &'static str,
    /// Of a transaction's.
    pub(super) branch: Option<Branch>,
    pub(super) key: Bytes,
    pub(super) end: Bytes,
}

/// A field of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Field {
    Text(Bytes),
    Number(i64),
    Id(u64),
}

/// What a request names.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(super) keys: Vec<Keys>,
    /// How many key ranges are not among those, by what is done with them.
    pub(super) more: Vec<(&'static str, usize)>,
    pub(super) fields: Vec<(&'static str, Field)>,
}

impl Named {
    fn key(&mut self, op: &'static str, key: Bytes, end: Bytes) {
        self.keys.push(Keys { op, branch: None, key, end });
    }

    fn text(&mut self, name: &'static str, text: impl Into<Bytes>) {
        self.fields.push((name, Field::Text(text.into())));
    }

    fn number(&mut self, name: &'static str, number: i64) {
        self.fields.push((name, Field::Number(number)));
    }

    fn id(&mut self, name: &'static str, id: u64) {
        self.fields.push((name, Field::Id(id)));
    }

    /// The range of a watch.
    pub(crate) fn watch(request: &WatchCreateRequest) -> Named {
        let mut named = Named::default();
        named.key("watch", request.key.clone(), request.range_end.clone());
        named
    }

    /// Names the operations of a transaction, deletions first: reads that are put before them must not hide them. Returns whether one of
    /// them writes.
    fn txn(&mut self, txn: TxnRequest, reads: bool) -> bool {
        let [mut deletes, mut puts, mut ranges] = ["delete", "put", "range"].map(Listed::new);
        // A stack instead of recursion.
        let mut waiting = vec![(txn, Branch::default())];
        while let Some((txn, branch)) = waiting.pop() {
            let of = |ops: Vec<RequestOp>, branch: Branch| ops.into_iter().map(move |op| (op.request, branch));
            for (op, branch) in of(txn.success, branch.success()).chain(of(txn.failure, branch.failure())) {
                match op {
                    Some(Op::RequestRange(range)) => ranges.add(branch, range.key, range.range_end),
                    Some(Op::RequestPut(put)) => puts.add(branch, put.key, Bytes::new()),
                    Some(Op::RequestDeleteRange(delete)) => deletes.add(branch, delete.key, delete.range_end),
                    Some(Op::RequestTxn(inner)) => waiting.push((inner, branch)),
                    None => {}
                }
            }
        }
        let writes = deletes.count > 0 || puts.count > 0;
        for listed in [Some(deletes), Some(puts), reads.then_some(ranges)].into_iter().flatten() {
            listed.name(self);
        }
        writes
    }
}

/// The operations of one kind in a transaction.
struct Listed {
    op: &'static str,
    /// The first ones.
    keys: Vec<Keys>,
    count: usize,
}

impl Listed {
    fn new(op: &'static str) -> Listed {
        Listed { op, keys: Vec::new(), count: 0 }
    }

    fn add(&mut self, branch: Branch, key: Bytes, end: Bytes) {
        self.count = self.count.saturating_add(1);
        if self.keys.len() < KEYS_MAX {
            self.keys.push(Keys { op: self.op, branch: Some(branch), key, end });
        }
    }

    fn name(self, named: &mut Named) {
        let room = KEYS_MAX.saturating_sub(named.keys.len()).min(self.keys.len());
        named.keys.extend(self.keys.into_iter().take(room));
        if self.count > room {
            named.more.push((self.op, self.count.saturating_sub(room)));
        }
    }
}

/// A branch of a transaction, which may be one of another: `success/failure` is what the inner one does if its comparison fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Branch {
    levels: u8,
    /// A bit for each level; one is set for the failure.
    failures: u8,
}

impl Branch {
    fn success(self) -> Branch {
        Branch { levels: self.levels.saturating_add(1), ..self }
    }

    fn failure(self) -> Branch {
        let bit = 1_u8.checked_shl(self.levels.into()).unwrap_or_default();
        Branch { failures: self.failures | bit, ..self.success() }
    }
}

impl fmt::Display for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for level in 0..self.levels.min(LEVELS_MAX) {
            let is_failure = self.failures >> level & 1 == 1;
            let name = if is_failure { "failure" } else { "success" };
            write!(f, "{}{name}", if level > 0 { "/" } else { "" })?;
        }
        if self.levels > LEVELS_MAX { f.write_str("/...") } else { Ok(()) }
    }
}

/// The class of a request, and what it names: of a transaction that writes, what it reads only with `reads`. A message that cannot be
/// read, or is a transaction of more than `txn_ops_max` operations with all that are nested, names nothing: its handler refuses it.
pub(super) fn of_message(path: &str, message: &Bytes, reads: bool, txn_ops_max: usize) -> (Class, Named) {
    let (mut class, mut named) = (Class::of(path), Named::default());
    // What was read before a mistake is kept.
    let _ = read(path, message.clone(), (reads, txn_ops_max), &mut class, &mut named);
    (class, named)
}

/// The message of one type.
fn decode<M: api::Message + Default>(message: Bytes) -> Option<M> {
    unread::decode(message).ok()
}

fn read(
    path: &str,
    message: Bytes,
    (reads, txn_ops_max): (bool, usize),
    class: &mut Class,
    named: &mut Named,
) -> Option<()> {
    match path {
        "/etcdserverpb.KV/Range" | "/etcdserverpb.KV/RangeStream" => {
            let range: RangeRequest = decode(message)?;
            named.key("range", range.key, range.range_end);
        }
        "/etcdserverpb.KV/Put" => {
            let put: PutRequest = decode(message)?;
            named.key("put", put.key, Bytes::new());
            if put.lease != 0 {
                named.id("lease", put.lease as u64);
            }
        }
        "/etcdserverpb.KV/DeleteRange" => {
            let delete: DeleteRangeRequest = decode(message)?;
            named.key("delete", delete.key, delete.range_end);
        }
        "/etcdserverpb.KV/Txn" => {
            let txn = contain(|| api::decode::txn(message, txn_ops_max)).ok()?.ok()?;
            if !named.txn(txn, reads) {
                *class = Class::Read;
            }
        }
        "/etcdserverpb.KV/Compact" => {
            named.number("revision", decode::<CompactionRequest>(message)?.revision);
        }
        _ if path.starts_with("/etcdserverpb.Lease/") => lease(path, message, named)?,
        _ if path.starts_with("/etcdserverpb.Cluster/") => cluster(path, message, named)?,
        _ if path.starts_with("/etcdserverpb.Maintenance/") => maintenance(path, message, class, named)?,
        _ if path.starts_with("/etcdserverpb.Auth/") => auth(path, message, named)?,
        _ => queues(path, message, named)?,
    }
    Some(())
}

fn lease(path: &str, message: Bytes, named: &mut Named) -> Option<()> {
    match path {
        "/etcdserverpb.Lease/LeaseGrant" => {
            let grant: LeaseGrantRequest = decode(message)?;
            named.id("lease", grant.id as u64);
            named.number("ttl", grant.ttl);
        }
        "/etcdserverpb.Lease/LeaseRevoke" => named.id("lease", decode::<LeaseRevokeRequest>(message)?.id as u64),
        "/etcdserverpb.Lease/LeaseTimeToLive" => {
            named.id("lease", decode::<LeaseTimeToLiveRequest>(message)?.id as u64);
        }
        _ => {}
    }
    Some(())
}

fn cluster(path: &str, message: Bytes, named: &mut Named) -> Option<()> {
    match path {
        "/etcdserverpb.Cluster/MemberAdd" => {
            let add: MemberAddRequest = decode(message)?;
            named.text("peer_urls", add.peer_ur_ls.join(","));
            named.number("learner", add.is_learner.into());
        }
        "/etcdserverpb.Cluster/MemberRemove" => named.id("member_id", decode::<MemberRemoveRequest>(message)?.id),
        "/etcdserverpb.Cluster/MemberPromote" => named.id("member_id", decode::<MemberPromoteRequest>(message)?.id),
        "/etcdserverpb.Cluster/MemberUpdate" => {
            let update: MemberUpdateRequest = decode(message)?;
            named.id("member_id", update.id);
            named.text("peer_urls", update.peer_ur_ls.join(","));
        }
        _ => {}
    }
    Some(())
}

fn maintenance(path: &str, message: Bytes, class: &mut Class, named: &mut Named) -> Option<()> {
    match path {
        "/etcdserverpb.Maintenance/Alarm" => {
            let request: AlarmRequest = decode(message)?;
            let action = AlarmAction::try_from(request.action);
            if action == Ok(AlarmAction::Get) {
                *class = Class::Read;
            }
            named.text("action", action.map_or("", |action| action.as_str_name()));
            named.text("alarm", AlarmType::try_from(request.alarm).map_or("", |alarm| alarm.as_str_name()));
            named.id("member_id", request.member_id);
        }
        "/etcdserverpb.Maintenance/MoveLeader" => {
            named.id("member_id", decode::<MoveLeaderRequest>(message)?.target_id);
        }
        "/etcdserverpb.Maintenance/Downgrade" => {
            let request: DowngradeRequest = decode(message)?;
            let action = downgrade_request::DowngradeAction::try_from(request.action);
            named.text("action", action.map_or("", |action| action.as_str_name()));
            named.text("version", request.version);
        }
        "/etcdserverpb.Maintenance/HashKV" => named.number("revision", decode::<HashKvRequest>(message)?.revision),
        _ => {}
    }
    Some(())
}

/// Names of users and roles. Passwords are in these messages too, and are not touched.
fn auth(path: &str, message: Bytes, named: &mut Named) -> Option<()> {
    match path.rsplit('/').next()? {
        "Authenticate" => named.text("name", decode::<AuthenticateRequest>(message)?.name),
        "UserAdd" => named.text("name", decode::<AuthUserAddRequest>(message)?.name),
        "UserGet" => named.text("name", decode::<AuthUserGetRequest>(message)?.name),
        "UserDelete" => named.text("name", decode::<AuthUserDeleteRequest>(message)?.name),
        "UserChangePassword" => named.text("name", decode::<AuthUserChangePasswordRequest>(message)?.name),
        "UserGrantRole" => {
            let grant: AuthUserGrantRoleRequest = decode(message)?;
            named.text("name", grant.user);
            named.text("role", grant.role);
        }
        "UserRevokeRole" => {
            let revoke: AuthUserRevokeRoleRequest = decode(message)?;
            named.text("name", revoke.name);
            named.text("role", revoke.role);
        }
        "RoleAdd" => named.text("role", decode::<AuthRoleAddRequest>(message)?.name),
        "RoleGet" => named.text("role", decode::<AuthRoleGetRequest>(message)?.role),
        "RoleDelete" => named.text("role", decode::<AuthRoleDeleteRequest>(message)?.role),
        "RoleGrantPermission" => {
            let grant: AuthRoleGrantPermissionRequest = decode(message)?;
            named.text("role", grant.name);
            let permission = grant.perm?;
            let kind = api::authpb::permission::Type::try_from(permission.perm_type);
            named.text("permission", kind.map_or("", |kind| kind.as_str_name()));
            named.key("grant", permission.key, permission.range_end);
        }
        "RoleRevokePermission" => {
            let revoke: AuthRoleRevokePermissionRequest = decode(message)?;
            named.text("role", revoke.role);
            named.key("revoke", revoke.key, revoke.range_end);
        }
        _ => {}
    }
    Some(())
}

/// Locks and elections. What an election's leader proclaims is a value.
fn queues(path: &str, message: Bytes, named: &mut Named) -> Option<()> {
    match path.rsplit('/').next()? {
        "Lock" => named.text("name", decode::<LockRequest>(message)?.name),
        "Unlock" => named.key("delete", decode::<UnlockRequest>(message)?.key, Bytes::new()),
        "Campaign" => named.text("name", decode::<CampaignRequest>(message)?.name),
        "Proclaim" => named.text("name", decode::<ProclaimRequest>(message)?.leader?.name),
        "Resign" => named.text("name", decode::<ResignRequest>(message)?.leader?.name),
        "Leader" | "Observe" => named.text("name", decode::<LeaderRequest>(message)?.name),
        _ => {}
    }
    Some(())
}
