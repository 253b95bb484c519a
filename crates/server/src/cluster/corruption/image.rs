//! The comparison before the database of an etcd member is installed: its hash with the sender's.
//!
//! The body of a snapshot has no checksum, and bbolt's pages have none. What is not proven equal is not installed
//! (`docs/adr/0009-comparing-an-image.md`).

use super::super::remote::{self, CallError};
use crate::node::Node;
use api::etcdserverpb::HashKvResponse;
use http::StatusCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use store::{Opened, Store};
use telemetry::logging::{self, Value};

/// How long one question may take, and so much longer for each second that the sender reads its history at the slowest pace.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The slowest pace, in bytes of the image per second.
const READ_BYTES_MIN: u64 = 20 << 20;
/// How long a sender that cannot be reached is asked again.
const ASK_MAX: Duration = Duration::from_secs(60);
/// Time between two attempts.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Why an image is not proven to be the sender's history.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unequal {
    /// It is another history.
    #[error(
        "the image is damaged: at revision {revision}, compacted to {compact_revision}, its hash is {own:08x}, and the sender's {theirs:08x}"
    )]
    Differs {
        /// Up to this revision.
        revision: i64,
        /// From this one on.
        compact_revision: i64,
        /// The image's.
        own: u32,
        /// The sender's.
        theirs: u32,
    },
    /// The sender has said nothing that can be compared.
    #[error("the image cannot be compared with the sender's history: {0}")]
    NotCompared(String),
}

/// Opens the store that was made of a database of `bytes` bytes which `from` has sent and which ends at `revision`, and compares its history
/// with that of `from`, which answers at `urls`. An error is one of `open`.
pub(crate) fn open_and_compare(
    node: &Node,
    from: u64,
    urls: &[String],
    (revision, bytes): (i64, u64),
    open: impl FnOnce() -> Result<Opened, String>,
) -> Result<(Opened, Result<(), Unequal>), String> {
    let ask = |revision| ask(node, from, urls, revision, answer_max(bytes));
    // The sender works at the same time.
    let (opened, told) = thread::scope(|scope| {
        let told = thread::Builder::new().name("snapshot-hash".into()).spawn_scoped(scope, || ask(revision));
        let opened = open().map(|opened| (opened.store.hash_kv(0), opened));
        let told = match told {
            Ok(told) => told.join().unwrap_or_else(|_| Err("the question broke off".into())),
            Err(error) => Err(error.to_string()),
        };
        (opened, told)
    });
    let (own, opened) = opened?;
    let compared = match own {
        Ok(own) => compare(&opened.store, &own, told, || ask(0)),
        Err(error) => Err(Unequal::NotCompared(error.message().into())),
    };
    Ok((opened, compared))
}

/// Compares the hash `own` of `staged` with what the sender has `told`, which `ask` asks once more.
fn compare(
    staged: &Store,
    own: &HashKvResponse,
    told: Result<HashKvResponse, String>,
    ask: impl FnOnce() -> Result<HashKvResponse, String>,
) -> Result<(), Unequal> {
    if compared(own, &told.map_err(Unequal::NotCompared)?, |compacted| staged.hash_kv_compacted(compacted))? {
        return Ok(());
    }
    // Asked for a revision to which it has compacted, the sender tells the hash from before. Asked for the newest one, it computes that.
    let told = ask().map_err(Unequal::NotCompared)?;
    if compared(own, &told, |compacted| staged.hash_kv_compacted(compacted))? {
        return Ok(());
    }
    Err(Unequal::NotCompared(format!(
        "the image ends at revision {} and is compacted to {}, but the sender answered for revision {}, compacted to {}; \
         it will send a newer one",
        own.hash_revision, own.compact_revision, told.hash_revision, told.compact_revision
    )))
}

/// Whether the answer is about the same revision, and so shows that both are equal. `compacted` is what the image's hash would be if it
/// were compacted further.
fn compared(
    own: &HashKvResponse,
    told: &HashKvResponse,
    compacted: impl FnOnce(i64) -> Option<u32>,
) -> Result<bool, Unequal> {
    if told.hash_revision != own.hash_revision {
        return Ok(false);
    }
    let hash = if told.compact_revision == own.compact_revision {
        own.hash
    } else {
        match compacted(told.compact_revision) {
            Some(hash) => hash,
            None => return Ok(false),
        }
    };
    if hash == told.hash {
        return Ok(true);
    }
    let (revision, compact_revision) = (own.hash_revision, told.compact_revision);
    Err(Unequal::Differs { revision, compact_revision, own: hash, theirs: told.hash })
}

/// How long the sender of an image may take for an answer: it reads its whole history.
fn answer_max(bytes: u64) -> Duration {
    ANSWER_MAX + Duration::from_secs(bytes / READ_BYTES_MIN)
}

/// The sender's hash at a revision. It may be gone for a moment; an answer that is a refusal is final.
fn ask(node: &Node, from: u64, urls: &[String], revision: i64, patience: Duration) -> Result<HashKvResponse, String> {
    let deadline = Instant::now() + ASK_MAX;
    let mut why = "none of its URLs is known".to_string();
    loop {
        for url in urls {
            let error = match remote::hash_kv(&node.connector, url, node.cluster_id, revision, patience) {
                Ok(told) => return Ok(told),
                Err(error) => error,
            };
            logging::warn(
                "failed hash kv request",
                &[
                    ("requested-revision", revision.into()),
                    ("remote-peer-id", Value::Id(from)),
                    ("remote-peer-endpoint", url.into()),
                    ("error", Value::Shown(&error)),
                ],
            );
            if let CallError::Unexpected { status: StatusCode::BAD_REQUEST, .. } = error {
                return Err(format!("{error}; it will send a newer one"));
            }
            why = error.to_string();
        }
        if Instant::now() >= deadline || node.stopping.load(Ordering::Relaxed) {
            return Err(why);
        }
        thread::sleep(ASK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(hash: u32, compact_revision: i64, hash_revision: i64) -> HashKvResponse {
        HashKvResponse { header: None, hash, compact_revision, hash_revision }
    }

    #[test]
    fn large_histories_take_longer() {
        assert_eq!([0, 8 << 30].map(answer_max), [60, 60 + 409].map(Duration::from_secs));
    }

    #[test]
    fn only_hashes_of_the_same_history_are_compared() {
        let own = hash(7, 10, 20);
        let never = |_| panic!("the same is compacted in both");
        assert_eq!(compared(&own, &hash(7, 10, 20), never), Ok(true));
        let differs =
            |own, theirs, compact_revision| Err(Unequal::Differs { revision: 20, compact_revision, own, theirs });
        assert_eq!(compared(&own, &hash(8, 10, 20), never), differs(7, 8, 10));
        // The sender has gone on, or answers for an older revision.
        assert_eq!(compared(&own, &hash(7, 10, 21), never), Ok(false));
        assert_eq!(compared(&own, &hash(7, 10, 0), never), Ok(false));
        // It has compacted further than the image, or tells what it was before.
        assert_eq!(compared(&own, &hash(9, 15, 20), |at| (at == 15).then_some(9)), Ok(true));
        assert_eq!(compared(&own, &hash(9, 15, 20), |_| Some(8)), differs(8, 9, 15));
        assert_eq!(compared(&own, &hash(9, 5, 20), |_| None), Ok(false));
    }
}
