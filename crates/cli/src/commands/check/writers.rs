//! Clients that each write one key after the other.

use super::report::Report;
use crate::commands::lock::Signals;
use api::etcdserverpb::PutRequest;
use bytes::Bytes;
use client::Client;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::{Mutex, mpsc};
use tokio::task::{JoinHandle, spawn_local};

/// Takes keys to be written.
pub(super) struct Writers {
    orders: mpsc::Sender<Bytes>,
    tasks: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Must be called in a `LocalSet`.
    pub(super) fn start(clients: &[Client], value_bytes: usize, report: &Rc<RefCell<Report>>) -> Writers {
        let (orders, work) = mpsc::channel::<Bytes>(clients.len());
        let work = Rc::new(Mutex::new(work));
        let begin = |client: &Client| {
            let (client, work, report) = (client.clone(), work.clone(), report.clone());
            spawn_local(async move {
                let value = Bytes::from(vec![0; value_bytes]);
                loop {
                    let next = work.lock().await.recv().await;
                    let Some(key) = next else { return };
                    let started = Instant::now();
                    let put = client.put(PutRequest { key, value: value.clone(), ..Default::default() }).await;
                    report.borrow_mut().add(put.map(|_| started.elapsed()).map_err(|error| error.to_string()));
                }
            })
        };
        Writers { orders, tasks: clients.iter().map(begin).collect() }
    }

    /// Writes a key as soon as a client is free.
    pub(super) async fn write(&self, key: Bytes) {
        // Writers run until this is dropped; one that panicked has reported it.
        let _ = self.orders.send(key).await;
    }

    /// Has `feed` say what is to be written until it has said all or somebody has enough of it, and waits for what is under way:
    /// it would stay behind if the keys were deleted before. False after Ctrl-C; a second one ends the waiting as well.
    pub(super) async fn work(self, feed: impl AsyncFnOnce(&Writers)) -> bool {
        // One for both waits: what comes between two of them would be lost.
        let mut signals = Signals::new();
        let is_whole = tokio::select! {
            () = feed(&self) => true,
            () = signals.next() => false,
        };
        tokio::select! {
            () = self.finish() => is_whole,
            () = signals.next() => false,
        }
    }

    async fn finish(self) {
        drop(self.orders);
        for task in self.tasks {
            // As above.
            let _ = task.await;
        }
    }
}
