//! Senders, some of whom wait for room, a reader, and a thread that takes in the reader's place.
//!
//! Whatever the schedule, everything is taken once and in the order of its sender, never more is queued than there is room for, and
//! neither the reader nor a sender waits for ever.

use super::join;
use crate::Inbox;
use crate::mistake::Mistake;
use schedules::{explore, finds, roll, thread};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SENDERS: usize = 3;
const LETTERS: usize = 3;
/// Of letters of the last sender, which waits for it.
const ROOM: usize = 2;

#[derive(Default)]
struct Arrived {
    letters: Vec<(usize, usize)>,
    bulky: usize,
}

fn take(arrived: &mut Arrived) -> Vec<(usize, usize)> {
    arrived.bulky = 0;
    std::mem::take(&mut arrived.letters)
}

fn senders_and_a_reader(others_take: bool) {
    let inbox = Arc::new(Inbox::<Arrived>::default());
    let senders = (0..SENDERS).map(|sender| {
        let inbox = inbox.clone();
        thread::spawn(move || {
            for letter in 0..LETTERS {
                let add = |arrived: &mut Arrived| arrived.letters.push((sender, letter));
                if sender == SENDERS - 1 {
                    inbox.push_when(
                        |arrived| arrived.bulky < ROOM,
                        |arrived| {
                            arrived.bulky += 1;
                            assert!(arrived.bulky <= ROOM, "more than there is room for");
                            add(arrived);
                        },
                    );
                } else {
                    inbox.push(add);
                }
            }
        })
    });
    let mut threads: Vec<_> = senders.collect();
    if others_take {
        // The timer: what it takes it deals with itself, here by sending it again.
        let inbox = inbox.clone();
        threads.push(thread::spawn(move || {
            for _ in 0..2 {
                let taken = inbox.take(Instant::now(), take);
                inbox.push(|arrived| arrived.letters.splice(0..0, taken).count());
            }
        }));
    }
    let mut next = [0; SENDERS];
    while next != [LETTERS; SENDERS] {
        // With a deadline that is over it looks only.
        let deadline = Instant::now() + Duration::from_secs(3600 * roll(4).min(1));
        for (sender, letter) in inbox.take(deadline, take) {
            assert!(others_take || letter == next[sender], "the order of sender {sender}");
            next[sender] += 1;
        }
    }
    join(threads);
    assert!(inbox.take(Instant::now(), take).is_empty(), "a letter came twice");
}

#[test]
fn everything_is_taken_once_and_in_order() {
    explore(|| senders_and_a_reader(false));
}

#[test]
fn the_reader_is_woken_although_another_has_taken() {
    explore(|| senders_and_a_reader(true));
}

#[test]
fn those_who_wait_for_room_go_when_it_ends() {
    explore(|| {
        let inbox = Arc::new(Inbox::<Arrived>::default());
        let waiting = (0..2).map(|_| {
            let inbox = inbox.clone();
            // `bulky` stands for an inbox that is closed.
            thread::spawn(move || inbox.push_when(|arrived| arrived.bulky > 0, |_| ()))
        });
        let waiting: Vec<_> = waiting.collect();
        inbox.push_and_make_room(|arrived| arrived.bulky = 1);
        join(waiting);
    });
}

#[test]
fn planted_races_are_found() {
    finds(Mistake::ReaderSleepsAfterLook as u8, || senders_and_a_reader(false));
    finds(Mistake::TakerWakesReader as u8, || senders_and_a_reader(true));
}
