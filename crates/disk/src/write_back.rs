//! Writing to the disk what is being written, so that no sync has much to do.
//!
//! What a program writes stays in memory until it is synced. The sync of a whole file then fills the queue of the disk, and the syncs of
//! others wait behind it. So pages are sent to the disk a step at a time while the file grows, and no more than a window of them is under way.

use crate::File;
use std::io;

/// Bytes sent at a time.
const STEP_BYTES: u64 = 1 << 20;

/// Bytes that may be under way.
const WINDOW_BYTES: u64 = 8 << 20;

/// How much of a growing file has been sent to the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteBack {
    begun: u64,
    done: u64,
}

impl WriteBack {
    /// The first `bytes` need nothing more: they were synced.
    pub fn skip_to(&mut self, bytes: u64) {
        self.begun = self.begun.max(bytes);
        self.done = self.done.max(bytes);
    }

    /// Sends the whole steps before `end`, up to which the file was written. Waits for those that are more than a window behind. An error is as
    /// bad as one of a sync: a later sync may not know of it.
    pub fn advance(&mut self, file: &dyn File, end: u64) -> io::Result<()> {
        while self.is_behind(end) {
            file.write_back(self.begun, STEP_BYTES, false)?;
            self.begun += STEP_BYTES;
            while self.begun - self.done > WINDOW_BYTES {
                file.write_back(self.done, STEP_BYTES, true)?;
                self.done += STEP_BYTES;
            }
        }
        Ok(())
    }

    /// Whether there is a step to be sent of a file that was written up to `end`.
    pub fn is_behind(&self, end: u64) -> bool {
        end.saturating_sub(self.begun) >= STEP_BYTES
    }
}

/// Writes a new file whole, sending it to the disk meanwhile. It is not synced.
pub fn write_behind(file: &dyn File, bytes: &[u8]) -> io::Result<()> {
    let mut back = WriteBack::default();
    let mut written = 0;
    for part in bytes.chunks(STEP_BYTES as usize) {
        file.write_at(part, written)?;
        written += part.len() as u64;
        back.advance(file, written)?;
    }
    Ok(())
}
