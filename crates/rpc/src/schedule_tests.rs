//! A request thread and those who send it mail, under many schedules.
//!
//! Whatever the schedule, all mail arrives, once and in the order of its sender; a stream is looked at after every wake-up; every call is
//! answered once; and no thread sleeps on mail, or it would wait for ever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Wake, Waker};

use bytes::Bytes;
use schedules::sync::atomic::AtomicUsize;
use schedules::sync::{Condvar, Mutex};
use schedules::thread::JoinHandle;
use schedules::{explore, finds, roll, thread};

use crate::mistake::Mistake;
use crate::runtime::mailbox::{Mail, Mailbox};
use crate::runtime::shared::ConnectionWaker;
use crate::runtime::signal::{Bell, Signal};
use crate::{Reply, Responder, StreamWaker};

const SENDERS: usize = 3;
const LETTERS: u64 = 3;
const STREAMS: usize = 2;
const CALLS: usize = 4;

/// A thread that can be woken.
#[derive(Default)]
struct Sleeper {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Sleeper {
    fn sleep(&self) {
        let mut is_woken = self.is_woken.lock().unwrap();
        while !*is_woken {
            is_woken = self.woken.wait(is_woken).unwrap();
        }
        *is_woken = false;
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock().unwrap() = true;
        self.woken.notify_one();
    }
}

/// Reads mail as a request thread does, until `read` says that it was the last.
fn serve(mailbox: &Mailbox, mut read: impl FnMut(Mail) -> bool) {
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(sleeper.clone());
    let mut mail = Vec::new();
    loop {
        mailbox.take(&mut mail);
        let mut was_last = false;
        for mail in mail.drain(..) {
            was_last |= read(mail);
        }
        if was_last {
            return;
        }
        if mailbox.sleep(&waker) {
            sleeper.sleep();
        }
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn mail_of_many() {
    let mailbox = Arc::new(Mailbox::new());
    let senders = (0..SENDERS).map(|key| {
        let mailbox = mailbox.clone();
        thread::spawn(move || (0..LETTERS).for_each(|serial| mailbox.post(Mail::Ready { key, serial })))
    });
    let senders: Vec<_> = senders.collect();
    let mut next = [0; SENDERS];
    serve(&mailbox, |mail| {
        let Mail::Ready { key, serial } = mail else { panic!("nobody sent this") };
        assert_eq!(serial, next[key], "the order of sender {key}");
        next[key] += 1;
        next == [LETTERS; SENDERS]
    });
    join(senders);
    let mut rest = Vec::new();
    mailbox.take(&mut rest);
    assert!(rest.is_empty(), "mail that came twice");
}

/// What a stream or a socket has for its thread, and what the thread has seen of it.
#[derive(Default)]
struct Work {
    made: AtomicUsize,
    seen: AtomicUsize,
}

impl Work {
    fn see(&self) {
        self.seen.store(self.made.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    fn is_seen(&self) -> bool {
        self.seen.load(Ordering::SeqCst) == SENDERS
    }
}

fn wakes_of_streams_and_sockets() {
    let mailbox = Arc::new(Mailbox::new());
    let (of_streams, of_socket): (Arc<[Work; STREAMS]>, Arc<Work>) = Default::default();
    let signals: [_; STREAMS] = std::array::from_fn(|stream| {
        let signal = Signal::new(mailbox.clone(), 0);
        signal.set_stream(stream);
        Arc::new(signal)
    });
    let socket = Arc::new(ConnectionWaker::new(mailbox.clone(), 0, 1));
    socket.arm();
    let senders = (0..SENDERS).map(|_| {
        let wakers = signals.clone().map(StreamWaker::new);
        let (of_streams, of_socket, socket) = (of_streams.clone(), of_socket.clone(), socket.clone());
        thread::spawn(move || {
            for (waker, work) in wakers.iter().zip(of_streams.iter()) {
                work.made.fetch_add(1, Ordering::SeqCst);
                waker.wake();
            }
            of_socket.made.fetch_add(1, Ordering::SeqCst);
            socket.wake_by_ref();
        })
    });
    let senders: Vec<_> = senders.collect();
    let look = |signal: &Signal| {
        if signal.take() {
            of_streams[signal.stream()].see();
        }
    };
    serve(&mailbox, |mail| {
        match mail {
            Mail::Wake(signal) => look(&signal),
            Mail::Ready { key: 0, serial: 1 } => {
                socket.arm();
                of_socket.see();
            }
            _ => panic!("nobody sent this"),
        }
        if roll(4) == 0 {
            // Its window has opened, say.
            look(&signals[roll(STREAMS as u64) as usize]);
        }
        of_socket.is_seen() && of_streams.iter().all(Work::is_seen)
    });
    join(senders);
}

fn calls_of_many() {
    let mailbox = Arc::new(Mailbox::new());
    let signals: [_; CALLS] = std::array::from_fn(|call| {
        let signal = Signal::new(mailbox.clone(), 0);
        signal.set_stream(call);
        Arc::new(signal)
    });
    let calls: Arc<Mutex<Vec<Responder>>> = Arc::new(Mutex::new(signals.iter().cloned().map(Responder::new).collect()));
    let workers = (0..SENDERS).map(|_| {
        let calls = calls.clone();
        thread::spawn(move || {
            loop {
                let call = calls.lock().unwrap().pop();
                let Some(responder) = call else { return };
                match roll(3) {
                    0 => responder.send(Ok(Reply::Whole(Bytes::new()))),
                    1 => responder.resume(|responder| responder.send(Ok(Reply::Whole(Bytes::new())))),
                    _ => drop(responder),
                }
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut answers = BTreeMap::new();
    let mut read = |mail| {
        let (signal, resume) = match mail {
            Mail::Answer(signal, _) => (signal, None),
            Mail::Resume(signal, resume) => (signal, Some(resume)),
            _ => panic!("nobody sent this"),
        };
        match resume {
            Some(resume) => resume(),
            None => *answers.entry(signal.stream()).or_insert(0) += 1,
        }
        answers.len() == CALLS
    };
    serve(&mailbox, &mut read);
    join(workers);
    let mut rest = Vec::new();
    mailbox.take(&mut rest);
    assert!(rest.is_empty(), "a call was answered twice");
    assert!(answers.values().all(|count| *count == 1), "{answers:?}");
}

fn wakes_within_the_process() {
    let (bell, work) = (Arc::new(Bell::default()), Arc::new(Work::default()));
    let senders = (0..SENDERS).map(|_| {
        let (waker, work) = (StreamWaker::local(bell.clone()), work.clone());
        thread::spawn(move || {
            work.made.fetch_add(1, Ordering::SeqCst);
            waker.wake();
        })
    });
    let senders: Vec<_> = senders.collect();
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(sleeper.clone());
    while !work.is_seen() {
        if bell.poll(&Context::from_waker(&waker)) {
            work.see();
        } else {
            sleeper.sleep();
        }
    }
    join(senders);
}

#[test]
fn all_mail_arrives_once_and_in_order() {
    explore(mail_of_many);
}

#[test]
fn a_stream_is_looked_at_after_every_wake() {
    explore(wakes_of_streams_and_sockets);
}

#[test]
fn every_call_is_answered_once() {
    explore(calls_of_many);
}

#[test]
fn a_task_is_polled_after_every_wake() {
    explore(wakes_within_the_process);
}

#[test]
fn planted_races_are_found() {
    finds(Mistake::SleepsAfterLook as u8, mail_of_many);
    finds(Mistake::SleepsAfterLook as u8, calls_of_many);
    finds(Mistake::ClearsReadyFirst as u8, wakes_of_streams_and_sockets);
    finds(Mistake::LooksBeforeWaker as u8, wakes_within_the_process);
}
