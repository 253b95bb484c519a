//! Random and bent frame sequences to the server and to the `h2` crate's: both must see the same in them.
//!
//! The scripts, the observation and the service are shared with the fuzz target `connection`.
#![allow(unreachable_pub)]

mod echo;
mod headers;
mod judgement;
mod observation;
mod oracle;
mod script;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use echo::{CHAT, ECHO, Echo, LATER, UNKNOWN};
use judgement::{Judge, Verdict};
use observation::Observer;
use oracle::Oracle;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rpc::{Driver, Options};

fn driver(echo: &Arc<Echo>) -> Driver {
    // Limits in time are tested elsewhere.
    let options = Options { ping_interval_min: Duration::ZERO, ping_without_stream: true, ..Options::default() };
    Driver::new(echo.clone(), options)
}

/// The same scripts every time; DIFFERENTIAL_CASES=n for more of them.
fn runner(cases: u32) -> TestRunner {
    let cases = std::env::var("DIFFERENTIAL_CASES").map_or(cases, |text| text.parse().expect("a number"));
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 10_000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// Plays `script` to both, frame by frame, up to where they may differ. Returns how many of its frames that was.
fn compare(script: &[u8]) -> Result<usize, String> {
    let mut driver = driver(&Arc::default());
    let mut oracle = Oracle::new();
    let (mut ours, mut theirs, mut judge) = (Observer::new(), Observer::new(), Judge::new());
    let mut story = String::new();
    let mut followed = 0;
    for frame in script::frames(script) {
        story += &script::describe(frame);
        ours.read(&driver.feed(frame));
        theirs.read(&oracle.feed(frame));
        followed += 1;
        match judge.judge(frame, ours.seen(), theirs.seen()) {
            Verdict::Agree => {}
            Verdict::MayDiffer(_) => break,
            Verdict::Differ(what) => {
                return Err(format!("{what}\n{story}ours {:?}\ntheirs {:?}", ours.seen(), theirs.seen()));
            }
        }
    }
    Ok(followed)
}

#[test]
fn answers_agree_with_those_of_h2() {
    let choices = prop::collection::vec(any::<u8>(), 0..120);
    let (followed, frames) = (Cell::new(0), Cell::new(0));
    let result = runner(1500).run(&choices, |choices| {
        let script = script::script(&choices, &[ECHO, UNKNOWN]);
        let compared = compare(&script);
        frames.set(frames.get() + script::frames(&script).len());
        followed.set(followed.get() + *compared.as_ref().unwrap_or(&0));
        prop_assert!(compared.is_ok(), "{}", compared.unwrap_err());
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let (followed, frames) = (followed.get(), frames.get());
    assert!(followed * 2 > frames, "most frames are compared: {followed} of {frames}");
}

/// How the bytes come in pieces makes no difference to what the client sees. (It does to when a reply is done that waits for room.)
#[test]
fn pieces_make_no_difference() {
    let choices = prop::collection::vec(any::<u8>(), 0..120);
    let cuts = prop::collection::vec(1..60usize, 1..20);
    let result = runner(1500).run(&(choices, cuts), |(choices, cuts)| {
        let script = script::script(&choices, &[LATER, CHAT, UNKNOWN]);
        let play = |pieces: &mut dyn Iterator<Item = usize>| {
            let echo = Arc::<Echo>::default();
            let (mut driver, mut observer) = (driver(&echo), Observer::new());
            let mut rest = &script[..];
            while !rest.is_empty() {
                let (piece, tail) = rest.split_at(pieces.next().unwrap_or(usize::MAX).min(rest.len()));
                observer.read(&driver.feed(piece));
                rest = tail;
            }
            echo.answer_later();
            observer.read(&driver.feed(&[]));
            // What goes out before an error depends on when it comes.
            let error = observer.seen().connection_error;
            let streams = error.is_none().then(|| observer.seen().clone());
            (error, streams, driver.streams(), driver.is_closed())
        };
        let whole = play(&mut std::iter::empty());
        let pieces = play(&mut cuts.iter().copied().cycle());
        prop_assert_eq!(
            whole,
            pieces,
            "{}",
            script::frames(&script).into_iter().map(script::describe).collect::<String>()
        );
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
