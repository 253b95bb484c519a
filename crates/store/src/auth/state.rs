//! What the cluster agrees on.

use api::authpb::{Role, User};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Users, roles, whether anybody has to log in, and how often all of it was changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuthState {
    pub(crate) enabled: bool,
    /// 1 in a new cluster.
    pub(crate) revision: u64,
    pub(crate) users: BTreeMap<String, Arc<User>>,
    pub(crate) roles: BTreeMap<String, Arc<Role>>,
}

/// The same as a checkpoint has it.
#[derive(Clone, PartialEq, Message)]
struct Saved {
    #[prost(bool, tag = "1")]
    enabled: bool,
    #[prost(uint64, tag = "2")]
    revision: u64,
    #[prost(message, repeated, tag = "3")]
    users: Vec<User>,
    #[prost(message, repeated, tag = "4")]
    roles: Vec<Role>,
}

impl Default for AuthState {
    fn default() -> AuthState {
        AuthState { enabled: false, revision: 1, users: BTreeMap::new(), roles: BTreeMap::new() }
    }
}

impl AuthState {
    /// Reads what [`AuthState::save`] wrote; `None` if nothing did. A checkpoint from before there were users has nothing.
    pub(crate) fn load(saved: &Bytes) -> Option<AuthState> {
        if saved.is_empty() {
            return Some(AuthState::default());
        }
        // Not from the shared bytes: names and keys would keep the whole checkpoint in memory.
        let Saved { enabled, revision, users, roles } = Saved::decode(&saved[..]).ok()?;
        let users = users.into_iter().map(|user| Some((text(&user.name)?, Arc::new(user))));
        let roles = roles.into_iter().map(|role| Some((text(&role.name)?, Arc::new(role))));
        Some(AuthState {
            enabled,
            revision,
            users: users.collect::<Option<_>>()?,
            roles: roles.collect::<Option<_>>()?,
        })
    }

    /// The bytes for a checkpoint: none for a state that nobody has changed.
    pub(crate) fn save(&self) -> Bytes {
        if *self == AuthState::default() {
            return Bytes::new();
        }
        let users = self.users.values().map(|user| User::clone(user)).collect();
        let roles = self.roles.values().map(|role| Role::clone(role)).collect();
        Saved { enabled: self.enabled, revision: self.revision, users, roles }.encode_to_vec().into()
    }
}

fn text(name: &[u8]) -> Option<String> {
    String::from_utf8(name.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back() {
        let mut state = AuthState::default();
        assert!(state.save().is_empty());
        assert_eq!(AuthState::load(&Bytes::new()).as_ref(), Some(&state));
        state.enabled = true;
        state.revision = 9;
        let user = User { name: "ä".into(), roles: vec!["r".into()], password: "hash".into(), ..Default::default() };
        state.users.insert("ä".into(), Arc::new(user));
        state.roles.insert("r".into(), Arc::new(Role { name: "r".into(), key_permission: vec![Default::default()] }));
        assert_eq!(AuthState::load(&state.save()), Some(state));
    }

    #[test]
    fn nonsense_is_told_apart() {
        assert_eq!(AuthState::load(&Bytes::from_static(&[0x0a])), None);
        let unreadable =
            Saved { users: vec![User { name: vec![0xff].into(), ..Default::default() }], ..Default::default() };
        assert_eq!(AuthState::load(&unreadable.encode_to_vec().into()), None);
    }
}
