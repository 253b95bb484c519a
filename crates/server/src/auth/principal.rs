//! Who somebody turned out to be.

use api::Error;
use std::sync::Arc;
use store::{Ask, Author, Permissions, Store};

/// The user of a call and its permissions, under one auth revision.
#[derive(Clone, Debug)]
pub(super) struct Principal(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Authentication is off.
    Open,
    /// A call without credentials.
    Nobody,
    /// A call with a name that no user has.
    UnknownUser,
    /// A call whose certificate has no name. For keys it counts as [`Kind::UnknownUser`], for everything else as
    /// [`Kind::Nobody`].
    Unnamed,
    User(Arc<User>),
}

/// Each principal has its own, so that threads do not share the reference count of the permissions.
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

    /// The auth revision of a user's permissions; `None` if the call has no user.
    pub(super) fn revision(&self) -> Option<u64> {
        match &self.0 {
            Kind::User(user) => Some(user.0.revision()),
            Kind::Open | Kind::Nobody | Kind::UnknownUser | Kind::Unnamed => None,
        }
    }

    /// Decides whether the principal may do what `ask` says.
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

    /// Checks an answer after it was built: fails if users or permissions have changed since the decision.
    pub(super) fn check_unchanged(&self, store: &Store) -> Result<(), Error> {
        let users = store.auth();
        let is_unchanged = match &self.0 {
            Kind::Open => !users.is_enabled(),
            Kind::Nobody | Kind::UnknownUser | Kind::Unnamed => true,
            Kind::User(user) => user.0.revision() == users.revision(),
        };
        if is_unchanged { Ok(()) } else { Err(Error::AuthOldRevision) }
    }

    /// Decides again if users or permissions have changed: for answers that take long.
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

    /// The author of entries that are proposed for this principal.
    pub(super) fn author(&self) -> Author {
        match &self.0 {
            Kind::Open | Kind::Nobody | Kind::UnknownUser | Kind::Unnamed => Author::nobody(),
            Kind::User(user) => Author { user: user.0.user().to_string(), revision: user.0.revision() },
        }
    }
}
