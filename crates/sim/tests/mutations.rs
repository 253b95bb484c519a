//! Known mistakes, switched on one at a time: each must be found within a few seeds.

use sim::{Mutation, Options, Trace};

/// Seeds that one mistake may take.
const SEEDS_MAX: u64 = 60;

fn is_found(mutation: Mutation) -> bool {
    sim::catch_panics();
    // With what only some runs have, and without: a mistake about members shows sooner where members do little else.
    [false, true].into_iter().any(|plain| {
        let options = Options { mutation: Some(mutation), plain, ..Options::default() };
        (1..=SEEDS_MAX).any(|seed| sim::run(seed, options, Trace::off()).is_err())
    })
}

#[test]
fn every_mistake_is_found() {
    let missed: Vec<Mutation> = Mutation::always().into_iter().filter(|mutation| !is_found(*mutation)).collect();
    // Panics of the clusters are not shown, but this one is.
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "{missed:?} pass {SEEDS_MAX} seeds");
}
