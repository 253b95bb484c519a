//! Everything that reaches a request thread from outside comes through its one mailbox.

use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Instant;

use super::arrival::Arrival;
use super::signal::Signal;
use crate::grpc::responder::Answer;
use crate::mistake::Mistake;
use crate::sync::{Mutex, MutexGuard};

/// The rest of a call that waited for something. It answers the call, at once or later, also if it is dropped.
pub(crate) type Resume = Box<dyn FnOnce() + Send>;

/// Something for a request thread to do.
pub(crate) enum Mail {
    /// A connection to serve.
    Connection(Arrival),
    /// A connection's socket is ready; `serial` distinguishes it from a later one under the same key.
    Ready { key: usize, serial: u64 },
    /// A stream has something to look at.
    Wake(Arc<Signal>),
    /// A call is answered.
    Answer(Arc<Signal>, Answer),
    /// A call is to be resumed here.
    Resume(Arc<Signal>, Resume),
    /// Take no more, finish what runs, and end.
    Shutdown(Closing),
}

/// How long a thread that ends still runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    /// From here on only connections are kept that are in the middle of an answer.
    pub(crate) idle_at: Instant,
    /// From here on none.
    pub(crate) end_at: Instant,
}

/// The mailbox of one request thread. Many answers cost one wake-up: only mail to a sleeping thread wakes it.
pub(crate) struct Mailbox {
    inbox: Mutex<Inbox>,
}

struct Inbox {
    mail: Vec<Mail>,
    /// When the first answer among it came.
    answered: Option<Instant>,
    /// The thread has looked and found nothing.
    asleep: bool,
    waker: Waker,
}

impl Mailbox {
    pub(crate) fn new() -> Mailbox {
        Mailbox {
            inbox: Mutex::new(Inbox { mail: Vec::new(), answered: None, asleep: false, waker: Waker::noop().clone() }),
        }
    }

    pub(crate) fn post(&self, mail: Mail) {
        let mut inbox = self.lock();
        if inbox.answered.is_none() && matches!(mail, Mail::Answer(..)) {
            inbox.answered = Some(Instant::now());
        }
        inbox.mail.push(mail);
        if inbox.asleep {
            inbox.asleep = false;
            let waker = inbox.waker.clone();
            drop(inbox);
            waker.wake();
        }
    }

    /// Exchanges the mail for the empty `mail`. Says when the first answer among it came.
    pub(crate) fn take(&self, mail: &mut Vec<Mail>) -> Option<Instant> {
        assert!(mail.is_empty(), "mail that nobody has read");
        let mut inbox = self.lock();
        inbox.asleep = false;
        std::mem::swap(&mut inbox.mail, mail);
        inbox.answered.take()
    }

    /// The thread has nothing to do: `waker` is for the next mail. False if some has come meanwhile.
    pub(crate) fn sleep(&self, waker: &Waker) -> bool {
        let mut inbox = self.lock();
        if !inbox.mail.is_empty() {
            return false;
        }
        if Mistake::SleepsAfterLook.is_planted() {
            drop(inbox);
            inbox = self.lock();
        }
        if !inbox.waker.will_wake(waker) {
            inbox.waker = waker.clone();
        }
        inbox.asleep = true;
        true
    }

    /// A poster that panicked left nothing half done: the box is a list.
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
