//! The Raft log of a process: write, sync, and what may only happen then.

use super::{PowerCut, Process, disk_result, now};
use crate::env::Env;
use crate::mutation::Mutation;
use crate::schedule::Event;
use crate::trace::trace;
use replica::{LogBatch, Mistake};

use super::machine::Shell;

impl Process {
    /// Writes the replica's next batch to the log. No other batch may be under way. Returns true if the batch is
    /// already done because it needed no sync: then there may be another one.
    pub(super) fn write_log(&mut self, env: &mut Env) -> bool {
        let batch = self.replica.take_log_batch(now(&self.machine.clock, env));
        if batch.is_empty() {
            return false;
        }
        batch.append_to(&mut self.wal);
        if !batch.must_sync() {
            self.persisted(env, batch);
            return true;
        }
        self.in_log = Some(batch);
        let slow_us = if self.slow_disk.0 > env.now_us { self.slow_disk.1 } else { 0 };
        // The planted mistake needs time to have an effect, so syncs are slower then.
        let careless = env.options.mutation == Some(Mutation::Replica(Mistake::AcknowledgesBeforeSync));
        let sync_us = env.between(env.plan.sync_us) + slow_us + if careless { 2_000 } else { 0 };
        env.after(sync_us, Event::LogDone { host: self.machine.host, boot: self.boot });
        false
    }

    /// Completes the write and sync of the log.
    pub(crate) fn log_done(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        let Some(batch) = self.in_log.take() else { return Ok(()) };
        disk_result(&self.machine.disk, self.wal.commit(true))?;
        trace!(env, "{} synced its log up to {:?}", self.machine.host, batch.last_index());
        self.persisted(env, batch);
        self.release_log()?;
        self.drain(env)?;
        self.wake(env);
        Ok(())
    }

    fn persisted(&mut self, env: &mut Env, batch: LogBatch) {
        self.machine.check_durable(env, &batch);
        self.replica.persisted(&mut Shell { machine: &mut self.machine, env }, batch);
    }

    /// Frees the part of the log that a finished checkpoint covers, once no other write is under way.
    pub(super) fn release_log(&mut self) -> Result<(), PowerCut> {
        if self.in_log.is_none()
            && let Some((snapshot, older_index)) = self.machine.release.take()
        {
            self.wal.save_snapshot(&snapshot);
            // As on a disk that is low, now and then. Nothing is drawn for it.
            let released = match older_index % 5 {
                0 => self.wal.release_all(older_index),
                _ => self.wal.release(older_index),
            };
            disk_result(&self.machine.disk, released)?;
        }
        Ok(())
    }
}
