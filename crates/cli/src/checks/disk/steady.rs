//! Writes one after the other, each of which is synced: what the log of a member does for one client.

use crate::checks::times::Times;
use crate::checks::watched::Progress;
use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How long writes and syncs took.
pub(in crate::checks) struct Steady {
    pub(in crate::checks) block_bytes: usize,
    pub(in crate::checks) took: Duration,
    pub(in crate::checks) writes: Times,
    pub(in crate::checks) syncs: Times,
}

impl Steady {
    /// Synced writes a second.
    pub(in crate::checks) fn iops(&self) -> f64 {
        self.syncs.len() as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Bytes a second.
    pub(in crate::checks) fn bandwidth(&self) -> f64 {
        self.iops() * self.block_bytes as f64
    }
}

/// Writes as many blocks as fit into `size`, and syncs after each.
pub(super) fn write(mut file: &File, size: u64, block: usize, progress: &Progress) -> io::Result<Steady> {
    let count = size / block as u64;
    let mut buffer = noise(block);
    let (mut writes, mut syncs) = (Vec::with_capacity(count as usize), Vec::with_capacity(count as usize));
    let begun = Instant::now();
    for number in 0..count {
        // No block is like another: some disks and file systems would notice.
        let mark = number.to_le_bytes();
        let marked = mark.len().min(block);
        buffer[..marked].copy_from_slice(&mark[..marked]);
        let started = Instant::now();
        file.write_all(&buffer)?;
        let written = Instant::now();
        file.sync_data()?;
        let synced = Instant::now();
        writes.push(nanos(written - started));
        syncs.push(nanos(synced - written));
        progress.set((number + 1) * block as u64);
    }
    let took = begun.elapsed();
    Ok(Steady { block_bytes: block, took, writes: Times::new(writes), syncs: Times::new(syncs) })
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Bytes that do not compress.
pub(super) fn noise(len: usize) -> Vec<u8> {
    let mut random = super::mixed::Random(0x5eed);
    (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(len).collect()
}
