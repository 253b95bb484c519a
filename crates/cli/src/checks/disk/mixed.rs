//! Reads and writes at random, many at a time, past the page cache: what the disk itself can do.

use super::crew;
use super::queue::{self, QueueError};
use super::steady::noise;
use crate::checks::times::Times;
use crate::checks::watched::Progress;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Bytes of one read or write.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// How many are on their way at a time.
pub(super) const DEPTH: usize = 64;
/// Of a hundred, how many read.
const READS_PERCENT: u64 = 75;
/// Bytes that the file is filled with at a time.
const FILL_BYTES: usize = 1 << 20;

/// How long reads and writes took.
pub(super) struct Mixed {
    pub(super) took: Duration,
    pub(super) reads: Times,
    pub(super) writes: Times,
    /// The way by which many requests were kept in flight.
    pub(super) means: String,
    /// Whether the page cache was passed by.
    pub(super) is_direct: bool,
}

impl Mixed {
    pub(super) fn per_second(&self, times: &Times) -> f64 {
        times.len() as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// One read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) is_read: bool,
    block: u32,
}

impl Step {
    pub(super) fn offset(self) -> u64 {
        u64::from(self.block) * BLOCK_BYTES
    }
}

/// The time that a step took.
pub(super) type Timed = (Step, u64);

/// A page as disks want it.
#[repr(C, align(4096))]
#[derive(Clone)]
pub(super) struct Page(pub(super) [u8; BLOCK_BYTES as usize]);

impl Page {
    /// One whose bytes do not compress.
    pub(super) fn noisy() -> Page {
        let mut page = Page([0; BLOCK_BYTES as usize]);
        page.0.copy_from_slice(&noise(BLOCK_BYTES as usize));
        page
    }
}

/// Fills the file, then reads or writes every block of it once.
pub(super) fn run(file: &File, is_direct: bool, size: u64, progress: &Progress) -> io::Result<Mixed> {
    // Sizes have a limit far below 2^32 blocks.
    let blocks = u32::try_from(size / BLOCK_BYTES).unwrap_or(u32::MAX);
    fill(file, u64::from(blocks) * BLOCK_BYTES, progress)?;
    let steps = steps(blocks);
    let begun = Instant::now();
    let (timed, means) = match queue::run(file, &steps, progress) {
        Ok(timed) => (timed, "asynchronous I/O of the kernel (libaio)".to_string()),
        Err(QueueError::Io(error)) => return Err(error),
        Err(QueueError::Refused(error)) => {
            let means = format!("{DEPTH} threads, since the kernel refuses asynchronous I/O (io_setup: {error})");
            (crew::run(file, &steps, progress)?, means)
        }
    };
    let took = begun.elapsed();
    let of = |is_read: bool| {
        Times::new(timed.iter().filter(|(step, _)| step.is_read == is_read).map(|(_, nanos)| *nanos).collect())
    };
    Ok(Mixed { took, reads: of(true), writes: of(false), means, is_direct })
}

/// Every block must exist before it is read.
fn fill(file: &File, size: u64, progress: &Progress) -> io::Result<()> {
    let pages = vec![Page::noisy(); FILL_BYTES / BLOCK_BYTES as usize];
    let bytes = bytes_of(&pages);
    let mut at = 0;
    while at < size {
        let len = (size - at).min(bytes.len() as u64);
        file.write_all_at(&bytes[..len as usize], at)?;
        at += len;
        progress.set(at);
    }
    file.sync_all()
}

fn bytes_of(pages: &[Page]) -> &[u8] {
    // SAFETY: a page is an array of bytes whose size is a multiple of its alignment, so that nothing lies between two of them.
    unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), size_of_val(pages)) }
}

/// All blocks in a random order, the same in each run.
fn steps(blocks: u32) -> Vec<Step> {
    let mut random = Random(0x6d69_7865);
    let mut steps: Vec<Step> =
        (0..blocks).map(|block| Step { is_read: random.below(100) < READS_PERCENT, block }).collect();
    for last in (1..steps.len()).rev() {
        steps.swap(last, random.below(last as u64 + 1) as usize);
    }
    steps
}

/// A generator of random numbers (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_comes_once() {
        let steps = steps(4000);
        let reads = steps.iter().filter(|step| step.is_read).count();
        assert!((2800..3200).contains(&reads), "{reads}");
        let mut offsets: Vec<u64> = steps.iter().map(|step| step.offset()).collect();
        assert!(!offsets.is_sorted());
        offsets.sort_unstable();
        assert!(offsets.into_iter().eq((0..4000).map(|block| block * BLOCK_BYTES)));
    }

    #[test]
    fn both_ways_do_every_step_once() {
        let path = std::env::temp_dir().join(format!("cairn-check-mixed-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("made");
        std::fs::remove_file(&path).expect("removed");
        let (steps, progress) = (steps(300), Progress::default());
        fill(&file, 300 * BLOCK_BYTES, &progress).expect("filled");
        let sorted = |mut steps: Vec<Step>| {
            steps.sort_by_key(|step| step.block);
            steps
        };
        let crew = crew::run(&file, &steps, &progress).expect("done");
        assert_eq!(sorted(crew.into_iter().map(|(step, _)| step).collect()), sorted(steps.clone()));
        match queue::run(&file, &steps, &progress) {
            Ok(timed) => assert_eq!(sorted(timed.into_iter().map(|(step, _)| step).collect()), sorted(steps)),
            // So it is in some containers.
            Err(QueueError::Refused(_)) => {}
            Err(QueueError::Io(error)) => panic!("{error}"),
        }
    }
}
