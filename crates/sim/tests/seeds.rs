//! Runs of the simulator that must always succeed, and a proof that a seed decides everything.

use sim::{Options, Report, Trace};

/// Seeds that once found something.
const TABLE: &str = include_str!("../seeds.txt");

#[test]
fn the_same_seed_gives_the_same_trace() {
    for (seed, observers) in [(3, None), (11, Some(1)), (12, None), (29, Some(2))] {
        let traces = [(); 2].map(|()| {
            let trace = Trace::on();
            let outcome = sim::run(seed, Options { observers, ..Options::default() }, trace.clone());
            assert!(outcome.is_ok(), "{outcome:?}");
            trace.text()
        });
        assert!(traces[0].lines().count() > 1000, "seed {seed} has hardly anything to tell");
        assert!(traces[0] == traces[1], "seed {seed} took two ways");
    }
}

#[test]
fn seeds_that_found_something_find_nothing_any_more() {
    let lines = TABLE.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    for line in lines {
        let seed = line.split_whitespace().next().and_then(|word| word.parse().ok());
        let seed = seed.unwrap_or_else(|| panic!("no seed in {line:?}"));
        let plain = line.split_whitespace().nth(1) == Some("plain");
        let outcome = sim::run(seed, Options { plain, ..Options::default() }, Trace::off());
        assert!(outcome.is_ok(), "{line}: {outcome:?}");
    }
}

#[test]
fn everything_happens_within_some_seeds() {
    let mut total = Report::default();
    for seed in 1..=120 {
        match sim::run(seed, Options::default(), Trace::off()) {
            Ok(report) => total.add(&report),
            Err(failure) => panic!("seed {seed}: {}", failure.message),
        }
    }
    for kind in sim::KINDS {
        assert!(total.faults.contains_key(&kind), "no {kind:?} among {:?}", total.faults);
    }
    for kind in [sim::Kind::DiskError, sim::Kind::ClockJump] {
        assert!(total.faults.contains_key(&kind), "no {kind:?} among {:?}", total.faults);
    }
    let watches = total.watches;
    assert!(watches.events > 10_000 && watches.with_previous > 1_000 && watches.fragments > 500, "{watches:?}");
    assert!(watches.progress > 1_000 && watches.resumed > 1_000 && watches.compacted > 50, "{watches:?}");
    let observers = total.observers;
    assert!(observers.streams > 100 && observers.behind_observers > 10 && observers.installs > 10, "{observers:?}");
    assert!(total.user_changes > 50 && total.denied > 50, "{total:?}");
    assert!(total.faults.contains_key(&sim::Kind::Removals), "no two removals at once among {:?}", total.faults);
    assert!(total.quotas > 5 && total.no_space > 50 && total.disarmed > 10, "{total:?}");
    let happened = total.happened;
    assert!(happened.tokens_used > 100 && happened.tokens_void > 10 && happened.compactions > 50, "{happened:?}");
    assert!(happened.leases_ended > 100 && happened.lease_checkpoints > 100, "{happened:?}");
    assert!(happened.lease_checkpoints_taken_back > 0, "{happened:?}");
    assert!(total.set_back > 0 && total.ended_lost > 0, "{total:?}");
    assert!(total.installs > 10 && total.restarts > 100 && total.key_file_starts > 0, "{total:?}");
    assert!(total.counts.reads > 1_000 && total.counts.writes > 3_000, "{total:?}");
}

#[test]
fn five_members_have_two_learners_beside_them() {
    let mut total = Report::default();
    for seed in 1..=10 {
        match sim::run(seed, Options { two_learners: true, ..Options::default() }, Trace::off()) {
            Ok(report) => total.add(&report),
            Err(failure) => panic!("seed {seed}: {}", failure.message),
        }
    }
    assert!(total.happened.full_houses >= 5, "{:?}", total.happened);
}

/// A run that lacks anything of this is a violation. What `long` changes must not make a seed wander either.
#[test]
fn long_runs_are_long_and_the_same_twice() {
    for seed in 1..=4 {
        let traces = [(); 2].map(|()| {
            let trace = Trace::on();
            let outcome = sim::run(seed, Options { long: true, ..Options::default() }, trace.clone());
            let report = outcome.unwrap_or_else(|failure| panic!("seed {seed}: {}", failure.message));
            assert!(report.counts.begun >= 500 && report.simulated_us >= 60_000_000, "{report:?}");
            assert!(report.faults.values().sum::<u64>() >= 10 && report.faults.len() >= 3, "{report:?}");
            assert!(report.restarts > 0 && report.happened.compactions > 0, "{report:?}");
            trace.text()
        });
        assert!(traces[0] == traces[1], "seed {seed} took two ways");
    }
}
