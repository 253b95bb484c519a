//! The targets without libFuzzer: the seeds of the repository, then inputs made from a seed.
//!
//! ```text
//! cargo test -p cairn-hostile --test fuzz -- [--seconds 60] [--seed N] [--target logins]
//! cargo test -p cairn-hostile --test fuzz -- --target front_door --replay FILE...
//! ```
//!
//! Each target runs in a process of its own, which ends with a member that crashes; the parent reports the input. Without arguments, as
//! in a run of all tests, only the seeds are played.

#![allow(clippy::disallowed_methods, reason = "how long it runs, and where it begins, come from the clock")]

use hostile::{Mutator, Site, Target};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const TARGETS: [(&str, Target); 2] = [("front_door", Target::FrontDoor), ("logins", Target::Logins)];
/// Inputs that are kept when a member ends: what one begins may end it while a later one is played.
const JOURNAL: u64 = 8;
/// Bytes of the journal for each.
const JOURNAL_BYTES: u64 = 64 << 10;

#[derive(Default)]
struct Arguments {
    seconds: u64,
    seed: Option<u64>,
    target: Option<String>,
    replay: Vec<PathBuf>,
    /// In the process that plays: where it writes each input before it plays it.
    journal: Option<PathBuf>,
    /// Another test was asked for by name.
    is_other: bool,
}

fn parse() -> Arguments {
    let mut arguments = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seconds" => arguments.seconds = words.next().and_then(|text| text.parse().ok()).unwrap_or(0),
            "--seed" => arguments.seed = words.next().and_then(|text| text.parse().ok()),
            "--target" => arguments.target = words.next(),
            "--journal" => arguments.journal = words.next().map(PathBuf::from),
            "--replay" => arguments.replay = words.by_ref().map(PathBuf::from).collect(),
            // What the tests' usual main takes.
            flag if flag.starts_with('-') => {}
            name => arguments.is_other |= !"fuzz".contains(name),
        }
    }
    arguments
}

fn main() -> ExitCode {
    let arguments = parse();
    if arguments.is_other {
        return ExitCode::SUCCESS;
    }
    if let Some(journal) = &arguments.journal {
        return play(&arguments, journal);
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let seed = arguments.seed.unwrap_or(clock);
    let chosen = |name: &str| arguments.target.as_deref().is_none_or(|target| target == name);
    for (name, _) in TARGETS.into_iter().filter(|(name, _)| chosen(name)) {
        println!("fuzz: {name}, seed {seed}");
        if !supervise(name, seed, &arguments) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Plays in another process; if that ends early, says by what.
fn supervise(target: &str, seed: u64, arguments: &Arguments) -> bool {
    let journal = std::env::temp_dir().join(format!("cairn-hostile-{}-{target}.journal", std::process::id()));
    let own = std::env::current_exe().unwrap_or_else(|error| panic!("this program: {error}"));
    let mut command = Command::new(own);
    command.args(["--target", target, "--seed", &seed.to_string(), "--seconds", &arguments.seconds.to_string()]);
    command.arg("--journal").arg(&journal);
    if !arguments.replay.is_empty() {
        command.arg("--replay").args(&arguments.replay);
    }
    let ended = command.status().unwrap_or_else(|error| panic!("another process: {error}"));
    let inputs = read_journal(&journal);
    // It may never have been made.
    let _ = std::fs::remove_file(&journal);
    if ended.success() {
        return true;
    }
    eprintln!("fuzz: {target}, seed {seed}: the process ended with {ended}; the last inputs, the newest first:");
    let folder = std::env::var_os("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    for (number, input) in inputs.iter().rev() {
        let path = folder.join(format!("{target}-{seed}-{number}"));
        match std::fs::write(&path, input) {
            Ok(()) => eprintln!("  {}", path.display()),
            Err(error) => eprintln!("  {}: {error}", path.display()),
        }
    }
    eprintln!("replay: cargo test -p cairn-hostile --test fuzz -- --target {target} --replay FILES, the oldest first");
    false
}

/// The inputs of a journal and their numbers, the oldest first.
fn read_journal(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut bytes = Vec::new();
    if File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).is_err() {
        return Vec::new();
    }
    let mut inputs = Vec::new();
    for slot in bytes.chunks(JOURNAL_BYTES as usize) {
        let Some((head, rest)) = slot.split_at_checked(16) else { continue };
        let word = |at: usize| head[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        if word(0) > 0 {
            inputs.push((word(0), rest[..(word(8) as usize).min(rest.len())].to_vec()));
        }
    }
    inputs.sort_unstable();
    inputs
}

/// Writes down what is played next.
struct Journal {
    file: File,
    number: u64,
}

impl Journal {
    fn note(&mut self, input: &[u8]) {
        self.number += 1;
        let input = &input[..input.len().min(JOURNAL_BYTES as usize - 16)];
        let slot = [&self.number.to_le_bytes(), &(input.len() as u64).to_le_bytes(), input].concat();
        let at = self.number % JOURNAL * JOURNAL_BYTES;
        self.file.write_all_at(&slot, at).unwrap_or_else(|error| panic!("the journal: {error}"));
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// The process that plays. A panic of any thread of the member is a finding, whatever the member makes of it.
fn play(arguments: &Arguments, journal: &Path) -> ExitCode {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        std::process::abort();
    }));
    let file = File::create(journal).unwrap_or_else(|error| panic!("{}: {error}", journal.display()));
    let mut journal = Journal { file, number: 0 };
    let name = arguments.target.as_deref().unwrap_or_default();
    let Some((_, target)) = TARGETS.into_iter().find(|(known, _)| *known == name) else { return ExitCode::FAILURE };
    let mut site = Site::new(target);
    let mut run = |input: &[u8]| {
        journal.note(input);
        if let Err(finding) = site.run(input) {
            panic!("input {}: {finding}", journal.number);
        }
    };
    let known = match arguments.replay.is_empty() {
        true => seeds(name),
        false => arguments.replay.iter().map(|path| read(path)).collect(),
    };
    let began = Instant::now();
    known.iter().for_each(|input| run(input));
    if arguments.replay.is_empty() {
        let mutator = Mutator::new(arguments.seed.unwrap_or_default(), known);
        let until = began + Duration::from_secs(arguments.seconds);
        let mut number = 0;
        while Instant::now() < until {
            run(&mutator.input(number));
            number += 1;
        }
    }
    if let Err(finding) = site.cut() {
        panic!("{finding}");
    }
    println!("fuzz: {name}: {} in {:.0?}", site.summary(), began.elapsed());
    // Whoever looks at the output wants it before the member has stopped.
    let _ = std::io::stdout().flush();
    ExitCode::SUCCESS
}
