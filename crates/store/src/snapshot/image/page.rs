//! Pages of the file: their layout, their numbers, and where they go.

use bytes::{BufMut, BytesMut};

/// Bytes of a page. A longer one continues in the pages that follow it.
pub(super) const PAGE_BYTES: usize = 4096;

/// Bytes before the elements of a page.
pub(super) const HEADER_BYTES: usize = 16;

/// Bytes of an element's fixed part.
pub(super) const ELEMENT_BYTES: usize = 16;

const MAGIC: u32 = 0xed0c_daed;
const VERSION: u32 = 2;

/// Pages before the first tree: two heads and the list of free pages.
const HEAD_PAGES: u64 = 3;

/// What a page holds.
#[derive(Clone, Copy)]
#[repr(u16)]
pub(super) enum Kind {
    /// Keys and the pages of children.
    Branch = 0x01,
    /// Keys and values.
    Leaf = 0x02,
    /// Where the tree of buckets is.
    Meta = 0x04,
    /// Which pages are free: none.
    Freelist = 0x10,
}

/// Where finished pages go.
pub(super) struct Pages {
    next: u64,
    /// `None` while pages are only counted.
    out: Option<BytesMut>,
}

impl Pages {
    /// Pages that are numbered but not written.
    pub(super) fn counted() -> Pages {
        Pages { next: HEAD_PAGES, out: None }
    }

    /// Pages that are written, the head first, which needs to know where the tree of buckets will end up, and the number of pages.
    pub(super) fn written(root: u64, count: u64) -> Pages {
        let mut out = BytesMut::new();
        for id in 0..2 {
            put_header(&mut out, id, Kind::Meta, 0, 0);
            let start = out.len();
            out.put_u32_le(MAGIC);
            out.put_u32_le(VERSION);
            out.put_u32_le(PAGE_BYTES as u32);
            out.put_u32_le(0); // flags
            out.put_u64_le(root);
            out.put_u64_le(0); // sequence of the tree of buckets
            out.put_u64_le(HEAD_PAGES - 1); // list of free pages
            out.put_u64_le(count);
            out.put_u64_le(id); // transaction
            let checksum = fnv_1a(&out[start..]);
            out.put_u64_le(checksum);
            pad(&mut out);
        }
        put_header(&mut out, HEAD_PAGES - 1, Kind::Freelist, 0, 0);
        pad(&mut out);
        Pages { next: HEAD_PAGES, out: Some(out) }
    }

    /// True if pages are only counted, so that their content need not be kept.
    pub(super) fn is_counted(&self) -> bool {
        self.out.is_none()
    }

    /// Pages so far.
    pub(super) fn count(&self) -> u64 {
        self.next
    }

    /// Adds a page of `bytes` bytes, header included, and returns its number. `fill` puts what follows the header.
    pub(super) fn add(&mut self, kind: Kind, elements: usize, bytes: usize, fill: impl FnOnce(&mut BytesMut)) -> u64 {
        let (id, span) = (self.next, bytes.div_ceil(PAGE_BYTES) as u64);
        self.next += span;
        if let Some(out) = &mut self.out {
            let start = out.len();
            put_header(out, id, kind, elements, span - 1);
            fill(out);
            assert!(out.len() - start == bytes, "a page is not as long as was planned");
            pad(out);
        }
        id
    }

    /// Moves what has been written to the end of `ready`.
    pub(super) fn drain(&mut self, ready: &mut BytesMut) {
        if let Some(out) = &mut self.out
            && !out.is_empty()
        {
            ready.unsplit(out.split());
        }
    }
}

/// A page header, also that of the page inside an empty bucket.
pub(super) fn put_header(out: &mut impl BufMut, id: u64, kind: Kind, elements: usize, overflow: u64) {
    assert!(elements < usize::from(u16::MAX) && overflow <= u64::from(u32::MAX), "a page holds too much");
    out.put_u64_le(id);
    out.put_u16_le(kind as u16);
    out.put_u16_le(elements as u16);
    out.put_u32_le(overflow as u32);
}

fn pad(out: &mut BytesMut) {
    out.put_bytes(0, out.len().next_multiple_of(PAGE_BYTES) - out.len());
}

/// FNV-1a, 64 bits.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_the_reference() {
        assert_eq!(fnv_1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
