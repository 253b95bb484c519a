//! The prefixes that are written most, by a watch of everything that is closed again after a bounded number of events.

use crate::command::Context;
use crate::failure::Outcome;
use crate::raw;
use api::etcdserverpb::WatchCreateRequest;
use bytes::Bytes;
use client::Client;
use std::collections::HashMap;
use std::time::Duration;

/// Writes of one sample, and their bytes.
const EVENTS_MAX: usize = 1000;
const BYTES_MAX: usize = 4 << 20;
/// Levels of a key that make its prefix.
const LEVELS: usize = 2;

pub(super) struct Hot {
    client: Client,
    separator: Bytes,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Hottest {
    pub(super) writes: usize,
    /// Prefixes and how many of the writes are below them, most first.
    pub(super) prefixes: Vec<(Bytes, usize)>,
    /// Why nothing could be seen.
    pub(super) refused: Option<String>,
}

impl Hot {
    pub(super) fn new(context: &Context, separator: &str) -> Outcome<Hot> {
        Ok(Hot { client: context.patient_client_of_all()?, separator: raw::bytes(separator) })
    }

    /// Watches for no longer than `patience`.
    pub(super) async fn sample(&mut self, patience: Duration) -> Hottest {
        let all = Bytes::from_static(b"\0");
        let mut watcher =
            self.client.watch(WatchCreateRequest { key: all.clone(), range_end: all, ..WatchCreateRequest::default() });
        let mut found = Tally { separator: self.separator.clone(), ..Tally::default() };
        let watching = async {
            while found.writes < EVENTS_MAX && found.bytes < BYTES_MAX {
                let watched = watcher.next().await.map_err(|error| error.to_string())?;
                for kv in watched.events.iter().filter_map(|event| event.kv.as_ref()) {
                    found.add(&kv.key, kv.value.len());
                }
            }
            Ok(())
        };
        let refused = match tokio::time::timeout(patience, watching).await {
            Ok(Err(why)) => Some(why),
            _ => None,
        };
        found.end(refused)
    }
}

#[derive(Default)]
struct Tally {
    separator: Bytes,
    counts: HashMap<Bytes, usize>,
    writes: usize,
    bytes: usize,
}

impl Tally {
    fn add(&mut self, key: &[u8], value_bytes: usize) {
        (self.writes, self.bytes) = (self.writes + 1, self.bytes + key.len() + value_bytes);
        *self.counts.entry(Bytes::copy_from_slice(prefix(key, &self.separator))).or_default() += 1;
    }

    fn end(self, refused: Option<String>) -> Hottest {
        let mut prefixes: Vec<(Bytes, usize)> = self.counts.into_iter().collect();
        prefixes.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        prefixes.truncate(100);
        Hottest { writes: self.writes, prefixes, refused }
    }
}

/// The first levels of a key, without its last part.
fn prefix<'a>(key: &'a [u8], separator: &[u8]) -> &'a [u8] {
    let (mut end, mut levels) = (0, 0);
    while levels < LEVELS {
        let rest = &key[end..];
        let Some(place) = rest.windows(separator.len().max(1)).position(|part| part == separator) else { break };
        end += place + separator.len();
        // A separator that a key begins with ends no level.
        levels += usize::from(end > separator.len());
    }
    if end == 0 { key } else { &key[..end] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_two_levels() {
        for (key, wanted) in [
            ("/registry/pods/a/b", "/registry/pods/"),
            ("/registry/pods", "/registry/"),
            ("a/b/c", "a/b/"),
            ("plain", "plain"),
            ("", ""),
            ("//", "//"),
        ] {
            assert_eq!(prefix(key.as_bytes(), b"/"), wanted.as_bytes(), "{key}");
        }
        let mut tally = Tally { separator: Bytes::from_static(b"/"), ..Tally::default() };
        for key in ["a/b/1", "a/b/2", "c/d/1"] {
            tally.add(key.as_bytes(), 10);
        }
        let found = tally.end(None);
        assert_eq!((found.writes, found.prefixes[0].clone()), (3, (Bytes::from_static(b"a/b/"), 2)));
    }
}
