//! A member that is set back to an older copy of its directory.

use sim::{Options, Report, Trace};

/// It ends by the word of its leader, nothing acknowledged is lost, and the others go on.
#[test]
fn a_member_that_is_set_back_ends_and_nothing_is_lost() {
    let mut total = Report::default();
    for seed in 1..=60 {
        match sim::run(seed, Options { sets_back: true, ..Options::default() }, Trace::off()) {
            Ok(report) => total.add(&report),
            Err(failure) => panic!("seed {seed}: {}", failure.message),
        }
    }
    // In some runs nothing was acknowledged between the copy and its return, or the leader goes before it can tell.
    assert!(total.set_back >= 10 && 2 * total.ended_lost >= total.set_back, "{total:?}");
    assert_eq!(total.faults.get(&sim::Kind::SetBack), Some(&total.set_back));
}

/// A seed in which, before members were driven by the replica that ships, a leader had trimmed the entry that the member acknowledged.
/// Its events come in another order since, and nobody ends; `replica/tests/lost.rs` has the case itself.
#[test]
fn a_seed_with_a_leader_that_has_trimmed_the_entry_goes_well() {
    let outcome = sim::run(1795403275127211, Options { sets_back: true, ..Options::default() }, Trace::off());
    assert!(outcome.as_ref().is_ok_and(|report| report.set_back == 1), "{outcome:?}");
}
