//! Sorting records by key and revision.
//!
//! Keys are spread over the whole log, and reading one is a cache miss or two: a comparison sort that follows references would take
//! seconds for a million records. So a few bytes of each key are sorted together with the record's place. Only records that agree in
//! those bytes read their keys again, for the next few bytes.

use super::place::{Place, Places};

/// Bytes of the key in a prefix; the eighth says how many more there are.
const PREFIX_BYTES: usize = 7;
/// Items whose keys are looked at between two rests.
const REST_ITEMS: usize = 256;
/// Runs up to this length are compared by their whole keys.
const SHORT_RUN: usize = 12;

/// A record to be sorted. Once sorted, records of one key have equal prefixes, but not only they.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    prefix: u64,
    /// Segment and offset; orders as revisions do.
    place: u64,
}

impl Item {
    pub(super) fn new(place: Place) -> Item {
        Item { prefix: 0, place: u64::from(place.segment) << 32 | u64::from(place.offset) }
    }

    pub(super) fn place(&self) -> Place {
        Place { segment: (self.place >> 32) as u32, offset: self.place as u32 }
    }

    /// False only if the keys differ.
    pub(super) fn may_share_key(&self, other: &Item) -> bool {
        self.prefix == other.prefix
    }

    /// True when the prefix reaches to the end of the key.
    fn is_whole(&self) -> bool {
        self.prefix as u8 <= PREFIX_BYTES as u8
    }
}

/// How many bytes two keys have in common at their beginning.
pub(super) fn shared(a: &[u8], b: &[u8]) -> usize {
    // Mostly all of `a`, which is what all keys so far agreed in.
    if b.starts_with(a) { a.len() } else { a.iter().zip(b).take_while(|(a, b)| a == b).count() }
}

/// Sorts by key, then revision. All keys agree in their first `depth` bytes.
pub(super) fn sort(items: &mut [Item], depth: usize, places: &Places<'_>, rest: fn()) {
    let mut runs = vec![(0, items.len(), depth)];
    while let Some((start, end, depth)) = runs.pop() {
        let run = &mut items[start..end];
        for some in run.chunks_mut(REST_ITEMS) {
            for item in some {
                item.prefix = prefix(&places.key(item.place())[depth..]);
            }
            rest();
        }
        run.sort_unstable();
        let mut from = 0;
        while let Some(item) = run.get(from).copied() {
            let len = run[from..].iter().take_while(|other| other.prefix == item.prefix).count();
            let tied = &mut run[from..from + len];
            if len > SHORT_RUN && !item.is_whole() {
                runs.push((start + from, start + from + len, shared_depth(tied, depth + PREFIX_BYTES, places)));
            } else if len > 1 && !item.is_whole() {
                tied.sort_unstable_by(|a, b| {
                    let (left, right) = (places.key(a.place()), places.key(b.place()));
                    left[depth..].cmp(&right[depth..]).then(a.place.cmp(&b.place))
                });
            }
            from += len;
        }
    }
}

/// How many bytes the keys of a run agree in, which is at least `depth`.
fn shared_depth(run: &[Item], depth: usize, places: &Places<'_>) -> usize {
    let Some((first, rest)) = run.split_first() else { return depth };
    let mut common = places.key(first.place());
    for item in rest {
        if common.len() == depth {
            break;
        }
        common = &common[..depth + shared(&common[depth..], &places.key(item.place())[depth..])];
    }
    common.len()
}

/// The next bytes of a key as a number that orders as they do: seven bytes, filled up with zeros, and the length of the rest,
/// which tells a key that ends from one that goes on with zeros.
fn prefix(rest: &[u8]) -> u64 {
    let length = rest.len().min(PREFIX_BYTES + 1);
    let mut bytes = [0; 8];
    let taken = rest.len().min(PREFIX_BYTES);
    bytes[..taken].copy_from_slice(&rest[..taken]);
    bytes[PREFIX_BYTES] = length as u8;
    u64::from_be_bytes(bytes)
}
