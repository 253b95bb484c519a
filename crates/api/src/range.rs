//! Key ranges as the API writes them.

use std::ops::Bound;

/// A range of keys: `[start, end)`, from `start` on, or one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRange<'a> {
    /// Exactly this key (`range_end` unset or empty).
    One(&'a [u8]),
    /// Keys in `[start, end)`. Empty when `end <= start`.
    Span(&'a [u8], &'a [u8]),
    /// Every key at or after this one (`range_end` is a single zero byte).
    From(&'a [u8]),
}

impl<'a> KeyRange<'a> {
    /// The range that a request's `key` and `range_end` name.
    pub fn new(key: &'a [u8], range_end: &'a [u8]) -> Self {
        match range_end {
            [] => KeyRange::One(key),
            [0] => KeyRange::From(key),
            end => KeyRange::Span(key, end),
        }
    }

    /// True when no key can be inside.
    pub fn is_empty(&self) -> bool {
        matches!(self, KeyRange::Span(start, end) if end <= start)
    }

    /// Whether `key` lies inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            KeyRange::One(one) => key == *one,
            KeyRange::Span(start, end) => *start <= key && key < *end,
            KeyRange::From(start) => *start <= key,
        }
    }

    /// The first key that could be inside.
    pub fn start(&self) -> &'a [u8] {
        match self {
            KeyRange::One(key) | KeyRange::Span(key, _) | KeyRange::From(key) => key,
        }
    }

    /// The upper bound, for ordered maps.
    pub fn upper(&self) -> Bound<&'a [u8]> {
        match self {
            KeyRange::One(key) => Bound::Included(key),
            KeyRange::Span(_, end) => Bound::Excluded(end),
            KeyRange::From(_) => Bound::Unbounded,
        }
    }

    /// Whether `key`, known to be at or after the start, is still inside.
    pub fn before_end(&self, key: &[u8]) -> bool {
        match self {
            KeyRange::One(one) => key <= *one,
            KeyRange::Span(_, end) => key < *end,
            KeyRange::From(_) => true,
        }
    }
}

/// The `range_end` that makes `[prefix, range_end)` all keys with this prefix; a single zero byte ("no upper bound") when the
/// prefix is empty or all `0xff`.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        assert!(KeyRange::new(b"a", b"").contains(b"a") && !KeyRange::new(b"a", b"").contains(b"aa"));
        assert!(KeyRange::new(b"a", b"\0").contains(b"zz") && !KeyRange::new(b"b", b"\0").contains(b"a"));
        assert!(KeyRange::new(b"b", b"a").is_empty() && KeyRange::new(b"b", b"b").is_empty());
        assert!(KeyRange::new(b"\0", b"\0").contains(b"\0"));
        assert_eq!(prefix_end(b"a\xff"), b"b");
        assert_eq!(prefix_end(b"\xff"), b"\0");
    }
}
