//! The power goes at every operation of random histories; what was committed must be there, and nothing else.

#![allow(clippy::unwrap_used)]

mod common;
mod wanted;

use common::{Model, Op};
use disk::sim::{Random, SimDisk};
use std::path::Path;
use std::sync::Arc;
use wal::{Error, Options, Wal};
use wanted::wanted;

const DIR: &str = "/wal";
/// Sizes of segments, one after the other at each start: what is free on a small disk decides.
const SEGMENT_BYTES: [u64; 6] = [8192, 8192 + 256, 8192, 8195, 12_288, 4609];
const STEPS: u64 = 60;
/// Cuts, unless the environment asks for others.
const CUTS: u64 = 5000;

fn history(random: &mut Random) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..STEPS {
        ops.push(match random.below(20) {
            0 => Op::Checkpoint,
            1 | 2 => Op::Prepare,
            3 => Op::Reopen,
            4 => Op::Advance,
            5 | 6 => Op::Reap,
            _ => {
                let sizes = (0..1 + random.below(5)).map(|_| {
                    let size_max = if random.chance(10) { 4000 } else { 500 };
                    random.below(size_max) as usize
                });
                Op::Append { sizes: sizes.collect(), back: random.below(4), state: random.chance(50) }
            }
        });
    }
    ops
}

/// What a life of the process leaves behind: what must be there, and what may be instead.
struct Outcome {
    committed: Model,
    attempted: Model,
    created: bool,
}

/// Runs the history until it ends or the power goes.
fn live(disk: &SimDisk, ops: &[Op], before: Outcome, cuts: &mut Cuts) -> Outcome {
    let mut outcome = before;
    let opened = open_or_create(disk, &mut outcome, cuts);
    let Some(mut wal) = opened else { return outcome };
    for op in ops {
        if *op == Op::Reopen {
            drop(wal);
            let Some(reopened) = open_or_create(disk, &mut outcome, cuts) else { return outcome };
            wal = reopened;
            continue;
        }
        let result = outcome.attempted.run(op, &mut wal);
        if result.is_err() {
            assert!(disk.is_cut(), "{result:?}");
            return outcome;
        }
        outcome.committed = outcome.attempted.clone();
    }
    outcome
}

#[derive(Default)]
struct Cuts {
    power: u64,
    reported: u64,
    starts: usize,
}

/// Opens the log and checks it; afterwards what was found is what must be there.
fn open_or_create(disk: &SimDisk, outcome: &mut Outcome, cuts: &mut Cuts) -> Option<Wal> {
    let shared = Arc::new(disk.clone());
    let segment_bytes = SEGMENT_BYTES[cuts.starts % SEGMENT_BYTES.len()];
    let options = Options { segment_bytes, segments_min: 2, rest: || {} };
    cuts.starts += 1;
    // The state that the checkpoint stands for was durable before the log heard of it.
    outcome.committed.applied = outcome.attempted.applied;
    // It was made from this log, so no cut leaves a log that ends before it or has another entry there: as members do, it is opened
    // in the way that would be refused.
    match Wal::open(shared.clone(), Path::new(DIR), &outcome.attempted.state(), options) {
        Ok((wal, recovered)) => {
            let found =
                [&outcome.attempted, &outcome.committed].into_iter().find(|model| model.check(&recovered).is_ok());
            let Some(found) = found.cloned() else {
                let (committed, attempted) = (&outcome.committed, &outcome.attempted);
                panic!("neither {:?} nor {:?}", committed.check(&recovered), attempted.check(&recovered));
            };
            assert!(!recovered.restarted);
            cuts.reported += u64::from(recovered.cut.is_some());
            *outcome = Outcome { committed: found.clone(), attempted: found, created: true };
            Some(wal)
        }
        Err(_) if disk.is_cut() => None,
        Err(Error::Missing(_)) if !outcome.created => {
            let wal = Wal::create(shared, Path::new(DIR), b"metadata", options);
            assert!(wal.is_ok() || disk.is_cut());
            outcome.created = wal.is_ok();
            wal.ok()
        }
        Err(error) => panic!("{error}"),
    }
}

fn start() -> Outcome {
    Outcome { committed: Model::default(), attempted: Model::default(), created: false }
}

#[test]
fn what_was_committed_survives_every_power_cut() {
    let mut cuts = Cuts::default();
    let (wanted, mut seed) = (wanted("CUTS", CUTS), 0);
    while cuts.power < wanted {
        seed += 1;
        assert!(seed < 100 + wanted, "{} cuts in {seed} histories", cuts.power);
        let mut random = Random::new(seed);
        let ops = history(&mut random);
        let disk = SimDisk::new();
        live(&disk, &ops, start(), &mut cuts);
        for cut in 0..disk.operations() {
            let mut disk = SimDisk::new();
            disk.cut_at(cut);
            let mut outcome = live(&disk, &ops, start(), &mut cuts);
            // A few more lives, each on what the one before left, most of them short: recovery is cut as well.
            while disk.is_cut() {
                cuts.power += 1;
                disk = disk.after_cut(random.next_u64());
                if random.chance(50) {
                    disk.cut_at(random.below(12));
                }
                let rest = random.below(STEPS) as usize;
                outcome = live(&disk, &ops[rest..(rest + 8).min(ops.len())], outcome, &mut cuts);
            }
            drop(open_or_create(&disk, &mut outcome, &mut cuts));
        }
    }
    println!("{} power cuts of the log, after which {} torn batches were found", cuts.power, cuts.reported);
    assert!(cuts.reported > 100, "only {} torn batches", cuts.reported);
}
