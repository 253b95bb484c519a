//! The static table: header fields that every connection knows (RFC 7541 appendix A).

/// How many there are; their indices begin with 1.
pub(super) const ENTRIES: usize = 61;

const TABLE: [(&[u8], &[u8]); ENTRIES] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

const NAME_BYTES_MAX: usize = 27;

/// The indices of the entries that are the first of their name, sorted by the length of the name.
static BY_LENGTH: ByLength = ByLength::new();

struct ByLength {
    indices: [u8; ENTRIES],
    /// Where in `indices` the names of a length begin.
    starts: [u8; NAME_BYTES_MAX + 2],
}

impl ByLength {
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "runs at compile time, where a slip is an error"
    )]
    const fn new() -> ByLength {
        let mut table = ByLength { indices: [0; ENTRIES], starts: [0; NAME_BYTES_MAX + 2] };
        let mut count = 0;
        let mut length = 0;
        while length <= NAME_BYTES_MAX {
            table.starts[length] = count as u8;
            let mut at = 0;
            while at < ENTRIES {
                assert!(TABLE[at].0.len() <= NAME_BYTES_MAX, "the longest name");
                if TABLE[at].0.len() == length && !(at > 0 && same(TABLE[at - 1].0, TABLE[at].0)) {
                    table.indices[count] = at as u8 + 1;
                    count += 1;
                }
                at += 1;
            }
            length += 1;
        }
        table.starts[length] = count as u8;
        table
    }
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "runs at compile time, where a slip is an error"
)]
const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The entry of `index`, if that is from 1 to [`ENTRIES`].
#[inline]
pub(super) fn entry(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    TABLE.get(index.checked_sub(1)?).copied()
}

/// The index of an entry of this name, and whether its value is the one as well.
pub(super) fn find(name: &[u8], value: &[u8]) -> Option<(usize, bool)> {
    let length = name.len();
    let &[start, end] = BY_LENGTH.starts.get(length..)?.first_chunk()?;
    let candidates = BY_LENGTH.indices.get(usize::from(start)..usize::from(end))?;
    let is_name = |&index: &usize| entry(index).is_some_and(|entry| entry.0 == name);
    let first = candidates.iter().map(|&index| usize::from(index)).find(is_name)?;
    let mut same_name = (first..=ENTRIES).take_while(is_name);
    let exact = same_name.find(|&index| entry(index).is_some_and(|entry| entry.1 == value));
    Some(exact.map_or((first, false), |index| (index, true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found() {
        for index in 1..=ENTRIES {
            let (name, value) = entry(index).expect("it is one of them");
            assert_eq!(find(name, value), Some((index, true)));
            let (first, exact) = find(name, b"another").expect("the name is there");
            let name_of = |index| entry(index).map(|(name, _)| name);
            assert!(!exact && name_of(first) == Some(name) && name_of(first - 1) != Some(name));
        }
        assert_eq!(entry(8), Some((&b":status"[..], &b"200"[..])));
        assert_eq!((entry(0), entry(ENTRIES + 1)), (None, None));
        assert_eq!(find(b":status", b"500"), Some((14, true)));
    }

    #[test]
    fn other_names_are_not_found() {
        for name in [&b""[..], b"te", b"x-status", b"grpc-status", b"access-control-allow-origins", &[0; 300]] {
            assert_eq!(find(name, b""), None);
        }
    }
}
