//! The contract of a budget.

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used, reason = "tests")]

use crate::{Budget, Claim, Pool};
use api::{Error, limits};
use bytes::Bytes;
use contain::lock;
use rpc::Address;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn client(host: u8, port: u16) -> Option<Address> {
    Some(Address::Tcp(SocketAddr::from(([127, 0, 0, host], port))))
}

const HOST: Address = Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1));

fn running(patience: Duration) -> Arc<Budget> {
    let budget = Budget::new(64 * MIB, patience);
    let own = budget.clone();
    std::thread::spawn(move || own.run());
    budget
}

fn waiting(budget: &Arc<Budget>, pool: Pool, bytes: u64, client: Option<Address>) -> Receiver<Result<Claim, Error>> {
    let (tell, told) = channel();
    // The test may be over.
    budget.wait(pool, bytes, client, move |claim| drop(tell.send(claim)));
    told
}

fn is_waited_for(budget: &Budget, host: u8) -> bool {
    budget.is_waited_for(client(host, 9_999).expect("an address"))
}

const FOREVER: Duration = Duration::from_secs(3_600);

#[test]
fn bytes_hold_their_claim_until_the_last_of_them_is_gone() {
    let budget = Budget::new(64 * MIB, FOREVER);
    let claim = budget.try_claim(Pool::Short, 1_000, None).expect("room");
    let mut bytes = claim.hold(Bytes::from(vec![7; 1_000]));
    let front = bytes.split_to(10);
    drop(bytes);
    assert_eq!((budget.held(Pool::Short), front.len()), (1_000, 10));
    drop(front);
    assert_eq!(budget.held(Pool::Short), 0);
}

#[test]
fn parts_of_a_claim_are_released_one_by_one() {
    let budget = Budget::new(64 * MIB, FOREVER);
    let client = client(1, 1).expect("an address");
    let mut claim = budget.long_answer(client);
    // Long answers have half of the budget, and a connection that has more than one claim a quarter of that.
    let share = 8 * MIB;
    assert!(claim.resize(share));
    let part = claim.split(share / 2);
    assert_eq!((claim.bytes(), part.bytes(), budget.held(Pool::Long)), (share / 2, share / 2, share));
    let mut other = budget.long_answer(client);
    assert!(!other.resize(1), "both parts are on its account");
    let held = part.hold(vec![7; 10].into());
    drop(claim);
    assert!(budget.held(Pool::Long) == share / 2 && !other.resize(share) && other.resize(share / 2));
    drop(held);
    assert!(budget.held(Pool::Long) == share / 2 && other.resize(share));
    let all = other.split(u64::MAX);
    assert_eq!((other.bytes(), all.bytes()), (0, share));
}

#[test]
fn pools_are_bounds_and_do_not_take_from_each_other() {
    let budget = Budget::new(64 * MIB, FOREVER);
    for (pool, part) in [(Pool::Short, 16), (Pool::Requests, 16), (Pool::Long, 32)] {
        let all = budget.try_claim(pool, part * MIB, None).expect("room");
        assert!(budget.try_claim(pool, 1, None).is_none(), "{pool:?}");
        drop(all);
        // The others do not notice that it is kept.
        std::mem::forget(budget.try_claim(pool, part * MIB, None).expect("room again"));
    }
    let mut request = budget.request(HOST);
    assert!(!request.resize(1) && request.bytes() == 0);
}

#[test]
fn who_waits_gets_what_is_released_in_order() {
    let budget = running(FOREVER);
    let held = budget.try_claim(Pool::Short, 16 * MIB, None).expect("room");
    let (first, second) = (waiting(&budget, Pool::Short, MIB, None), waiting(&budget, Pool::Short, 2 * MIB, None));
    // A claim on a pool that others wait for is not granted, even if it is smaller.
    assert!(budget.try_claim(Pool::Short, 1, None).is_none());
    drop(held);
    let claims = [first, second].map(|told| told.recv().expect("an answer").expect("a claim").bytes());
    assert_eq!(claims, [MIB, 2 * MIB]);
    budget.stop();
}

#[test]
fn one_client_keeps_no_other_waiting() {
    let budget = running(FOREVER);
    // A quarter of 32 MiB for each connection, half for its host; then the next one of the host waits, and nobody else.
    let held = [0, 1].map(|port| budget.try_claim(Pool::Long, 8 * MIB, client(1, port)).expect("room"));
    let more = waiting(&budget, Pool::Long, MIB, client(1, 0));
    let other = waiting(&budget, Pool::Long, 8 * MIB, client(2, 0)).recv().expect("an answer").expect("a claim");
    assert!(more.try_recv().is_err());
    // A whole pool's answer gets it when it is free.
    let huge = waiting(&budget, Pool::Long, 1_000 * MIB, client(3, 0));
    drop(held);
    // Its own was released, and for a whole pool there is no room yet.
    drop((more.recv().expect("an answer").expect("a claim"), other));
    assert_eq!(huge.recv().expect("an answer").expect("a claim").bytes(), 32 * MIB);
    budget.stop();
}

#[test]
fn a_client_that_waits_for_itself_is_no_shortage() {
    let budget = running(FOREVER);
    let take = |host, port| budget.try_claim(Pool::Long, 8 * MIB, client(host, port)).expect("room");
    let one = take(1, 0);
    let own = waiting(&budget, Pool::Long, MIB, client(1, 0));
    assert!(!is_waited_for(&budget, 1), "its connection has its share");
    let two = take(1, 1);
    let large = waiting(&budget, Pool::Long, 20 * MIB, client(2, 0));
    while !is_waited_for(&budget, 3) {
        std::thread::yield_now();
    }
    drop((one, two));
    let both = [own, large].map(|told| told.recv().expect("an answer").expect("a claim"));
    drop(both);
    let full = [(1, 0), (1, 1), (2, 0), (2, 1)].map(|(host, port)| take(host, port));
    let small = waiting(&budget, Pool::Long, MIB, client(3, 0));
    assert!(is_waited_for(&budget, 1) && is_waited_for(&budget, 4), "others have all");
    drop(full);
    small.recv().expect("an answer").expect("a claim");
    budget.stop();
}

/// A host may be many clients, behind one address: what two of them hoard keeps the others of it waiting, and nobody else.
#[test]
fn clients_of_one_host_wait_for_those_of_it_that_hold_its_share() {
    let budget = running(FOREVER);
    let hoards = [0, 1].map(|port| budget.try_claim(Pool::Long, 8 * MIB, client(1, port)).expect("room"));
    let own = waiting(&budget, Pool::Long, MIB, client(1, 0));
    // Granted to another host, so the one before it was looked at.
    drop(waiting(&budget, Pool::Long, 8 * MIB, client(2, 0)).recv().expect("an answer").expect("a claim"));
    assert!(!is_waited_for(&budget, 1), "it waits for its own connection");
    let neighbour = waiting(&budget, Pool::Long, MIB, client(1, 2));
    assert!(is_waited_for(&budget, 1), "its own connection holds nothing");
    assert!(!is_waited_for(&budget, 2), "those of another host hold nothing that it could be given");
    // The service closes one of the two.
    let [first, second] = hoards;
    drop(second);
    neighbour.recv().expect("an answer").expect("a claim");
    drop(first);
    own.recv().expect("an answer").expect("a claim");
    assert!(!is_waited_for(&budget, 1), "nobody waits");
    budget.stop();
}

#[test]
fn nobody_waits_behind_one_that_asks_for_a_whole_pool() {
    let budget = running(FOREVER);
    let full: Vec<Claim> = [(1, 0), (1, 1), (2, 0), (2, 1)]
        .map(|(host, port)| budget.try_claim(Pool::Long, 8 * MIB, client(host, port)).expect("room"))
        .into();
    let huge = waiting(&budget, Pool::Long, 1_000 * MIB, client(3, 0));
    let small = waiting(&budget, Pool::Long, MIB, client(4, 0));
    let mut full = full.into_iter();
    drop(full.next());
    // There is room for it, and the one before it needs more than that.
    let small = small.recv().expect("an answer").expect("a claim");
    // Nor is the pool closed to those who come now, whether it was looked at the huge one or not.
    for _ in 0..2 {
        drop(budget.try_claim(Pool::Long, MIB, client(5, 0)).expect("room"));
        drop(waiting(&budget, Pool::Long, MIB, client(6, 0)).recv().expect("an answer").expect("a claim"));
    }
    assert!(huge.try_recv().is_err());
    drop((full, small));
    assert_eq!(huge.recv().expect("an answer").expect("a claim").bytes(), 32 * MIB);
    budget.stop();
}

#[test]
fn short_answers_of_one_host_leave_room_for_others() {
    let budget = Budget::new(64 * MIB, FOREVER);
    let mut held = Vec::new();
    for port in 0..100 {
        while let Some(claim) = budget.try_claim(Pool::Short, 64 << 10, client(1, port)) {
            held.push(claim);
        }
    }
    // The half that nobody shares, and half of the other one.
    assert_eq!(budget.held(Pool::Short), 12 * MIB);
    assert!(budget.try_claim(Pool::Short, MIB, client(2, 0)).is_some());
    drop(held);
    assert_eq!(budget.held(Pool::Short), 0);
    assert!(lock(&budget.state).shares.is_empty());
}

#[test]
fn waiting_has_an_end() {
    let budget = running(Duration::from_millis(1));
    let _held = budget.try_claim(Pool::Short, 16 * MIB, None).expect("room");
    let late = waiting(&budget, Pool::Short, 1, None);
    assert_eq!(late.recv().expect("an answer").err(), Some(Error::TooManyRequests));
}

#[test]
fn no_host_takes_the_places_of_others() {
    const PLACES: usize = limits::BUDGET_QUEUE_MAX / 4;
    let budget = Budget::new(64 * MIB, FOREVER);
    let _held = budget.try_claim(Pool::Short, 16 * MIB, None).expect("room");
    let refusal = |told: &Receiver<_>| matches!(told.try_recv(), Ok(Err(Error::TooManyRequests)));
    let mut queued = Vec::new();
    for host in 1..=4 {
        // As many connections as it likes.
        let of_host = (0..PLACES).map(|index| waiting(&budget, Pool::Short, 1, client(host, (index / 10) as u16)));
        queued.extend(of_host);
        assert!(refusal(&waiting(&budget, Pool::Short, 1, client(host, 9_999))), "{host}");
    }
    assert!(!queued.iter().any(refusal));
    // All places are taken, and each newcomer has one of those that the others have many of.
    let new: Vec<_> = (5..=8).map(|host| waiting(&budget, Pool::Short, 1, client(host, 0))).collect();
    assert!(!new.iter().any(refusal));
    assert_eq!(queued.iter().filter(|told| refusal(told)).count(), new.len());
    // The places of another pool are others.
    let _held = budget.try_claim(Pool::Long, 32 * MIB, None).expect("room");
    assert!(!refusal(&waiting(&budget, Pool::Long, 1, client(1, 0))));
    budget.stop();
    budget.run();
    assert!(new.iter().all(|told| matches!(told.try_recv(), Ok(Err(Error::Stopped)))));
    assert_eq!(budget.held(Pool::Short), 16 * MIB);
}

#[test]
fn who_waits_for_itself_keeps_nobody_waiting() {
    let budget = running(FOREVER);
    let held = [0, 1].map(|port| budget.try_claim(Pool::Long, 8 * MIB, client(1, port)).expect("room"));
    let queued: Vec<_> = (0..1_000).map(|_| waiting(&budget, Pool::Long, 100, client(1, 2))).collect();
    // A claim of somebody else has shown that it was looked at them.
    drop(waiting(&budget, Pool::Long, 1, client(3, 0)).recv());
    let other = budget.try_claim(Pool::Long, MIB, client(2, 0));
    assert!(other.is_some(), "there is room, and all who wait have their share");
    assert!(queued.iter().all(|told| told.try_recv().is_err()));
    drop(held);
    for told in queued {
        drop(told.recv().expect("an answer").expect("a claim"));
    }
    drop(other);
    assert_eq!(budget.held(Pool::Long), 0);
    budget.stop();
}

#[test]
fn hosts_have_their_turns() {
    let budget = Budget::new(64 * MIB, FOREVER);
    let held = budget.try_claim(Pool::Short, 16 * MIB, None).expect("room");
    let greedy: Vec<_> = (0..100).map(|port| waiting(&budget, Pool::Short, MIB, client(1, port))).collect();
    let other = waiting(&budget, Pool::Short, MIB, client(2, 0));
    drop(held);
    let claims = budget.due(&mut lock(&budget.state));
    // Half of what is shared for the one host, and the other comes second, not after a hundred.
    assert_eq!(claims.len(), 5);
    for (waiter, claim) in claims.into_iter().take(2) {
        (waiter.then)(claim);
    }
    assert!(greedy.iter().filter(|told| told.try_recv().is_ok()).count() == 1 && other.try_recv().is_ok());
}

#[test]
fn requests_that_wait_are_shared_out() {
    let budget = Budget::new(64 * MIB, FOREVER);
    let mut greedy: Vec<_> = (0..32).map(|port| budget.request(client(1, port).expect("an address"))).collect();
    while greedy.iter_mut().any(|claim| claim.bytes() < 4 * MIB && claim.resize(claim.bytes() + (64 << 10))) {}
    // The half that nobody shares, and half of the other one.
    assert_eq!(budget.held(Pool::Requests), 12 * MIB);
    let other = client(2, 0).expect("an address");
    assert!(budget.claim_request(2 * MIB as usize, other).is_ok_and(|claim| claim.is_some()));
    assert!(budget.claim_request(limits::BUDGET_FREE_BYTES, HOST).is_ok_and(|claim| claim.is_none()));
    drop(greedy);
    assert_eq!(budget.held(Pool::Requests), 0);
    assert!(lock(&budget.state).shares.is_empty());
}

#[test]
fn what_grows_stays_within_its_share() {
    let budget = Budget::new(64 * MIB, FOREVER);
    let mut claims = [0, 1].map(|port| budget.long_answer(client(1, port).expect("an address")));
    // One answer may take it all, a second one of the host then waits for that.
    assert!(claims[0].resize(20 * MIB) && !claims[1].resize(MIB));
    assert!(claims[0].resize(4 * MIB) && claims[1].resize(4 * MIB));
    assert!(!claims[1].resize(20 * MIB) && claims[1].bytes() == 4 * MIB);
    let mut short = budget.try_claim(Pool::Short, 60 << 10, client(1, 0)).expect("room");
    let _more = budget.try_claim(Pool::Short, 10 * MIB, client(1, 0)).expect("room");
    assert!(!short.resize(4 * MIB), "a quarter of the half that is shared is less");
}

#[test]
fn a_claim_that_is_not_needed_leaves_the_line() {
    let budget = running(FOREVER);
    let held = budget.try_claim(Pool::Long, 20 * MIB, None).expect("room");
    // One more than there is room for, and one that is more than a share.
    for bytes in [13 * MIB, 1_000 * MIB] {
        let needed = Arc::new(());
        let kept = Arc::downgrade(&needed);
        let (tell, told) = channel();
        let is_needed = move || kept.strong_count() > 0;
        // The test may be over.
        budget.wait_while(Pool::Long, bytes, client(1, 0), is_needed, move |claim| drop(tell.send(claim)));
        let behind = waiting(&budget, Pool::Long, MIB, client(1, 0));
        let beside = waiting(&budget, Pool::Long, MIB, client(1, 1));
        budget.leave(Pool::Long, client(1, 0));
        assert!(told.try_recv().is_err_and(|error| error == TryRecvError::Empty), "it is needed");
        drop(needed);
        budget.leave(Pool::Long, client(1, 0));
        assert!(told.recv().is_err(), "it is neither granted nor refused");
        let two = [behind, beside].map(|told| told.recv().expect("an answer").expect("a claim"));
        drop(two);
        drop(budget.try_claim(Pool::Long, MIB, client(1, 0)).expect("room"));
    }
    drop(held);
    assert!(!is_waited_for(&budget, 1) && lock(&budget.state).shares.is_empty());
    budget.stop();
}

#[test]
fn a_claim_that_is_given_up_before_it_waits_takes_no_place() {
    let budget = running(FOREVER);
    let held = budget.try_claim(Pool::Long, 32 * MIB, None).expect("room");
    let (tell, told) = channel();
    budget.leave(Pool::Long, client(1, 0));
    // The test may be over.
    budget.wait_while(Pool::Long, MIB, client(1, 0), || false, move |claim| drop(tell.send(claim)));
    assert!(budget.usage().iter().all(|pool| pool.waits == 0), "nobody has waited");
    assert!(told.recv().is_err(), "it is neither granted nor refused");
    drop(held);
    budget.stop();
}
