//! Followers that are far behind.

mod common;

use bytes::Bytes;
use common::Cluster;

const ENTRIES: usize = 5_000;
const ENTRY_BYTES: usize = 1_000;

/// A leader (1) whose follower 3 missed so many entries, and has just been heard of again.
fn behind() -> Cluster {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.elect(1);
    cluster.cut = vec![(1, 3), (3, 1)];
    for _ in 0..ENTRIES / 100 {
        write(&mut cluster, 100);
        cluster.settle();
    }
    cluster.cut.clear();
    cluster.member(1).report_unreachable(3);
    cluster.tick(2);
    assert!(cluster.member(1).has_lagging());
    cluster
}

fn write(cluster: &mut Cluster, entries: usize) {
    cluster.member(1).propose(vec![Bytes::from(vec![b'x'; ENTRY_BYTES]); entries]).expect("a leader");
}

/// Entries that 1 knows 3 to have.
fn matched(cluster: &mut Cluster) -> u64 {
    cluster.member(1).progress()[2].matched
}

#[test]
fn they_are_sent_a_little_at_a_time() {
    let mut cluster = behind();
    for _ in 0..3 {
        let before = matched(&mut cluster);
        cluster.settle();
        assert_eq!(matched(&mut cluster), before, "nothing was allowed");
        cluster.member(1).send_lagging(100 * ENTRY_BYTES as u64);
        cluster.settle();
        let sent = matched(&mut cluster) - before;
        assert!((90..=100).contains(&sent), "{sent} entries");
    }
}

#[test]
fn those_who_are_level_do_not_wait_for_them() {
    let mut cluster = behind();
    let before = matched(&mut cluster);
    write(&mut cluster, 1);
    cluster.settle();
    assert_eq!(cluster.one(1).applied.len(), ENTRIES + 1);
    assert_eq!(matched(&mut cluster), before);
}

#[test]
fn they_gain_on_a_log_that_grows() {
    let mut cluster = behind();
    cluster.member(1).send_lagging(1);
    cluster.settle();
    let before = matched(&mut cluster);
    write(&mut cluster, 500);
    cluster.settle();
    cluster.member(1).send_lagging(1);
    cluster.settle();
    let sent = matched(&mut cluster) - before;
    assert!((990..=1_000).contains(&sent), "{sent} entries");
}

#[test]
fn the_clock_alone_makes_them_level() {
    let mut cluster = behind();
    cluster.tick(10);
    assert!(!cluster.member(1).has_lagging());
    assert_eq!(cluster.one(3).applied.len(), ENTRIES);
}

#[test]
fn one_that_is_needed_gets_everything_at_once() {
    let mut cluster = behind();
    cluster.cut = vec![(1, 2), (2, 1)];
    write(&mut cluster, 1);
    cluster.settle();
    cluster.tick(4);
    cluster.member(1).send_lagging(1);
    cluster.settle();
    assert_eq!(cluster.one(1).applied.len(), ENTRIES + 1);
}
