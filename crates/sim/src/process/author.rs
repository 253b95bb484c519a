//! On whose behalf entries are proposed, as the server says it in their headers.

use super::machine::Machine;
use crate::admin;
use crate::env::Env;
use crate::operation::Operation;
use api::Message;
use api::etcdserverpb::{InternalRaftRequest, RequestHeader};
use bytes::Bytes;
use replica::Found;
use store::Author;

impl Machine {
    /// A client's request with its user, and the auth revision under which this member knows the user. As it is while no one needs to be
    /// anybody. `None` if it has no valid token.
    pub(super) fn sign(&self, env: &mut Env, operation: usize, data: Bytes) -> Option<Bytes> {
        if !self.store.auth().is_enabled() {
            return Some(data);
        }
        let mut request = InternalRaftRequest::decode(data).ok()?;
        let header = request.header.get_or_insert_default();
        // Somebody who logs in is nobody yet.
        if request.authenticate.is_none() {
            header.username = self.user(env, operation)?;
        }
        header.auth_revision = self.store.auth().revision();
        Some(request.encode_to_vec().into())
    }

    /// The user of a request, if it has a valid token or needs none.
    fn user(&self, env: &mut Env, operation: usize) -> Option<String> {
        let Operation { client, token, .. } = &env.history.operations[operation];
        if client.is_none() || !env.plan.extras.has_tokens {
            return Some(admin::user_of(*client));
        }
        let token = token.as_deref()?;
        let applied = self.applier.applied_index();
        let (given, holder) = env.history.model().holder(token, applied);
        match self.tokens.find(token.as_bytes(), applied, self.clock.now_ms(env)) {
            Found::User(user) => {
                assert!(
                    holder == Some(&*user),
                    "{:x} takes {token} for {user}'s, not {holder:?}'s, at {applied}",
                    self.id
                );
                env.happened.tokens_used += 1;
                Some(user.to_string())
            }
            Found::Later => {
                assert!(given > applied, "{:x} waits for {token} of entry {given} at {applied}", self.id);
                env.happened.tokens_early += 1;
                None
            }
            Found::Nowhere => {
                let is_kept = given > self.tokens_from && !env.plan.extras.tokens_expire;
                assert!(!is_kept || holder.is_none(), "{:x} has forgotten {token} of {holder:?} at {applied}", self.id);
                env.happened.tokens_void += 1;
                None
            }
        }
    }

    /// The header of an entry that the member proposes for itself.
    pub(super) fn as_member(&self, id: u64) -> RequestHeader {
        let Author { user, revision } =
            if self.store.auth().is_enabled() { Author::member() } else { Author::nobody() };
        RequestHeader { id, username: user, auth_revision: revision }
    }
}
