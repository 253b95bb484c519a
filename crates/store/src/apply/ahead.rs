//! A look at the next entries before their turn comes.
//!
//! What a put touches (its entry, which another thread has made, and its key's place in the index) is mostly in no cache of this thread's
//! core, and each step to it waits for the one before. For several entries at once the processor waits for many at a time.

use super::command::{Command, Request, decode};
use crate::index::{FETCHED_TOGETHER, Path};
use crate::log::read;
use crate::store::Store;
use api::raftpb::{Entry, EntryType};
use prost::DecodeError;

/// Larger entries are taken apart when their turn comes: a request takes many times its bytes.
const ENTRY_BYTES_MAX: usize = 4 << 10;

/// The requests of the next entries.
#[derive(Default)]
pub(super) struct Ahead {
    requests: Vec<Seen>,
}

/// What is known of an entry.
#[derive(Default)]
pub(super) struct Seen {
    /// Its request, if it was taken apart.
    pub(super) request: Option<Result<Request, DecodeError>>,
    /// The way to the key that it puts.
    pub(super) path: Option<Path>,
}

impl Seen {
    fn key(&self) -> Option<&[u8]> {
        match &self.request {
            Some(Ok(Request { command: Command::Put(put), .. })) => Some(&put.key),
            _ => None,
        }
    }
}

impl Ahead {
    /// What is known of `entries[at]`. Asked for one entry after the other, from the first.
    pub(super) fn seen(&mut self, store: &Store, entries: &[Entry], at: usize) -> Seen {
        let place = at % FETCHED_TOGETHER;
        if place == 0 {
            let end = entries.len().min(at.saturating_add(FETCHED_TOGETHER));
            self.look(store, entries.get(at..end).unwrap_or_default());
        }
        self.requests.get_mut(place).map(std::mem::take).unwrap_or_default()
    }

    fn look(&mut self, store: &Store, entries: &[Entry]) {
        let small = |entry: &Entry| (1..=ENTRY_BYTES_MAX).contains(&entry.data().len());
        entries.iter().filter(|entry| small(entry)).for_each(|entry| disk::fetch(entry.data()));
        self.requests.clear();
        self.requests.extend(entries.iter().map(|entry| {
            let data = entry.data.as_ref().filter(|_| small(entry) && entry.r#type() == EntryType::EntryNormal);
            Seen { request: data.map(decode), path: None }
        }));
        let mut keys = [&[][..]; FETCHED_TOGETHER];
        let found = self.requests.iter().filter_map(Seen::key);
        let count = keys.iter_mut().zip(found).map(|(place, key)| *place = key).count();
        // One alone has nothing to wait for together with.
        if count > 1 {
            let paths = read(&store.index).fetch(&keys[..count]);
            let puts = self.requests.iter_mut().filter(|seen| seen.key().is_some());
            puts.zip(paths).for_each(|(seen, path)| seen.path = path);
        }
    }
}
