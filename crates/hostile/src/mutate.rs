//! Inputs for a machine without libFuzzer: from a seed, and from earlier inputs.

use disk::sim::Random;

/// Bytes of a fresh input.
const FRESH_BYTES_MAX: u64 = 1200;

/// Makes inputs. The same seed and the same list give the same inputs.
pub struct Mutator {
    seed: u64,
    known: Vec<Vec<u8>>,
}

impl Mutator {
    /// From a seed, and inputs to begin with.
    pub fn new(seed: u64, known: Vec<Vec<u8>>) -> Mutator {
        Mutator { seed, known }
    }

    /// Input number `number`.
    pub fn input(&self, number: u64) -> Vec<u8> {
        let random = &mut Random::new(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if self.known.is_empty() || random.chance(60) {
            let count = 16 + random.below(FRESH_BYTES_MAX);
            return (0..count).map(|_| random.next_u64() as u8).collect();
        }
        let mut input = self.pick(random).to_vec();
        for _ in 0..=random.below(8) {
            let at = random.below(input.len() as u64 + 1) as usize;
            match random.below(6) {
                0 => input.truncate(at.max(8)),
                1 => {
                    let other = self.pick(random);
                    input.truncate(at);
                    input.extend_from_slice(&other[random.below(other.len() as u64 + 1) as usize..]);
                }
                2 => input.insert(at, random.next_u64() as u8),
                3 => drop(
                    input.splice(at..at, (0..random.below(24)).map(|_| random.next_u64() as u8).collect::<Vec<_>>()),
                ),
                _ => {
                    if let Some(byte) = input.get_mut(at) {
                        *byte = random.next_u64() as u8;
                    }
                }
            }
        }
        input
    }

    fn pick(&self, random: &mut Random) -> &[u8] {
        &self.known[random.below(self.known.len() as u64) as usize]
    }
}
