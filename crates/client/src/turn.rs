//! The recipe that locks and elections share: keys under one prefix, each on the lease of its owner. The owner of the oldest key holds the
//! lock.

use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::range_request::{SortOrder, SortTarget};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response;
use api::etcdserverpb::*;
use api::mvccpb::event::EventType;
use bytes::Bytes;
use std::time::Duration;

use crate::client::Client;
use crate::ranges::prefix_end;
use crate::{Error, Session};

/// A place in the queue under a prefix.
pub(crate) struct Turn {
    /// The prefix with its slash.
    prefix: Bytes,
    pub(crate) key: Bytes,
    /// The revision that created the key: the place in the queue, and the proof that it is still the same key.
    pub(crate) revision: i64,
    /// The revision of the answer by which it was joined.
    pub(crate) seen_revision: i64,
}

/// Holds if the key is the one that was made at this revision.
pub(crate) fn made_at(key: &Bytes, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Create as i32,
        key: key.clone(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        ..Default::default()
    }
}

pub(crate) fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

/// The prefix of all keys in the queue for `name`. Names need not be text.
pub(crate) fn with_slash(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// How long giving up a place may take. After that its lease ends it.
const LEAVE_PATIENCE: Duration = Duration::from_secs(5);

impl Turn {
    /// Takes a place in the queue, or finds the one that this session has.
    pub(crate) async fn join(session: &Session, name: &[u8], value: Bytes) -> Result<Turn, Error> {
        let (prefix, lease) = (with_slash(name), session.lease());
        let key = Bytes::from([&prefix[..], format!("{lease:x}").as_bytes()].concat());
        let put = PutRequest { key: key.clone(), value, lease, ..Default::default() };
        let get = RangeRequest { key: key.clone(), ..Default::default() };
        let txn = TxnRequest {
            compare: vec![made_at(&key, 0)],
            success: vec![op(Request::RequestPut(put))],
            failure: vec![op(Request::RequestRange(get))],
        };
        // If it is done twice, it finds its own key.
        let answer: TxnResponse =
            session.client().call("/etcdserverpb.KV/Txn", &txn, crate::retry::Repeat::Always).await?;
        let seen_revision = answer.header.as_ref().map_or(0, |header| header.revision);
        let found = answer.responses.into_iter().find_map(|response| match response.response {
            Some(Response::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        let revision = found.map_or(seen_revision, |kv| kv.create_revision);
        Ok(Turn { prefix, key, revision, seen_revision })
    }

    /// The answer that has who stands first in the line under `prefix`.
    pub(crate) async fn first(client: &Client, prefix: &Bytes) -> Result<RangeResponse, Error> {
        let request = RangeRequest {
            key: prefix.clone(),
            range_end: prefix_end(prefix),
            limit: 1,
            sort_order: SortOrder::Ascend as i32,
            sort_target: SortTarget::Create as i32,
            ..Default::default()
        };
        client.range(request).await
    }

    /// Waits until nobody stands before it. Whether somebody did.
    pub(crate) async fn wait(&self, session: &mut Session) -> Result<bool, Error> {
        let client = session.client().clone();
        let waited = async {
            let mut has_waited = false;
            while let Some((key, revision)) = self.before(&client).await? {
                has_waited = true;
                wait_for_end(&client, key, revision).await?;
            }
            Ok(has_waited)
        };
        let lease = session.lease();
        tokio::select! {
            waited = waited => waited,
            () = session.lost() => Err(Error::LeaseGone(lease)),
        }
    }

    /// The key directly before it, and the revision at which it was there.
    async fn before(&self, client: &Client) -> Result<Option<(Bytes, i64)>, Error> {
        let request = RangeRequest {
            key: self.prefix.clone(),
            range_end: prefix_end(&self.prefix),
            limit: 1,
            sort_order: SortOrder::Descend as i32,
            sort_target: SortTarget::Create as i32,
            max_create_revision: self.revision.saturating_sub(1),
            keys_only: true,
            ..Default::default()
        };
        let answer = client.range(request).await?;
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        Ok(answer.kvs.into_iter().next().map(|kv| (kv.key, revision)))
    }

    /// The answer's revision, if the place is still held.
    pub(crate) async fn held(&self, client: &Client) -> Result<Option<i64>, Error> {
        let request = RangeRequest { key: self.key.clone(), keys_only: true, ..Default::default() };
        let answer = client.range(request).await?;
        let is_held = answer.kvs.first().is_some_and(|kv| kv.create_revision == self.revision);
        Ok(is_held.then(|| answer.header.map_or(0, |header| header.revision)))
    }

    /// Gives the place up because of `error`: nobody is to wait for one who does not come.
    pub(crate) async fn forsake(&self, client: &Client, error: Error) -> Error {
        // The reason why the place was not reached says more than a failure to give it up.
        let _ = tokio::time::timeout(LEAVE_PATIENCE, self.leave(client)).await;
        error
    }

    /// Gives the place up. What somebody else has made under the same key stays.
    pub(crate) async fn leave(&self, client: &Client) -> Result<(), Error> {
        let delete = DeleteRangeRequest { key: self.key.clone(), ..Default::default() };
        let txn = TxnRequest {
            compare: vec![made_at(&self.key, self.revision)],
            success: vec![op(Request::RequestDeleteRange(delete))],
            failure: Vec::new(),
        };
        let _: TxnResponse = client.call("/etcdserverpb.KV/Txn", &txn, crate::retry::Repeat::Always).await?;
        Ok(())
    }
}

/// Waits until the key, which was there at `revision`, is deleted.
async fn wait_for_end(client: &Client, key: Bytes, revision: i64) -> Result<(), Error> {
    let request = WatchCreateRequest { key, start_revision: revision.saturating_add(1), ..Default::default() };
    let mut watcher = client.watch(request);
    loop {
        match watcher.next().await {
            Ok(watched) if watched.events.iter().any(|event| event.r#type() == EventType::Delete) => return Ok(()),
            Ok(_) => {}
            // The events are compacted: the caller looks at the keys again.
            Err(Error::Compacted { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
