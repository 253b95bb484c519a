//! Who somebody turned out to be.

use api::Error;
use std::sync::Arc;
use store::{Ask, Author, Permissions, Store};

/// Who asks, under one auth revision.
#[derive(Clone, Debug)]
pub(super) struct Principal(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Nobody has to log in.
    Open,
    /// Somebody who did not log in.
    Nobody,
    /// Somebody whose name is none of a user's.
    UnknownUser,
    /// Somebody whose certificate has no name: as an unknown user to keys, as nobody to the rest.
    Unnamed,
    User(Arc<User>),
}

/// Referred to by the copies of one principal alone: those of others, on other threads, count theirs.
#[derive(Debug)]
struct User(Arc<Permissions>);

impl Principal {
    pub(super) fn open() -> Principal {
        Principal(Kind::Open)
    }

    pub(super) fn nobody() -> Principal {
        Principal(Kind::Nobody)
    }

    pub(super) fn unknown_user() -> Principal {
        Principal(Kind::UnknownUser)
    }

    pub(super) fn unnamed() -> Principal {
        Principal(Kind::Unnamed)
    }

    pub(super) fn user(permissions: Arc<Permissions>) -> Principal {
        Principal(Kind::User(Arc::new(User(permissions))))
    }

    /// The auth revision under which a user's holds.
    pub(super) fn revision(&self) -> Option<u64> {
        match &self.0 {
            Kind::User(user) => Some(user.0.revision()),
            Kind::Open | Kind::Nobody | Kind::UnknownUser | Kind::Unnamed => None,
        }
    }

    /// Whether what is asked for may be had.
    pub(super) fn decide(&self, ask: Ask<'_>, store: &Store) -> Result<(), Error> {
        match &self.0 {
            Kind::Open => Ok(()),
            Kind::Nobody | Kind::UnknownUser | Kind::Unnamed if ask.is_for_all() => Ok(()),
            Kind::Unnamed if ask.is_about_keys() => Err(Error::PermissionDenied),
            Kind::Nobody | Kind::Unnamed => Err(Error::UserEmpty),
            Kind::UnknownUser => Err(Error::PermissionDenied),
            Kind::User(user) => user.0.decide(ask, store.leases()),
        }
    }

    /// The same for an answer that was built from what is in the store now: users and permissions may have changed meanwhile.
    pub(super) fn check_unchanged(&self, store: &Store) -> Result<(), Error> {
        let users = store.auth();
        let is_unchanged = match &self.0 {
            Kind::Open => !users.is_enabled(),
            Kind::Nobody | Kind::UnknownUser | Kind::Unnamed => true,
            Kind::User(user) => user.0.revision() == users.revision(),
        };
        if is_unchanged { Ok(()) } else { Err(Error::AuthOldRevision) }
    }

    /// Decides again if anything has changed since: for answers that take long.
    pub(super) fn decide_anew(&mut self, ask: Ask<'_>, store: &Store) -> Result<(), Error> {
        if self.check_unchanged(store).is_ok() {
            return Ok(());
        }
        let user = match &self.0 {
            Kind::User(user) => user.0.user(),
            _ => return Err(Error::AuthOldRevision),
        };
        *self = store.auth().permissions(user).map_or_else(Principal::unknown_user, Principal::user);
        self.decide(ask, store)
    }

    /// On whose behalf an entry is proposed.
    pub(super) fn author(&self) -> Author {
        match &self.0 {
            Kind::Open | Kind::Nobody | Kind::UnknownUser | Kind::Unnamed => Author::nobody(),
            Kind::User(user) => Author { user: user.0.user().to_string(), revision: user.0.revision() },
        }
    }
}
