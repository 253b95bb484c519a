//! Random and bent frame sequences to the server and to the `h2` crate's: both must see the same in them.
//!
//! All but this file is shared with the fuzz target `connection`.
#![allow(unreachable_pub, dead_code)]

mod echo;
mod headers;
mod judgement;
mod observation;
mod oracle;
mod play;
mod script;

use std::cell::Cell;

use echo::{CHAT, ECHO, LATER, UNKNOWN};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The same scripts every time; DIFFERENTIAL_CASES=n for more of them.
fn runner(cases: u32) -> TestRunner {
    let cases = std::env::var("DIFFERENTIAL_CASES").map_or(cases, |text| text.parse().expect("a number"));
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 10_000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn answers_agree_with_those_of_h2() {
    let choices = prop::collection::vec(any::<u8>(), 0..120);
    let (followed, frames) = (Cell::new(0), Cell::new(0));
    let result = runner(1500).run(&choices, |choices| {
        let script = script::script(&choices, &[ECHO, UNKNOWN]);
        let compared = play::compare(&script);
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
    let sizes = prop::collection::vec(1..60usize, 1..20);
    let result = runner(1500).run(&(choices, sizes), |(choices, sizes)| {
        let script = script::script(&choices, &[LATER, CHAT, UNKNOWN]);
        let whole = play::in_pieces(&script, std::iter::empty());
        let pieces = play::in_pieces(&script, sizes.iter().copied().cycle());
        let story = || script::frames(&script).into_iter().map(script::describe).collect::<String>();
        prop_assert_eq!(whole, pieces, "{}", story());
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
