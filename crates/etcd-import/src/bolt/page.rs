//! The layout of pages.

/// A page with keys and the pages of children.
pub(super) const BRANCH: u16 = 0x01;
/// A page with keys and values.
pub(super) const LEAF: u16 = 0x02;
/// Bytes before the elements.
pub(super) const HEAD_BYTES: usize = 16;

const META: u16 = 0x04;
const MAGIC: u32 = 0xed0c_daed;
const VERSION: u32 = 2;
const ELEMENT_BYTES: usize = 16;
const META_BYTES: usize = 64;
const PAGE_BYTES_MIN: usize = 1024;
pub(super) const PAGE_BYTES_MAX: usize = 64 << 10;
/// An element whose value is a bucket.
const IS_BUCKET: u32 = 1;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u16::from_le_bytes(*chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// What a file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) page_bytes: usize,
    /// The tree of buckets.
    pub(super) root: u64,
    /// How many pages there are.
    pub(super) pages: u64,
    transaction: u64,
}

impl Meta {
    /// The newer of the two that is whole. Where the second one is depends on the length of pages, which the first one says if it is whole.
    pub(super) fn find(
        file_bytes: u64,
        read: impl Fn(u64, &mut [u8]) -> std::io::Result<()>,
    ) -> Result<Meta, &'static str> {
        let at = |offset: u64| {
            let mut bytes = [0; HEAD_BYTES + META_BYTES];
            read(offset, &mut bytes).ok().and_then(|()| Meta::parse(&bytes))
        };
        let first = at(0);
        let sizes = std::iter::successors(Some(PAGE_BYTES_MIN), |size| size.checked_mul(2));
        let second = match first {
            Some(meta) => at(meta.page_bytes as u64),
            None => sizes
                .take_while(|size| *size <= PAGE_BYTES_MAX)
                .find_map(|size| at(size as u64).filter(|meta| meta.page_bytes == size)),
        };
        let second = second.filter(|meta| first.is_none_or(|first| first.page_bytes == meta.page_bytes));
        let newest = first.into_iter().chain(second).max_by_key(|meta| meta.transaction);
        let meta = newest.ok_or("neither of its two heads is whole")?;
        let needed = meta.pages.checked_mul(meta.page_bytes as u64).ok_or("its head is absurd")?;
        if needed > file_bytes { Err("it is cut off") } else { Ok(meta) }
    }

    fn parse(bytes: &[u8]) -> Option<Meta> {
        let meta = bytes.get(HEAD_BYTES..)?;
        let page_bytes = u32_at(meta, 8) as usize;
        let is_whole = u16_at(bytes, 8) == META
            && u32_at(meta, 0) == MAGIC
            && u32_at(meta, 4) == VERSION
            && page_bytes.is_power_of_two()
            && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes)
            && u64_at(meta, 56) == checksum(meta.get(..56)?);
        is_whole.then(|| Meta {
            page_bytes,
            root: u64_at(meta, 16),
            pages: u64_at(meta, 40),
            transaction: u64_at(meta, 48),
        })
    }
}

/// FNV-1a, 64 bits.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The first bytes of a page.
pub(super) struct Head {
    pub(super) id: u64,
    pub(super) kind: u16,
    /// Number of further pages into which it continues.
    pub(super) overflow: u32,
}

impl Head {
    pub(super) fn of(bytes: &[u8]) -> Head {
        Head { id: u64_at(bytes, 0), kind: u16_at(bytes, 8), overflow: u32_at(bytes, 12) }
    }
}

/// A page that was read.
pub(super) struct Page<'a> {
    pub(super) id: u64,
    pub(super) bytes: &'a [u8],
}

/// A key and its value.
pub(super) struct Element<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) is_bucket: bool,
}

impl<'a> Page<'a> {
    pub(super) fn kind(&self) -> u16 {
        u16_at(self.bytes, 8)
    }

    pub(super) fn count(&self) -> usize {
        usize::from(u16_at(self.bytes, 10))
    }

    /// The fixed part of an element, and where that is.
    fn slot(&self, number: usize) -> Result<(usize, &'a [u8]), &'static str> {
        let at = number.saturating_mul(ELEMENT_BYTES).saturating_add(HEAD_BYTES);
        let slot =
            self.bytes.get(at..).and_then(|rest| rest.get(..ELEMENT_BYTES)).ok_or("it has more elements than fit")?;
        Ok((at, slot))
    }

    /// Where the bytes of the first element are: behind the fixed parts of all.
    pub(super) fn begin(&self) -> usize {
        self.count().saturating_mul(ELEMENT_BYTES).saturating_add(HEAD_BYTES)
    }

    /// The bytes of an element, which are where those of the one before it end: otherwise the page has another count or other lengths
    /// than were written.
    fn bytes_at(&self, at: usize, position: usize, length: usize, due: &mut usize) -> Result<&'a [u8], &'static str> {
        let start = at.saturating_add(position);
        if start != *due {
            return Err("its elements do not lie one behind the other");
        }
        let bytes =
            self.bytes.get(start..).and_then(|rest| rest.get(..length)).ok_or("an element reaches out of it")?;
        *due = start.saturating_add(length);
        Ok(bytes)
    }

    /// A child of a branch: the first key that may be below it, and its page. `due` is where its key must be.
    pub(super) fn child(&self, number: usize, due: &mut usize) -> Result<(&'a [u8], u64), &'static str> {
        let (at, slot) = self.slot(number)?;
        let key = self.bytes_at(at, u32_at(slot, 0) as usize, u32_at(slot, 4) as usize, due)?;
        Ok((key, u64_at(slot, 8)))
    }

    /// An element of a leaf. `due` is where its key must be.
    pub(super) fn element(&self, number: usize, due: &mut usize) -> Result<Element<'a>, &'static str> {
        let (at, slot) = self.slot(number)?;
        let word = |place: usize| u32_at(slot, place) as usize;
        let (position, key_bytes, value_bytes) = (word(4), word(8), word(12));
        let both = self.bytes_at(at, position, key_bytes.saturating_add(value_bytes), due)?;
        let (key, value) = both.split_at_checked(key_bytes).ok_or("an element reaches out of it")?;
        Ok(Element { key, value, is_bucket: u32_at(slot, 0) & IS_BUCKET != 0 })
    }
}

/// The root of a bucket, and what follows in its value.
pub(super) fn bucket(value: &[u8]) -> Result<(u64, &[u8]), String> {
    let rest = value.get(16..).ok_or("a bucket without a root")?;
    Ok((u64_at(value, 0), rest))
}
