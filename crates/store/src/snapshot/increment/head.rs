//! The first bytes of an increment.

use super::{HASH_BYTES, Since};

/// What an increment begins with.
pub const MAGIC: [u8; 8] = *b"CAIRNINC";
/// Bytes of the head. With it the length of the file is a multiple of 512 before the checksum, as that of a whole snapshot is.
pub const HEAD_BYTES: usize = 512;
/// The version of the format.
const FORMAT: u32 = 1;
/// The flag of an increment with a bucket of kept revisions.
const LISTS_KEPT: u32 = 1;

const HASH_AT: usize = 80;
const OWN_HASH_AT: usize = HASH_AT + HASH_BYTES;
const ZEROS_AT: usize = OWN_HASH_AT + HASH_BYTES;
const CRC_AT: usize = HEAD_BYTES - 4;

/// What an increment says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The cluster.
    pub cluster_id: u64,
    /// The state that it follows.
    pub since: Since,
    /// Revision of the state that it leads to.
    pub revision: i64,
    /// The revision that the history is compacted to there; -1 if it never was.
    pub compact_revision: i64,
    /// The last entry of the log that is in it.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// Hash of the versions up to `since.revision` that are left.
    pub hash: [u8; HASH_BYTES],
    /// The same of those after `since.start` only.
    pub own_hash: [u8; HASH_BYTES],
}

impl Head {
    /// True if it has the bucket of kept revisions. Without one all versions that the earlier state had are left.
    pub fn lists_kept(&self) -> bool {
        self.compact_revision > self.since.compact_revision
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        let flags = if self.lists_kept() { LISTS_KEPT } else { 0 };
        bytes[12..16].copy_from_slice(&flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.cluster_id.to_le_bytes());
        let numbers =
            [self.since.revision, self.since.compact_revision, self.since.start, self.revision, self.compact_revision];
        for (number, value) in numbers.iter().enumerate() {
            bytes[24 + 8 * number..32 + 8 * number].copy_from_slice(&value.to_le_bytes());
        }
        bytes[64..72].copy_from_slice(&self.index.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.term.to_le_bytes());
        bytes[HASH_AT..OWN_HASH_AT].copy_from_slice(&self.hash);
        bytes[OWN_HASH_AT..ZEROS_AT].copy_from_slice(&self.own_hash);
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads them.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head, String> {
        let u32_at = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk));
        let u64_at = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
        let i64_at = |at: usize| u64_at(at).cast_signed();
        let hash_at = |at: usize| bytes[at..].first_chunk().copied().unwrap_or_default();
        if bytes[..8] != MAGIC {
            return Err("it does not begin as an increment of a snapshot does".into());
        }
        if u32_at(CRC_AT) != crc32c::crc32c(&bytes[..CRC_AT]) {
            return Err("its head is damaged: the checksum differs".into());
        }
        if u32_at(8) != FORMAT {
            return Err(format!("it has format {}, and this version reads format {FORMAT} only", u32_at(8)));
        }
        let head = Head {
            cluster_id: u64_at(16),
            since: Since { revision: i64_at(24), compact_revision: i64_at(32), start: i64_at(40) },
            revision: i64_at(48),
            compact_revision: i64_at(56),
            index: u64_at(64),
            term: u64_at(72),
            hash: hash_at(HASH_AT),
            own_hash: hash_at(OWN_HASH_AT),
        };
        let is_sound = head.since.is_sound()
            && head.revision >= head.since.revision
            && (head.since.compact_revision..=head.revision).contains(&head.compact_revision);
        if !is_sound || head.encode() != *bytes {
            return Err("its head makes no sense".into());
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            cluster_id: 0xfeed_0000_0000_0001,
            since: Since { revision: 7, compact_revision: -1, start: 3 },
            revision: 90,
            compact_revision: 40,
            index: 1_000,
            term: 3,
            hash: [5; HASH_BYTES],
            own_hash: [6; HASH_BYTES],
        }
    }

    #[test]
    fn heads_read_back() {
        for head in [head(), Head { compact_revision: -1, ..head() }, Head { revision: 40, ..head() }] {
            assert_eq!(Head::decode(&head.encode()), Ok(head));
        }
    }

    #[test]
    fn any_other_byte_is_refused() {
        let bytes = head().encode();
        for at in 0..HEAD_BYTES {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert!(Head::decode(&wrong).is_err(), "{at}");
        }
    }

    #[test]
    fn heads_without_sense_are_refused() {
        let since = head().since;
        for wrong in [
            Head { revision: 6, ..head() },
            Head { compact_revision: 91, ..head() },
            Head { compact_revision: -2, ..head() },
            Head { since: Since { revision: 0, ..since }, ..head() },
            Head { since: Since { compact_revision: 8, ..since }, ..head() },
            Head { since: Since { start: 8, ..since }, ..head() },
        ] {
            assert_eq!(Head::decode(&wrong.encode()), Err("its head makes no sense".into()), "{wrong:?}");
        }
        let mut later = head().encode();
        later[8] = 2;
        let crc = crc32c::crc32c(&later[..CRC_AT]);
        later[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert!(Head::decode(&later).is_err_and(|what| what.contains("it has format 2")));
    }
}
