//! What is applied: the entry of an index is a function of a seed, as a log that is replayed would have it.

use disk::sim::Random;

pub(crate) enum Entry {
    Txn(Vec<Op>),
    /// Compacts `back` revisions before the current one.
    Compact {
        back: i64,
    },
}

pub(crate) enum Op {
    Put { key: Vec<u8>, value: Vec<u8> },
    Delete { key: Vec<u8> },
}

impl Op {
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Op::Put { key, .. } | Op::Delete { key } => key,
        }
    }
}

/// The entry at `index` of the history of `seed`.
pub(crate) fn entry(seed: u64, index: u64) -> Entry {
    let mut random = Random::new(seed.wrapping_mul(0x1000_0001).wrapping_add(index));
    if random.chance(6) {
        return Entry::Compact { back: random.below(8) as i64 };
    }
    let count = if random.chance(5) { 20 } else { 1 + random.below(3) };
    let ops = (0..count).map(|_| op(&mut random, index));
    Entry::Txn(ops.collect())
}

fn op(random: &mut Random, index: u64) -> Op {
    // Some keys are written rarely and stay, others come and go.
    let key = match random.below(10) {
        0 => format!("/stay/{}", random.below(200)),
        1..8 => format!("/churn/{}", random.below(30)),
        _ => format!("/fleeting/{}/{}", index / 20, random.below(5)),
    };
    let key = key.into_bytes();
    if !key.starts_with(b"/stay") && random.chance(40) {
        return Op::Delete { key };
    }
    let length = match random.below(60) {
        0 => 6000,
        1..10 => 500,
        _ => random.below(60),
    };
    Op::Put { key, value: vec![index as u8; length as usize] }
}
