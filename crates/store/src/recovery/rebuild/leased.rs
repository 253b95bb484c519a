//! The keys that hang on leases, found while the index is built.

/// Keys with their leases, one after the other: a list of them would take twice the memory.
#[derive(Debug, Default)]
pub(crate) struct LeasedKeys {
    parts: Vec<Part>,
}

/// Some of them: for each its lease, its length, and its bytes.
#[derive(Debug, Default)]
pub(crate) struct Part(Vec<u8>);

const HEAD_BYTES: usize = 16;
/// Where a part ends. They are given back one by one.
const PART_BYTES: usize = 1 << 20;

impl LeasedKeys {
    /// Adds a key.
    pub(super) fn push(&mut self, key: &[u8], lease: i64) {
        if self.parts.last().is_none_or(|part| part.0.len() >= PART_BYTES) {
            self.parts.push(Part::default());
        }
        if let Some(Part(part)) = self.parts.last_mut() {
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
    pub(crate) fn into_parts(self) -> impl Iterator<Item = Part> {
        self.parts.into_iter()
    }
}

impl Part {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], i64)> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_first_chunk::<HEAD_BYTES>()?;
            let [a, b, c, d, e, f, g, h, len @ ..] = *head;
            let (key, behind) = behind.split_at_checked(u64::from_le_bytes(len) as usize)?;
            rest = behind;
            Some((key, i64::from_le_bytes([a, b, c, d, e, f, g, h])))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_given_back_in_parts() {
        let key = [7; 1000];
        let mut leased = LeasedKeys::default();
        let count = 4 * PART_BYTES as i64 / 1000;
        (0..count).for_each(|lease| leased.push(&key, lease));
        let mut of_other = LeasedKeys::default();
        of_other.push(b"", i64::MAX);
        leased.append(of_other);
        let mut found = Vec::new();
        let mut parts = 0;
        for part in leased.into_parts() {
            assert!(part.0.capacity() <= 2 * PART_BYTES + key.len() + HEAD_BYTES);
            parts += 1;
            found.extend(part.iter().map(|(key, lease)| (key.len(), lease)));
        }
        let pushed = (0..count).map(|lease| (key.len(), lease)).chain([(0, i64::MAX)]);
        assert_eq!(found, pushed.collect::<Vec<_>>());
        assert!(parts > 4, "{parts} parts");
    }
}
