//! `base`: what the machine itself costs a put of one client. No server can be cheaper.
//!
//! That is a round trip over loopback to another process, and a write with fdatasync into a file that is already allocated. The other
//! process is this program again ([`ECHO`]). With more than one of `--writers`, other processes ([`WRITE`]) write and sync files of their
//! own meanwhile, as the members of a cluster on one disk do.
//!
//! Sockets and files block here: a runtime would add wake-ups of its own.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::BenchError;
use crate::arguments::Arguments;
use crate::histogram::Histogram;

/// The first word of the command line.
const LOAD: &str = "base";
/// That of its other processes.
const ECHO: &str = "base-echo";
const WRITE: &str = "base-write";

/// Bytes of a file that records are written to, again from the start when it is full.
const FILE_BYTES: u64 = 64 << 20;
const MESSAGE_BYTES_MAX: usize = 1 << 20;
const WRITERS_MAX: usize = 64;

/// What was measured.
#[derive(Serialize)]
struct Base {
    round_trip_us: Times,
    fdatasync_us: Times,
}

/// Times in microseconds.
#[derive(Serialize)]
struct Times {
    mean: f64,
    median: f64,
    p99: f64,
    count: u64,
}

/// The command line.
struct Options {
    dir: PathBuf,
    /// Of each measurement.
    time: Duration,
    /// Of a record on disk, too.
    request_bytes: usize,
    reply_bytes: usize,
    writers: usize,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options, BenchError> {
        let mut flags = Arguments::parse(args.iter().cloned())?;
        let options = Options {
            dir: flags.or("dir", PathBuf::from("."))?,
            time: flags.seconds("seconds")?.unwrap_or(Duration::from_secs(1)),
            request_bytes: flags.count("request-bytes", 330)?,
            reply_bytes: flags.count("reply-bytes", 80)?,
            writers: flags.count("writers", 1)?,
        };
        flags.end()?;
        if options.request_bytes.max(options.reply_bytes) > MESSAGE_BYTES_MAX {
            return Err(BenchError::Usage(format!("a message must have no more than {MESSAGE_BYTES_MAX} bytes")));
        }
        if options.writers > WRITERS_MAX {
            return Err(BenchError::Usage(format!("`--writers` must be no more than {WRITERS_MAX}")));
        }
        Ok(options)
    }
}

/// Runs the command line, if it is one of these, and returns what is to be printed.
pub(crate) fn run(words: &[String]) -> Option<Result<String, BenchError>> {
    let (first, rest) = words.split_first()?;
    match first.as_str() {
        LOAD => Some(measure_all(rest)),
        ECHO => Some(echo(rest)),
        WRITE => Some(write(rest)),
        _ => None,
    }
}

/// Both measurements, as JSON.
fn measure_all(args: &[String]) -> Result<String, BenchError> {
    let options = Options::parse(args)?;
    let round_trip_us = round_trips(&options).map_err(|error| BenchError::Io("loopback".into(), error))?;
    let fdatasync_us = syncs(&options).map_err(|error| failed(&options.dir, error))?;
    Ok(serde_json::json!(Base { round_trip_us, fdatasync_us }).to_string())
}

/// The other process of round trips: answers requests of so many bytes with so many. Its standard input is the socket.
fn echo(args: &[String]) -> Result<String, BenchError> {
    let (mut request, reply) = (vec![0; bytes(args.first())?], vec![0; bytes(args.get(1))?]);
    let mut answer = || -> io::Result<String> {
        let mut socket = TcpStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        // The connection ends with the measurement.
        while socket.read_exact(&mut request).is_ok() {
            socket.write_all(&reply)?;
        }
        Ok(String::new())
    };
    answer().map_err(|error| BenchError::Io("loopback".into(), error))
}

/// Another process that writes and syncs: records of so many bytes, to a file in a directory. It ends with its standard input, however the
/// process that measures has ended.
fn write(args: &[String]) -> Result<String, BenchError> {
    let (record_bytes, dir) = (bytes(args.first())?, PathBuf::from(args.get(1).map_or("", String::as_str)));
    let work = || -> io::Result<String> {
        let mut records = Records::create(&dir, record_bytes)?;
        io::stdout().write_all(READY).and_then(|()| io::stdout().flush())?;
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            std::process::exit(0);
        });
        loop {
            records.write()?;
        }
    };
    work().map_err(|error| failed(&dir, error))
}

/// What a writer says when its file is allocated.
const READY: &[u8] = b"\n";

fn bytes(word: Option<&String>) -> Result<usize, BenchError> {
    let word = word.map_or("", String::as_str);
    word.parse().map_err(|_| BenchError::Usage(format!("`{word}` is no number of bytes")))
}

fn failed(dir: &Path, error: io::Error) -> BenchError {
    BenchError::Io(format!("cannot write in `{}`", dir.display()), error)
}

fn round_trips(options: &Options) -> io::Result<Times> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let lengths = [options.request_bytes, options.reply_bytes].map(|bytes| bytes.to_string());
    let mut other = Command::new(std::env::current_exe()?);
    let mut other = other.arg(ECHO).args(lengths).stdin(OwnedFd::from(far)).stdout(Stdio::null()).spawn()?;
    let (request, mut reply) = (vec![0; options.request_bytes], vec![0; options.reply_bytes]);
    let times = measure(options.time, || {
        near.write_all(&request)?;
        near.read_exact(&mut reply)
    });
    drop(near);
    other.wait()?;
    times
}

fn syncs(options: &Options) -> io::Result<Times> {
    let mut others = Vec::new();
    for _ in 1..options.writers {
        others.push(start_writer(options)?);
    }
    let mut records = Records::create(&options.dir, options.request_bytes)?;
    let times = measure(options.time, || records.write());
    for mut other in others {
        drop(other.stdin.take());
        other.wait()?;
    }
    times
}

fn start_writer(options: &Options) -> io::Result<Child> {
    let mut writer = Command::new(std::env::current_exe()?);
    writer.arg(WRITE).arg(options.request_bytes.to_string()).arg(&options.dir);
    let mut writer = writer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(said) = &mut writer.stdout {
        said.read_exact(&mut [0; READY.len()])?;
    }
    Ok(writer)
}

/// Records in a file that is already allocated.
struct Records {
    file: File,
    at: u64,
    record: Vec<u8>,
}

impl Records {
    /// A new file, which has no name: it goes away with the process.
    fn create(dir: &Path, record_bytes: usize) -> io::Result<Records> {
        let path = dir.join(format!(".cairn-bench-base.{}.tmp", std::process::id()));
        let mut file = File::options().write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        let zeros = vec![0; 1 << 20];
        for _ in 0..FILE_BYTES / zeros.len() as u64 {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        Ok(Records { file, at: 0, record: vec![0; record_bytes] })
    }

    /// Writes the next record, and waits for the disk.
    fn write(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.record, self.at)?;
        let len = self.record.len() as u64;
        self.at = (self.at + len) % (FILE_BYTES - len);
        self.file.sync_data()
    }
}

/// Does `once` again and again for so long.
fn measure(time: Duration, mut once: impl FnMut() -> io::Result<()>) -> io::Result<Times> {
    let mut all = Histogram::default();
    let began = Instant::now();
    let mut before = began;
    while before - began < time {
        once()?;
        let after = Instant::now();
        all.record((after - before).as_nanos() as u64);
        before = after;
    }
    Ok(Times { mean: all.mean_us(), median: all.quantile_us(0.5), p99: all.quantile_us(0.99), count: all.total() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        for (line, wanted) in [
            ("--writers 65", "`--writers` must be no more than 64"),
            ("--request-bytes 0", "`--request-bytes` must be at least 1"),
            ("--reply-bytes 1048577", "a message must have no more than 1048576 bytes"),
            ("--streams 1", "`--streams` is not known here"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(measure_all(&words).err().map(|error| error.to_string()).as_deref(), Some(wanted), "{line}");
        }
    }
}
