//! The hand-overs under many schedules.

mod apply;
mod consensus;
mod inbox;
mod lessor;

use schedules::thread::JoinHandle;

fn join(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
