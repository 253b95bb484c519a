//! Sorting records by key and revision.
//!
//! Keys are spread over the whole log, and reading one is a cache miss or two: a comparison sort that follows references would take
//! seconds for a million records. So a few bytes of each key are sorted together with the record's place. Only records that agree in
//! those bytes read their keys again, for the next few bytes.

use super::crew::share;
use super::place::{Place, Places};

/// Bytes of the key in a prefix; the eighth says how many more there are.
const PREFIX_BYTES: usize = 7;
/// Items whose keys are looked at between two rests.
const REST_ITEMS: usize = 256;
/// Runs up to this length are compared by their whole keys.
const SHORT_RUN: usize = 12;

/// A record to be sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Item {
    prefix: u64,
    /// Segment and offset; orders as revisions do.
    place: u64,
}

impl Item {
    pub(crate) fn new(place: Place) -> Item {
        Item { prefix: 0, place: u64::from(place.segment) << 32 | u64::from(place.offset) }
    }

    pub(crate) fn place(&self) -> Place {
        Place { segment: (self.place >> 32) as u32, offset: self.place as u32 }
    }

    /// True when the prefix reaches to the end of the key.
    fn is_whole(&self) -> bool {
        self.prefix as u8 <= PREFIX_BYTES as u8
    }
}

/// How many bytes two keys have in common at their beginning.
pub(crate) fn shared(a: &[u8], b: &[u8]) -> usize {
    // Mostly all of `a`, which is what all keys so far agreed in.
    if b.starts_with(a) { a.len() } else { a.iter().zip(b).take_while(|(a, b)| a == b).count() }
}

/// Sorts by key, then revision, on so many threads. All keys agree in their first `depth` bytes.
pub(crate) fn sort(items: &mut [Item], depth: usize, places: &Places<'_>, threads: usize, rest: fn()) {
    divide(items, depth, places, threads, rest, false);
}

/// Has each thread sort a part of its own. It calls itself with fewer threads only; how deep keys agree is a loop.
fn divide(
    mut items: &mut [Item],
    mut depth: usize,
    places: &Places<'_>,
    threads: usize,
    rest: fn(),
    mut is_filled: bool,
) {
    loop {
        if !std::mem::take(&mut is_filled) {
            let each = items.len().div_ceil(threads).max(1);
            share(threads, items.chunks_mut(each).collect(), |some| fill(some, depth, places, rest));
        }
        if threads <= 1 || items.len() <= SHORT_RUN {
            return sort_filled(items, depth, places, rest);
        }
        let middle = items.len() / 2;
        let pivot = *items.select_nth_unstable(middle).1;
        // Those that agree in the bytes looked at so far stay together.
        let from = partition(&mut items[..middle], |item| item.prefix < pivot.prefix);
        let to = middle + partition(&mut items[middle..], |item| item.prefix == pivot.prefix);
        if (to - from) <= items.len() / 2 || pivot.is_whole() {
            let (left, right) = items.split_at_mut(from);
            let of_left = threads / 2;
            share(2, vec![(left, of_left), (right, threads - of_left)], |(part, threads)| {
                divide(part, depth, places, threads, rest, true);
            });
            return;
        }
        // Most keys go on alike, such as Kubernetes' `/registry/`, and only some others kept that from being seen.
        let (tied, greater) = items.split_at_mut(to);
        let (smaller, tied) = tied.split_at_mut(from);
        sort_filled(smaller, depth, places, rest);
        sort_filled(greater, depth, places, rest);
        depth = shared_depth(tied, depth + PREFIX_BYTES, places);
        items = tied;
    }
}

/// Moves the items for which `is_first` holds to the front, and returns how many they are.
fn partition(items: &mut [Item], is_first: impl Fn(&Item) -> bool) -> usize {
    let mut first = 0;
    for at in 0..items.len() {
        if is_first(&items[at]) {
            items.swap(first, at);
            first += 1;
        }
    }
    first
}

/// Notes the next bytes of each key.
fn fill(items: &mut [Item], depth: usize, places: &Places<'_>, rest: fn()) {
    for some in items.chunks_mut(REST_ITEMS) {
        for item in some {
            item.prefix = prefix(&places.key(item.place())[depth..]);
        }
        rest();
    }
}

/// Sorts items that are filled at this depth.
fn sort_filled(items: &mut [Item], depth: usize, places: &Places<'_>, rest: fn()) {
    let (mut runs, mut is_filled) = (vec![(0, items.len(), depth)], true);
    while let Some((start, end, depth)) = runs.pop() {
        let run = &mut items[start..end];
        if !std::mem::take(&mut is_filled) {
            fill(run, depth, places, rest);
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
