//! The book by itself, on a clock of the tests.

use super::book::{Book, Client, Entry, Turn};

/// A tenth of one thread.
const RATE_US: u64 = 100_000;
const SECOND_US: u64 = 1_000_000;

fn host(number: u8) -> Client {
    Client::Host(Some([127, 0, 0, number].into()))
}

fn book() -> Book<u32> {
    Book::new(RATE_US, 10)
}

fn now(book: &mut Book<u32>, client: u8, now_us: u64) -> Option<Turn> {
    match book.enter(host(client), now_us) {
        Entry::Now(turn) => Some(turn),
        Entry::Later(_) => None,
    }
}

/// The calls that go on at a time.
fn due(book: &mut Book<u32>, now_us: u64) -> Vec<u32> {
    let (ready, _) = book.due(now_us, |_| false);
    ready.into_iter().map(|(call, _)| call).collect()
}

#[test]
fn who_is_alone_never_waits() {
    let mut book = book();
    for at_us in (0..SECOND_US).step_by(1_000) {
        let turn = now(&mut book, 1, at_us).expect("nobody else is there");
        book.settle(turn, 1_000, at_us + 1_000);
    }
    // Nor does what it took then count once another one comes.
    assert!(now(&mut book, 2, SECOND_US).is_some() && now(&mut book, 1, SECOND_US).is_some());
}

#[test]
fn who_takes_more_than_its_share_waits_until_it_is_even() {
    let mut book = book();
    assert!(now(&mut book, 2, 0).is_some());
    let turn = now(&mut book, 1, 0).expect("a fresh client");
    book.settle(turn, 105_000, 0);
    // It could take 5 ms at once, and owes the rest: at a tenth of a thread that is a second.
    assert!(now(&mut book, 1, 1_000).is_none());
    for call in 0..3 {
        book.wait(&host(1), call, 1_000).expect("room");
    }
    // The other one does not notice.
    assert!(now(&mut book, 2, 500_000).is_some());
    let (ready, next_us) = book.due(500_000, |_| false);
    assert!(ready.is_empty());
    let next_us = next_us.expect("somebody waits");
    assert!((995_000..1_005_000).contains(&next_us), "{next_us}");
    // Each pays what calls of this client cost of late, so the first one is let on alone.
    assert_eq!(due(&mut book, next_us), [0]);
    // A call that comes now goes behind those that wait.
    assert!(now(&mut book, 1, next_us + 1).is_none());
    assert_eq!(book.waiting(), 2);
    // Once the other one has been quiet for a second, nobody waits.
    assert_eq!(due(&mut book, next_us + 2 * SECOND_US), [1, 2]);
    assert_eq!(book.due(next_us + 2 * SECOND_US, |_| false).1, None);
}

#[test]
fn who_waits_is_somebody_to_share_with() {
    let mut book = book();
    for client in [1, 2] {
        assert!(now(&mut book, client, 0).is_some());
    }
    for client in [1, 2] {
        let turn = now(&mut book, client, 0).expect("a burst is left");
        book.settle(turn, 155_000, 0);
        book.wait(&host(client), u32::from(client), 0).expect("room");
    }
    // Neither has called for more than a second, and both wait: neither is alone.
    assert_eq!(due(&mut book, 1_400_000), [0; 0]);
    let mut went = due(&mut book, 1_600_000);
    went.sort_unstable();
    assert_eq!(went, [1, 2]);
}

#[test]
fn looks_lose_nothing() {
    let mut book: Book<u32> = Book::new(10_000, 10);
    assert!(now(&mut book, 2, 0).is_some());
    let turn = now(&mut book, 1, 0).expect("a fresh client");
    book.settle(turn, 5_500, 0);
    book.wait(&host(1), 7, 0).expect("room");
    // It owes 5 ms, which takes half a second, however often somebody looks.
    for at_us in (0..499_000).step_by(150) {
        assert_eq!(due(&mut book, at_us), [0; 0], "{at_us}");
    }
    assert_eq!(due(&mut book, 500_200), [7]);
}

#[test]
fn what_was_paid_ahead_comes_back() {
    let mut book = book();
    assert!(now(&mut book, 2, 0).is_some());
    let turn = now(&mut book, 1, 0).expect("a fresh client");
    book.settle(turn, 24_000, 0);
    // From now on 3 ms are expected of each. The burst was 5 ms, and 19 are owed.
    let at_us = 215_000;
    let first = now(&mut book, 1, at_us).expect("it is even");
    let second = now(&mut book, 1, at_us);
    assert!(second.is_none(), "2.5 ms are there, 3 are paid");
    book.wait(&host(1), 7, at_us).expect("room");
    assert!(book.settle(first, 10, at_us + 1), "others may go on");
    assert_eq!(due(&mut book, at_us + 2), [7]);
}

#[test]
fn nobody_waits_longer_for_one_call_than_seconds() {
    let mut book = book();
    assert!(now(&mut book, 2, 0).is_some());
    let turn = now(&mut book, 1, 0).expect("a fresh client");
    book.settle(turn, 3_600 * SECOND_US, 0);
    book.wait(&host(1), 7, 0).expect("room");
    for at_us in (0..2 * SECOND_US).step_by(500_000) {
        assert!(now(&mut book, 2, at_us).is_some());
        assert_eq!(due(&mut book, at_us), [0; 0]);
    }
    assert_eq!(due(&mut book, 2 * SECOND_US + 1), [7]);
}

#[test]
fn few_may_wait() {
    let mut book = book();
    for call in 0..5 {
        book.wait(&host(1), call, 0).expect("half of the places");
    }
    assert_eq!(book.wait(&host(1), 5, 0), Err(5));
    for call in 0..5 {
        book.wait(&host(2), call, 0).expect("the other half");
    }
    assert_eq!(book.wait(&host(3), 9, 0), Err(9));
    assert_eq!((book.take_all().len(), book.waiting()), (10, 0));
}

#[test]
fn what_nobody_waits_for_costs_nothing() {
    let mut book = book();
    for call in 0..3 {
        book.wait(&host(1), call, 0).expect("room");
    }
    let (ready, _) = book.due(0, |call| *call != 1);
    let turns: Vec<_> = ready.iter().map(|(call, turn)| (*call, turn.is_some())).collect();
    assert_eq!(turns, [(0, false), (1, true), (2, false)]);
}

#[test]
fn clients_that_are_gone_are_forgotten() {
    let mut book = book();
    for number in 0..100_000u64 {
        let client = Client::User(number.to_string().into());
        let Entry::Now(turn) = book.enter(client, number * 1_000) else { panic!("a fresh client") };
        book.settle(turn, 100, number * 1_000);
    }
    assert!(book.accounts() < 5_000, "{}", book.accounts());
}

/// Whatever two greedy clients ask for, neither has more than its share and what one call may take too much, and both are served.
#[test]
fn shares_hold() {
    for seed in 0..50u64 {
        let mut random = seed;
        let mut cost = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % 20_000 + 1
        };
        let mut book = book();
        let (mut took_us, mut calls) = ([0u64; 2], 0u32);
        for at_us in (0..10 * SECOND_US).step_by(1_000) {
            let mut turns = Vec::new();
            for client in [host(0), host(1)] {
                match book.enter(client, at_us) {
                    Entry::Now(turn) => turns.push(turn),
                    Entry::Later(client) => {
                        // It asks again and again, until it has half of the places.
                        calls += 1;
                        let _ = book.wait(&client, calls, at_us);
                    }
                }
            }
            turns.extend(book.due(at_us, |_| false).0.into_iter().filter_map(|(_, turn)| turn));
            for turn in turns {
                let took = cost();
                took_us[usize::from(*turn.client() == host(1))] += took;
                book.settle(turn, took, at_us);
            }
        }
        for took_us in took_us {
            // A tenth of ten seconds, the burst, and calls that were taken to be cheaper.
            assert!((900_000..1_125_000).contains(&took_us), "seed {seed}: {took_us}");
        }
    }
}
