//! A point, and what happens to a thread that passes it.

use crate::Value;
use crate::http;
use crate::terms::{Action, Terms};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A named place in the code.
pub struct Point {
    name: &'static str,
    is_set: AtomicBool,
    terms: Mutex<Option<Terms>>,
}

impl Point {
    /// A point that does nothing until it is set.
    pub(crate) const fn new(name: &'static str) -> Point {
        Point { name, is_set: AtomicBool::new(false), terms: Mutex::new(None) }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A thread passes a place that cannot fail.
    pub fn pass(&self) {
        if self.is_set.load(Ordering::Relaxed) {
            self.act();
        }
    }

    /// A thread passes a place that behaves differently if there is a value.
    pub fn value(&self) -> Option<Value> {
        if self.is_set.load(Ordering::Relaxed) { self.act() } else { None }
    }

    /// A thread passes a place that fails with a text if there is one.
    pub fn text(&self) -> Option<String> {
        match self.value()? {
            Value::Text(text) => Some(text),
            other => {
                println!("failpoint: `{}` got {other:?}, and takes a text", self.name);
                None
            }
        }
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, terms: Terms) {
        *self.lock() = Some(terms);
        self.is_set.store(true, Ordering::Relaxed);
    }

    /// False if it was not set. A thread that sleeps goes on sleeping.
    pub(crate) fn unset(&self) -> bool {
        self.is_set.store(false, Ordering::Relaxed);
        self.lock().take().is_some()
    }

    /// What it is set to, and how often that acted.
    pub(crate) fn status(&self) -> Option<(String, u64)> {
        self.lock().as_ref().map(|terms| (terms.text().to_string(), terms.acted()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Terms>> {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn act(&self) -> Option<Value> {
        // Nothing is locked while the thread acts: others pass, and the point can be set anew.
        let action = self.lock().as_mut()?.next(chance)?;
        match action {
            Action::Off => {}
            Action::Return(value) => return Some(value),
            Action::Sleep(time) => std::thread::sleep(time),
            Action::Panic(value) => self.end(&value),
            Action::Break => {
                // SAFETY: a signal to the own process, whose default action nothing has changed.
                unsafe { libc::raise(libc::SIGSTOP) };
            }
            Action::Print => println!("failpoint print: {}", self.name),
        }
        None
    }

    /// Ends the process as a crash does: no destructor runs, nothing is flushed, whatever scope of `contain` the thread is in.
    fn end(&self, value: &Value) -> ! {
        // The request that set the point gets its answer first.
        let _answered = http::answering();
        match value {
            Value::Nothing => eprintln!("failpoint panic: {}", self.name),
            value => eprintln!("failpoint panic: {}: {value:?}", self.name),
        }
        std::process::abort()
    }
}

/// A random number from 0 to 1.
fn chance() -> f64 {
    let random = RandomState::new().hash_one(0u64) >> 11;
    random as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_acts_only_while_it_is_set() {
        let point = Point::new("tried");
        assert_eq!((point.value(), point.status()), (None, None));
        assert!(!point.unset());
        point.set(Terms::read(r#"1*return("why")->return(3)"#).expect("terms"));
        assert_eq!(point.text(), Some("why".into()));
        assert_eq!(point.value(), Some(Value::Number(3)));
        assert_eq!(point.text(), None, "a number is no text");
        assert_eq!(point.status().map(|(_, acted)| acted), Some(3));
        assert!(point.unset());
        assert_eq!(point.value(), None);
    }

    #[test]
    fn chances_are_spread() {
        let half = (0..1000).filter(|_| chance() < 0.5).count();
        assert!((300..700).contains(&half), "{half}");
    }
}
