//! What clients can make a member do and hold, call by call.

mod damage;
mod lock_queue;
mod logins;
mod memory;
mod observing;
mod roles;
mod rules;
mod sharing;
mod short_work;
mod snapshots;
mod space;
mod waiting;
mod watching;
mod weighing;

use crate::test_support::Rig;
use api::etcdserverpb::{PutRequest, RequestOp, TxnRequest, TxnResponse, request_op::Request};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

/// Puts `keys` keys under `large/`.
fn fill(rig: &Rig, keys: usize) {
    let keys: Vec<usize> = (0..keys).collect();
    for keys in keys.chunks(128) {
        let put = |key: &usize| PutRequest { key: format!("large/{key:09}").into(), ..Default::default() };
        let op = |key| RequestOp { request: Some(Request::RequestPut(put(key))) };
        let txn = TxnRequest { success: keys.iter().map(op).collect(), ..Default::default() };
        let _: TxnResponse = rig.call("/etcdserverpb.KV/Txn", None, &txn).expect("written");
    }
}

/// Keeps both slow threads busy until the returned sender is dropped.
fn occupy_slow_threads(rig: &Rig) -> Sender<()> {
    let (go_on, goes_on) = channel::<()>();
    let goes_on = Arc::new(Mutex::new(goes_on));
    let (begun, begins) = channel();
    for _ in 0..2 {
        let (goes_on, begun) = (goes_on.clone(), begun.clone());
        let wait = move || {
            begun.send(()).expect("the test runs");
            // Returns once the sender is dropped.
            let _ = contain::lock(&goes_on).recv();
        };
        assert!(rig.node().slow.try_run(None, wait));
    }
    (0..2).for_each(|_| begins.recv().expect("a thread"));
    go_on
}
