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

/// Its leader has trimmed the entry that the member acknowledged, and the copy has another one in its place.
#[test]
fn a_leader_that_has_trimmed_the_entry_still_knows_its_term() {
    let outcome = sim::run(1795403275127211, Options { sets_back: true, ..Options::default() }, Trace::off());
    assert!(outcome.as_ref().is_ok_and(|report| report.ended_lost == 1), "{outcome:?}");
}
