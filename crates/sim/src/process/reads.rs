//! Reads on their way: asked for, indexed, waiting for the store.

use super::Process;
use crate::env::Env;
use crate::mutation::Mutation;
use crate::operation::{Answer, Request};
use api::etcdserverpb::RangeRequest;
use replica::{Member, Role};
use std::collections::BTreeMap;

/// A read index that was not answered for so long is asked for anew.
const PATIENCE_US: u64 = 500_000;

/// Linearizable reads of one process.
#[derive(Default)]
pub(super) struct Reads {
    /// Without a read index.
    waiting: Vec<usize>,
    /// By the number of the read index they wait for, and since when.
    asked: BTreeMap<u64, (u64, Vec<usize>)>,
    /// By the entry that must be applied first.
    indexed: Vec<(u64, usize)>,
}

impl Reads {
    pub(super) fn ask(&mut self, operation: usize) {
        self.waiting.push(operation);
    }

    /// One read index for all that wait.
    pub(super) fn ask_index(&mut self, env: &mut Env, member: &mut Member) {
        if !self.waiting.is_empty()
            && let Some(number) = member.read_index()
        {
            self.asked.insert(number, (env.now_us, std::mem::take(&mut self.waiting)));
        }
    }

    /// Those that were not answered are asked for with the next.
    pub(super) fn ask_again(&mut self, now_us: u64, member: &mut Member) {
        if self.asked.values().any(|(since_us, _)| since_us + PATIENCE_US < now_us) {
            member.forget_reads();
            for (_, reads) in std::mem::take(&mut self.asked).into_values() {
                self.waiting.extend(reads);
            }
        }
    }

    /// Answers when it was asked for.
    pub(super) fn indexed(&mut self, number: u64, index: u64) -> Option<u64> {
        let (asked_us, reads) = self.asked.remove(&number)?;
        self.indexed.extend(reads.into_iter().map(|read| (index, read)));
        Some(asked_us)
    }

    fn due(&mut self, applied: u64) -> Vec<usize> {
        let (due, later) = std::mem::take(&mut self.indexed).into_iter().partition(|(index, _)| *index <= applied);
        self.indexed = later;
        let due: Vec<(u64, usize)> = due;
        due.into_iter().map(|(_, read)| read).collect()
    }

    pub(super) fn all(self) -> Vec<usize> {
        let asked = self.asked.into_values().flat_map(|(_, reads)| reads);
        self.waiting.into_iter().chain(asked).chain(self.indexed.into_iter().map(|(_, read)| read)).collect()
    }
}

impl Process {
    /// Answers the reads that the store has caught up with.
    pub(super) fn answer_reads(&mut self, env: &mut Env) {
        let careless = env.options.mutation == Some(Mutation::ReadsBeforeApplied);
        let applied = if careless { u64::MAX } else { self.applier.applied_index() };
        for operation in self.reads.due(applied) {
            self.answer_asked(env, operation);
        }
    }

    pub(super) fn answer_asked(&mut self, env: &mut Env, operation: usize) {
        match env.history.operations[operation].request.clone() {
            Request::Read { range, .. } => self.answer_read(env, operation, &range),
            Request::KeepAlive { lease } => self.keep_alive(env, operation, lease),
            _ => {}
        }
    }

    pub(super) fn answer_read(&mut self, env: &mut Env, operation: usize, range: &RangeRequest) {
        let answer = match self.store.range(range) {
            Ok(answer) => {
                Answer::Read { revision: answer.revision, count: answer.count, kvs: answer.kvs.to_messages() }
            }
            Err(error) => panic!("a read of {range:?} fails: {error:?}"),
        };
        env.answer(operation, answer);
    }

    /// Renews a lease without a read index of its own, if the last one is new enough.
    pub(super) fn renew_at_once(&mut self, env: &mut Env, operation: usize, lease: i64) -> bool {
        let now_ms = env.now_us / 1000;
        if !self.lessor.is_confirmed(now_ms) {
            return false;
        }
        let renewed = self.lessor.renew(lease, now_ms);
        if let Some(ttl_seconds) = renewed {
            env.answer(operation, Answer::Renewed { lease, ttl_seconds });
        }
        renewed.is_some()
    }

    fn keep_alive(&mut self, env: &mut Env, operation: usize, lease: i64) {
        let leads = self.member.status().role == Role::Leader;
        let answer = match self.lessor.renew(lease, env.now_us / 1000) {
            Some(ttl_seconds) if leads => Answer::Renewed { lease, ttl_seconds },
            _ => Answer::Refused,
        };
        env.answer(operation, answer);
    }
}
