//! The sorted keys of one tree node, packed.
//!
//! ```text
//! heap:  | shared prefix | suffix 0 | suffix 1 | ... |
//! ends:                            ^          ^
//! heads: the first four bytes of each suffix, big endian
//! ```
//!
//! Neighbours in a sorted set share most of their bytes, so the prefix is stored once; a search then touches the prefix, four
//! cache lines of heads, and one suffix. Every string lies in one allocation per node instead of one per key.

use std::cmp::Ordering;
use std::slice;

/// Keys in one node. 64, because a leaf marks its live keys in the bits of a `u64`.
pub(super) const KEYS_MAX: usize = 64;

/// Key bytes in one node. A node of longer keys splits sooner, so that an insertion never moves more than this (plus its own key).
pub(super) const HEAP_BYTES_MAX: usize = 32 << 10;

/// A key in two pieces: the prefix it shares with its block, and the rest.
pub(super) type Parts<'a> = [&'a [u8]; 2];

/// Up to [`KEYS_MAX`] sorted, distinct byte strings.
pub(super) struct KeyBlock {
    len: u32,
    prefix_len: u32,
    /// `u32::MAX` after the last, so that a search may always look at the whole array.
    heads: [u32; KEYS_MAX],
    ends: [u32; KEYS_MAX],
    heap: Vec<u8>,
}

impl KeyBlock {
    /// A block without keys.
    pub(super) fn new() -> KeyBlock {
        KeyBlock { len: 0, prefix_len: 0, heads: [u32::MAX; KEYS_MAX], ends: [0; KEYS_MAX], heap: Vec::new() }
    }

    /// A block of these keys, which are sorted and agree in their first `shared` bytes.
    pub(super) fn assemble<'a>(shared: usize, keys: impl Iterator<Item = Parts<'a>> + Clone) -> KeyBlock {
        let mut block = KeyBlock::new();
        let bytes: usize = keys.clone().map(|key| len(key) - shared).sum();
        block.heap.reserve_exact(shared + bytes);
        block.prefix_len = offset(shared);
        for (i, [prefix, suffix]) in keys.enumerate() {
            assert!(i < KEYS_MAX, "a block of keys overflows");
            if i == 0 {
                block.heap.extend(prefix.iter().chain(suffix).take(shared));
            }
            let start = block.heap.len();
            block.heap.extend_from_slice(&prefix[shared.min(prefix.len())..]);
            block.heap.extend_from_slice(&suffix[shared.saturating_sub(prefix.len())..]);
            block.heads[i] = head(&block.heap[start..]);
            block.ends[i] = offset(block.heap.len());
            block.len += 1;
        }
        block
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// The bytes that all keys begin with.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.heap[..self.prefix_len as usize]
    }

    /// What follows the prefix in key `i`.
    pub(super) fn suffix(&self, i: usize) -> &[u8] {
        assert!(i < self.len(), "a place in a block comes from `find` or from counting its keys");
        &self.heap[self.start(i)..self.ends[i] as usize]
    }

    /// Key `i` in its two pieces.
    pub(super) fn parts(&self, i: usize) -> Parts<'_> {
        [self.prefix(), self.suffix(i)]
    }

    /// All keys in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Parts<'_>> + Clone {
        (0..self.len()).map(|i| self.parts(i))
    }

    /// A copy of key `i`.
    pub(super) fn key(&self, i: usize) -> Vec<u8> {
        self.parts(i).concat()
    }

    /// Where `key` is, or where it belongs.
    pub(super) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.find_from(self.rank(key), key)
    }

    /// The first half of a search, which looks at numbers only: how many heads are less than that of `key`, taken that `key` begins with
    /// the prefix.
    pub(super) fn rank(&self, key: &[u8]) -> usize {
        let target = head(key.get(self.prefix_len as usize..).unwrap_or_default());
        // Counting has no branch to mispredict and compares many lanes at a time: faster than halving at this size. Checked
        // addition would keep the compiler from doing so.
        let less = self.heads.iter().fold(0u32, |less, &head| less.wrapping_add(u32::from(head < target)));
        (less as usize).min(self.len())
    }

    /// The other half of a search, which compares strings: where `key` is, or where it belongs. `rank` is its [`rank`](Self::rank).
    pub(super) fn find_from(&self, rank: usize, key: &[u8]) -> Result<usize, usize> {
        let prefix = self.prefix();
        let Some((front, rest)) = key.split_at_checked(prefix.len()) else {
            return Err(if key <= prefix { 0 } else { self.len() });
        };
        match front.cmp(prefix) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.len()),
            Ordering::Equal => {}
        }
        let target = head(rest);
        let (mut low, mut high) = (rank, rank);
        while high < self.len() && self.heads[high] == target {
            high += 1;
        }
        while low < high {
            let middle = low.midpoint(high);
            match self.suffix(middle).cmp(rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Fetches what the first half of a search looks at.
    pub(super) fn fetch(&self) {
        disk::fetch(&self.heads);
        disk::fetch(slice::from_ref(&self.heap));
    }

    /// Fetches the strings that the other half of a search compares.
    pub(super) fn fetch_strings(&self, rank: usize) {
        let start = self.start(rank);
        disk::fetch(self.heap.get(..1).unwrap_or_default());
        disk::fetch(self.heap.get(start..start + 1).unwrap_or_default());
    }

    /// Puts `key` at `at`, which is where [`find`](Self::find) said it belongs.
    pub(super) fn insert(&mut self, at: usize, key: &[u8]) {
        let len = self.len();
        assert!(len < KEYS_MAX && at <= len, "a block of keys overflows");
        if len == 0 {
            self.heap = key.to_vec();
            self.prefix_len = offset(key.len());
        }
        let shared = shared(self.prefix(), key);
        if shared < self.prefix().len() {
            *self = KeyBlock::assemble(shared, self.iter());
        }
        let suffix = &key[shared..];
        let (start, end) = (self.start(at), self.heap.len());
        if self.heap.capacity() < end + suffix.len() {
            self.heap.reserve_exact(suffix.len() + end / 8 + 32);
        }
        self.heap.resize(end + suffix.len(), 0);
        self.heap.copy_within(start..end, start + suffix.len());
        self.heap[start..start + suffix.len()].copy_from_slice(suffix);
        self.heads.copy_within(at..len, at + 1);
        self.heads[at] = head(suffix);
        self.ends.copy_within(at..len, at + 1);
        self.ends[at] = offset(start);
        let grown = offset(suffix.len());
        assert!(self.heap.len() <= u32::MAX as usize, "the keys of a block exceed 4 GiB");
        self.ends[at..=len].iter_mut().for_each(|end| *end += grown);
        self.len += 1;
    }

    /// Heap bytes once `key` is inserted.
    pub(super) fn bytes_with(&self, key: &[u8]) -> usize {
        let shared = shared(self.prefix(), key);
        let lost = self.prefix().len() - shared;
        self.heap.len() + self.len().saturating_sub(1) * lost + key.len() - shared
    }

    /// The keys `[from, to)` as a block of their own, with the longest prefix they allow.
    pub(super) fn slice(&self, from: usize, to: usize) -> KeyBlock {
        if from >= to {
            return KeyBlock::new();
        }
        let shared = self.prefix().len() + shared(self.suffix(from), self.suffix(to - 1));
        KeyBlock::assemble(shared, (from..to).map(|i| self.parts(i)))
    }

    /// Keeps the keys whose bit is set in `mask`.
    pub(super) fn retain(&mut self, mask: u64) {
        let kept = (0..self.len()).filter(|&i| mask >> i & 1 == 1);
        let (Some(first), Some(last)) = (kept.clone().next(), kept.clone().next_back()) else {
            *self = KeyBlock::new();
            return;
        };
        let shared = self.prefix().len() + shared(self.suffix(first), self.suffix(last));
        *self = KeyBlock::assemble(shared, kept.map(|i| self.parts(i)));
    }

    /// The keys of this block, then `between` if there is one, then those of `other`, if they fit into one block with room left.
    pub(super) fn join(&self, between: Option<&[u8]>, other: &KeyBlock, len_max: usize) -> Option<KeyBlock> {
        let keys = self.iter().chain(between.map(|key| [key, &[][..]])).chain(other.iter());
        let (first, last) = (keys.clone().next(), keys.clone().last());
        let (Some(first), Some(last)) = (first, last) else {
            return Some(KeyBlock::new());
        };
        let (shared, count) = (shared_parts(first, last), keys.clone().count());
        let bytes = shared + keys.clone().map(|key| len(key) - shared).sum::<usize>();
        (count <= len_max && bytes <= HEAP_BYTES_MAX * 3 / 4).then(|| KeyBlock::assemble(shared, keys))
    }

    /// Where to cut the block so that both halves hold about as many bytes; inside `1..len`.
    pub(super) fn middle(&self) -> usize {
        let half = (self.prefix().len() + self.heap.len()) / 2;
        let at = self.ends[..self.len()].partition_point(|&end| (end as usize) < half);
        at.clamp(1, self.len().saturating_sub(1).max(1))
    }

    fn start(&self, i: usize) -> usize {
        if i == 0 { self.prefix_len as usize } else { self.ends[i - 1] as usize }
    }
}

/// The shortest key that is greater than `left` and not greater than `right`.
pub(super) fn separator(left: Parts<'_>, right: Parts<'_>) -> Vec<u8> {
    let shared = shared_parts(left, right);
    let mut key = right.concat();
    assert!(shared < key.len(), "keys are not in order");
    key.truncate(shared + 1);
    key
}

/// How many leading bytes agree.
pub(super) fn shared(a: &[u8], b: &[u8]) -> usize {
    const STEP: usize = 16;
    let steps = a.chunks_exact(STEP).zip(b.chunks_exact(STEP)).take_while(|(a, b)| a == b).count() * STEP;
    steps + a[steps..].iter().zip(&b[steps..]).take_while(|(a, b)| a == b).count()
}

fn shared_parts(a: Parts<'_>, b: Parts<'_>) -> usize {
    let (mut a, mut b, mut total) = (a, b, 0);
    loop {
        let n = shared(a[0], b[0]);
        total += n;
        a[0] = &a[0][n..];
        b[0] = &b[0][n..];
        let mut moved = false;
        for key in [&mut a, &mut b] {
            if key[0].is_empty() && !key[1].is_empty() {
                *key = [key[1], &[]];
                moved = true;
            }
        }
        if !moved {
            return total;
        }
    }
}

fn len([prefix, suffix]: Parts<'_>) -> usize {
    prefix.len() + suffix.len()
}

/// The first four bytes, zeros where there are none: orders as the keys do, but for ties.
fn head(suffix: &[u8]) -> u32 {
    let mut bytes = [0; 4];
    match suffix.first_chunk() {
        Some(first) => bytes = *first,
        None => bytes[..suffix.len()].copy_from_slice(suffix),
    }
    u32::from_be_bytes(bytes)
}

fn offset(bytes: usize) -> u32 {
    assert!(bytes <= u32::MAX as usize, "the keys of a block exceed 4 GiB");
    bytes as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_order_as_keys() {
        assert_eq!(head(b""), 0);
        assert_eq!(head(b"a"), 0x6100_0000);
        assert_eq!(head(b"abc"), 0x6162_6300);
        assert_eq!(head(b"abcdef"), 0x6162_6364);
    }

    #[test]
    fn shared_bytes() {
        assert_eq!(shared(&[7; 40], &[7; 33]), 33);
        assert_eq!(shared_parts([b"ab", b"cdx"], [b"abc", b"dy"]), 4);
        assert_eq!(shared_parts([b"", b"abc"], [b"abc", b""]), 3);
        assert_eq!(separator([b"k", b"abc"], [b"ka", b"cz"]), b"kac");
        assert_eq!(separator([b"a", b""], [b"a", b"\0\0"]), b"a\0");
    }

    #[test]
    fn ties_in_the_heads() {
        let mut block = KeyBlock::new();
        for key in
            [&b"b"[..], b"", b"aaaab", b"aaaa", b"aaaac", b"a", b"aaaa\0", b"\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff"]
        {
            let Err(at) = block.find(key) else { panic!("found") };
            block.insert(at, key);
            assert_eq!(block.find(key), Ok(at));
        }
        assert!((1..block.len()).all(|i| block.key(i - 1) < block.key(i)));
        assert_eq!(block.find(b"aaaaa"), Err(4 + usize::from(block.key(4) < b"aaaaa".to_vec())));
        assert_eq!(block.find(b"\xff\xff\xff\xff\0"), Err(8));
    }

    #[test]
    fn prefix_grows_and_shrinks() {
        let mut block = KeyBlock::new();
        for key in ["/pods/a", "/pods/ab", "/pods/c"] {
            block.insert(block.len(), key.as_bytes());
        }
        assert_eq!(block.prefix(), b"/pods/");
        assert_eq!(block.bytes_with(b"/p"), 2 + 4 * 3 + 1 + 2 + 1);
        block.insert(0, b"/p");
        assert_eq!((block.prefix(), block.heap.len()), (&b"/p"[..], 2 + 4 * 3 + 1 + 2 + 1));
        assert_eq!(block.find(b"/"), Err(0));
        assert_eq!(block.find(b"/q"), Err(4));
        block.retain(0b0110);
        assert_eq!((block.prefix(), block.len()), (&b"/pods/a"[..], 2));
        assert_eq!(block.find(b"/pods/a"), Ok(0));
        let joined = block.join(Some(b"/pods/b"), &KeyBlock::new(), 3).expect("fits");
        assert_eq!(joined.find(b"/pods/b"), Ok(2));
        assert!(block.join(None, &joined, 4).is_none());
    }
}
