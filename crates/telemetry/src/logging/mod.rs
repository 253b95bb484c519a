//! Log lines as etcd writes them: JSON with level, ts, caller, msg and fields, or a console form.
//!
//! Logging never blocks a request: lines go through a bounded queue to a writer thread; when the queue is full a line is
//! dropped and counted, and the count is logged when there is room again.

mod journal;
mod line;
mod options;
mod output;
mod pace;
mod rotation;
mod size;

pub use line::{quote, shortened, timestamp};
pub use options::{Options, Output, Rotation};
pub use pace::Pace;
pub use size::size;

use contain::Fate;
pub(crate) use output::append;

use line::line;
use output::Sink;
use std::io::Write as _;
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines that may wait for the writer.
const QUEUE_LINES: usize = 8_192;

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For debugging the program.
    Debug,
    /// What happens now and then in the normal run of things.
    Info,
    /// Something that an operator should look at.
    Warn,
    /// What failed.
    Error,
    /// No line has it; as a bound it leaves only those at [`Level::Fatal`].
    Panic,
    /// What ends the process.
    Fatal,
}

impl Level {
    /// The level of a name, as `info`.
    pub fn parse(text: &str) -> Option<Level> {
        let all = [Level::Debug, Level::Info, Level::Warn, Level::Error, Level::Panic, Level::Fatal];
        all.into_iter().find(|level| level.name() == text)
    }

    fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
            Level::Panic => "panic",
            Level::Fatal => "fatal",
        }
    }
}

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    Json,
    /// Fields between tabs.
    Console,
}

impl Format {
    /// The format of a name: `json` or `console`.
    pub fn parse(text: &str) -> Option<Format> {
        match text {
            "json" => Some(Format::Json),
            "console" => Some(Format::Console),
            _ => None,
        }
    }
}

/// The value of a field.
pub enum Value<'a> {
    /// Text, quoted.
    Text(&'a str),
    /// Anything that prints, quoted.
    Shown(&'a dyn std::fmt::Display),
    /// A whole number.
    Number(i64),
    /// The id of a member or a cluster, in hexadecimal as tools print it.
    Id(u64),
    /// True or false.
    Flag(bool),
    /// Texts, each quoted.
    List(&'a [String]),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Value::Text(text)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value<'_> {
    fn from(number: usize) -> Self {
        Value::from(number as u64)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Value::Number(number)
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Value::Flag(flag)
    }
}

struct Logger {
    level: Level,
    format: Format,
    lines: SyncSender<Line>,
    /// Lines dropped since the last line that said so.
    dropped: AtomicU64,
    dropped_total: AtomicU64,
}

enum Line {
    Text(Level, String),
    /// Answered once everything before it is written.
    Flush(SyncSender<()>),
    /// Has files opened anew; answered with what could not be.
    Reopen(SyncSender<Vec<String>>),
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Starts the writer. Later calls change nothing. Fails, and says so in words, when a place for the lines cannot be opened.
pub fn start(options: &Options) -> Result<(), String> {
    let sinks = output::open(options)?;
    let (lines, queue) = sync_channel(QUEUE_LINES);
    let (dropped, dropped_total) = (AtomicU64::new(0), AtomicU64::new(0));
    let logger = Logger { level: options.level, format: options.format, lines, dropped, dropped_total };
    if LOGGER.set(logger).is_ok() {
        // Without its writer the process has no log; it still serves.
        let _ = std::thread::Builder::new().name("log".into()).spawn(move || write(queue, sinks));
    }
    Ok(())
}

/// Starts the writer of a process that has no configuration to log by.
pub fn start_plain() {
    let outputs = vec![Output::Stderr];
    // Standard error needs no opening.
    let _ = start(&Options { level: Level::Info, format: Format::Json, outputs, rotation: None });
}

/// Reports a panic: what is said, where and on which thread.
pub fn panicked(panic: &std::panic::PanicHookInfo<'_>, fate: Fate) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    if fate == Fate::Scope {
        static PACE: Pace = Pace::new();
        if let Some(left_out) = PACE.line() {
            let fields =
                [("panic", Value::Shown(panic)), ("thread", thread.into()), ("lines-left-out", left_out.into())];
            error("panic over what was received or is answered; its connection is closed", &fields);
        }
        return;
    }
    error(
        "panic; the member ends, since its state may be half changed",
        &[("panic", Value::Shown(panic)), ("thread", thread.into())],
    );
    flush();
}

/// Lines that were dropped since the process began, because the writer could not keep up.
pub fn dropped_total() -> u64 {
    LOGGER.get().map_or(0, |logger| logger.dropped_total.load(Ordering::Relaxed))
}

fn write(queue: Receiver<Line>, mut sinks: Vec<Sink>) {
    for line in queue {
        match line {
            Line::Text(level, text) => {
                for sink in &mut sinks {
                    // The reader of the log may be gone, or its disk full: that must not stop a server.
                    if sink.write(level, &text).is_err() {
                        count_dropped();
                    }
                }
            }
            Line::Flush(done) => drop(done.send(())),
            Line::Reopen(done) => {
                let failed = sinks.iter_mut().filter_map(|sink| sink.reopen().err()).collect();
                drop(done.send(failed));
            }
        }
    }
}

fn count_dropped() {
    if let Some(logger) = LOGGER.get() {
        logger.dropped.fetch_add(1, Ordering::Relaxed);
        logger.dropped_total.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until every line so far is written, at most a second.
pub fn flush() {
    ask(Line::Flush);
}

/// Opens log files anew, which another process may have moved away; returns what could not be opened and goes on as it was.
pub fn reopen() -> Vec<String> {
    match ask(Line::Reopen) {
        Some(failed) => failed,
        None => vec!["the log is not written: its reader does not take lines".into()],
    }
}

/// Puts a question to the writer and waits for the answer, at most a second: a log without a reader must not keep a process that ends.
fn ask<T>(question: impl Fn(SyncSender<T>) -> Line) -> Option<T> {
    let logger = LOGGER.get()?;
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline {
        let (done, finished) = sync_channel(1);
        if logger.lines.try_send(question(done)).is_ok() {
            return finished.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Logs at level debug.
#[track_caller]
pub fn debug(message: &str, fields: &[(&str, Value<'_>)]) {
    log(Level::Debug, message, fields, Location::caller());
}

/// Logs at level info.
#[track_caller]
pub fn info(message: &str, fields: &[(&str, Value<'_>)]) {
    log(Level::Info, message, fields, Location::caller());
}

/// Logs at level warn.
#[track_caller]
pub fn warn(message: &str, fields: &[(&str, Value<'_>)]) {
    log(Level::Warn, message, fields, Location::caller());
}

/// Logs at level error.
#[track_caller]
pub fn error(message: &str, fields: &[(&str, Value<'_>)]) {
    log(Level::Error, message, fields, Location::caller());
}

/// Logs at level fatal and ends the process with 1.
#[track_caller]
pub fn fatal(message: &str, fields: &[(&str, Value<'_>)]) -> ! {
    fatal_with(1, message, fields)
}

/// The same with another exit code.
#[track_caller]
pub fn fatal_with(code: i32, message: &str, fields: &[(&str, Value<'_>)]) -> ! {
    log(Level::Fatal, message, fields, Location::caller());
    flush();
    std::process::exit(code)
}

fn log(level: Level, message: &str, fields: &[(&str, Value<'_>)], caller: &Location<'_>) {
    let Some(logger) = LOGGER.get() else {
        // Before the start no thread is delayed by it.
        let _ = std::io::stderr().write_all(line(Format::Console, level, message, fields, caller).as_bytes());
        return;
    };
    if level < logger.level {
        return;
    }
    let dropped = logger.dropped.swap(0, Ordering::Relaxed);
    if dropped > 0 {
        let fields = [("lines", Value::from(dropped))];
        let text =
            line(logger.format, Level::Warn, "dropped log lines: the log is not read fast enough", &fields, caller);
        if logger.lines.try_send(Line::Text(Level::Warn, text)).is_err() {
            logger.dropped.fetch_add(dropped, Ordering::Relaxed);
        }
    }
    if logger.lines.try_send(Line::Text(level, line(logger.format, level, message, fields, caller))).is_err() {
        count_dropped();
    }
}
