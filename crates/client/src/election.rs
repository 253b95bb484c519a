//! Elections among sessions, by etcd's recipe.

use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{PutRequest, RangeResponse, ResponseHeader, TxnRequest, WatchCreateRequest};
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
    name: Bytes,
}

/// Being leader. It ends with [`Leadership::resign`], or with the session.
pub struct Leadership {
    session: Session,
    name: Bytes,
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
    /// The election `name`, which need not be text.
    pub fn election(&self, name: impl Into<Bytes>) -> Election {
        Election { client: self.clone(), name: name.into() }
    }
}

impl Election {
    /// Waits until `session` is leader, with `value` to be seen by all. If that fails the place in the line is given up.
    ///
    /// # Errors
    /// [`Error::LeaseGone`] if the session ended first, or what the members answered.
    pub async fn campaign(&self, session: Session, value: Bytes) -> Result<Leadership, Error> {
        let turn = Turn::join(&session, &self.name, value.clone()).await?;
        let mut leadership = Leadership { name: self.name.clone(), turn, session };
        match leadership.come(value).await {
            Ok(()) => Ok(leadership),
            Err(error) => Err(leadership.turn.forsake(leadership.session.client(), error).await),
        }
    }

    /// The answer that has the present leader's key and value.
    ///
    /// # Errors
    /// [`Error::NoLeader`], or what the members answered.
    pub async fn leader(&self) -> Result<RangeResponse, Error> {
        let answer = Turn::first(&self.client, &with_slash(&self.name)).await?;
        if answer.kvs.is_empty() { Err(Error::NoLeader(told(&self.name))) } else { Ok(answer) }
    }

    /// Tells of each leader from the present one on.
    pub fn observe(&self) -> Observer {
        Observer { election: self.clone(), leader: None, watcher: None }
    }
}

/// A name in an error.
fn told(name: &Bytes) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl Leadership {
    /// Waits until it has come.
    async fn come(&mut self, value: Bytes) -> Result<(), Error> {
        if self.turn.revision != self.turn.seen_revision {
            // This session campaigned before: its value is not the one wanted.
            self.proclaim(value).await?;
        }
        self.turn.wait(&mut self.session).await.map(drop)
    }

    /// The leader's key.
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
        if answer.succeeded { Ok(()) } else { Err(Error::NotLeader(told(&self.name))) }
    }

    /// Gives up leadership.
    ///
    /// # Errors
    /// What the members answered; leadership then ends with the session.
    pub async fn resign(self) -> Result<Session, Error> {
        self.turn.leave(self.session.client()).await?;
        Ok(self.session)
    }
}

impl Observer {
    /// The next leader, or what the present one proclaims next: its key and value, as of the revision in the header. Waits while there
    /// is none.
    ///
    /// # Errors
    /// What the members answered.
    pub async fn next(&mut self) -> Result<RangeResponse, Error> {
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
                    Some((key, made)) if *key == kv.key && kv.create_revision == *made => {
                        // Events of several revisions may come together.
                        let header = ResponseHeader { revision: kv.mod_revision, ..watched.header };
                        return Ok(RangeResponse { header: Some(header), kvs: vec![kv], ..Default::default() });
                    }
                    _ => {}
                }
            }
        }
    }

    /// Finds the leader and watches its key; without a leader, waits for one.
    async fn find(&mut self) -> Result<Option<RangeResponse>, Error> {
        let prefix = with_slash(&self.election.name);
        let RangeResponse { header, kvs, .. } = Turn::first(&self.election.client, &prefix).await?;
        let revision = header.as_ref().map_or(0, |header| header.revision);
        let first = kvs.into_iter().next();
        let (key, range_end) = match &first {
            Some(leader) => (leader.key.clone(), Bytes::new()),
            None => (prefix.clone(), prefix_end(&prefix)),
        };
        let request =
            WatchCreateRequest { key, range_end, start_revision: revision.saturating_add(1), ..Default::default() };
        self.watcher = Some(self.election.client.watch(request));
        self.leader = first.as_ref().map(|leader| (leader.key.clone(), leader.create_revision));
        Ok(first.map(|leader| RangeResponse { header, kvs: vec![leader], ..Default::default() }))
    }
}
