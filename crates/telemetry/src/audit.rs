//! The audit log of a process: lines that say who asked for what, written by a thread of their own.
//!
//! No caller waits: lines go through a queue that is bounded in lines and in bytes. What does not fit, and what cannot be written, is
//! counted as dropped.

use crate::logging::{self, Pace, Value, append};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Lines that may wait.
const QUEUE_LINES: usize = 16_384;
/// Bytes of the lines that may wait.
const QUEUE_BYTES: usize = 16 << 20;
/// Bytes that are written at once.
const BATCH_BYTES: usize = 64 << 10;
/// How long the end waits for the last lines.
const END: Duration = Duration::from_secs(2);
/// How often it looks whether a full queue has room.
const LOOK: Duration = Duration::from_millis(1);

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard error.
    Stderr,
    /// A file, which only its owner may read.
    File(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Stderr => f.write_str("stderr"),
            Target::File(path) => path.display().fmt(f),
        }
    }
}

enum Item {
    Line(String),
    /// Answered once everything before it is written.
    Flush(SyncSender<()>),
    Reopen,
}

/// The queue of the audit log.
pub struct Trail {
    items: SyncSender<Item>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    waiting_bytes: AtomicUsize,
    written: AtomicU64,
    dropped: AtomicU64,
    /// The last write failed.
    is_failing: AtomicBool,
}

impl Trail {
    /// Opens the target and starts the writer.
    pub fn open(target: Target) -> Result<Trail, String> {
        let output = Output::open(&target).map_err(|error| format!("cannot write the audit log {target}: {error}"))?;
        let (items, queue) = sync_channel(QUEUE_LINES);
        let shared = Arc::<Shared>::default();
        let writer = Writer { target, output, is_torn: false, shared: shared.clone() };
        let started = std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(&queue));
        started.map_err(|error| format!("cannot start the thread of the audit log: {error}"))?;
        Ok(Trail { items, shared })
    }

    /// Queues a line, which has no newline; never waits.
    pub fn record(&self, line: String) {
        let bytes = line.len().saturating_add(1);
        let waiting = self.shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if waiting.saturating_add(bytes) > QUEUE_BYTES || self.items.try_send(Item::Line(line)).is_err() {
            self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.drop_lines(1, &"the writer cannot keep up");
        }
    }

    /// Has the file opened anew, which another process may have moved away.
    pub fn reopen(&self) -> Result<(), String> {
        // The writer says in the log what came of it.
        self.items.try_send(Item::Reopen).map_err(|_| "the queue of the audit log is full".into())
    }

    /// Waits a moment until every line so far is written.
    pub fn flush(&self) {
        self.flush_until(Instant::now() + END);
    }

    fn flush_until(&self, deadline: Instant) {
        let (done, finished) = sync_channel(1);
        let mut flush = Item::Flush(done);
        // The writer makes room in a full queue.
        while let Err(TrySendError::Full(back)) = self.items.try_send(flush) {
            if Instant::now() >= deadline {
                return self.left_behind();
            }
            flush = back;
            std::thread::sleep(LOOK);
        }
        if finished.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_err() {
            self.left_behind();
        }
    }

    /// The last lines were not written in time.
    fn left_behind(&self) {
        let bytes = self.shared.waiting_bytes.load(Ordering::Relaxed);
        logging::error("the audit log did not take its last lines in time", &[("waiting-bytes", bytes.into())]);
    }

    /// Lines written since the start, and lines dropped.
    pub fn counts(&self) -> [u64; 2] {
        [self.shared.written.load(Ordering::Relaxed), self.shared.dropped.load(Ordering::Relaxed)]
    }
}

impl fmt::Debug for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trail").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Shared {
    fn drop_lines(&self, lines: u64, why: &dyn fmt::Display) {
        static PACE: Pace = Pace::new();
        self.dropped.fetch_add(lines, Ordering::Relaxed);
        if let Some(left_out) = PACE.line() {
            let dropped = self.dropped.load(Ordering::Relaxed);
            logging::error(
                "lines of the audit log are lost",
                &[("error", Value::Shown(why)), ("dropped", dropped.into()), ("lines-left-out", left_out.into())],
            );
        }
    }
}

enum Output {
    Stderr,
    File(File),
}

impl Output {
    fn open(target: &Target) -> io::Result<Output> {
        match target {
            Target::Stderr => Ok(Output::Stderr),
            Target::File(path) => append(path).map(Output::File),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Output::Stderr => io::stderr().write_all(bytes),
            Output::File(file) => file.write_all(bytes),
        }
    }
}

struct Writer {
    target: Target,
    output: Output,
    /// A write failed: part of a line may be in the file.
    is_torn: bool,
    shared: Arc<Shared>,
}

impl Writer {
    /// Writes until the trail is dropped.
    fn run(mut self, queue: &Receiver<Item>) {
        let (mut batch, mut lines) = (Vec::with_capacity(BATCH_BYTES), 0);
        loop {
            // Lines are gathered while there are more; then they are written at once.
            let next = if lines == 0 {
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                queue.recv_timeout(Duration::ZERO)
            };
            match next {
                Ok(Item::Line(line)) => {
                    self.shared.waiting_bytes.fetch_sub(line.len().saturating_add(1), Ordering::Relaxed);
                    batch.extend_from_slice(line.as_bytes());
                    batch.push(b'\n');
                    lines += 1;
                    if batch.len() < BATCH_BYTES {
                        continue;
                    }
                    self.write(&mut batch, &mut lines);
                }
                Ok(Item::Flush(done)) => {
                    self.write(&mut batch, &mut lines);
                    // The one that asked may have given up.
                    let _ = done.send(());
                }
                Ok(Item::Reopen) => {
                    self.write(&mut batch, &mut lines);
                    self.reopen();
                }
                Err(RecvTimeoutError::Timeout) => self.write(&mut batch, &mut lines),
                Err(RecvTimeoutError::Disconnected) => return self.write(&mut batch, &mut lines),
            }
        }
    }

    fn write(&mut self, batch: &mut Vec<u8>, lines: &mut u64) {
        let count = std::mem::take(lines);
        if count == 0 {
            return;
        }
        // What a failed write left of a line gets an end of its own, so that the next line can be read.
        let newline = if self.is_torn { self.output.write(b"\n") } else { Ok(()) };
        match newline.and_then(|()| self.output.write(batch)) {
            Ok(()) => {
                self.is_torn = false;
                self.shared.written.fetch_add(count, Ordering::Relaxed);
                if self.shared.is_failing.swap(false, Ordering::Relaxed) {
                    let dropped = self.shared.dropped.load(Ordering::Relaxed);
                    logging::info("the audit log is written again", &[("dropped", dropped.into())]);
                }
            }
            Err(error) => {
                self.is_torn = true;
                self.shared.is_failing.store(true, Ordering::Relaxed);
                self.shared.drop_lines(count, &error);
            }
        }
        batch.clear();
    }

    /// One that cannot be opened goes on as it was.
    fn reopen(&mut self) {
        match Output::open(&self.target) {
            Ok(output) => {
                (self.output, self.is_torn) = (output, false);
                logging::info("opened the audit log anew", &[("target", Value::Shown(&self.target))]);
            }
            Err(error) => logging::error(
                "cannot open the audit log anew: it goes on as it was",
                &[("target", Value::Shown(&self.target)), ("error", Value::Shown(&error))],
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("cairn-audit-{name}-{}", std::process::id())).join("new").join("audit.log")
    }

    fn lines(path: &Path) -> Vec<String> {
        fs::read_to_string(path).expect("a file").lines().map(Into::into).collect()
    }

    #[test]
    fn files_are_for_their_owner_and_can_be_moved_away() {
        let path = place("moved");
        let trail = Trail::open(Target::File(path.clone())).expect("opened, with its folder");
        trail.record("one".into());
        trail.flush();
        let mode = fs::metadata(&path).expect("a file").permissions().mode() & 0o7777;
        assert_eq!((lines(&path), mode), (vec!["one".to_string()], 0o600));
        let aside = path.with_extension("1");
        fs::rename(&path, &aside).expect("moved");
        trail.record("two".into());
        trail.flush();
        trail.reopen().expect("room in the queue");
        trail.record("three".into());
        trail.flush();
        assert_eq!((lines(&aside), lines(&path)), (vec!["one".into(), "two".into()], vec!["three".to_string()]));
        assert_eq!(trail.counts(), [3, 0]);
        drop(fs::remove_dir_all(path.parent().and_then(Path::parent).expect("its own")));
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let trail = Trail::open(Target::File("/dev/full".into())).expect("it can be opened");
        trail.record("lost".into());
        trail.flush();
        trail.record("lost".into());
        trail.flush();
        assert_eq!(trail.counts(), [0, 2]);
    }

    #[test]
    fn nobody_waits_for_the_writer() {
        // A writer that takes nothing.
        let (items, queue) = sync_channel(4);
        let trail = Trail { items, shared: Arc::default() };
        for _ in 0..10 {
            trail.record("x".into());
        }
        assert_eq!(trail.counts(), [0, 6]);
        drop(queue);
        trail.record("y".repeat(QUEUE_BYTES + 1));
        assert_eq!((trail.counts(), trail.shared.waiting_bytes.load(Ordering::Relaxed)), ([0, 7], 4 * 2));
    }

    #[test]
    fn the_end_waits_for_room_in_the_queue() {
        let (items, queue) = sync_channel(1);
        let trail = Trail { items, shared: Arc::default() };
        trail.record("last".into());
        let writer = std::thread::spawn(move || {
            // It is slow: the queue is full while the end begins.
            std::thread::sleep(Duration::from_millis(50));
            assert!(matches!(queue.recv(), Ok(Item::Line(_))));
            let Ok(Item::Flush(done)) = queue.recv() else { panic!("the end does not wait") };
            done.send(()).expect("the end waits");
        });
        trail.flush_until(Instant::now() + Duration::from_secs(60));
        writer.join().expect("asked to finish");
    }

    #[test]
    fn a_pipe_needs_a_reader() {
        let path = place("pipe");
        let folder = path.parent().expect("its folder");
        fs::create_dir_all(folder).expect("a folder");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no zero");
        // SAFETY: the pointer is valid for the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let error = Trail::open(Target::File(path.clone())).expect_err("nobody reads it");
        assert!(error.contains("a pipe that has no reader"), "{error}");
        let mut reader = File::options().read(true).write(true).open(&path).expect("both ends");
        let trail = Trail::open(Target::File(path.clone())).expect("it has a reader");
        trail.record("one".into());
        trail.flush();
        let mut read = [0; 4];
        io::Read::read_exact(&mut reader, &mut read).expect("a line");
        assert_eq!(&read, b"one\n");
        drop(fs::remove_dir_all(folder.parent().expect("its own")));
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let error = Trail::open(Target::File("/proc/none/audit.log".into())).expect_err("no folder of ours");
        assert!(error.starts_with("cannot write the audit log /proc/none/audit.log: "), "{error}");
    }
}
