//! A lock that one session of the whole cluster holds at a time. The recipe is etcd's, so its clients stand in the same line.

use bytes::Bytes;

use crate::turn::Turn;
use crate::{Error, Session};

/// A lock that is held. It ends with [`Lock::unlock`], with its session, or when the session's lease runs out: what must not happen
/// without it compares [`Lock::revision`] in the same transaction.
pub struct Lock {
    session: Session,
    turn: Turn,
}

impl Session {
    /// Waits for the lock `name`.
    ///
    /// # Errors
    /// [`Error::LeaseGone`] if the session ended first, or what the members answered.
    pub async fn lock(mut self, name: &str) -> Result<Lock, Error> {
        let turn = Turn::join(&self, name, Bytes::new()).await?;
        turn.wait(&mut self).await?;
        // The lease may have run out, and its key with it, while others were waited for.
        if !turn.is_held(self.client()).await? {
            return Err(Error::LeaseGone(self.lease()));
        }
        Ok(Lock { session: self, turn })
    }

    /// The lock `name` if nobody holds it; the session back if somebody does.
    ///
    /// # Errors
    /// What the members answered.
    pub async fn try_lock(self, name: &str) -> Result<Result<Lock, Session>, Error> {
        let turn = Turn::join(&self, name, Bytes::new()).await?;
        let (first, _) = Turn::first(self.client(), &crate::turn::with_slash(name)).await?;
        if first.is_some_and(|first| first.key == turn.key && first.create_revision == turn.revision) {
            return Ok(Ok(Lock { session: self, turn }));
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

    /// Waits until the lock is lost with its session.
    pub async fn lost(&mut self) {
        self.session.lost().await;
    }

    /// Gives the lock to who waits next.
    ///
    /// # Errors
    /// What the members answered; the lock then ends with the session.
    pub async fn unlock(self) -> Result<Session, Error> {
        self.turn.leave(self.session.client()).await?;
        Ok(self.session)
    }
}
