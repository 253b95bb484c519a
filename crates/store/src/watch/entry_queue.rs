//! A queue in chunks. A thousand streams that do not read have queues of one length: if each were copied when it must grow, all of them
//! would be within one publication, 40 MB and 17 ms.

use std::collections::VecDeque;

/// Entries of a chunk.
const CHUNK: usize = 64;

pub(super) struct EntryQueue<T> {
    /// Each holds [`CHUNK`] entries at most, and one at least, but the only one may be empty: most queues hold an entry now and then.
    chunks: VecDeque<VecDeque<T>>,
    len: usize,
}

impl<T> Default for EntryQueue<T> {
    fn default() -> Self {
        EntryQueue { chunks: VecDeque::new(), len: 0 }
    }
}

impl<T> EntryQueue<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push_back(&mut self, entry: T) {
        let is_first = self.chunks.is_empty();
        match self.chunks.back_mut().filter(|last| last.len() < CHUNK) {
            Some(last) => last.push_back(entry),
            None => {
                let mut chunk = VecDeque::with_capacity(if is_first { 0 } else { CHUNK });
                chunk.push_back(entry);
                self.chunks.push_back(chunk);
            }
        }
        self.len = self.len.saturating_add(1);
    }

    /// Puts an entry before all others. Its chunk may have one more than others.
    pub(super) fn push_front(&mut self, entry: T) {
        match self.chunks.front_mut() {
            Some(first) => first.push_front(entry),
            None => return self.push_back(entry),
        }
        self.len = self.len.saturating_add(1);
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        self.remove(0)
    }

    /// Takes out the entry at a place.
    pub(super) fn remove(&mut self, mut at: usize) -> Option<T> {
        for (number, chunk) in self.chunks.iter_mut().enumerate() {
            if let Some(behind) = at.checked_sub(chunk.len()) {
                at = behind;
                continue;
            }
            let entry = chunk.remove(at)?;
            self.len = self.len.saturating_sub(1);
            if chunk.is_empty() && self.chunks.len() > 1 {
                self.chunks.remove(number);
            }
            return Some(entry);
        }
        None
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// All entries, in chunks of [`CHUNK`] or a few more.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = VecDeque<T>> {
        self.chunks.into_iter().filter(|chunk| !chunk.is_empty())
    }

    /// Entries for which there is memory.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.chunks.iter().map(VecDeque::capacity).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn does_what_one_piece_does(steps in proptest::collection::vec((0_u8..8, any::<usize>()), 1..2_000), pushes in 1_u8..7) {
            let (mut queue, mut model) = (EntryQueue::default(), VecDeque::new());
            for (step, number) in steps {
                match step {
                    7 if !model.is_empty() => {
                        let at = number % model.len();
                        prop_assert_eq!(queue.remove(at), model.remove(at));
                    }
                    step if step < pushes && number.is_multiple_of(64) => {
                        queue.push_front(number);
                        model.push_front(number);
                    }
                    step if step < pushes => {
                        queue.push_back(number);
                        model.push_back(number);
                    }
                    _ => prop_assert_eq!(queue.pop_front(), model.pop_front()),
                }
                prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(queue.chunks.len() == 1 || queue.chunks.iter().all(|chunk| !chunk.is_empty()));
            }
            prop_assert!(queue.iter().eq(&model) && queue.iter().rev().eq(model.iter().rev()));
            prop_assert!(queue.into_chunks().flatten().eq(model));
        }
    }

    #[test]
    fn room_is_given_back() {
        let mut queue = EntryQueue::default();
        (0..1_000).for_each(|number| queue.push_back(number));
        assert_eq!(queue.chunks.len(), 1_000_usize.div_ceil(CHUNK));
        while queue.pop_front().is_some() {}
        assert!(queue.room() <= CHUNK, "{}", queue.room());
        assert_eq!(queue.into_chunks().count(), 0);
    }
}
