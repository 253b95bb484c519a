//! Calls that wait for a lock.

use super::{fill, occupy_slow_threads};
use crate::overload::Class;
use crate::test_support::{Pending, Rig};
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
