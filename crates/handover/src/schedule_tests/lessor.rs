//! A leader keeps a lease alive without asking, while another one is elected and it does not know yet.
//!
//! Whatever the schedule, no leader ends the lease before the time that a keep-alive has promised: the old leader answers at once only as
//! long as an election since its last question has an extension that covers it.

use super::join;
use crate::SharedLessor;
use crate::mistake::Mistake;
use crate::sync::{Mutex, lock};
use replica::{Lessor, Takeover};
use schedules::sync::atomic::{AtomicU64, Ordering};
use schedules::{explore, finds, roll, thread};
use std::sync::Arc;
use store::Lease;

const LEASE: i64 = 7;
const TTL_SECONDS: i64 = 2;
const TAKEOVER: Takeover = Takeover { extension_ms: 1_000, per_second_max: 10, piece_max: 10 };
const STEPS: usize = 30;
/// Short steps keep this member confirmed, as long as it is answered; a long one ends that.
const STEP_MS: u64 = 400;
const LONG_STEP_MS: u64 = 1_500;
const KEEPERS: usize = 2;
const RENEWALS: usize = 12;

#[derive(Default)]
struct World {
    now_ms: AtomicU64,
    /// The member whose lessor is shared; its clients are the keepers.
    lessor: SharedLessor,
    lease: Mutex<Promise>,
    /// Whether that member leads, whatever it believes.
    leads: Mutex<bool>,
    /// When questions were asked that nobody has answered.
    questions: Mutex<Vec<u64>>,
}

#[derive(Default)]
struct Promise {
    until_ms: u64,
    ended_ms: Option<u64>,
}

impl World {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    /// A client was told that the lease lives until then.
    fn promise(&self, until_ms: u64) {
        let mut lease = lock(&self.lease);
        lease.until_ms = lease.until_ms.max(until_ms);
        lease.check();
    }

    /// A leader ends what has expired.
    fn expire(&self, lessor: &mut Lessor) {
        if !lessor.expired(self.now_ms(), 1, 1_000_000).is_empty() {
            lessor.revoke(LEASE);
            let mut lease = lock(&self.lease);
            lease.ended_ms = Some(self.now_ms());
            lease.check();
        }
    }

    /// The lease, until it has ended.
    fn granted(&self) -> Option<Lease> {
        let is_there = lock(&self.lease).ended_ms.is_none();
        is_there.then_some(Lease { id: LEASE, ttl: TTL_SECONDS, remaining_ttl: 0 })
    }

    fn take_over(&self, lessor: &mut Lessor) {
        lessor.take_over(|_, _| Vec::from_iter(self.granted()), self.now_ms());
    }
}

impl Promise {
    fn check(&self) {
        let Some(ended_ms) = self.ended_ms else { return };
        assert!(ended_ms >= self.until_ms, "ended at {ended_ms} ms, promised until {} ms", self.until_ms);
    }
}

/// Time passes, and leaders change: there is another member, and this one does not notice at once.
fn pass_time(world: &World) {
    let mut other = Lessor::default();
    for _ in 0..STEPS {
        let step_ms = if roll(10) == 0 { LONG_STEP_MS } else { STEP_MS };
        world.now_ms.fetch_add(roll(step_ms), Ordering::SeqCst);
        let mut leads = lock(&world.leads);
        if roll(6) == 0 {
            *leads = !*leads;
            if *leads {
                other.demote();
                world.lessor.with(|lessor| lessor.promote(TAKEOVER));
                // Clients renew leases, and time passes, before the leader has taken them over.
                world.now_ms.fetch_add(roll(step_ms), Ordering::SeqCst);
                world.lessor.with(|lessor| world.take_over(lessor));
            } else {
                other.promote(TAKEOVER);
                world.take_over(&mut other);
            }
        }
        match *leads {
            true => world.lessor.with(|lessor| world.expire(lessor)),
            false => {
                world.expire(&mut other);
                if roll(6) == 0 {
                    // It hears of the other one.
                    world.lessor.with(Lessor::demote);
                }
            }
        }
    }
}

fn keep_alive(world: &World) {
    for _ in 0..RENEWALS {
        let mut renewed_ms = 0;
        let now_ms = || {
            renewed_ms = world.now_ms();
            renewed_ms
        };
        match world.lessor.renew_at_once(LEASE, now_ms, || world.granted()) {
            Some(renewed) => {
                if let Some(ttl_seconds) = renewed.ttl_seconds {
                    world.promise(renewed_ms + ttl_seconds as u64 * 1_000);
                }
                if renewed.asks {
                    let now_ms = world.now_ms();
                    lock(&world.questions).push(now_ms);
                }
            }
            None => {
                let now_ms = world.now_ms();
                lock(&world.questions).push(now_ms);
            }
        }
    }
}

/// The others answer questions, and later this member takes their answers.
fn answer(world: &World) {
    for _ in 0..STEPS {
        let asked = lock(&world.questions).pop();
        let is_confirmed = *lock(&world.leads);
        if let Some(asked_ms) = asked.filter(|_| is_confirmed) {
            thread::yield_now();
            world.lessor.with(|lessor| lessor.confirm(asked_ms));
        }
    }
}

fn keepers_and_elections() {
    let world = Arc::new(World::default());
    *lock(&world.leads) = true;
    world.lessor.with(|lessor| {
        lessor.promote(TAKEOVER);
        world.take_over(lessor);
        lessor.confirm(0);
    });
    let mut threads = Vec::new();
    for _ in 0..KEEPERS {
        let world = world.clone();
        threads.push(thread::spawn(move || keep_alive(&world)));
    }
    let own = world.clone();
    threads.push(thread::spawn(move || answer(&own)));
    pass_time(&world);
    join(threads);
}

#[test]
fn a_promise_is_kept_whoever_leads() {
    explore(keepers_and_elections);
}

#[test]
fn planted_races_are_found() {
    finds(Mistake::ConfirmsWhenAsked as u8, keepers_and_elections);
}
