//! Calls that wait for a lock.

use crate::overload::Class;
use crate::rig::{Pending, Rig};
use api::etcdserverpb::{PutRequest, RequestOp, TxnRequest, TxnResponse, request_op::Request};
use api::limits::INLINE_SORT_KEYS_MAX;
use api::v3electionpb::LeaderRequest;
use api::v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

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
    // What was refused has left no key behind.
    let _: UnlockResponse = rig.call(UNLOCK, None, &UnlockRequest { key: second.key }).expect("unlocked");
    let _: LockResponse = lock(&rig, "name").take().expect("the lock");
}

/// Keys under a name, before whoever wants its lock.
fn fill(rig: &Rig, keys: usize) {
    let keys: Vec<usize> = (0..keys).collect();
    for keys in keys.chunks(128) {
        let put = |key: &usize| PutRequest { key: format!("large/{key:09}").into(), ..Default::default() };
        let op = |key| RequestOp { request: Some(Request::RequestPut(put(key))) };
        let txn = TxnRequest { success: keys.iter().map(op).collect(), ..Default::default() };
        let _: TxnResponse = rig.call("/etcdserverpb.KV/Txn", None, &txn).expect("written");
    }
}

#[test]
fn a_lock_of_many_holds_up_no_other() {
    let rig = Rig::start(&[]);
    fill(&rig, INLINE_SORT_KEYS_MAX + 1);
    // The slow threads are busy until the test goes on.
    let (go_on, goes_on) = channel::<()>();
    let goes_on = Arc::new(Mutex::new(goes_on));
    let (begun, begins) = channel();
    for _ in 0..2 {
        let (goes_on, begun) = (goes_on.clone(), begun.clone());
        let wait = move || {
            begun.send(()).expect("the test runs");
            // Ends once the other side is dropped.
            let _ = contain::lock(&goes_on).recv();
        };
        assert!(rig.node().slow.try_run(wait));
    }
    (0..2).for_each(|_| begins.recv().expect("a thread"));
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
