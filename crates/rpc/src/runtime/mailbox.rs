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

/// Work for a request thread. It is done in any case.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

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
    /// Work for several calls.
    Work(Work),
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
    /// When the first answer among it came, or the first work: that gives answers.
    answered: Option<Instant>,
    /// The thread has looked and found nothing.
    asleep: bool,
    /// The thread has ended.
    closed: bool,
    waker: Waker,
}

impl Mailbox {
    pub(crate) fn new() -> Mailbox {
        Mailbox {
            inbox: Mutex::new(Inbox {
                mail: Vec::new(),
                answered: None,
                asleep: false,
                closed: false,
                waker: Waker::noop().clone(),
            }),
        }
    }

    /// Adds mail. After the thread has ended, mail is dropped instead, and work is done here.
    pub(crate) fn post(&self, mail: Mail) {
        let mut inbox = self.lock();
        if inbox.closed {
            // What is dropped may post in turn.
            drop(inbox);
            return discard(mail);
        }
        if inbox.answered.is_none() && matches!(mail, Mail::Answer(..) | Mail::Work(_)) {
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

    /// The thread ends: drops all mail, now and from now on. A letter holds its mailbox, so what stayed in it would never be freed,
    /// nor what it claims.
    pub(crate) fn close(&self) {
        let mut inbox = self.lock();
        inbox.closed = true;
        let left = std::mem::take(&mut inbox.mail);
        drop(inbox);
        left.into_iter().for_each(discard);
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

/// Drops mail for a thread that has ended. Work is done all the same: it may be more than to answer.
fn discard(mail: Mail) {
    if let Mail::Work(work) = mail {
        work();
    }
}

#[cfg(all(test, not(feature = "schedules")))]
mod tests {
    use super::*;

    /// A letter that posts another one when it is dropped, as a responder does that was never used.
    struct Reply(Arc<Mailbox>, Arc<()>);

    impl Drop for Reply {
        fn drop(&mut self) {
            let signal = Arc::new(Signal::new(self.0.clone(), 0));
            let kept = self.1.clone();
            self.0.post(Mail::Resume(signal, Box::new(move || drop(kept))));
        }
    }

    fn letter(mailbox: &Arc<Mailbox>, kept: &Arc<()>) -> Mail {
        let reply = Reply(mailbox.clone(), kept.clone());
        Mail::Resume(Arc::new(Signal::new(mailbox.clone(), 0)), Box::new(move || drop(reply)))
    }

    #[test]
    fn a_closed_mailbox_keeps_nothing() {
        let (mailbox, kept) = (Arc::new(Mailbox::new()), Arc::new(()));
        mailbox.post(letter(&mailbox, &kept));
        assert!(Arc::strong_count(&kept) > 1, "an open one keeps its mail");
        mailbox.close();
        assert_eq!(Arc::strong_count(&kept), 1, "mail that was there, and what it posted");
        mailbox.post(letter(&mailbox, &kept));
        assert_eq!((Arc::strong_count(&kept), Arc::strong_count(&mailbox)), (1, 1), "mail that came later");
        let mut mail = Vec::new();
        mailbox.take(&mut mail);
        assert!(mail.is_empty());
    }
}
