//! A lock that one session of the whole cluster holds at a time. The recipe is etcd's, so etcd's clients wait in the same queue.

use bytes::Bytes;

use crate::turn::Turn;
use crate::{Error, Session};

/// A lock that is held. It ends with [`Lock::unlock`], with its session, or when the session's lease runs out: what must not happen
/// without it compares [`Lock::revision`] in the same transaction.
pub struct Lock {
    session: Session,
    turn: Turn,
    seen_revision: i64,
}

impl Session {
    /// Waits for the lock `name`, which need not be text. If that fails the place in the line is given up.
    ///
    /// # Errors
    /// [`Error::LeaseGone`] if the session ended first, or what the members answered.
    pub async fn lock(mut self, name: impl AsRef<[u8]>) -> Result<Lock, Error> {
        let turn = Turn::join(&self, name.as_ref(), Bytes::new()).await?;
        match self.wait(&turn).await {
            Ok(seen_revision) => Ok(Lock { session: self, turn, seen_revision }),
            Err(error) => Err(turn.forsake(self.client(), error).await),
        }
    }

    /// Waits until the lock is held; the revision of the answer that says so.
    async fn wait(&mut self, turn: &Turn) -> Result<i64, Error> {
        let has_waited = turn.wait(self).await?;
        // The lease may have run out, and its key with it, while others were waited for.
        let held = turn.held(self.client()).await?.ok_or(Error::LeaseGone(self.lease()))?;
        Ok(if has_waited { held } else { turn.seen_revision })
    }

    /// The lock `name` if it is free; otherwise the session back.
    ///
    /// # Errors
    /// What the members answered.
    pub async fn try_lock(self, name: impl AsRef<[u8]>) -> Result<Result<Lock, Session>, Error> {
        let turn = Turn::join(&self, name.as_ref(), Bytes::new()).await?;
        let first = Turn::first(self.client(), &crate::turn::with_slash(name.as_ref())).await?;
        if first.kvs.first().is_some_and(|first| first.key == turn.key && first.create_revision == turn.revision) {
            let seen_revision = turn.seen_revision;
            return Ok(Ok(Lock { session: self, turn, seen_revision }));
        }
        turn.leave(self.client()).await?;
        Ok(Err(self))
    }
}

impl Lock {
    /// The key that holds the lock.
    pub fn key(&self) -> &Bytes {
        &self.turn.key
    }

    /// The create revision of that key: it grows from holder to holder.
    pub fn revision(&self) -> i64 {
        self.turn.revision
    }

    /// The cluster's revision when the lock was acquired.
    pub fn seen_revision(&self) -> i64 {
        self.seen_revision
    }

    /// Waits until the lock is lost with its session.
    pub async fn lost(&mut self) {
        self.session.lost().await;
    }

    /// Releases the lock: the next in the queue gets it.
    ///
    /// # Errors
    /// What the members answered; the lock then ends with the session.
    pub async fn unlock(self) -> Result<Session, Error> {
        self.turn.leave(self.session.client()).await?;
        Ok(self.session)
    }
}
