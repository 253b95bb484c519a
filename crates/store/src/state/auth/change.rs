//! Applying entries to users and roles.

use super::state::{AuthState, record_bytes};
use super::{AuthEvent, ROOT};
use crate::mistake::Mistake;
use api::Error;
use api::authpb::{Permission, Role, User, UserAddOptions};
use api::etcdserverpb::{
    AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleGrantPermissionRequest, AuthRoleRevokePermissionRequest,
    AuthUserAddRequest, AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGrantRoleRequest,
    AuthUserRevokeRoleRequest, InternalAuthenticateRequest,
};
use api::limits::AUTH_NAME_BYTES_MAX;
use bytes::Bytes;
use std::sync::Arc;

/// An entry about users.
#[derive(Debug)]
pub(crate) enum Change {
    Enable,
    Disable,
    Authenticate(InternalAuthenticateRequest),
    UserAdd(AuthUserAddRequest),
    UserDelete(AuthUserDeleteRequest),
    UserChangePassword(AuthUserChangePasswordRequest),
    UserGrantRole(AuthUserGrantRoleRequest),
    UserRevokeRole(AuthUserRevokeRoleRequest),
    RoleAdd(AuthRoleAddRequest),
    RoleDelete(AuthRoleDeleteRequest),
    RoleGrantPermission(AuthRoleGrantPermissionRequest),
    RoleRevokePermission(AuthRoleRevokePermissionRequest),
}

impl Change {
    /// The user and the role whose record it changes; a role that is deleted is also taken from its users.
    fn names(&self) -> (String, String) {
        let (user, role) = match self {
            Change::Enable | Change::Disable | Change::Authenticate(_) => ("", ""),
            Change::UserAdd(request) => (&request.name[..], ""),
            Change::UserDelete(request) => (&request.name[..], ""),
            Change::UserChangePassword(request) => (&request.name[..], ""),
            Change::UserGrantRole(request) => (&request.user[..], ""),
            Change::UserRevokeRole(request) => (&request.name[..], ""),
            Change::RoleAdd(request) => ("", &request.name[..]),
            Change::RoleDelete(request) => ("", &request.role[..]),
            Change::RoleGrantPermission(request) => ("", &request.name[..]),
            Change::RoleRevokePermission(request) => ("", &request.role[..]),
        };
        (user.into(), role.into())
    }
}

impl AuthState {
    /// Applies the entry at `index`. After an error nothing has changed.
    pub(super) fn change(&mut self, index: u64, change: Change) -> Result<AuthEvent, Error> {
        let (user, role) = change.names();
        let before = self.bytes_of(&user, &role);
        let event = self.apply(index, change)?;
        self.bytes = self.bytes.saturating_add(self.bytes_of(&user, &role)).saturating_sub(before);
        Ok(event)
    }

    /// What a user and a role count for, as far as there are such.
    fn bytes_of(&self, user: &str, role: &str) -> u64 {
        let user = self.users.get(user).map_or(0, |user| record_bytes(user.as_ref()));
        user.saturating_add(self.roles.get(role).map_or(0, |role| record_bytes(role.as_ref())))
    }

    fn apply(&mut self, index: u64, change: Change) -> Result<AuthEvent, Error> {
        match change {
            Change::Enable => return self.enable(),
            Change::Disable => {
                if !std::mem::take(&mut self.enabled) {
                    return Ok(AuthEvent::None);
                }
                self.revision += 1;
                return Ok(AuthEvent::AllTokensDropped);
            }
            Change::Authenticate(request) => return self.authenticate(index, request),
            Change::UserAdd(request) => self.add_user(request)?,
            Change::UserDelete(request) => {
                if self.enabled && request.name == ROOT {
                    return Err(Error::InvalidAuthMgmt);
                }
                self.users.remove(&request.name).ok_or(Error::UserNotFound)?;
                self.revision += 1;
                if Mistake::DeletedUserKeepsTokens.is_planted() {
                    return Ok(AuthEvent::None);
                }
                return Ok(AuthEvent::UserTokensDropped(request.name));
            }
            Change::UserChangePassword(request) => {
                let user = self.users.get_mut(&request.name).ok_or(Error::UserNotFound)?;
                let password = hash(&request.hashed_password, has_no_password(user))?;
                Arc::make_mut(user).password = password;
                self.revision += 1;
                return Ok(AuthEvent::UserTokensDropped(request.name));
            }
            Change::UserGrantRole(request) => {
                let user = self.users.get_mut(&request.user).ok_or(Error::UserNotFound)?;
                // The role `root` needs not exist.
                if request.role != ROOT && !self.roles.contains_key(&request.role) {
                    return Err(Error::RoleNotFound);
                }
                let Err(at) = user.roles.binary_search(&request.role) else { return Ok(AuthEvent::None) };
                Arc::make_mut(user).roles.insert(at, request.role);
            }
            Change::UserRevokeRole(request) => {
                if self.enabled && request.name == ROOT && request.role == ROOT {
                    return Err(Error::InvalidAuthMgmt);
                }
                let user = self.users.get_mut(&request.name).ok_or(Error::UserNotFound)?;
                let at = user.roles.binary_search(&request.role).map_err(|_| Error::RoleNotGranted)?;
                Arc::make_mut(user).roles.remove(at);
            }
            Change::RoleAdd(request) => self.add_role(request)?,
            Change::RoleDelete(request) => self.delete_role(&request.role)?,
            Change::RoleGrantPermission(request) => self.grant(&request)?,
            Change::RoleRevokePermission(request) => {
                let role = self.roles.get_mut(&request.role).ok_or(Error::RoleNotFound)?;
                let is_other = |perm: &Permission| perm.key != request.key || perm.range_end != request.range_end;
                if role.key_permission.iter().all(is_other) {
                    return Err(Error::PermissionNotGranted);
                }
                Arc::make_mut(role).key_permission.retain(is_other);
            }
        }
        self.revision += 1;
        Ok(AuthEvent::None)
    }

    fn enable(&mut self) -> Result<AuthEvent, Error> {
        let root = self.users.get(ROOT).ok_or(Error::RootUserNotExist)?;
        if !root.roles.iter().any(|role| role == ROOT) {
            return Err(Error::RootRoleNotExist);
        }
        self.enabled = true;
        Ok(AuthEvent::None)
    }

    /// The password was checked before this was proposed, under the auth revision of the entry.
    fn authenticate(&self, index: u64, request: InternalAuthenticateRequest) -> Result<AuthEvent, Error> {
        if !self.enabled {
            return Err(Error::AuthNotEnabled);
        }
        if !self.users.contains_key(&request.name) {
            return Err(Error::AuthFailed);
        }
        // Members of etcd name the entry before this one: the last that they have finished.
        Ok(AuthEvent::Token {
            user: request.name,
            token: format!("{}.{}", request.simple_token, index.saturating_sub(1)),
        })
    }

    fn add_user(&mut self, request: AuthUserAddRequest) -> Result<(), Error> {
        check_name(&request.name, Error::UserEmpty)?;
        if self.users.contains_key(&request.name) {
            return Err(Error::UserAlreadyExist);
        }
        let no_password = request.options.is_some_and(|options| options.no_password);
        let user = User {
            name: Bytes::copy_from_slice(request.name.as_bytes()),
            password: hash(&request.hashed_password, no_password)?,
            roles: Vec::new(),
            options: Some(UserAddOptions { no_password }),
        };
        self.users.insert(request.name, Arc::new(user));
        Ok(())
    }

    fn add_role(&mut self, request: AuthRoleAddRequest) -> Result<(), Error> {
        check_name(&request.name, Error::RoleEmpty)?;
        if self.roles.contains_key(&request.name) {
            return Err(Error::RoleAlreadyExist);
        }
        let role = Role { name: Bytes::copy_from_slice(request.name.as_bytes()), key_permission: Vec::new() };
        self.roles.insert(request.name, Arc::new(role));
        Ok(())
    }

    fn delete_role(&mut self, name: &str) -> Result<(), Error> {
        if self.enabled && name == ROOT {
            return Err(Error::InvalidAuthMgmt);
        }
        self.roles.remove(name).ok_or(Error::RoleNotFound)?;
        if Mistake::DeletedRoleStaysGranted.is_planted() {
            return Ok(());
        }
        for user in self.users.values_mut() {
            if let Some(at) = user.roles.iter().position(|role| role == name) {
                let before = record_bytes(user.as_ref());
                Arc::make_mut(user).roles.remove(at);
                let less = before.saturating_sub(record_bytes(user.as_ref()));
                self.bytes = self.bytes.saturating_sub(less);
            }
        }
        Ok(())
    }

    /// The same range again takes the new kind. As with etcd, only the first of those ranges is found that begin at the same key;
    /// another one is there twice afterwards, and counts with both kinds.
    fn grant(&mut self, request: &AuthRoleGrantPermissionRequest) -> Result<(), Error> {
        let permission = request.perm.as_ref().ok_or(Error::PermissionNotGiven)?;
        let (key, end) = (&permission.key[..], &permission.range_end[..]);
        if key.is_empty() || (!end.is_empty() && end != [0] && end <= key) {
            return Err(Error::InvalidAuthMgmt);
        }
        let role = Arc::make_mut(self.roles.get_mut(&request.name).ok_or(Error::RoleNotFound)?);
        match position(role, key, end) {
            Some(at) => role.key_permission[at].perm_type = permission.perm_type,
            None => {
                let at = role.key_permission.partition_point(|other| other.key[..] <= *key);
                let perm_type = permission.perm_type;
                // Copies: the request's bytes keep its whole entry in memory.
                let (key, range_end) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(end));
                role.key_permission.insert(at, Permission { perm_type, key, range_end });
            }
        }
        Ok(())
    }
}

pub(super) fn has_no_password(user: &User) -> bool {
    user.options.is_some_and(|options| options.no_password)
}

fn check_name(name: &str, empty: Error) -> Result<(), Error> {
    match name.len() {
        0 => Err(empty),
        // What an image of the store can hold.
        len if len > AUTH_NAME_BYTES_MAX => Err(Error::RequestTooLarge),
        _ => Ok(()),
    }
}

/// The stored hash of a hash as it travels.
fn hash(encoded: &str, no_password: bool) -> Result<Bytes, Error> {
    if no_password {
        return Ok(Bytes::new());
    }
    super::base64::decode(encoded).map(Bytes::from).ok_or(Error::AuthFailed)
}

/// Where a role has the permission for exactly this range, if it is the first that begins there.
pub(super) fn position(role: &Role, key: &[u8], range_end: &[u8]) -> Option<usize> {
    let at = role.key_permission.partition_point(|other| other.key[..] < *key);
    let first = role.key_permission.get(at)?;
    (first.key[..] == *key && first.range_end[..] == *range_end).then_some(at)
}
