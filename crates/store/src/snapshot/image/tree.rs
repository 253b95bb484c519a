//! One B+tree, written from sorted records, children before parents.

use bytes::BufMut;

use super::page::{ELEMENT_BYTES, HEADER_BYTES, Kind, PAGE_BYTES, Pages, put_header};

/// Children that a branch holds even if their keys overflow a page. With one kept back for the next branch, none is ever left with a
/// single child, which readers that later delete from the file do not expect.
const CHILDREN_MIN: usize = 4;

/// Marks a leaf element whose value is the head of a bucket.
const IS_BUCKET: u32 = 1;

/// The open pages of a tree, one per level.
#[derive(Default)]
pub(super) struct Tree {
    leaf: Leaf,
    branches: Vec<Branch>,
    last_key: Vec<u8>,
}

impl Tree {
    /// True if no record has been pushed.
    pub(super) fn is_empty(&self) -> bool {
        self.leaf.slots.is_empty()
    }

    /// Adds a record, whose key is greater than all before it.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8], pages: &mut Pages) {
        self.push_slot(key, value, 0, pages);
    }

    /// Adds a bucket whose own tree has its root on page `root`, or is empty.
    pub(super) fn push_bucket(&mut self, name: &[u8], root: Option<u64>, pages: &mut Pages) {
        let mut head = Vec::new();
        head.put_u64_le(root.unwrap_or(0));
        head.put_u64_le(0); // sequence
        if root.is_none() {
            // A bucket without a page of its own has it inside this value.
            put_header(&mut head, 0, Kind::Leaf, 0, 0);
        }
        self.push_slot(name, &head, IS_BUCKET, pages);
    }

    /// Writes the pages that are still open and returns the number of the root.
    pub(super) fn finish(mut self, pages: &mut Pages) -> u64 {
        let (first_key, id) = self.leaf.close(pages);
        if self.branches.is_empty() {
            return id;
        }
        self.push_child(0, first_key, id, pages);
        let mut level = 0;
        loop {
            let branch = std::mem::take(&mut self.branches[level]);
            let (first_key, id) = branch.close(pages);
            level += 1;
            if level == self.branches.len() {
                return id;
            }
            self.push_child(level, first_key, id, pages);
        }
    }

    fn push_slot(&mut self, key: &[u8], value: &[u8], flags: u32, pages: &mut Pages) {
        assert!(self.is_empty() || self.last_key.as_slice() < key, "records of a snapshot are out of order");
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        if !self.is_empty() && self.leaf.bytes() + ELEMENT_BYTES + key.len() + value.len() > PAGE_BYTES {
            let (first_key, id) = self.leaf.close(pages);
            self.push_child(0, first_key, id, pages);
        }
        self.leaf.push(key, value, flags, pages);
    }

    /// Adds a finished page to the branches at `level`. Recurses by level: a branch has three children at least, so there are some twenty
    /// levels in the largest tree.
    fn push_child(&mut self, level: usize, key: Vec<u8>, page: u64, pages: &mut Pages) {
        if level == self.branches.len() {
            self.branches.push(Branch::default());
        }
        let branch = &mut self.branches[level];
        if branch.children.len() >= CHILDREN_MIN && branch.bytes() + ELEMENT_BYTES + key.len() > PAGE_BYTES {
            let mut full = std::mem::take(branch);
            if let Some((key, page)) = full.pop() {
                branch.push(key, page);
            }
            branch.push(key, page);
            let (first_key, id) = full.close(pages);
            self.push_child(level + 1, first_key, id, pages);
        } else {
            branch.push(key, page);
        }
    }
}

/// A leaf that is being filled.
#[derive(Default)]
struct Leaf {
    first_key: Vec<u8>,
    slots: Vec<Slot>,
    /// Bytes of keys and values.
    data_bytes: usize,
    /// Keys and values one after the other; nothing while pages are only counted.
    data: Vec<u8>,
}

struct Slot {
    flags: u32,
    key_bytes: usize,
    value_bytes: usize,
}

impl Leaf {
    fn bytes(&self) -> usize {
        HEADER_BYTES + self.slots.len() * ELEMENT_BYTES + self.data_bytes
    }

    fn push(&mut self, key: &[u8], value: &[u8], flags: u32, pages: &Pages) {
        if self.slots.is_empty() {
            self.first_key = key.to_vec();
        }
        self.slots.push(Slot { flags, key_bytes: key.len(), value_bytes: value.len() });
        self.data_bytes += key.len() + value.len();
        if !pages.is_counted() {
            self.data.extend_from_slice(key);
            self.data.extend_from_slice(value);
        }
    }

    /// Writes the page, returns its first key and its number, and begins an empty one.
    fn close(&mut self, pages: &mut Pages) -> (Vec<u8>, u64) {
        let id = pages.add(Kind::Leaf, self.slots.len(), self.bytes(), |out| {
            // Positions count from the element that holds them.
            let mut position = self.slots.len() * ELEMENT_BYTES;
            for slot in &self.slots {
                out.put_u32_le(slot.flags);
                out.put_u32_le(short(position));
                out.put_u32_le(short(slot.key_bytes));
                out.put_u32_le(short(slot.value_bytes));
                position = position + slot.key_bytes + slot.value_bytes - ELEMENT_BYTES;
            }
            out.extend_from_slice(&self.data);
        });
        self.slots.clear();
        self.data.clear();
        self.data.shrink_to(4 * PAGE_BYTES);
        self.data_bytes = 0;
        (std::mem::take(&mut self.first_key), id)
    }
}

/// A branch that is being filled.
#[derive(Default)]
struct Branch {
    /// First key and page of each child.
    children: Vec<(Vec<u8>, u64)>,
    key_bytes: usize,
}

impl Branch {
    fn bytes(&self) -> usize {
        HEADER_BYTES + self.children.len() * ELEMENT_BYTES + self.key_bytes
    }

    fn push(&mut self, key: Vec<u8>, page: u64) {
        self.key_bytes += key.len();
        self.children.push((key, page));
    }

    fn pop(&mut self) -> Option<(Vec<u8>, u64)> {
        let (key, page) = self.children.pop()?;
        self.key_bytes -= key.len();
        Some((key, page))
    }

    /// Writes the page; returns its first key and its number.
    fn close(self, pages: &mut Pages) -> (Vec<u8>, u64) {
        assert!(self.children.len() > 1, "a branch of a snapshot has a single child");
        let id = pages.add(Kind::Branch, self.children.len(), self.bytes(), |out| {
            let mut position = self.children.len() * ELEMENT_BYTES;
            for (key, page) in &self.children {
                out.put_u32_le(short(position));
                out.put_u32_le(short(key.len()));
                out.put_u64_le(*page);
                position = position + key.len() - ELEMENT_BYTES;
            }
            self.children.iter().for_each(|(key, _)| out.extend_from_slice(key));
        });
        (self.children.into_iter().next().map(|(key, _)| key).unwrap_or_default(), id)
    }
}

fn short(bytes: usize) -> u32 {
    assert!(bytes <= u32::MAX as usize, "a record of a snapshot exceeds 4 GiB");
    bytes as u32
}
