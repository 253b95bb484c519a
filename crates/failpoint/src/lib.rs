//! Failpoints: places in the code where a test can make a member sleep, fail or end, controlled as Go's gofail is.
//!
//! [`point!`] marks a place, [`text!`] one that can fail with a text, [`fires!`] one that can skip something. `points.rs` has their names;
//! `docs/failpoints.md` says what each stands for. Without the feature `on` the macros expand to nothing: a release build has no
//! failpoints, no listener for them and none of their names.
//!
//! A member with failpoints calls [`start`] before anything else.

#[cfg(any(feature = "on", test))]
mod control;
#[cfg(any(feature = "on", test))]
mod http;
#[cfg(any(feature = "on", test))]
mod point;
#[cfg(any(feature = "on", test))]
pub mod points;
#[cfg(any(feature = "on", test))]
mod terms;
#[cfg(any(feature = "on", test))]
mod value;

#[cfg(any(feature = "on", test))]
pub use point::Point;
#[cfg(any(feature = "on", test))]
pub use value::Value;

/// Whether this build has failpoints.
pub const ENABLED: bool = cfg!(feature = "on");

/// Reads `GOFAIL_FAILPOINTS`, and serves `GOFAIL_HTTP` on a thread of its own. To be called once, before the first point is passed. Ends
/// the process with code 1 if one of the two cannot be obeyed: a test that believes a point to be set would prove nothing.
#[cfg(feature = "on")]
pub fn start() {
    let begun = control::set_all(&std::env::var("GOFAIL_FAILPOINTS").unwrap_or_default())
        .map_err(|error| format!("GOFAIL_FAILPOINTS: {error}"))
        .and_then(|()| match std::env::var("GOFAIL_HTTP") {
            Ok(address) if !address.is_empty() => {
                http::serve(&address).map_err(|error| format!("GOFAIL_HTTP={address}: {error}"))
            }
            _ => Ok(()),
        });
    if let Err(error) = begun {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

/// Does nothing: this build has no failpoints.
#[cfg(not(feature = "on"))]
pub fn start() {}

/// Marks a place: `point!(RAFT_BEFORE_SAVE)`.
#[cfg(feature = "on")]
#[macro_export]
macro_rules! point {
    ($name:ident) => {
        $crate::points::$name.pass()
    };
}

/// Marks a place: `point!(RAFT_BEFORE_SAVE)`.
#[cfg(not(feature = "on"))]
#[macro_export]
macro_rules! point {
    ($name:ident) => {};
}

/// Marks a place that can fail: returns from the function with what `$failed` makes of the text of a `return("...")`.
#[cfg(feature = "on")]
#[macro_export]
macro_rules! text {
    ($name:ident, |$text:ident| $failed:expr) => {
        if let Some($text) = $crate::points::$name.text() {
            return $failed;
        }
    };
}

/// Marks a place that can fail: returns from the function with what `$failed` makes of the text of a `return("...")`.
#[cfg(not(feature = "on"))]
#[macro_export]
macro_rules! text {
    ($name:ident, |$text:ident| $failed:expr) => {};
}

/// Whether a point is set, without passing it.
#[cfg(feature = "on")]
#[macro_export]
macro_rules! is_set {
    ($name:ident) => {
        $crate::points::$name.is_set()
    };
}

/// Whether a point is set, without passing it.
#[cfg(not(feature = "on"))]
#[macro_export]
macro_rules! is_set {
    ($name:ident) => {
        false
    };
}

/// Marks a place that can skip something: whether the point returns a value.
#[cfg(feature = "on")]
#[macro_export]
macro_rules! fires {
    ($name:ident) => {
        $crate::points::$name.value().is_some()
    };
}

/// Marks a place that can skip something: whether the point returns a value.
#[cfg(not(feature = "on"))]
#[macro_export]
macro_rules! fires {
    ($name:ident) => {
        false
    };
}
