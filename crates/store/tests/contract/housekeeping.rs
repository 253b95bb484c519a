//! Compaction frees its space, on the disk too, without further writes.
#![allow(clippy::unwrap_used)]

use crate::support::requests::*;
use crate::support::{DIR, Node, small_segments};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest};
use api::limits::{READ_STRIDE_KEYS, TXN_ANSWER_BYTES_MAX};
use api::{Error, KeyRange};
use disk::Disk;
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use store::{Options, Work};

/// A store with one key written many times.
fn overwritten(times: usize) -> Node {
    let mut node = Node::new();
    for at in 0..times {
        node.apply(put("a", &format!("{at:0300}")).raft()).unwrap();
    }
    node
}

fn segment_files(node: &Node) -> usize {
    let names = node.disk.list(Path::new(DIR)).unwrap();
    names.iter().filter(|name| name.ends_with(".seg")).count()
}

/// Works as the server does while nothing is applied. Returns the number of checkpoints that were asked for.
fn idle(node: &mut Node) -> usize {
    let mut checkpoints = 0;
    loop {
        let progress = node.store.maintain(64 << 10).unwrap();
        if progress.work == Work::Idle && !progress.checkpoint_is_due {
            return checkpoints;
        }
        if progress.checkpoint_is_due {
            node.checkpoint();
            checkpoints += 1;
        }
        assert!(checkpoints < 100, "checkpoints are due for ever");
    }
}

/// Key files that no checkpoint lists are of no use to a start, but each of them is not worth a checkpoint.
#[test]
fn several_key_files_wait_for_one_checkpoint() {
    // All of one size, so that none are joined.
    let mut node = Node::with(Options { log: store::log::Options { segment_bytes: 4 << 10 }, ..Options::default() });
    let due_with = |node: &mut Node, segments: usize| {
        while node.store.segments().count() < segments {
            node.apply(put("a", &"v".repeat(300)).raft()).unwrap();
        }
        loop {
            let progress = node.store.maintain(64 << 10).unwrap();
            if progress.work == Work::Idle {
                return progress.checkpoint_is_due;
            }
        }
    };
    let keys = |node: &Node| {
        let names = node.disk.list(Path::new(DIR)).unwrap();
        names.iter().filter(|name| name.ends_with(".keys")).count()
    };
    assert!(!due_with(&mut node, 3));
    assert_eq!(keys(&node), 2);
    assert!(!due_with(&mut node, 8));
    assert_eq!(keys(&node), 7);
    assert!(due_with(&mut node, 9));
    assert_eq!(keys(&node), 8);
    let checkpoint = node.applier.checkpoint();
    assert!(!due_with(&mut node, 9), "one that is being written lists them");
    checkpoint.write().unwrap();
    assert!(!due_with(&mut node, 9));
}

#[test]
fn space_comes_back_while_nothing_is_written() {
    let mut node = overwritten(2000);
    node.checkpoint();
    let before = node.store.usage().file_bytes;
    assert!(before > 500_000 && segment_files(&node) > 10);
    node.apply(compact(2001)).unwrap();
    assert!(idle(&mut node) >= 2);
    let after = node.store.usage().file_bytes;
    assert!(after < before / 4, "{after} of {before} bytes are left");
    assert_eq!(segment_files(&node), node.store.segments().count());
    assert_eq!(idle(&mut node), 0);
    node.reopen();
    assert_eq!(node.range(&all()).unwrap().count, 1);
    assert_eq!(idle(&mut node), 0);
}

#[test]
fn a_restart_between_the_checkpoints_does_not_keep_the_files() {
    let mut node = overwritten(2000);
    node.checkpoint();
    node.apply(compact(2001)).unwrap();
    node.settle();
    node.checkpoint();
    let before = segment_files(&node);
    node.reopen();
    assert_eq!(segment_files(&node), before, "the older checkpoint lists them");
    assert!(idle(&mut node) >= 1);
    assert_eq!(segment_files(&node), node.store.segments().count());
}

#[test]
fn waiting_compactions_are_done_together() {
    let [one_by_one, mut together] = [(); 2].map(|()| {
        let mut node = overwritten(100);
        node.apply(put("b", "1").raft()).unwrap();
        node
    });
    let mut one_by_one = one_by_one;
    for revision in [20, 50, 90] {
        one_by_one.apply(compact(revision)).unwrap();
        one_by_one.settle();
        together.apply(compact(revision)).unwrap();
    }
    together.settle();
    assert_eq!(together.store.compacted(), 90);
    assert_eq!(together.store.hash_kv(90).unwrap(), one_by_one.store.hash_kv(90).unwrap());
    assert_eq!(together.store.hash_kv(90).unwrap().compact_revision, 50);
    assert_eq!(together.store.usage().live_bytes, one_by_one.store.usage().live_bytes);
}

/// Keys that are written, deleted and written again, of which much was compacted away and its space given back.
fn lively() -> Node {
    let mut node = Node::new();
    for at in 0..600 {
        let key = format!("key{:02}", at % 37);
        match at % 11 {
            7 => node.apply(delete(&key, "").raft()).unwrap(),
            _ => node.apply(put(&key, &format!("{at:0200}")).raft()).unwrap(),
        };
    }
    node.apply(compact(300)).unwrap();
    idle(&mut node);
    node
}

#[test]
fn a_restart_within_a_compaction_goes_on_with_it() {
    let mut whole = lively();
    whole.apply(compact(500)).unwrap();
    whole.settle();
    let expected = (whole.store.compaction_hashes()[0], whole.store.usage().live_bytes);
    let mut interrupted = 0;
    for slices in 0.. {
        let mut node = lively();
        node.apply(compact(500)).unwrap();
        for _ in 0..slices {
            node.store.maintain(1).unwrap();
        }
        if node.store.compacted() == 500 {
            break;
        }
        interrupted += 1;
        // Twice, and with a write in between.
        for value in ["1", "2"] {
            node.checkpoint();
            node.reopen();
            assert_eq!((node.store.compacted(), node.store.compact_revision()), (300, 500));
            assert_eq!(node.range(&RangeRequest { revision: 499, ..all() }).unwrap_err(), Error::Compacted);
            node.store.maintain(1).unwrap();
            node.apply(put("after", value).raft()).unwrap();
        }
        node.settle();
        assert_eq!(node.store.compacted(), 500);
        let mut hash = node.store.compaction_hashes()[0];
        hash.header = expected.0.header;
        assert_eq!(hash, expected.0, "after {slices} slices");
        idle(&mut node);
        node.reopen();
        assert_eq!(node.store.compacted(), 500);
        assert_eq!(whole.store.hash_kv(500).unwrap().hash, hash.hash);
        let after = node.range(&range("after", "")).unwrap().kvs;
        assert_eq!(after[0].version, 2);
    }
    assert!(interrupted > 3, "the compaction is over after {interrupted} slices");
}

#[test]
fn a_deep_backlog_goes_before_hashes() {
    let mut node = overwritten(100);
    node.apply(compact(5)).unwrap();
    // The hash of the first one is begun.
    assert_eq!(node.store.maintain(1).unwrap().work, Work::Busy);
    for revision in [20, 50, 70, 90] {
        node.apply(compact(revision)).unwrap();
    }
    let before = node.store.usage().live_bytes;
    assert_eq!(node.store.maintain(1).unwrap().work, Work::Busy);
    assert_eq!(node.store.compacted(), 90);
    assert!(node.store.usage().live_bytes < before / 5);
    assert_eq!(node.store.hash_kv(90).unwrap().compact_revision, 90, "nothing was hashed on the way");
}

#[test]
fn members_claim_no_more_than_the_fullest_disk_has() {
    let mut node = Node::with(Options { reserve_bytes: 1 << 20, ..small_segments() });
    node.apply(grant(7, 100)).unwrap();
    let long = "k".repeat(1000);
    for part in 0..20 {
        let key = |at: usize| if at == 999 { format!("{long}{part}") } else { format!("key{part:03}{at:04}") };
        let puts = (0..1000).map(|at| PutRequest { lease: 7, ..put(&key(at), "") }.raft());
        node.apply_all(puts.collect());
    }
    let cost = node.store.revoke_cost_bytes(7);
    // To the byte: a few long keys among many short ones count.
    assert_eq!(cost, 20_000 * 48 + 19_980 * 10 + (0..20).map(|part: u64| 1001 + u64::from(part > 9)).sum::<u64>());
    assert_eq!(node.store.delete_cost_bytes(KeyRange::From(b"\0")), cost);
    assert_eq!(node.store.revoke_cost_bytes(8), 0);

    let path = |name: &String| Path::new(DIR).join(name);
    let names = node.disk.list(Path::new(DIR)).unwrap();
    let used: u64 = names.iter().map(|name| node.disk.contents(&path(name)).unwrap().len() as u64).sum();
    node.disk.set_capacity(Some(used + (64 << 20)));
    node.store.look_at_disk();
    let claim = |members, others_bytes| node.store.reserve_delete(cost, store::Share { members, others_bytes });
    let fits = |members, others_bytes| claim(members, others_bytes).is_ok();
    assert!(fits(1, cost) && !fits(1, cost - 1), "another disk is fuller than this one");
    assert!(fits(3, 3 * cost) && !fits(3, 3 * cost - 1), "each of three may claim a third");
    let held = claim(3, 6 * cost).unwrap();
    assert!(fits(3, 6 * cost) && !fits(3, 6 * cost - 1), "what is under way counts");
    drop(held);
    // The same goes for this disk.
    let room = node.store.headroom_bytes();
    assert!(fits(room / cost, u64::MAX) && !fits(room / cost + 1, u64::MAX));
    // Small ones are free as long as there are few.
    let small = || {
        node.store
            .reserve_delete(api::limits::DELETE_BYTES_FREE, store::Share { members: room, others_bytes: u64::MAX })
    };
    let free: Vec<_> = (0..1000).map_while(|_| small().ok()).collect();
    assert_eq!(free.len() as u64, api::limits::DELETES_BYTES_FREE / api::limits::DELETE_BYTES_FREE);
}

#[test]
fn known_room_is_claimed_without_a_look_at_the_disk() {
    let node = Node::with(Options { reserve_bytes: 1 << 20, ..small_segments() });
    node.disk.set_capacity(Some(64 << 20));
    node.store.look_at_disk();
    let (room, share) = (node.store.headroom_bytes(), store::Share::default());
    let claim = |cost| node.store.reserve_known(cost, share);
    // Nobody has looked since.
    node.disk.set_capacity(Some(8 << 20));
    let held = claim(room / 2 + 2).unwrap();
    assert_eq!(claim(room / 2).map(drop), Err(Error::NoSpace));
    assert_eq!(node.store.reserve_delete(room / 2, share).map(drop), Err(Error::NoSpace));
    drop(held);
    assert_eq!(claim(room / 2).map(drop), Err(Error::NoSpace), "what was let go may be written by now");
    assert!(node.store.has_headroom(room, share), "it is not missing");
    node.disk.set_capacity(Some(64 << 20));
    node.store.look_at_disk();
    assert!(claim(room).is_ok() && !node.store.has_headroom(room + 1, share));
}

#[test]
fn a_claim_that_is_refused_keeps_nobody_else_from_one() {
    let node = Node::with(Options { reserve_bytes: 1 << 20, ..small_segments() });
    node.disk.set_capacity(Some(64 << 20));
    node.store.look_at_disk();
    let room = node.store.headroom_bytes();
    let share = store::Share::default();
    let is_over = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(node.store.reserve_delete(room + 1, share).is_err());
            }
        });
        let refused = (0..20_000).filter(|_| node.store.reserve_delete(room / 2, share).is_err()).count();
        is_over.store(true, Ordering::Relaxed);
        refused
    });
    assert_eq!(refused, 0);
    // What others hold does not make it missing.
    let held = node.store.reserve_delete(room / 2 + 2, share).unwrap();
    assert_eq!(node.store.reserve_delete(room / 2, share).map(drop), Err(Error::NoSpace));
    assert!(node.store.has_headroom(room / 2, share) && node.store.has_headroom(room, share));
    assert!(!node.store.has_headroom(room + 1, share));
    assert!(!node.store.has_headroom(room, store::Share { members: 2, others_bytes: u64::MAX }));
    assert!(!node.store.has_headroom(room, store::Share { members: 1, others_bytes: room - 1 }));
    drop(held);
}

#[test]
fn a_transaction_is_weighed_with_one_look_at_each_key() {
    thread_local! {
        static PAUSES: Cell<usize> = const { Cell::new(0) };
    }
    let mut node = Node::with(Options { pause: || PAUSES.set(PAUSES.get() + 1), ..Options::default() });
    const KEYS: usize = 20_000;
    node.apply_all((0..KEYS).map(|key| put(&format!("key{key:05}"), "").raft()).collect());
    let once = KEYS as u64 * (48 + 8);
    let delete = |key: &str, range_end: &str| {
        op(Request::RequestDeleteRange(DeleteRangeRequest { prev_kv: true, ..delete(key, range_end) }))
    };
    let nested = |success: Vec<RequestOp>, failure: Vec<RequestOp>| {
        op(Request::RequestTxn(TxnRequest { success, failure, ..Default::default() }))
    };
    let everything: Vec<RequestOp> = (0..500).map(|at| delete("key", &format!("kez{at}"))).collect();
    let parts = ["key", "key05", "key10", "key15", "l"];
    let parts: Vec<RequestOp> = parts.windows(2).map(|part| delete(part[0], part[1])).collect();
    let ops =
        [vec![nested(everything.clone(), everything.clone()), delete("key00000", "")], everything, parts].concat();
    let both = TxnRequest { success: ops.clone(), failure: ops, ..Default::default() };
    PAUSES.set(0);
    assert_eq!(node.store.txn_delete_cost_bytes(&both), once);
    assert!(PAUSES.get() <= 2 * KEYS.div_ceil(READ_STRIDE_KEYS), "{} strides", PAUSES.get());
    assert!(node.store.is_heavy_write_txn(&both));
    // Half of its keys are few enough, in either branch.
    let half = TxnRequest { success: vec![delete("key", "key1")], failure: vec![delete("key1", "l")], ..both.clone() };
    assert!(!node.store.is_heavy_write_txn(&half));
    // What it would answer is found out by a sample.
    PAUSES.set(0);
    assert!(node.store.txn_answer_bytes(&both) > 500 * once / 2);
    assert!(PAUSES.get() <= 3 * KEYS.div_ceil(READ_STRIDE_KEYS), "{} strides", PAUSES.get());
    // What the transaction has put itself can be deleted again by a range that has no end.
    let puts =
        vec![delete("key1", "\0"), op(Request::RequestPut(put("key2", ""))), op(Request::RequestPut(put("k", "")))];
    let again = TxnRequest { success: puts, ..Default::default() };
    assert_eq!(node.store.txn_delete_cost_bytes(&again), once / 2 + 48 + 4);
}

#[test]
fn a_transaction_that_answers_too_much_is_weighed_no_further() {
    thread_local! {
        static PAUSES: Cell<usize> = const { Cell::new(0) };
    }
    let mut node = Node::with(Options { pause: || PAUSES.set(PAUSES.get() + 1), ..Options::default() });
    let value = "v".repeat(64 << 10);
    node.apply_all((0..600).map(|key| put(&format!("{key:05}"), &value).raft()).collect());
    let gets = vec![op(Request::RequestRange(all())); 4_000];
    PAUSES.set(0);
    let bytes = node.store.txn_answer_bytes(&TxnRequest { success: gets, ..Default::default() });
    assert!(bytes > TXN_ANSWER_BYTES_MAX as u64 && bytes < 2 * TXN_ANSWER_BYTES_MAX as u64, "{bytes}");
    assert!(PAUSES.get() < 100, "{} strides", PAUSES.get());
}

#[test]
fn a_deletion_that_the_disk_has_no_room_for_is_refused_before_it_is_proposed() {
    let mut node = Node::with(Options { reserve_bytes: 1 << 20, ..small_segments() });
    for part in 0..60 {
        node.apply_all((0..1000).map(|key| put(&format!("key{part:03}{key:04}"), "").raft()).collect());
    }
    let all = KeyRange::From(b"\0");
    let cost = node.store.delete_cost_bytes(all);
    assert_eq!(cost, 60_000 * (48 + 10));
    let many = || op(Request::RequestDeleteRange(delete("key", "kez")));
    let few = || op(Request::RequestDeleteRange(delete("key000", "key010")));
    let nested = TxnRequest { success: vec![few()], failure: vec![few(), many()], ..Default::default() };
    let txn = TxnRequest { success: vec![few(), op(Request::RequestTxn(nested))], ..Default::default() };
    assert_eq!(node.store.txn_delete_cost_bytes(&txn), 60_000 * 58, "a key is deleted once");

    let path = |name: &String| Path::new(DIR).join(name);
    let names = node.disk.list(Path::new(DIR)).unwrap();
    let used: u64 = names.iter().map(|name| node.disk.contents(&path(name)).unwrap().len() as u64).sum();
    let granted = |room: Result<store::Reservation, Error>| room.map(drop);
    let live = |node: &Node| granted(node.store.delete_check(node.store.delete_cost_bytes(all)));
    node.disk.set_capacity(Some(used + (16 << 20)));
    node.store.look_at_disk();
    assert_eq!(live(&node), Ok(()));
    node.disk.set_capacity(Some(used + (2 << 20)));
    node.store.look_at_disk();
    assert_eq!(live(&node), Err(Error::NoSpace));
    assert_eq!(granted(node.store.delete_check(node.store.txn_delete_cost_bytes(&txn))), Err(Error::NoSpace));
    let cost = |end| node.store.delete_cost_bytes(KeyRange::Span(b"key000", end));
    let check = |end| granted(node.store.delete_check(cost(end)));
    assert_eq!(check(b"key010"), Ok(()), "there is room for so few");
    let held = node.store.delete_check(cost(b"key010")).unwrap();
    assert_eq!(check(b"key010"), Err(Error::NoSpace), "but not for as many again while they are on their way");
    drop(held);
    assert_eq!(check(b"key010"), Ok(()));
    let mut free = 2 << 20;
    while !node.store.disk_is_low() {
        free -= 4 << 10;
        node.disk.set_capacity(Some(used + free));
        node.store.look_at_disk();
    }
    assert_eq!(check(b"key010"), Err(Error::NoSpace));
    assert_eq!(check(b"key0000100"), Ok(()), "there is a way to begin");
    let small: Vec<_> = (0..1000).map_while(|_| node.store.delete_check(cost(b"key0000100")).ok()).collect();
    assert!(small.len() < 100, "{} small ones reserved the same space", small.len());
    drop(small);
    assert_eq!(check(b"key0000100"), Ok(()));
    for left in [1 << 20, 0] {
        node.disk.set_capacity(Some(used + left));
        node.store.look_at_disk();
        assert_eq!(
            check(b"key0000100"),
            Err(Error::NoSpace),
            "the last of the disk is for the Raft log and for rewrites"
        );
    }
    assert_eq!(check(b"key000"), Ok(()), "what deletes nothing always passes");
    assert_eq!(node.store.delete_cost_bytes(KeyRange::Span(b"z", b"a")), 0);
    assert_eq!(node.store.delete_cost_bytes(KeyRange::One(b"none")), 0);
}

/// `--compaction-batch-limit`: one call drops no more than that, and in the end the same is left.
#[test]
fn a_batch_bounds_what_one_call_drops() {
    let mut nodes = [0, 10].map(|compaction_batch_versions| {
        let mut node = Node::with(Options { compaction_batch_versions, ..small_segments() });
        for at in 0..100 {
            node.apply(put(&format!("key{:02}", at % 30), &format!("{at}")).raft()).unwrap();
        }
        node.apply(compact(101)).unwrap();
        node
    });
    let [whole, batched] = &mut nodes;
    whole.settle();
    let mut calls = 0;
    while batched.store.compacted() < 101 {
        let before = batched.store.dropped_versions();
        batched.store.maintain(4 << 20).unwrap();
        assert!(batched.store.dropped_versions() - before <= 10);
        calls += 1;
    }
    // The hash, then a hundred versions by ten; a key that a batch ends in is looked at twice.
    assert!((10..=14).contains(&calls), "{calls} calls");
    assert_eq!(batched.store.dropped_versions(), 70);
    assert_eq!(batched.store.hash_kv(101).unwrap().hash, whole.store.hash_kv(101).unwrap().hash);
    assert_eq!(batched.store.usage().live_bytes, whole.store.usage().live_bytes);
}

/// A store whose history was compacted, and which has given back a part of what that freed.
fn half_given_back() -> Node {
    let mut node = overwritten(400);
    let revision = node.store.revision();
    node.apply(compact(revision)).unwrap();
    for _ in 0..3 {
        idle(&mut node);
        node.checkpoint();
    }
    assert!(node.store.segments().reaper().waiting().files > 1);
    node.store.segments().reaper().step(5000).unwrap();
    node
}

fn leftovers(node: &Node) -> Vec<String> {
    let names = node.disk.list(Path::new(DIR)).unwrap();
    names.into_iter().filter(|name| name.ends_with(".intake")).collect()
}

#[test]
fn half_of_a_file_that_was_given_back_is_no_data_after_a_start() {
    let mut node = half_given_back();
    let before = leftovers(&node);
    assert!(before.len() > 1);
    node.reopen();
    assert_eq!(node.range(&all()).unwrap().kvs.len(), 1);
    // They wait again, whoever put them there, and no number in their names is given again.
    assert!(node.store.segments().reaper().waiting().files >= before.len());
    for at in 0..200 {
        node.apply(put("b", &format!("{at:0300}")).raft()).unwrap();
        node.checkpoint();
        node.store.segments().reaper().step(2000).unwrap();
    }
    node.reap();
    assert_eq!(leftovers(&node), Vec::<String>::new());
    node.reopen();
    assert_eq!(node.range(&all()).unwrap().kvs.len(), 2);
}

#[test]
fn a_disk_that_gives_nothing_back_stops_nothing() {
    // EIO and EROFS.
    for code in [5, 30] {
        let mut node = half_given_back();
        node.disk.fail_shrinking(Some(code));
        let before = leftovers(&node).len();
        for at in 0..100 {
            node.apply(put("b", &format!("{at:0300}")).raft()).unwrap();
            node.store.maintain(64 << 10).unwrap();
            node.store.segments().reaper().retry();
            let error = node.store.segments().reaper().step(1000).unwrap_err();
            assert_eq!(error.source.raw_os_error(), Some(code));
            assert!(!error.path.to_string_lossy().ends_with(".seg"), "{error}");
        }
        assert!(leftovers(&node).len() >= before);
        node.disk.fail_shrinking(None);
        node.store.segments().reaper().retry();
        node.reap();
        assert_eq!(leftovers(&node), Vec::<String>::new());
        node.reopen();
        assert_eq!(node.range(&all()).unwrap().kvs.len(), 2);
    }
}
