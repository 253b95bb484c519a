//! Hashing of stream numbers.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

/// Builds hashers of stream numbers. Clients choose those, so that they are multiplied with a number that only this process knows.
#[derive(Clone, Debug)]
pub(crate) struct IdHasher(u64);

/// The hash of one stream number.
#[derive(Debug)]
pub(crate) struct IdHash {
    factor: u64,
    hash: u64,
}

impl Default for IdHasher {
    fn default() -> IdHasher {
        static FACTOR: OnceLock<u64> = OnceLock::new();
        // The standard library has a source of randomness that needs no crate: the keys of its hash maps.
        IdHasher(*FACTOR.get_or_init(|| RandomState::new().hash_one(0_u8) | 1))
    }
}

impl BuildHasher for IdHasher {
    type Hasher = IdHash;

    fn build_hasher(&self) -> IdHash {
        IdHash { factor: self.0, hash: 0 }
    }
}

impl Hasher for IdHash {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        let product = u128::from((self.hash ^ u64::from(id)).wrapping_add(1));
        let product = product.wrapping_mul(u128::from(self.factor));
        self.hash = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}
