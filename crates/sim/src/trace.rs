//! The trace of a run, line by line.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A trace that is being written. Clones share its lines, so that they outlive a run that ends in a panic. A trace that
/// is off costs a comparison.
#[derive(Clone, Default)]
pub struct Trace {
    text: Option<Arc<Mutex<String>>>,
}

impl Trace {
    /// A trace that keeps no lines.
    pub fn off() -> Trace {
        Trace::default()
    }

    /// A trace that keeps every line.
    pub fn on() -> Trace {
        Trace { text: Some(Arc::default()) }
    }

    /// The lines so far.
    pub fn text(&self) -> String {
        self.text.as_ref().map(|text| text.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }

    pub(crate) fn is_on(&self) -> bool {
        self.text.is_some()
    }

    pub(crate) fn line(&self, now_us: u64, line: fmt::Arguments<'_>) {
        if let Some(text) = &self.text {
            let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
            text.push_str(&format!("{:>4}.{:06} {line}\n", now_us / 1_000_000, now_us % 1_000_000));
        }
    }
}

/// Writes a line into the trace of an [`Env`](crate::env::Env); its arguments are not formatted if the trace is off.
macro_rules! trace {
    ($env:expr, $($argument:tt)*) => {
        if $env.trace.is_on() {
            $env.trace.line($env.now_us, format_args!($($argument)*));
        }
    };
}
pub(crate) use trace;
