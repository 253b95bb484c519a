//! Writing to the standard error.

use std::io::Write;

/// Writes to the standard error, as far as that can be done: nobody can be told that it cannot, and a program need not end for it, as it
/// does with `eprint`.
pub fn say_bytes(bytes: &[u8]) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(bytes).and_then(|()| stderr.flush());
}

/// [`say_bytes`] of a line.
#[macro_export]
macro_rules! say {
    () => { $crate::say_bytes(b"\n") };
    ($($part:tt)*) => { $crate::say_bytes((::std::format!($($part)*) + "\n").as_bytes()) };
}

/// [`say_bytes`] of a text.
#[macro_export]
macro_rules! say_part {
    ($($part:tt)*) => { $crate::say_bytes(::std::format!($($part)*).as_bytes()) };
}
