//! Many reads and writes at a time by as many threads.

use super::mixed::{DEPTH, Page, Step, Timed};
use super::steady::nanos;
use crate::checks::watched::Progress;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Every thread takes the next step, until none is left.
pub(super) fn run(file: &File, steps: &[Step], progress: &Progress) -> io::Result<Vec<Timed>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut page, mut timed) = (Page::noisy(), Vec::new());
        while let Some(step) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = Instant::now();
            match step.is_read {
                true => file.read_exact_at(&mut page.0, step.offset())?,
                false => file.write_all_at(&page.0, step.offset())?,
            }
            timed.push((*step, nanos(started.elapsed())));
            progress.add(page.0.len() as u64);
        }
        Ok(timed)
    };
    std::thread::scope(|scope| {
        let threads: io::Result<Vec<_>> =
            (0..DEPTH).map(|_| std::thread::Builder::new().spawn_scoped(scope, work)).collect();
        let mut timed = Vec::with_capacity(steps.len());
        for thread in threads? {
            let found: io::Result<Vec<Timed>> = thread.join().map_err(|_| io::Error::other("a thread broke off"))?;
            timed.append(&mut found?);
        }
        Ok(timed)
    })
}
