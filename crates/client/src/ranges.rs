//! Ranges of keys, as requests name them.

use bytes::Bytes;

/// The end of the range of all keys that begin with `prefix`: the smallest key after them. A single zero byte, which stands for "all
/// that follow", if there is none.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let Some(last) = prefix.iter().rposition(|byte| *byte < u8::MAX) else { return Bytes::from_static(b"\0") };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    end.into()
}

/// Key and end of a prefix, for requests: the empty prefix is all keys.
pub(crate) fn prefix(prefix: &Bytes) -> (Bytes, Bytes) {
    let key = if prefix.is_empty() { Bytes::from_static(b"\0") } else { prefix.clone() };
    (key, prefix_end(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ends_carry() {
        assert_eq!(&prefix_end(b"ab")[..], b"ac");
        assert_eq!(&prefix_end(b"a\xff\xff")[..], b"b");
        assert_eq!(&prefix_end(b"\xff")[..], b"\0");
        assert_eq!(prefix(&Bytes::new()), (Bytes::from_static(b"\0"), Bytes::from_static(b"\0")));
    }

    proptest! {
        #[test]
        fn a_key_is_below_the_end_exactly_if_it_has_the_prefix(
            prefix in proptest::collection::vec(prop_oneof![Just(0u8), Just(97), Just(254), Just(255)], 1..4),
            key in proptest::collection::vec(prop_oneof![Just(0u8), Just(97), Just(98), Just(254), Just(255)], 0..6),
        ) {
            let end = prefix_end(&prefix);
            let is_within = key >= prefix && (end == Bytes::from_static(b"\0") || key[..] < end[..]);
            prop_assert_eq!(is_within, key.starts_with(&prefix));
        }
    }
}
