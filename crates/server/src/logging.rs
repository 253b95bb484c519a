//! Log lines as etcd writes them: JSON with level, ts, caller, msg and fields, or a console form.
//!
//! Logging never blocks a request: lines go through a bounded queue to a writer thread; when the queue is full a line is
//! dropped and counted, and the count is logged when there is room again.

use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
    Panic,
    Fatal,
}

impl Level {
    pub(crate) fn parse(text: &str) -> Option<Level> {
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
#[allow(missing_docs)]
pub enum Format {
    Json,
    Console,
}

impl Format {
    pub(crate) fn parse(text: &str) -> Option<Format> {
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
    dropped: AtomicU64,
}

enum Line {
    Text(String),
    /// Answered once everything before it is written.
    Flush(SyncSender<()>),
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Starts the writer. Later calls change nothing.
pub fn start(level: Level, format: Format) {
    let (lines, queue) = sync_channel(8_192);
    let logger = Logger { level, format, lines, dropped: AtomicU64::new(0) };
    if LOGGER.set(logger).is_ok() {
        // Without its writer the process has no log; it still serves.
        let _ = std::thread::Builder::new().name("log".into()).spawn(move || write(queue));
    }
}

fn write(queue: Receiver<Line>) {
    for line in queue {
        match line {
            // Whoever reads the log may be gone; that must not stop a server.
            Line::Text(text) => drop(std::io::stderr().write_all(text.as_bytes())),
            Line::Flush(done) => drop(done.send(())),
        }
    }
}

/// Waits until every line so far is written, at most a second.
pub fn flush() {
    if let Some(logger) = LOGGER.get() {
        // A log that nobody reads must not keep a failing process alive.
        let deadline = Instant::now() + Duration::from_secs(1);
        while Instant::now() < deadline {
            let (done, finished) = sync_channel(1);
            if logger.lines.try_send(Line::Flush(done)).is_ok() {
                let _ = finished.recv_timeout(deadline.saturating_duration_since(Instant::now()));
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
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
    log(Level::Fatal, message, fields, Location::caller());
    flush();
    std::process::exit(1)
}

fn log(level: Level, message: &str, fields: &[(&str, Value<'_>)], caller: &Location<'_>) {
    let Some(logger) = LOGGER.get() else {
        // Before the start there is nobody to be held up.
        eprint!("{}", line(Format::Console, level, message, fields, caller));
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
        if logger.lines.try_send(Line::Text(text)).is_err() {
            logger.dropped.fetch_add(dropped, Ordering::Relaxed);
        }
    }
    if logger.lines.try_send(Line::Text(line(logger.format, level, message, fields, caller))).is_err() {
        logger.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn line(format: Format, level: Level, message: &str, fields: &[(&str, Value<'_>)], caller: &Location<'_>) -> String {
    let mut text = String::with_capacity(160);
    let at = timestamp(SystemTime::now());
    let file = caller.file().strip_prefix("crates/").unwrap_or(caller.file());
    match format {
        Format::Json => {
            let _ = write!(
                text,
                "{{\"level\":\"{}\",\"ts\":\"{at}\",\"caller\":\"{file}:{}\",\"msg\":",
                level.name(),
                caller.line()
            );
            quote(&mut text, message);
        }
        Format::Console => {
            let _ = write!(text, "{at}\t{}\t{file}:{}\t{message}", level.name(), caller.line());
            if !fields.is_empty() {
                text.push_str("\t{");
            }
        }
    }
    for (place, (name, value)) in fields.iter().enumerate() {
        if format == Format::Json || place > 0 {
            text.push_str(if format == Format::Json { "," } else { ", " });
        }
        quote(&mut text, name);
        text.push_str(if format == Format::Json { ":" } else { ": " });
        match value {
            Value::Text(value) => quote(&mut text, value),
            Value::Shown(value) => quote(&mut text, &value.to_string()),
            Value::Number(value) => drop(write!(text, "{value}")),
            Value::Id(value) => drop(write!(text, "\"{value:x}\"")),
            Value::Flag(value) => drop(write!(text, "{value}")),
        }
    }
    match format {
        Format::Json => text.push('}'),
        Format::Console if !fields.is_empty() => text.push('}'),
        Format::Console => {}
    }
    text.push('\n');
    text
}

/// Appends `value` as a JSON string.
pub(crate) fn quote(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            control if (control as u32) < 0x20 => drop(write!(text, "\\u{:04x}", control as u32)),
            other => text.push(other),
        }
    }
    text.push('"');
}

/// UTC in the form `2026-08-20T12:00:00.123456Z`.
pub(crate) fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Days to a date, with years that begin in March so that the leap day is a year's last.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", since.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines() {
        let fields = [("path", Value::from("a\"b\n")), ("n", Value::from(3u64)), ("ok", Value::from(true))];
        let text = line(Format::Json, Level::Info, "hello", &fields, Location::caller());
        assert!(text.starts_with("{\"level\":\"info\",\"ts\":\"20"));
        assert!(text.ends_with("\"msg\":\"hello\",\"path\":\"a\\\"b\\n\",\"n\":3,\"ok\":true}\n"), "{text}");
    }

    #[test]
    fn dates() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000000Z");
        assert_eq!(at(1_798_761_599), "2026-12-31T23:59:59.000000Z");
    }
}
