//! Who may do what: users, roles and their permissions, replicated like everything else.
//!
//! [`state`] is what the cluster agrees on, [`change`] applies entries to it, [`permissions`] is what one user may do, merged over the
//! roles, and [`decision`] is the one function that permits or refuses a request.

mod base64;
mod change;
mod decision;
mod granted;
mod permissions;
mod ranges;
mod shared;
mod state;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub(crate) use change::Change;
pub use decision::Ask;
pub use permissions::Permissions;
pub use shared::{Auth, Password};
pub(crate) use state::AuthState;

/// The user, and the role, that may do everything.
pub const ROOT: &str = "root";

/// On whose behalf an entry was proposed. Travels in the entry's header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Author {
    /// The user; empty for nobody.
    pub user: String,
    /// The auth revision under which the user was known.
    pub revision: u64,
}

impl Author {
    /// The member itself. Its entries are never refused as written under an old auth revision.
    pub fn member() -> Author {
        Author { user: ROOT.into(), revision: u64::MAX }
    }

    /// No user: the author of requests while authentication is off.
    pub fn nobody() -> Author {
        Author::default()
    }
}

/// What an entry changed that members keep outside of the replicated state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthEvent {
    /// Nothing.
    None,
    /// A user was given a token.
    Token {
        /// Who.
        user: String,
        /// What.
        token: String,
    },
    /// The user's tokens are worth nothing any more.
    UserTokensDropped(String),
    /// No token is worth anything any more.
    AllTokensDropped,
}
