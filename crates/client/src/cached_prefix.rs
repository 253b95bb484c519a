//! The keys under a prefix, kept in memory: one list, then a watch, as informers do.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use api::etcdserverpb::{RangeRequest, WatchCreateRequest};
use api::mvccpb::event::EventType;
use api::mvccpb::{Event, KeyValue};
use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::{Error, ranges};

/// Keys that one page of the list has.
const PAGE_KEYS: i64 = 1_000;
/// The pause before a failed list is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// The keys under a prefix as of one revision, which follows the cluster. Reads take no call. Dropping it ends the watch.
pub struct CachedPrefix {
    pairs: Arc<RwLock<Pairs>>,
    progress: watch::Receiver<Progress>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Pairs {
    by_key: BTreeMap<Bytes, KeyValue>,
    revision: i64,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    revision: i64,
    /// Why it no longer follows.
    failure: Option<Error>,
}

impl Client {
    /// Lists the keys under `prefix` and follows them from there.
    ///
    /// # Errors
    /// What the members answered to the list.
    pub async fn cached_prefix(&self, prefix: impl Into<Bytes>) -> Result<CachedPrefix, Error> {
        let prefix = prefix.into();
        let pairs = Arc::new(RwLock::new(list(self, &prefix).await?));
        let revision = pairs.read().revision;
        let (told, progress) = watch::channel(Progress { revision, failure: None });
        let (client, own) = (self.clone(), pairs.clone());
        let task = tokio::spawn(async move {
            let failure = follow(&client, &prefix, &own, &told).await;
            told.send_modify(|progress| progress.failure = Some(failure));
        });
        Ok(CachedPrefix { pairs, progress, task })
    }
}

impl CachedPrefix {
    /// The pair of `key`.
    pub fn get(&self, key: &[u8]) -> Option<KeyValue> {
        self.pairs.read().by_key.get(key).cloned()
    }

    /// The pairs from `from` on and before `to` (none: all that follow), at most `limit` of them, as of one revision.
    pub fn range(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> (Vec<KeyValue>, i64) {
        let pairs = self.pairs.read();
        if to.is_some_and(|to| to <= from) {
            return (Vec::new(), pairs.revision);
        }
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        let found = pairs.by_key.range::<[u8], _>((Bound::Included(from), end));
        (found.take(limit).map(|(_, kv)| kv.clone()).collect(), pairs.revision)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.pairs.read().by_key.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The revision it shows.
    pub fn revision(&self) -> i64 {
        self.pairs.read().revision
    }

    /// Waits until it shows `revision`, that of an own write for instance. Revisions that change nothing under the prefix count once
    /// the cluster has told of a later one, or of its progress.
    ///
    /// # Errors
    /// Why it no longer follows.
    pub async fn reached(&self, revision: i64) -> Result<(), Error> {
        let mut progress = self.progress.clone();
        let found = progress.wait_for(|progress| progress.revision >= revision || progress.failure.is_some()).await;
        match found.map(|progress| progress.failure.clone()) {
            Ok(Some(error)) => Err(error),
            // The task never ends without a failure.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Waits for the next change; returns the revision shown then.
    ///
    /// # Errors
    /// Why it no longer follows.
    pub async fn changed(&mut self) -> Result<i64, Error> {
        // An end without a failure cannot be: the task tells of one first.
        let _ = self.progress.changed().await;
        let progress = self.progress.borrow_and_update().clone();
        progress.failure.map_or(Ok(progress.revision), Err)
    }
}

impl Drop for CachedPrefix {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All pairs as of one revision, in pages.
async fn list(client: &Client, prefix: &Bytes) -> Result<Pairs, Error> {
    let (first, range_end) = ranges::prefix(prefix);
    'anew: loop {
        let (mut pairs, mut key) = (Pairs::default(), first.clone());
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: PAGE_KEYS,
                revision: pairs.revision,
                ..Default::default()
            };
            let answer = match client.range(request).await {
                // The revision of the first page was compacted meanwhile.
                Err(error) if pairs.revision != 0 && error.is(api::Error::Compacted) => {
                    tokio::time::sleep(RETRY).await;
                    continue 'anew;
                }
                answer => answer?,
            };
            if pairs.revision == 0 {
                pairs.revision = answer.header.as_ref().map_or(0, |header| header.revision);
            }
            let last = answer.kvs.last().map(|kv| kv.key.clone());
            pairs.by_key.extend(answer.kvs.into_iter().map(|kv| (kv.key.clone(), kv)));
            match last {
                Some(last) if answer.more => key = [&last[..], b"\0"].concat().into(),
                _ => return Ok(pairs),
            }
        }
    }
}

/// Whether a list that failed like this may succeed later: a watch is resumed after the same errors.
fn is_passing(error: &Error) -> bool {
    let Error::Status(status) = error else { return false };
    status.code == api::Code::DeadlineExceeded || crate::retry::is_passing(status)
}

/// Follows the cluster for as long as that is possible.
async fn follow(client: &Client, prefix: &Bytes, pairs: &RwLock<Pairs>, told: &watch::Sender<Progress>) -> Error {
    let (key, range_end) = ranges::prefix(prefix);
    loop {
        let start_revision = pairs.read().revision.saturating_add(1);
        let (key, range_end) = (key.clone(), range_end.clone());
        let request =
            WatchCreateRequest { key, range_end, start_revision, progress_notify: true, ..Default::default() };
        let mut watcher = client.watch(request);
        loop {
            match watcher.next().await {
                Ok(watched) => {
                    let revision = {
                        let mut pairs = pairs.write();
                        pairs.take(watched.events, watched.revision);
                        pairs.revision
                    };
                    told.send_modify(|progress| progress.revision = revision);
                }
                // Too far behind for a watch: the keys are listed anew, and shown at once.
                Err(Error::Compacted { .. }) => {
                    let listed = loop {
                        match list(client, prefix).await {
                            Ok(listed) => break listed,
                            Err(error) if is_passing(&error) => tokio::time::sleep(RETRY).await,
                            Err(error) => return error,
                        }
                    };
                    let revision = listed.revision;
                    *pairs.write() = listed;
                    told.send_modify(|progress| progress.revision = revision);
                    break;
                }
                Err(error) => return error,
            }
        }
    }
}

impl Pairs {
    /// Events of whole revisions; without events: nothing happened up to `revision`.
    fn take(&mut self, events: Vec<Event>, revision: i64) {
        let is_progress = events.is_empty();
        for event in events {
            let is_delete = event.r#type() == EventType::Delete;
            let Some(kv) = event.kv else { continue };
            self.revision = self.revision.max(kv.mod_revision);
            if is_delete {
                self.by_key.remove(&kv.key);
            } else {
                self.by_key.insert(kv.key.clone(), kv);
            }
        }
        if is_progress {
            self.revision = self.revision.max(revision);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventType, key: &str, mod_revision: i64) -> Event {
        let kv = KeyValue { key: key.to_string().into(), mod_revision, ..Default::default() };
        Event { r#type: kind as i32, kv: Some(kv), prev_kv: None }
    }

    #[test]
    fn shows_the_last_revision_that_is_complete() {
        let mut pairs = Pairs::default();
        pairs.take(vec![event(EventType::Put, "a", 2), event(EventType::Put, "b", 3)], 9);
        // What the header says is where the member is, not where this watch is.
        assert_eq!((pairs.revision, pairs.by_key.len()), (3, 2));
        pairs.take(Vec::new(), 9);
        assert_eq!(pairs.revision, 9);
        pairs.take(vec![event(EventType::Delete, "a", 10)], 10);
        assert_eq!((pairs.revision, pairs.by_key.keys().next()), (10, Some(&Bytes::from("b"))));
    }
}
