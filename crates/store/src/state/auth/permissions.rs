//! What one user may do, merged over the user's roles.

use super::ROOT;
use super::granted::Granted;
use super::state::AuthState;
use crate::state::Leases;
use api::KeyRange;
use api::authpb::{Permission, permission::Type};

/// What a user may do under one auth revision.
#[derive(Debug)]
pub struct Permissions {
    pub(super) user: String,
    pub(super) roles: Vec<String>,
    pub(super) is_root: bool,
    pub(super) revision: u64,
    reads: Granted,
    writes: Granted,
}

impl Permissions {
    /// What `user` may do; `None` if there is no such user.
    pub(super) fn of(state: &AuthState, user: &str) -> Option<Permissions> {
        let found = state.users.get(user)?;
        let granted =
            || found.roles.iter().filter_map(|role| state.roles.get(role)).flat_map(|role| &role.key_permission);
        let ranges = |kinds: [Type; 2]| {
            let wanted = move |permission: &&Permission| {
                Type::try_from(permission.perm_type).is_ok_and(|kind| kinds.contains(&kind))
            };
            Granted::merge(
                granted().filter(wanted).map(|permission| KeyRange::new(&permission.key, &permission.range_end)),
            )
        };
        Some(Permissions {
            user: user.to_string(),
            roles: found.roles.clone(),
            is_root: found.roles.iter().any(|role| role == ROOT),
            revision: state.revision,
            reads: ranges([Type::Read, Type::Readwrite]),
            writes: ranges([Type::Write, Type::Readwrite]),
        })
    }

    /// Whose they are.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The auth revision under which they hold.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the user may read every key of a range.
    pub(super) fn may_read(&self, range: KeyRange<'_>) -> bool {
        self.is_root || self.reads.covers(range)
    }

    /// Whether the user may read every key on a lease, or on any.
    pub(super) fn may_read_leased(&self, lease: Option<i64>, leases: &Leases) -> bool {
        self.is_root || self.reads.covers_leased(lease, leases)
    }

    /// Whether the user may write every key on a lease.
    pub(super) fn may_write_leased(&self, lease: i64, leases: &Leases) -> bool {
        self.is_root || self.writes.covers_leased(Some(lease), leases)
    }

    /// Whether the user may write every key of a range.
    pub(super) fn may_write(&self, range: KeyRange<'_>) -> bool {
        self.is_root || self.writes.covers(range)
    }
}
