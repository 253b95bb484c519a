//! `check disk`: the disk tests that guides do with `fio`, without `fio`.

mod crew;
mod mixed;
mod place;
mod queue;
mod steady;

use super::format::{Grade, bytes, columns, number, time};
use super::times::{PERCENTILES, Times};
use super::watched;
use super::{DATA_DIR, JSON, wants_json};
use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{int, switch, text};
use crate::print;
use crate::print::json::Object;
use crate::signals::Signals;
use mixed::Mixed;
pub(super) use place::Place;
use std::time::Duration;
pub(super) use steady::Steady;

pub(super) const COMMAND: Command =
    command("disk", "", "Tests how fast the disk writes and syncs, as fio does with --fdatasync=1", run).with(&[
        DATA_DIR,
        text("size", "", "bytes to write (default 22M, with --mixed 256M); k, m and g are powers of 1024"),
        int("block-size", "2300", "bytes of one write (not with --mixed, which has 4096)"),
        switch("mixed", "3 reads to 1 write of 4 KiB at random, 64 at a time, past the page cache"),
        JSON,
    ]);

/// What a member needs to send heartbeats in time while its log is busy.
pub(super) const SYNC_MAX: Duration = Duration::from_millis(10);
/// As much as guides write, all or at random.
const STEADY_BYTES: u64 = 22 << 20;
const MIXED_BYTES: u64 = 256 << 20;
/// More would only take longer.
const BYTES_MAX: u64 = 4 << 30;
/// The time of each write and each sync is kept in memory, in 8 bytes.
const WRITES_MAX: u64 = 4 << 20;
/// A write that is larger than a request may be says nothing.
const BLOCK_BYTES_MAX: i64 = 16 << 20;

fn run(context: &Context) -> Outcome {
    let parsed = &context.parsed;
    if !context.args().is_empty() {
        return Err(Failure::args("check disk takes no arguments: name the directory with --data-dir"));
    }
    let wants_json = wants_json(parsed)?;
    let is_mixed = parsed.switch("mixed");
    let size = match (parsed.text("size"), is_mixed) {
        ("", false) => STEADY_BYTES,
        ("", true) => MIXED_BYTES,
        (text, _) => size(text)?,
    };
    let place = Place::find(parsed.text("data-dir"))?;
    if is_mixed {
        return run_mixed(context, &place, size, wants_json);
    }
    let block = parsed.int("block-size");
    if !(1..=BLOCK_BYTES_MAX).contains(&block) || block.unsigned_abs() > size {
        let text = format!("--block-size must be between 1 and {BLOCK_BYTES_MAX}, and no more than --size");
        return Err(Failure::args(text));
    }
    let writes = size / block.unsigned_abs();
    if writes > WRITES_MAX {
        let (all, most) = (number(writes as f64), number(WRITES_MAX as f64));
        let text = format!("--size and --block-size make {all} writes, and {most} are the most: choose larger blocks");
        return Err(Failure::args(text));
    }
    let steady = measure(context, &place, size, block.unsigned_abs() as usize)?;
    let grade = steady.grade();
    if wants_json {
        print::out((steady.json(&place) + "\n").as_bytes())?;
    } else {
        print::out(shown(&place, &steady).as_bytes())?;
    }
    if grade == Grade::Pass { Ok(()) } else { Err(Failure::new(code::ERROR, "")) }
}

/// Writes `size` bytes, and syncs after every block.
pub(super) fn measure(context: &Context, place: &Place, size: u64, block: usize) -> Outcome<Steady> {
    let mut signals = {
        let _runtime = context.enter();
        Signals::new()?
    };
    let file = place.scratch(size)?.file;
    let dir = place.dir().to_path_buf();
    let name = format!("writing {} to `{}`", bytes(size), place.dir().display());
    watched::run(context, &mut signals, (&name, size), move |progress| {
        steady::write(&file, size, block, progress).map_err(|error| failed(&dir, &error))
    })
}

fn run_mixed(context: &Context, place: &Place, size: u64, wants_json: bool) -> Outcome {
    if size < mixed::BLOCK_BYTES {
        return Err(Failure::args(format!("--size must be at least {} with --mixed", mixed::BLOCK_BYTES)));
    }
    let mut signals = {
        let _runtime = context.enter();
        Signals::new()?
    };
    let scratch = place.scratch(size)?;
    // Some file systems have nothing but the page cache.
    let is_direct = scratch.direct.is_some();
    let file = scratch.direct.unwrap_or(scratch.file);
    let dir = place.dir().to_path_buf();
    let name = format!("reading and writing {} in `{}`", bytes(size), place.dir().display());
    // Once to fill the file, once to read and write it.
    let mixed = watched::run(context, &mut signals, (&name, 2 * size), move |progress| {
        mixed::run(&file, is_direct, size, progress).map_err(|error| failed(&dir, &error))
    })?;
    let text = if wants_json { mixed.json(place) + "\n" } else { shown_mixed(place, &mixed) };
    print::out(text.as_bytes())
}

fn failed(dir: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::new(code::IO, format!("cannot test the disk with a file in `{}`: {error}", dir.display()))
}

/// A size as `fio` reads it: `22m`, `4G`.
fn size(text: &str) -> Outcome<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let number = lower.trim_end_matches("ib").trim_end_matches('b');
    let (digits, shift) = match number.char_indices().last() {
        Some((place, 'k')) => (&number[..place], 10),
        Some((place, 'm')) => (&number[..place], 20),
        Some((place, 'g')) => (&number[..place], 30),
        _ => (number, 0),
    };
    let size = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift));
    match size {
        Some(size) if (1..=BYTES_MAX).contains(&size) => Ok(size),
        Some(_) => Err(Failure::args(format!("--size {text:?} must be between 1 and {}", bytes(BYTES_MAX)))),
        None => Err(Failure::args(format!("--size {text:?} is no number of bytes: write 22M, for instance"))),
    }
}

fn shown(place: &Place, steady: &Steady) -> String {
    let (count, block) = (steady.syncs.len(), steady.block_bytes);
    let mut out = format!("Disk of {}\n", place.shown());
    out += &format!(
        "{} writes of {block} B, one after the other, each with fdatasync, in {}\n\n",
        number(count as f64),
        time(steady.took)
    );
    out += &format!("  {} IOPS, {}/s\n\n", number(steady.iops()), bytes(steady.bandwidth() as u64));
    out += &table(&[("write", &steady.writes), ("fdatasync", &steady.syncs)]);
    out + &format!("\n{}\n", steady.verdict())
}

fn shown_mixed(place: &Place, mixed: &Mixed) -> String {
    let cache = if mixed.is_direct {
        "past the page cache"
    } else {
        "through the page cache, which this file system insists on"
    };
    let mut out = format!("Disk of {}\n", place.shown());
    let blocks = number((mixed.reads.len() + mixed.writes.len()) as f64);
    out += &format!("{blocks} blocks of 4 KiB at random, 3 reads to 1 write, {} at a time, {cache}\n", mixed::DEPTH);
    out += &format!("by {}, in {}\n\n", mixed.means, time(mixed.took));
    for (name, times) in [("read", &mixed.reads), ("write", &mixed.writes)] {
        let per_second = mixed.per_second(times);
        let bandwidth = bytes((per_second * mixed::BLOCK_BYTES as f64) as u64);
        out += &format!("  {name:<6} {:>9} IOPS, {bandwidth}/s\n", number(per_second));
    }
    out + "\n" + &table(&[("read", &mixed.reads), ("write", &mixed.writes)])
}

fn table(rows: &[(&str, &Times)]) -> String {
    let headings: Vec<&str> =
        ["", "min", "mean"].into_iter().chain(PERCENTILES.iter().map(|(name, _)| *name)).chain(["max"]).collect();
    let row = |(name, times): &(&str, &Times)| {
        let percentiles = PERCENTILES.iter().map(|(_, share)| times.percentile(*share));
        let figures = [times.min(), times.mean()].into_iter().chain(percentiles).chain([times.max()]);
        std::iter::once((*name).to_string()).chain(figures.map(time)).collect()
    };
    columns(&headings, &rows.iter().map(row).collect::<Vec<_>>())
}

impl Steady {
    /// Whether a member can live with it.
    pub(super) fn grade(&self) -> Grade {
        Grade::of(self.syncs.p99() < SYNC_MAX)
    }

    fn verdict(&self) -> String {
        let p99 = time(self.syncs.p99());
        match self.grade() {
            Grade::Pass => format!("{}: fdatasync p99 < 10 ms ({p99})", Grade::Pass.shown()),
            grade => format!(
                "{}: fdatasync p99 < 10 ms ({p99}): writes wait for it, and a leader that waits too long is replaced; use a faster disk, or one \
                 that others leave alone",
                grade.shown()
            ),
        }
    }

    pub(super) fn json(&self, place: &Place) -> String {
        place
            .json()
            .raw("blockBytes", self.block_bytes)
            .raw("seconds", self.took.as_secs_f64())
            .raw("iops", self.iops())
            .raw("bytesPerSecond", self.bandwidth())
            .raw("writeSeconds", self.writes.json())
            .raw("fdatasyncSeconds", self.syncs.json())
            .raw("fdatasyncP99MaxSeconds", SYNC_MAX.as_secs_f64())
            .text("verdict", self.grade().name())
            .end()
    }
}

impl Mixed {
    fn json(&self, place: &Place) -> String {
        let side =
            |times: &Times| Object::default().raw("iops", self.per_second(times)).raw("seconds", times.json()).end();
        place
            .json()
            .raw("blockBytes", mixed::BLOCK_BYTES)
            .raw("depth", mixed::DEPTH)
            .raw("seconds", self.took.as_secs_f64())
            .text("means", &self.means)
            .raw("isDirect", self.is_direct)
            .raw("read", side(&self.reads))
            .raw("write", side(&self.writes))
            .end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_fios() {
        for (text, bytes) in
            [("22m", 22 << 20), ("256M", 256 << 20), ("4G", 4 << 30), ("64KiB", 64 << 10), ("2300", 2300)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "m", "-1", "1.5g", "0", "5g", "99999999999g", "1t", "é"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
