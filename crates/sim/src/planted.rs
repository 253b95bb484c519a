//! `--planted`: every mistake that the build knows, one at a time, until a seed finds it.

use sim::{Mutation, Options, Trace};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What found a mistake.
struct Found {
    seed: u64,
    seeds: u64,
    seconds: f64,
    message: String,
}

/// Plants each mistake, and runs up to `seeds_max` seeds from `from` on. Returns the table, and whether all were found.
pub(crate) fn run(only: Option<Mutation>, from: u64, seeds_max: u64) -> (String, bool) {
    let all = only.map_or_else(Mutation::all, |only| vec![only]);
    let rows = Mutex::new(vec![None; all.len()]);
    let next = AtomicUsize::new(0);
    let worker = || {
        while let Some((number, mutation)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, *all.get(n)?)))
        {
            let found = find(mutation, from, seeds_max);
            match &found {
                Some(found) => println!("{mutation:?}: {} seeds, seed {}: {}", found.seeds, found.seed, found.message),
                None => println!("{mutation:?}: NOT FOUND in {seeds_max} seeds"),
            }
            let row = row(mutation, found.as_ref(), seeds_max);
            rows.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some((row, found.is_some()));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(worker))));
    let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut table =
        String::from("| fault | in | etcd's issue | seeds | seconds | caught by |\n|---|---|--:|--:|--:|---|\n");
    let mut is_complete = true;
    for (row, is_found) in rows.into_iter().flatten() {
        table.push_str(&row);
        is_complete &= is_found;
    }
    (table, is_complete)
}

fn find(mutation: Mutation, from: u64, seeds_max: u64) -> Option<Found> {
    let began = Instant::now();
    // Both runs have as many.
    let observers = Some(usize::from(mutation.is_about_observers()));
    let options = Options { mutation: Some(mutation), observers, ..Options::default() };
    (0..seeds_max).find_map(|number| {
        let seed = from.wrapping_add(number);
        let message = sim::run(seed, options, Trace::off()).err()?.message;
        // Only a seed that passes without the mistake proves anything.
        sim::run(seed, Options { mutation: None, ..options }, Trace::off()).ok()?;
        Some(Found { seed, seeds: number + 1, seconds: began.elapsed().as_secs_f64(), message })
    })
}

fn row(mutation: Mutation, found: Option<&Found>, seeds_max: u64) -> String {
    let mut row = String::new();
    let issue = mutation.known_as().map_or(String::new(), |issue| format!("#{issue}"));
    // Writing into a string cannot fail.
    let _ = match found {
        Some(found) => writeln!(
            row,
            "| `{mutation:?}` | {} | {issue} | {} | {:.1} | {} |",
            mutation.place(),
            found.seeds,
            found.seconds,
            check_of(&found.message)
        ),
        None => {
            writeln!(row, "| `{mutation:?}` | {} | {issue} | {seeds_max} | | **nothing** |", mutation.place())
        }
    };
    row
}

/// The check behind a message: its place in the code, and the beginning of its words.
fn check_of(message: &str) -> String {
    let (words, place) = message.rsplit_once(" (").unwrap_or((message, ""));
    let place = place.trim_end_matches(')').rsplit_once(':').map_or(place, |(place, _)| place);
    let place = place.split_once("crates/").map_or(place, |(_, place)| place);
    let words: String = words.chars().take(60).collect();
    let words = words.replace('|', "\\|").replace(['\n', '`'], " ");
    format!("`{place}`: {words}")
}
