//! Elections among sessions, by etcd's recipe.

use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{PutRequest, TxnRequest, WatchCreateRequest};
use api::mvccpb::KeyValue;
use api::mvccpb::event::EventType;
use bytes::Bytes;

use crate::client::Client;
use crate::ranges::prefix_end;
use crate::turn::{Turn, made_at, op, with_slash};
use crate::{Error, Session, Watcher};

/// An election under one name.
#[derive(Clone)]
pub struct Election {
    client: Client,
    name: String,
}

/// Being leader. It ends with [`Leadership::resign`], or with the session.
pub struct Leadership {
    session: Session,
    name: String,
    turn: Turn,
}

/// Tells of each leader, and of what it proclaims.
pub struct Observer {
    election: Election,
    /// The leader's key and when it was made, and the watch of it.
    leader: Option<(Bytes, i64)>,
    watcher: Option<Watcher>,
}

impl Client {
    /// The election `name`.
    pub fn election(&self, name: &str) -> Election {
        Election { client: self.clone(), name: name.into() }
    }
}

impl Election {
    /// Waits until `session` is leader, with `value` to be seen by all.
    ///
    /// # Errors
    /// [`Error::LeaseGone`] if the session ended first, or what the members answered.
    pub async fn campaign(&self, mut session: Session, value: Bytes) -> Result<Leadership, Error> {
        let turn = Turn::join(&session, &self.name, value.clone()).await?;
        let is_old = turn.revision != turn.seen_revision;
        let mut leadership = Leadership { name: self.name.clone(), turn, session };
        if is_old {
            // This session campaigned before: its value is not the one wanted.
            leadership.proclaim(value).await?;
        }
        session = leadership.session;
        leadership.turn.wait(&mut session).await?;
        Ok(Leadership { session, name: leadership.name, turn: leadership.turn })
    }

    /// The present leader's key and value.
    ///
    /// # Errors
    /// [`Error::NoLeader`], or what the members answered.
    pub async fn leader(&self) -> Result<KeyValue, Error> {
        let (first, _) = Turn::first(&self.client, &with_slash(&self.name)).await?;
        first.ok_or_else(|| Error::NoLeader(self.name.clone()))
    }

    /// Tells of each leader from the present one on.
    pub fn observe(&self) -> Observer {
        Observer { election: self.clone(), leader: None, watcher: None }
    }
}

impl Leadership {
    /// The key that stands for the leadership.
    pub fn key(&self) -> &Bytes {
        &self.turn.key
    }

    /// The create revision of that key: it grows from leader to leader.
    pub fn revision(&self) -> i64 {
        self.turn.revision
    }

    /// Waits until leadership is lost with the session.
    pub async fn lost(&mut self) {
        self.session.lost().await;
    }

    /// Has another value seen by all.
    ///
    /// # Errors
    /// [`Error::NotLeader`] if the key is gone, or what the members answered.
    pub async fn proclaim(&mut self, value: Bytes) -> Result<(), Error> {
        let lease = self.session.lease();
        let put = PutRequest { key: self.turn.key.clone(), value, lease, ..Default::default() };
        let txn = TxnRequest {
            compare: vec![made_at(&self.turn.key, self.turn.revision)],
            success: vec![op(Request::RequestPut(put))],
            failure: Vec::new(),
        };
        let answer = self.session.client().txn(txn).await?;
        if answer.succeeded { Ok(()) } else { Err(Error::NotLeader(self.name.clone())) }
    }

    /// Lets somebody else lead.
    ///
    /// # Errors
    /// What the members answered; leadership then ends with the session.
    pub async fn resign(self) -> Result<Session, Error> {
        self.turn.leave(self.session.client()).await?;
        Ok(self.session)
    }
}

impl Observer {
    /// The next leader, or what the present one proclaims next. Waits while there is none.
    ///
    /// # Errors
    /// What the members answered.
    pub async fn next(&mut self) -> Result<KeyValue, Error> {
        loop {
            let Some(watcher) = &mut self.watcher else {
                if let Some(found) = self.find().await? {
                    return Ok(found);
                }
                continue;
            };
            let watched = match watcher.next().await {
                Ok(watched) => watched,
                Err(Error::Compacted { .. }) => {
                    self.watcher = None;
                    continue;
                }
                Err(error) => return Err(error),
            };
            for event in watched.events {
                let is_delete = event.r#type() == EventType::Delete;
                let Some(kv) = event.kv else { continue };
                match &self.leader {
                    // Anybody is awaited.
                    None if !is_delete => self.watcher = None,
                    Some((key, _)) if *key == kv.key && is_delete => self.watcher = None,
                    Some((key, made)) if *key == kv.key && kv.create_revision == *made => return Ok(kv),
                    _ => {}
                }
            }
        }
    }

    /// Looks who is leader, and watches it; or watches for somebody.
    async fn find(&mut self) -> Result<Option<KeyValue>, Error> {
        let prefix = with_slash(&self.election.name);
        let (first, revision) = Turn::first(&self.election.client, &prefix).await?;
        let (key, range_end) = match &first {
            Some(leader) => (leader.key.clone(), Bytes::new()),
            None => (prefix.clone(), prefix_end(&prefix)),
        };
        let request = WatchCreateRequest { key, range_end, start_revision: revision + 1, ..Default::default() };
        self.watcher = Some(self.election.client.watch(request));
        self.leader = first.as_ref().map(|leader| (leader.key.clone(), leader.create_revision));
        Ok(first)
    }
}
