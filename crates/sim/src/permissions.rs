//! A simple second implementation of users, roles and permissions, for the model.

use api::Error;
use api::authpb::permission::Type;
use api::etcdserverpb::InternalRaftRequest;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{PutRequest, RequestHeader, TxnRequest};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

const ROOT: &str = "root";

/// What a role may do with a range of keys.
#[derive(Clone, Debug, PartialEq)]
struct Grant {
    key: Bytes,
    end: Bytes,
    reads: bool,
    writes: bool,
}

/// Users and roles after some entry.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) enabled: bool,
    pub(crate) revision: u64,
    users: BTreeMap<String, BTreeSet<String>>,
    roles: BTreeMap<String, Vec<Grant>>,
    /// Tokens that were given out, with their user and entry.
    tokens: BTreeMap<String, (String, u64)>,
    /// Entries that took tokens away: those of a user, or all.
    taken: Vec<(u64, Option<String>)>,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            enabled: false,
            revision: 1,
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
            tokens: BTreeMap::new(),
            taken: Vec::new(),
        }
    }
}

/// What an entry asks for.
pub(crate) enum Wish<'a> {
    Nothing,
    Root,
    /// A token, for somebody whose password was right.
    Token,
    Put(&'a PutRequest),
    Delete(&'a [u8], &'a [u8]),
    Txn(&'a TxnRequest),
    /// The end of a lease, with the keys on it.
    Lease(Vec<Bytes>),
}

impl Access {
    /// Whether the author of an entry gets what it asks for. `keys_of` are the keys on a lease.
    pub(crate) fn permits(
        &self,
        header: &RequestHeader,
        wish: &Wish<'_>,
        keys_of: impl Fn(i64) -> Vec<Bytes>,
    ) -> Result<(), Error> {
        if !self.enabled || matches!(wish, Wish::Nothing) {
            return Ok(());
        }
        let user = header.username.as_str();
        let known = self.users.get(user);
        let is_root = known.is_some_and(|roles| roles.contains(ROOT));
        match wish {
            Wish::Root if user.is_empty() => return Err(Error::UserEmpty),
            Wish::Root if known.is_none() => return Err(Error::UserNotFound),
            Wish::Root => return if is_root { Ok(()) } else { Err(Error::PermissionDenied) },
            Wish::Token if header.auth_revision != 0 && header.auth_revision < self.revision => {
                return Err(Error::AuthOldRevision);
            }
            Wish::Token => return Ok(()),
            Wish::Lease(keys) if keys.is_empty() || is_root => return Ok(()),
            _ => {}
        }
        if user.is_empty() {
            return Err(Error::UserEmpty);
        }
        if header.auth_revision < self.revision {
            return Err(Error::AuthOldRevision);
        }
        if known.is_none() {
            return Err(Error::PermissionDenied);
        }
        let may = |writes: bool, key: &[u8], end: &[u8]| is_root || self.covers(user, writes, key, end);
        let may_write_all = |keys: Vec<Bytes>| keys.iter().all(|key| may(true, key, &[]));
        let puts = |put: &PutRequest| may(true, &put.key, &[]) && (put.lease == 0 || may_write_all(keys_of(put.lease)));
        let permitted = match wish {
            Wish::Put(put) => puts(put),
            Wish::Delete(key, end) => may(true, key, end),
            Wish::Lease(keys) => may_write_all(keys.clone()),
            Wish::Txn(txn) => {
                txn.compare.iter().all(|compare| may(false, &compare.key, &compare.range_end))
                    && txn.success.iter().chain(&txn.failure).all(|op| match &op.request {
                        Some(Request::RequestRange(range)) => may(false, &range.key, &range.range_end),
                        Some(Request::RequestPut(put)) => puts(put),
                        Some(Request::RequestDeleteRange(delete)) => may(true, &delete.key, &delete.range_end),
                        Some(Request::RequestTxn(_)) | None => true,
                    })
            }
            Wish::Nothing | Wish::Root | Wish::Token => true,
        };
        if permitted { Ok(()) } else { Err(Error::PermissionDenied) }
    }

    /// Whether the grants of a user's roles cover a range of keys together.
    fn covers(&self, user: &str, writes: bool, key: &[u8], end: &[u8]) -> bool {
        let roles = self.users.get(user).into_iter().flatten();
        let grants: Vec<&Grant> = roles
            .filter_map(|role| self.roles.get(role))
            .flatten()
            .filter(|grant| if writes { grant.writes } else { grant.reads })
            .collect();
        // One key is the span up to the next possible one.
        let end = if end.is_empty() { [key, &[0]].concat() } else { end.to_vec() };
        let mut from = key.to_vec();
        while from < end {
            let next = grants.iter().filter(|grant| grant.key[..] <= from[..]).map(|grant| grant.span_end());
            match next.max() {
                Some(next) if next > from => from = next,
                _ => return false,
            }
        }
        true
    }

    /// The entry that gave a token out, 0 if none did, and whose it is after the entry `applied`.
    pub(crate) fn holder(&self, token: &str, applied: u64) -> (u64, Option<&str>) {
        let Some((user, given)) = self.tokens.get(token) else { return (0, None) };
        let takes = |(at, whose): &(u64, Option<String>)| {
            (given + 1..=applied).contains(at) && whose.as_ref().is_none_or(|whose| whose == user)
        };
        let is_valid = *given <= applied && !self.taken.iter().any(takes);
        (*given, is_valid.then_some(user))
    }

    /// Applies an entry about users; `None` if it is about something else.
    pub(crate) fn apply(&mut self, index: u64, request: &InternalRaftRequest) -> Option<Result<(), Error>> {
        let before = self.revision;
        let result = if let Some(log_in) = &request.authenticate {
            if !self.enabled {
                Err(Error::AuthNotEnabled)
            } else if !self.users.contains_key(&log_in.name) {
                Err(Error::AuthFailed)
            } else {
                let token = format!("{}.{}", log_in.simple_token, index - 1);
                self.tokens.insert(token, (log_in.name.clone(), index));
                Ok(false)
            }
        } else if let Some(change) = &request.auth_user_change_password {
            match self.users.contains_key(&change.name) {
                false => Err(Error::UserNotFound),
                true => {
                    self.taken.push((index, Some(change.name.clone())));
                    Ok(true)
                }
            }
        } else if let Some(add) = &request.auth_user_add {
            match self.users.contains_key(&add.name) {
                true => Err(Error::UserAlreadyExist),
                false => {
                    self.users.insert(add.name.clone(), BTreeSet::new());
                    Ok(true)
                }
            }
        } else if let Some(delete) = &request.auth_user_delete {
            self.taken.push((index, Some(delete.name.clone())));
            self.users.remove(&delete.name).map(|_| true).ok_or(Error::UserNotFound)
        } else if let Some(grant) = &request.auth_user_grant_role {
            match self.users.get_mut(&grant.user) {
                None => Err(Error::UserNotFound),
                Some(_) if grant.role != ROOT && !self.roles.contains_key(&grant.role) => Err(Error::RoleNotFound),
                Some(roles) => Ok(roles.insert(grant.role.clone())),
            }
        } else if let Some(revoke) = &request.auth_user_revoke_role {
            match self.users.get_mut(&revoke.name) {
                None => Err(Error::UserNotFound),
                Some(roles) => {
                    if roles.remove(&revoke.role) {
                        Ok(true)
                    } else {
                        Err(Error::RoleNotGranted)
                    }
                }
            }
        } else if let Some(add) = &request.auth_role_add {
            match self.roles.contains_key(&add.name) {
                true => Err(Error::RoleAlreadyExist),
                false => {
                    self.roles.insert(add.name.clone(), Vec::new());
                    Ok(true)
                }
            }
        } else if let Some(delete) = &request.auth_role_delete {
            for roles in self.users.values_mut() {
                roles.remove(&delete.role);
            }
            self.roles.remove(&delete.role).map(|_| true).ok_or(Error::RoleNotFound)
        } else if let Some(grant) = &request.auth_role_grant_permission {
            let permission = grant.perm.clone().unwrap_or_default();
            match self.roles.get_mut(&grant.name) {
                None => Err(Error::RoleNotFound),
                Some(grants) => {
                    let kind = permission.perm_type();
                    let new = Grant {
                        reads: kind != Type::Write,
                        writes: kind != Type::Read,
                        key: permission.key,
                        end: permission.range_end,
                    };
                    // As etcd: only the first of the ranges that begin at a key is found, and another one is there twice then.
                    let first = grants.partition_point(|grant| grant.key < new.key);
                    match grants.get_mut(first) {
                        Some(found) if found.key == new.key && found.end == new.end => *found = new,
                        _ => grants.insert(grants.partition_point(|grant| grant.key <= new.key), new),
                    }
                    Ok(true)
                }
            }
        } else if let Some(revoke) = &request.auth_role_revoke_permission {
            match self.roles.get_mut(&revoke.role) {
                None => Err(Error::RoleNotFound),
                Some(grants) => {
                    let before = grants.len();
                    grants.retain(|grant| grant.key != revoke.key || grant.end != revoke.range_end);
                    if grants.len() < before { Ok(true) } else { Err(Error::PermissionNotGranted) }
                }
            }
        } else if request.auth_enable.is_some() {
            match self.users.get(ROOT) {
                None => Err(Error::RootUserNotExist),
                Some(roles) if !roles.contains(ROOT) => Err(Error::RootRoleNotExist),
                Some(_) => {
                    self.enabled = true;
                    Ok(false)
                }
            }
        } else if request.auth_disable.is_some() {
            self.taken.push((index, None));
            Ok(std::mem::take(&mut self.enabled))
        } else {
            return None;
        };
        self.revision = before + u64::from(result == Ok(true));
        Some(result.map(|_| ()))
    }
}

impl Grant {
    fn span_end(&self) -> Vec<u8> {
        if self.end.is_empty() { [&self.key[..], &[0]].concat() } else { self.end.to_vec() }
    }
}
