//! The keys that hang on leases, found while the index is built.

/// Keys with their leases, one after the other: a list of them would take twice the memory.
#[derive(Debug, Default)]
pub(crate) struct LeasedKeys {
    /// For each key its lease, its length, and its bytes.
    parts: Vec<Vec<u8>>,
}

const HEAD_BYTES: usize = 16;

impl LeasedKeys {
    /// Adds a key.
    pub(super) fn push(&mut self, key: &[u8], lease: i64) {
        if self.parts.is_empty() {
            self.parts.push(Vec::new());
        }
        if let Some(part) = self.parts.last_mut() {
            part.extend_from_slice(&lease.to_le_bytes());
            part.extend_from_slice(&(key.len() as u64).to_le_bytes());
            part.extend_from_slice(key);
        }
    }

    /// Adds those that `other` has.
    pub(super) fn append(&mut self, mut other: LeasedKeys) {
        self.parts.append(&mut other.parts);
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], i64)> {
        self.parts.iter().flat_map(|part| {
            let mut rest = &part[..];
            std::iter::from_fn(move || {
                let (head, behind) = rest.split_first_chunk::<HEAD_BYTES>()?;
                let [a, b, c, d, e, f, g, h, len @ ..] = *head;
                let (key, behind) = behind.split_at_checked(u64::from_le_bytes(len) as usize)?;
                rest = behind;
                Some((key, i64::from_le_bytes([a, b, c, d, e, f, g, h])))
            })
        })
    }
}
