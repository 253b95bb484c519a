//! A look at the next entries before their turn comes.
//!
//! What a put touches (its entry, which another thread has made, and its key's place in the index) is mostly in no cache of this thread's
//! core, and each step to it waits for the one before. For several entries at once the processor waits for many at a time.

use super::command::{Command, Request, decode};
use crate::index::FETCHED_TOGETHER;
use crate::log::read;
use crate::store::Store;
use api::raftpb::{Entry, EntryType};
use prost::DecodeError;

/// Larger entries are taken apart when their turn comes: a request takes many times its bytes.
const ENTRY_BYTES_MAX: usize = 4 << 10;

/// The requests of the next entries.
#[derive(Default)]
pub(super) struct Ahead {
    requests: Vec<Option<Result<Request, DecodeError>>>,
}

impl Ahead {
    /// The request of `entries[at]`, if that was taken apart. Asked for one entry after the other, from the first.
    pub(super) fn request(
        &mut self,
        store: &Store,
        entries: &[Entry],
        at: usize,
    ) -> Option<Result<Request, DecodeError>> {
        let place = at % FETCHED_TOGETHER;
        if place == 0 {
            let end = entries.len().min(at.saturating_add(FETCHED_TOGETHER));
            self.look(store, entries.get(at..end)?);
        }
        self.requests.get_mut(place)?.take()
    }

    fn look(&mut self, store: &Store, entries: &[Entry]) {
        let small = |entry: &Entry| (1..=ENTRY_BYTES_MAX).contains(&entry.data().len());
        entries.iter().filter(|entry| small(entry)).for_each(|entry| disk::fetch(entry.data()));
        self.requests.clear();
        self.requests.extend(entries.iter().map(|entry| {
            let data = entry.data.as_ref().filter(|_| small(entry) && entry.r#type() == EntryType::EntryNormal)?;
            Some(decode(data))
        }));
        let mut keys = [&[][..]; FETCHED_TOGETHER];
        let mut count = 0;
        for request in self.requests.iter().flatten() {
            if let (Ok(Request { command: Command::Put(put), .. }), Some(key)) = (request, keys.get_mut(count)) {
                *key = &put.key;
                count += 1;
            }
        }
        // One alone has nothing to wait for together with.
        if count > 1 {
            read(&store.index).fetch(&keys[..count]);
        }
    }
}
