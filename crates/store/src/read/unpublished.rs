//! The revision that is partly in the index: one that changes more keys than one hold of the lock installs.

use crate::log::lock;
use api::KeyRange;
use bytes::Bytes;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The keys of that revision, if there is one. Set under the write lock of the index, asked under its read lock.
#[derive(Default)]
pub(crate) struct Unpublished {
    any: AtomicBool,
    span: Mutex<Option<KeySpan>>,
}

/// From the first key to the last one.
pub(crate) struct KeySpan {
    pub(crate) first: Bytes,
    pub(crate) last: Bytes,
}

impl Unpublished {
    pub(crate) fn set(&self, span: Option<KeySpan>) {
        // The lock of the index orders these.
        self.any.store(span.is_some(), Ordering::Relaxed);
        *lock(&self.span) = span;
    }

    pub(crate) fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether counts of this range would be wrong.
    pub(crate) fn touches(&self, range: KeyRange<'_>) -> bool {
        self.is_any() && lock(&self.span).as_ref().is_some_and(|span| span.touches(range))
    }
}

impl KeySpan {
    fn touches(&self, range: KeyRange<'_>) -> bool {
        !range.is_empty() && range.start() <= &*self.last && range.before_end(&self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_touch() {
        let unpublished = Unpublished::default();
        assert!(!unpublished.touches(KeyRange::From(b"\0")));
        unpublished.set(Some(KeySpan { first: "c".into(), last: "f".into() }));
        for (key, range_end, touches) in [
            ("a", "c", false),
            ("a", "ca", true),
            ("c", "", true),
            ("b", "", false),
            ("g", "", false),
            ("f", "\0", true),
            ("fa", "\0", false),
            ("d", "e", true),
            ("e", "d", false),
        ] {
            let range = KeyRange::new(key.as_bytes(), range_end.as_bytes());
            assert_eq!(unpublished.touches(range), touches, "{range:?}");
        }
        unpublished.set(None);
        assert!(!unpublished.touches(KeyRange::From(b"\0")));
    }
}
