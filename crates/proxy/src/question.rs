//! A question to members that is asked once for all who want its answer at the same time.

use contain::Contained;
use parking_lot::Mutex;
use std::sync::Arc;

/// Who may wait for one answer.
const WAITING_MAX: usize = 1_024;

/// A question, and those who wait for its answer: however many they are, it is under way once.
pub(crate) struct Question<W>(Mutex<State<W>>);

struct State<W> {
    waiting: Vec<W>,
    is_asked: bool,
}

impl<W> Default for Question<W> {
    fn default() -> Question<W> {
        Question(Mutex::new(State { waiting: Vec::new(), is_asked: false }))
    }
}

impl<W: Send + 'static> Question<W> {
    /// Has `who` told the answer that is under way, or that to a new question.
    ///
    /// # Errors
    /// `who`, if too many wait.
    pub(crate) fn wait<A: Send + 'static, F: Future<Output = A> + Send + 'static>(
        self: &Arc<Self>,
        who: W,
        ask: impl FnOnce() -> F,
        tell: impl Fn(W, &A) + Send + 'static,
    ) -> Result<(), W> {
        let mut state = self.0.lock();
        if state.waiting.len() >= WAITING_MAX {
            return Err(who);
        }
        state.waiting.push(who);
        if std::mem::replace(&mut state.is_asked, true) {
            return Ok(());
        }
        drop(state);
        let asking = Asking(Some(self.clone()));
        let ask = ask();
        tokio::spawn(Contained::new(async move {
            let answer = ask.await;
            asking.end().into_iter().for_each(|who| tell(who, &answer));
        }));
        Ok(())
    }

    fn take(&self) -> Vec<W> {
        let mut state = self.0.lock();
        state.is_asked = false;
        std::mem::take(&mut state.waiting)
    }
}

/// That a question is under way. However it ends, the next one can be asked.
struct Asking<W: Send + 'static>(Option<Arc<Question<W>>>);

impl<W: Send + 'static> Asking<W> {
    fn end(mut self) -> Vec<W> {
        self.0.take().map_or_else(Vec::new, |question| question.take())
    }
}

impl<W: Send + 'static> Drop for Asking<W> {
    fn drop(&mut self) {
        drop(self.0.take().map(|question| question.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::{Semaphore, oneshot};

    #[tokio::test]
    async fn members_are_asked_once_for_all_who_wait() {
        let question = Arc::new(Question::default());
        let (asked, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let wait = || {
            let (tell, told) = oneshot::channel();
            let (asked, gate) = (asked.clone(), gate.clone());
            let ask = move || async move {
                let number = asked.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.expect("open").forget();
                number
            };
            let waits = question.wait(tell, ask, |tell: oneshot::Sender<usize>, answer| {
                // Some have gone.
                let _ = tell.send(*answer);
            });
            waits.ok().map(|()| told)
        };
        let mut told: Vec<_> = (0..WAITING_MAX).map(|_| wait().expect("room")).collect();
        assert!(wait().is_none(), "too many wait");
        drop(told.pop());
        gate.add_permits(1);
        for told in told {
            assert_eq!(told.await, Ok(0));
        }
        gate.add_permits(1);
        assert_eq!(wait().expect("room").await, Ok(1), "what was asked before is not told later");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn one_that_fails_keeps_nobody_waiting() {
        let question = Arc::new(Question::default());
        let wait = |fails: bool| {
            let (tell, told) = oneshot::channel();
            let ask = move || async move { assert!(!fails, "planted") };
            let waits = question.wait(tell, ask, |tell: oneshot::Sender<()>, ()| assert!(tell.send(()).is_ok()));
            assert!(waits.is_ok(), "there is room");
            told
        };
        assert!(wait(true).await.is_err());
        assert_eq!(wait(false).await, Ok(()));
    }
}
