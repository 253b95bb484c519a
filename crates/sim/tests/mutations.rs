//! Known mistakes, switched on one at a time: each must be found within a few seeds.

use sim::{Mutation, Options, Trace};

/// Seeds that one mistake may take.
const SEEDS_MAX: u64 = 60;

fn found_within(mutation: Mutation, clients_only: bool, seeds_max: u64) -> Option<(u64, String)> {
    sim::catch_panics();
    let options = Options { mutation: Some(mutation), clients_only, ..Options::default() };
    (1..=seeds_max).find_map(|seed| match sim::run(seed, options, Trace::off()) {
        Ok(_) => None,
        Err(failure) => Some((seed, failure.message)),
    })
}

#[test]
fn every_mistake_is_found() {
    for mutation in Mutation::ALL {
        let found = found_within(mutation, false, SEEDS_MAX);
        assert!(found.is_some(), "{mutation:?} passes {SEEDS_MAX} seeds");
    }
}
