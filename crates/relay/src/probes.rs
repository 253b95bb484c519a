//! Asks members that are left out whether they answer again.

use std::io;
use std::sync::Arc;
use std::thread;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::dial::Dialer;

/// Starts the thread that asks them after each `--retry-delay`.
pub(crate) fn start(dialer: Arc<Dialer>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("probes".into()).spawn(move || runtime.block_on(ask(dialer))).map(drop)
}

/// Each by itself: one that takes its time must not keep the others out.
async fn ask(dialer: Arc<Dialer>) {
    let mut all = JoinSet::new();
    for place in 0..dialer.balancer.len() {
        let dialer = dialer.clone();
        all.spawn(async move {
            loop {
                tokio::time::sleep(dialer.retry_delay()).await;
                if dialer.balancer.is_left_out(place) {
                    dialer.probe(place).await;
                }
            }
        });
    }
    // They do not end.
    all.join_all().await;
}
