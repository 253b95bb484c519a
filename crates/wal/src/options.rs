//! Settings of the log.

/// Sizes of the log.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes that a segment is allocated with; the next one is begun when they are used up. The last batch may go beyond.
    pub segment_bytes: u64,
    /// Segments that [`crate::Wal::release`] leaves, however old (`--max-wals`).
    pub segments_min: usize,
    /// Called between the parts in which a log is read when it is opened, by the thread that reads: the shell may yield the processor
    /// there.
    pub rest: fn(),
}

impl Default for Options {
    fn default() -> Self {
        Options { segment_bytes: 64_000_000, segments_min: 5, rest: || {} }
    }
}
