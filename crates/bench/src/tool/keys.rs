//! Keys as etcd's `benchmark` makes them: a number at the beginning of a key that is otherwise zero.

use super::failure::Failure;
use api::varint;

/// Keys and values are not longer than this: no server takes more.
const BYTES_MAX: i64 = 1 << 30;

/// Makes keys of one length. Bytes that a longer number has written stay behind a shorter one, as with etcd's tool.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: usize,
    key: Vec<u8>,
    space: u64,
    random: Random,
}

impl Keys {
    /// Keys of `prefix` and `bytes` further bytes, which hold one of `space` numbers. The flag of that length is
    /// `key-size`.
    pub(crate) fn new(prefix: &str, bytes: i64, space: i64) -> Result<Keys, Failure> {
        if space <= 0 {
            return Err(Failure::new(format!("expected positive --key-space-size, got ({space})")));
        }
        let bytes = length("key-size", bytes)?;
        let mut room = [0; varint::LEN_MAX];
        if put_varint(&mut room, space - 1) > bytes {
            let text = format!("expected --key-size with room for {space} different keys, got ({bytes})");
            return Err(Failure::new(text));
        }
        let mut key = prefix.as_bytes().to_vec();
        key.resize(prefix.len() + bytes, 0);
        Ok(Keys { prefix: prefix.len(), key, space: space as u64, random: Random::new() })
    }

    /// Key number `number` of the sequence, which starts again after `space` keys.
    pub(crate) fn at(&mut self, number: u64) -> &[u8] {
        put_varint(&mut self.key[self.prefix..], (number % self.space) as i64);
        &self.key
    }

    /// Key number `number` without bytes that a longer number has left behind.
    pub(crate) fn fresh(&mut self, number: u64) -> Vec<u8> {
        self.key[self.prefix..].fill(0);
        self.at(number).to_vec()
    }

    /// Any key.
    pub(crate) fn any(&mut self) -> &[u8] {
        let number = self.random.below(self.space);
        self.at(number)
    }
}

/// A length that a flag gives.
pub(crate) fn length(flag: &str, bytes: i64) -> Result<usize, Failure> {
    if !(0..=BYTES_MAX).contains(&bytes) {
        return Err(Failure::new(format!("expected --{flag} between 0 and {BYTES_MAX}, got ({bytes})")));
    }
    Ok(bytes as usize)
}

/// Bytes that cannot be compressed.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut random = Random::new();
    (0..bytes).map(|_| random.next() as u8).collect()
}

/// Writes a signed varint to the beginning of `out`, and returns its length. Bytes for which there is no room are left
/// out.
fn put_varint(out: &mut [u8], number: i64) -> usize {
    let bytes = varint::encode(((number << 1) ^ (number >> 63)) as u64);
    for (place, byte) in out.iter_mut().zip(&*bytes) {
        *place = *byte;
    }
    bytes.len()
}

/// Random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Different numbers in every run.
    pub(crate) fn new() -> Random {
        use std::hash::{BuildHasher, RandomState};
        Random(RandomState::new().hash_one(0_u8) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A number from 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 3) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_etcds() {
        let mut keys = Keys::new("", 4, 100_000).expect("keys");
        assert_eq!(keys.at(0), [0, 0, 0, 0]);
        assert_eq!(keys.at(1), [2, 0, 0, 0]);
        assert_eq!(keys.at(100), [0xc8, 1, 0, 0]);
        // The end of the longer number stays.
        assert_eq!(keys.at(2), [4, 1, 0, 0]);
        assert_eq!(keys.at(100_001), [2, 1, 0, 0]);
        assert_eq!(Keys::new("p/", 1, 1).expect("keys").at(7), b"p/\0");
        assert!(keys.any().len() == 4);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let text = |bytes, space| Keys::new("", bytes, space).expect_err("refused").text;
        assert_eq!(text(8, 0), "expected positive --key-space-size, got (0)");
        assert_eq!(text(8, i64::MIN), format!("expected positive --key-space-size, got ({})", i64::MIN));
        assert!(text(-1, 1).starts_with("expected --key-size between"));
        assert!(text(i64::MAX, 1).starts_with("expected --key-size between"));
        assert!(text(0, 1).starts_with("expected --key-size with room"));
        assert!(text(1, 1000).starts_with("expected --key-size with room"));
    }

    #[test]
    fn chance_is_even() {
        let mut random = Random::new();
        let mut counts = [0; 4];
        (0..4000).for_each(|_| counts[random.below(4) as usize] += 1);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert!((0..100).all(|_| (0.0..1.0).contains(&random.share())));
        assert_eq!(noise(9).len(), 9);
    }
}
