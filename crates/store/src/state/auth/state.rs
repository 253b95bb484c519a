//! Users, roles and whether authentication is on: what the cluster agrees on.

use api::authpb::{Role, User};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Changes of users and roles to which no cluster gets, so that one can still be counted on from.
const REVISION_MAX: u64 = 1 << 62;

/// What a user or a role counts for besides its encoding: its place in memory.
const RECORD_BYTES: u64 = 64;

/// Users, roles, whether anybody has to log in, and how often all of it was changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuthState {
    pub(crate) enabled: bool,
    /// 1 in a new cluster.
    pub(crate) revision: u64,
    pub(crate) users: BTreeMap<String, Arc<User>>,
    pub(crate) roles: BTreeMap<String, Arc<Role>>,
    /// What users and roles count for: [`record_bytes`] of each.
    pub(crate) bytes: u64,
}

/// What a user or a role counts for.
pub(super) fn record_bytes(record: &impl Message) -> u64 {
    RECORD_BYTES.saturating_add(record.encoded_len() as u64)
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
        AuthState { enabled: false, revision: 1, users: BTreeMap::new(), roles: BTreeMap::new(), bytes: 0 }
    }
}

impl AuthState {
    /// Reads what [`AuthState::save`] wrote. A checkpoint from before there were users has nothing.
    ///
    /// # Errors
    /// What is wrong with it, if it cannot be what was written.
    pub(crate) fn load(saved: &Bytes) -> Result<AuthState, &'static str> {
        if saved.is_empty() {
            return Ok(AuthState::default());
        }
        // Not from the shared bytes: names and keys would keep the whole checkpoint in memory.
        match Saved::decode(&saved[..]) {
            Ok(Saved { enabled, revision, users, roles }) => AuthState::of(enabled, revision, users, roles),
            Err(_) => Err("a record that does not parse"),
        }
    }

    /// The state of these users and roles.
    ///
    /// # Errors
    /// What no state can have.
    pub(crate) fn of(
        enabled: bool,
        revision: u64,
        users: Vec<User>,
        roles: Vec<Role>,
    ) -> Result<AuthState, &'static str> {
        // Saved without users, it would be taken for a state that nothing has changed yet, whose revision is 1.
        if revision == 0 {
            return Err("a revision before the first");
        }
        if revision > REVISION_MAX {
            return Err("a revision that leaves none for later changes");
        }
        let bytes = users.iter().map(record_bytes).chain(roles.iter().map(record_bytes)).sum();
        let text = |name: &Bytes| String::from_utf8(name.to_vec()).ok();
        let users = users.into_iter().map(|user| Some((text(&user.name)?, Arc::new(user))));
        let roles = roles.into_iter().map(|role| Some((text(&role.name)?, Arc::new(role))));
        match (users.collect(), roles.collect()) {
            (Some(users), Some(roles)) => Ok(AuthState { enabled, revision, users, roles, bytes }),
            _ => Err("a name that is no text"),
        }
    }

    /// The bytes for a checkpoint: none if nothing was ever changed.
    pub(crate) fn save(&self) -> Bytes {
        if *self == AuthState::default() {
            return Bytes::new();
        }
        let users = self.users.values().map(|user| User::clone(user)).collect();
        let roles = self.roles.values().map(|role| Role::clone(role)).collect();
        Saved { enabled: self.enabled, revision: self.revision, users, roles }.encode_to_vec().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::auth::Change;
    use api::etcdserverpb::AuthRoleAddRequest;

    #[test]
    fn reads_back() {
        let mut state = AuthState::default();
        assert!(state.save().is_empty());
        assert_eq!(AuthState::load(&Bytes::new()).as_ref(), Ok(&state));
        let user = User { name: "ä".into(), roles: vec!["r".into()], password: "hash".into(), ..Default::default() };
        let role = Role { name: "r".into(), key_permission: vec![Default::default()] };
        state = AuthState::of(true, 9, vec![user], vec![role]).expect("a state");
        assert_eq!(AuthState::load(&state.save()), Ok(state));
    }

    #[test]
    fn nonsense_is_told_apart() {
        assert_eq!(AuthState::load(&Bytes::from_static(&[0x0a])), Err("a record that does not parse"));
        let users = vec![User { name: vec![0xff].into(), ..Default::default() }];
        let unreadable = Saved { revision: 1, users, ..Default::default() };
        assert_eq!(AuthState::load(&unreadable.encode_to_vec().into()), Err("a name that is no text"));
    }

    #[test]
    fn a_revision_before_the_first_is_refused() {
        // Fields that no version knows, and nothing else.
        let unknown = Bytes::from_static(&[0xf8, 0xa1, 0x18, 0x1f]);
        assert_eq!(AuthState::load(&unknown), Err("a revision before the first"));
        assert_eq!(AuthState::of(true, 0, Vec::new(), Vec::new()), Err("a revision before the first"));
        assert!(AuthState::of(false, 1, Vec::new(), Vec::new()) == Ok(AuthState::default()));
    }

    #[test]
    fn the_last_revision_can_still_be_counted_on_from() {
        let load = |revision| AuthState::load(&Saved { revision, ..Saved::default() }.encode_to_vec().into());
        assert_eq!(load(u64::MAX), Err("a revision that leaves none for later changes"));
        assert_eq!(load(REVISION_MAX + 1), Err("a revision that leaves none for later changes"));
        let mut last = load(REVISION_MAX).expect("a revision that there can be");
        let add = AuthRoleAddRequest { name: "r".into() };
        assert!(last.change(1, Change::RoleAdd(add)).is_ok() && last.revision == REVISION_MAX + 1);
    }
}
