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

/// The copy has an entry of another term where the member has acknowledged one, and only the term in a heartbeat tells.
/// `replica/tests/lost.rs` has the case of a leader that has trimmed that entry.
#[test]
fn a_copy_with_an_entry_of_another_term_is_found_out_by_a_heartbeat() {
    let outcome = sim::run(3005510, Options { sets_back: true, plain: true, ..Options::default() }, Trace::off());
    let ends = outcome.as_ref().map(|report| (report.set_back, report.ended_lost, report.ended_replaced));
    assert_eq!(ends.ok(), Some((1, 1, 1)), "{outcome:?}");
}
