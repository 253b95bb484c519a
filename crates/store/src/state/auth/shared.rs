//! Users and roles as all threads see them.

use super::change::{Change, has_no_password, position};
use super::permissions::Permissions;
use super::state::AuthState;
use super::{Ask, AuthEvent, Author, ROOT};
use crate::log::{RwLock, read, write};
use crate::mistake::Mistake;
use crate::state::Leases;
use api::authpb::{Permission, permission::Type};
use api::{Error, Message};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Users whose merged permissions are kept.
const KEPT_MAX: usize = 10_000;

/// Users, roles and permissions. The applier changes them; all other threads read.
pub struct Auth {
    /// Shared with captures; changed under the lock.
    state: RwLock<Arc<AuthState>>,
    enabled: AtomicBool,
    revision: AtomicU64,
    bytes: AtomicU64,
    /// What users may do, under the present revision.
    merged: RwLock<HashMap<String, Arc<Permissions>, Hashing>>,
}

/// Names are chosen by administrators, and few.
type Hashing = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// How a user's password is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    /// There is no such user.
    NoUser,
    /// The user has none, and cannot be authenticated with one.
    None,
    /// Against this bcrypt hash.
    Hash(Bytes),
}

impl Auth {
    pub(crate) fn new(state: AuthState) -> Auth {
        Auth {
            enabled: AtomicBool::new(state.enabled),
            revision: AtomicU64::new(state.revision),
            bytes: AtomicU64::new(state.bytes),
            state: RwLock::new(Arc::new(state)),
            merged: RwLock::default(),
        }
    }

    /// Whether requests are permitted or refused at all.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// Counts the changes, from 1 on.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// What all users and roles count for.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What a user may do; `None` if there is no such user.
    pub fn permissions(&self, user: &str) -> Option<Arc<Permissions>> {
        if let Some(found) = read(&self.merged).get(user) {
            return Some(Arc::clone(found));
        }
        // The lock keeps the state, so what is merged is of the revision for which it is kept.
        let state = read(&self.state);
        let permissions = Arc::new(Permissions::of(&state, user)?);
        let mut merged = write(&self.merged);
        if merged.len() >= KEPT_MAX {
            merged.clear();
        }
        merged.insert(user.to_string(), Arc::clone(&permissions));
        Some(permissions)
    }

    /// Decides what an entry asks for on behalf of its author, as etcd's members do. Changes of users are decided by who is an administrator
    /// now; what is about keys also by the auth revision under which it was proposed.
    pub(crate) fn decide(&self, author: &Author, ask: Ask<'_>, leases: &Leases) -> Result<(), Error> {
        if !self.is_enabled() {
            return Ok(());
        }
        match ask {
            Ask::Root => return self.decide_root(author),
            // A lease without keys is nobody's, and administrators may end all of them.
            Ask::Lease(id) if leases.attached(id).0 == 0 || self.decide_root(author).is_ok() => return Ok(()),
            _ => {}
        }
        if author.user.is_empty() {
            return if ask.is_for_all() { Ok(()) } else { Err(Error::UserEmpty) };
        }
        if author.revision < self.revision() && !Mistake::IgnoresAuthRevision.is_planted() {
            return Err(Error::AuthOldRevision);
        }
        self.permissions(&author.user).ok_or(Error::PermissionDenied)?.decide(ask, leases)
    }

    fn decide_root(&self, author: &Author) -> Result<(), Error> {
        if author.user.is_empty() {
            return Err(Error::UserEmpty);
        }
        let permissions = self.permissions(&author.user).ok_or(Error::UserNotFound)?;
        if permissions.is_root { Ok(()) } else { Err(Error::PermissionDenied) }
    }

    /// Does what the entry at `index` says.
    pub(crate) fn change(&self, index: u64, change: Change) -> Result<AuthEvent, Error> {
        let mut state = write(&self.state);
        let before = state.revision;
        let result = Arc::make_mut(&mut state).change(index, change);
        if state.revision != before && !Mistake::KeepsOldPermissions.is_planted() {
            write(&self.merged).clear();
        }
        self.publish(&state);
        result
    }

    fn publish(&self, state: &AuthState) {
        self.revision.store(state.revision, Ordering::Release);
        self.bytes.store(state.bytes, Ordering::Relaxed);
        self.enabled.store(state.enabled, Ordering::Release);
    }

    /// Puts another state into the place of this one.
    pub(crate) fn replace(&self, other: AuthState) {
        let mut state = write(&self.state);
        *state = Arc::new(other);
        write(&self.merged).clear();
        self.publish(&state);
    }

    /// The state of this moment, to be saved.
    pub(crate) fn capture(&self) -> Arc<AuthState> {
        Arc::clone(&read(&self.state))
    }

    /// How a user's password is checked, and the auth revision that this is from.
    pub fn password(&self, user: &str) -> (Password, u64) {
        let state = read(&self.state);
        let password = match state.users.get(user) {
            None => Password::NoUser,
            Some(user) if has_no_password(user) => Password::None,
            Some(user) => Password::Hash(user.password.clone()),
        };
        (password, state.revision)
    }

    /// The names of all users, in order.
    pub fn users(&self) -> Vec<String> {
        read(&self.state).users.keys().cloned().collect()
    }

    /// The names of all roles, in order.
    pub fn roles(&self) -> Vec<String> {
        read(&self.state).roles.keys().cloned().collect()
    }

    /// The roles of a user, in order.
    pub fn user(&self, name: &str) -> Result<Vec<String>, Error> {
        read(&self.state).users.get(name).map(|user| user.roles.clone()).ok_or(Error::UserNotFound)
    }

    /// Bytes that a role takes once it was granted `permission`; 0 if there is no such role.
    pub fn role_bytes_with(&self, name: &str, permission: &Permission) -> usize {
        let state = read(&self.state);
        let Some(role) = state.roles.get(name) else { return 0 };
        let is_there = position(role, &permission.key, &permission.range_end).is_some();
        role.encoded_len().saturating_add(if is_there { 0 } else { permission.encoded_len() })
    }

    /// What a role may do, by key.
    pub fn role(&self, name: &str) -> Result<Vec<Permission>, Error> {
        let state = read(&self.state);
        let role = state.roles.get(name).ok_or(Error::RoleNotFound)?;
        if name == ROOT {
            // Root may do everything, whatever was granted to it.
            let perm_type = Type::Readwrite as i32;
            return Ok(vec![Permission { perm_type, key: Bytes::new(), range_end: Bytes::from_static(&[0]) }]);
        }
        Ok(role.key_permission.clone())
    }
}
