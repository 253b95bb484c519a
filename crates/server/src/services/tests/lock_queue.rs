//! Calls that wait for a lock.

use super::{fill, occupy_slow_threads};
use crate::overload::Class;
use crate::test_support::{Pending, Rig};
use api::Error;
use api::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest, LeaseGrantResponse, PutRequest, PutResponse,
};
use api::limits::INLINE_SORT_KEYS_MAX;
use api::v3electionpb::LeaderRequest;
use api::v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};

const LOCK: &str = "/v3lockpb.Lock/Lock";
const UNLOCK: &str = "/v3lockpb.Lock/Unlock";

fn lock(rig: &Rig, name: &'static str) -> Pending {
    rig.begin(LOCK, None, &LockRequest { name: name.into(), lease: 0 })
}

#[test]
fn who_waits_or_observes_has_watches() {
    let rig = Rig::start(&["--max-watches=2"]);
    let watches = |count| rig.wait_for("watches", || rig.node().watches.taken() == count);
    let first: LockResponse = lock(&rig, "name").take().expect("the lock");
    let second = lock(&rig, "name");
    watches(1);
    let observer = rig.stream("/v3electionpb.Election/Observe", None, &LeaderRequest { name: "e".into() });
    watches(2);
    let refused = lock(&rig, "name").take::<LockResponse>().expect_err("a watch too many");
    assert!(refused.message.contains("--max-watches"), "{refused:?}");
    drop(observer);
    watches(1);
    let _: UnlockResponse = rig.call(UNLOCK, None, &UnlockRequest { key: first.key }).expect("unlocked");
    let second: LockResponse = second.take().expect("its turn");
    watches(0);
    // The refused call has left no key behind.
    let _: UnlockResponse = rig.call(UNLOCK, None, &UnlockRequest { key: second.key }).expect("unlocked");
    let _: LockResponse = lock(&rig, "name").take().expect("the lock");
}

#[test]
fn a_lock_of_many_holds_up_no_other() {
    let rig = Rig::start(&[]);
    fill(&rig, INLINE_SORT_KEYS_MAX + 1);
    let go_on = occupy_slow_threads(&rig);
    let _many = lock(&rig, "large");
    rig.wait_for("a look at all keys", || rig.node().depth(Class::Slow) == 1);
    let first: LockResponse = lock(&rig, "small").take().expect("the lock");
    let second = lock(&rig, "small");
    rig.wait_for("a watch", || rig.node().watches.taken() == 1);
    let _: UnlockResponse = rig.call(UNLOCK, None, &UnlockRequest { key: first.key }).expect("unlocked");
    let _: LockResponse = second.take().expect("its turn");
    drop(go_on);
    rig.wait_for("a watch", || rig.node().watches.taken() == 1);
}

#[test]
fn one_address_leaves_places_to_others() {
    let rig = Rig::start(&[]);
    let lock = |host, name: &'static str| rig.begin_from(host, LOCK, &LockRequest { name: name.into(), lease: 0 });
    let watches = |count| rig.wait_for("watches", || rig.node().watches.taken() == count);
    let _owner: LockResponse = lock(1, "greedy").take_in_time(&rig).expect("the lock");
    // In tests there are 16 places.
    let _waiting: Vec<_> = (1..=8)
        .map(|count| {
            let waits = lock(1, "greedy");
            watches(count);
            waits
        })
        .collect();
    let refused = lock(1, "greedy").take_in_time::<LockResponse>(&rig).expect_err("half of the places are taken");
    assert_eq!(refused.message, Error::TooManyRequests.message());
    let first: LockResponse = lock(2, "other").take_in_time(&rig).expect("the lock");
    let second = lock(2, "other");
    watches(9);
    let _: UnlockResponse = rig.call(UNLOCK, None, &UnlockRequest { key: first.key }).expect("unlocked");
    let _: LockResponse = second.take_in_time(&rig).expect("its turn");
}

#[test]
fn calls_of_one_session_share_a_search() {
    let rig = Rig::start(&[]);
    fill(&rig, INLINE_SORT_KEYS_MAX + 1);
    let put = PutRequest { key: "large/last".into(), ..Default::default() };
    let _: PutResponse = rig.call("/etcdserverpb.KV/Put", None, &put).expect("written");
    let grant = LeaseGrantRequest { id: 7, ttl: 1_000 };
    let _: LeaseGrantResponse = rig.call("/etcdserverpb.Lease/LeaseGrant", None, &grant).expect("a lease");
    // All wait for the same key, which is the youngest before theirs.
    let _waiting: Vec<_> =
        (0..8).map(|_| rig.begin(LOCK, None, &LockRequest { name: "large".into(), lease: 7 })).collect();
    let watches = |count| rig.wait_for("watches", || rig.node().watches.taken() == count);
    watches(8);
    let go_on = occupy_slow_threads(&rig);
    let delete = DeleteRangeRequest { key: put.key, ..Default::default() };
    let _: DeleteRangeResponse = rig.call("/etcdserverpb.KV/DeleteRange", None, &delete).expect("deleted");
    watches(0);
    rig.wait_for("a search", || rig.node().depth(Class::Slow) > 0);
    // What another client waits for comes behind the reads that were woken.
    let first: LockResponse = rig.begin_from(2, LOCK, &LockRequest { name: "b".into(), lease: 0 }).take().expect("b");
    let _second = rig.begin_from(2, LOCK, &LockRequest { name: "b".into(), lease: 0 });
    watches(1);
    assert_eq!(rig.node().depth(Class::Slow), 1, "one search for all");
    drop((go_on, first));
    watches(9);
}

#[test]
fn a_lock_that_looks_at_too_many_keys_is_not_proposed() {
    let rig = Rig::start(&[]);
    // In tests so many are too many.
    fill(&rig, 20_000);
    let before = rig.node().store.revision();
    let refused = lock(&rig, "large").take_in_time::<LockResponse>(&rig).expect_err("it looks at all of them");
    assert_eq!(refused.message, Error::TxnTooManyKeys.message());
    assert_eq!(rig.node().store.revision(), before, "it was applied");
    let _: LockResponse = lock(&rig, "small").take_in_time(&rig).expect("the lock");
}
