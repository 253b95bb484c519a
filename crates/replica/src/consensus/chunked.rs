//! A queue of many elements in chunks. A `VecDeque` copies all of them when it grows: with a million entries of the log
//! that is 150 ms, in which nobody is answered.

use std::collections::VecDeque;

/// Elements of a chunk.
const CHUNK: usize = 512;

/// A queue that grows at its end, and shrinks at both.
pub(crate) struct Chunked<T> {
    /// Each holds [`CHUNK`] elements but the last, which holds at least one.
    chunks: VecDeque<Vec<T>>,
    /// Elements at the begin of the first chunk that were taken out.
    taken: usize,
    len: usize,
}

impl<T: Default> Chunked<T> {
    pub(crate) fn new() -> Self {
        Chunked { chunks: VecDeque::new(), taken: 0, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        let at = self.taken.checked_add(at)?;
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.get(0)
    }

    pub(crate) fn back(&self) -> Option<&T> {
        self.chunks.back()?.last()
    }

    pub(crate) fn push_back(&mut self, element: T) {
        match self.chunks.back_mut().filter(|last| last.len() < CHUNK) {
            Some(last) => last.push(element),
            None => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(element);
                self.chunks.push_back(chunk);
            }
        }
        self.len = self.len.saturating_add(1);
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let first = std::mem::take(self.chunks.front_mut()?.get_mut(self.taken)?);
        self.taken = self.taken.saturating_add(1);
        self.shrink();
        if self.taken == CHUNK {
            self.chunks.pop_front();
            self.taken = 0;
        }
        Some(first)
    }

    pub(crate) fn pop_back(&mut self) -> Option<T> {
        let last = self.chunks.back_mut()?;
        let element = last.pop()?;
        if last.is_empty() {
            self.chunks.pop_back();
        }
        self.shrink();
        Some(element)
    }

    pub(crate) fn clear(&mut self) {
        *self = Chunked::new();
    }

    /// Notes that an element was taken out. Without any there is no chunk.
    fn shrink(&mut self) {
        self.len = self.len.saturating_sub(1);
        if self.len == 0 {
            self.clear();
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        (0..self.len).filter_map(|at| self.get(at))
    }

    /// The elements from a place on.
    pub(crate) fn from(&self, at: usize) -> impl Iterator<Item = &T> {
        (at..self.len).map_while(|at| self.get(at))
    }
}

impl<T: Default> Extend<T> for Chunked<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.push_back(element));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_like_a_queue(steps in proptest::collection::vec((0..4u8, 1..1_500usize), 1..60)) {
            let (mut chunked, mut model) = (Chunked::new(), VecDeque::new());
            let mut next = 0u64;
            for (kind, count) in steps {
                for _ in 0..count {
                    match kind {
                        0 | 1 => {
                            next += 1;
                            chunked.push_back(next);
                            model.push_back(next);
                        }
                        2 => prop_assert_eq!(chunked.pop_front(), model.pop_front()),
                        _ => prop_assert_eq!(chunked.pop_back(), model.pop_back()),
                    }
                }
                prop_assert_eq!((chunked.len(), chunked.front(), chunked.back()), (model.len(), model.front(), model.back()));
                prop_assert!(chunked.iter().rev().eq(model.iter().rev()));
                let from = count.min(model.len());
                prop_assert!(chunked.from(from).eq(model.range(from..)));
                prop_assert_eq!(chunked.get(model.len()), None);
            }
        }
    }
}
