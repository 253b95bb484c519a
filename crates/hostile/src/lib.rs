//! Hostile clients and peers against a whole member in one process.
//!
//! An input is a row of choices (`choices`) that a `script` turns into connections and steps: calls of every method with messages
//! made by the schema and then mutated (`message`, `json`), frames of HTTP/2 and WebSockets, requests of HTTP/1.1, messages of peers
//! (`raft`), TLS. They go over sockets of loopback to a `site`: a member on a simulated disk, with a clock that can be put forward.
//! After each input a good client must find the member as it should be; from time to time the power is cut, and what was
//! acknowledged must be there.
//!
//! libFuzzer drives it through [`front_door`] and [`logins`] (`fuzz/fuzz_targets`), `tests/fuzz.rs` with nothing but a seed.

#![allow(clippy::disallowed_methods, reason = "sockets and threads are real here")]

mod choices;
mod good;
mod http2;
mod json;
mod link;
mod message;
mod mutate;
mod raft;
mod script;
mod site;
mod websocket;
mod world;

pub use mutate::Mutator;
pub use site::{Finding, Site, Target};

use std::cell::RefCell;

fn drive(target: Target, input: &[u8]) {
    thread_local! {
        static SITE: RefCell<Option<Site>> = const { RefCell::new(None) };
    }
    SITE.with_borrow_mut(|site| {
        let site = site.get_or_insert_with(|| Site::new(target));
        if let Err(finding) = site.run(input) {
            panic!("{finding}");
        }
    });
}

/// Every protocol and port, without users: hostile clients may do anything but harm. For libFuzzer.
///
/// # Panics
/// If the member does not stand it.
pub fn front_door(input: &[u8]) {
    drive(Target::FrontDoor, input);
}

/// The client ports while users count: logins, tokens, watches and leases, by hostile clients that know one password. For libFuzzer.
///
/// # Panics
/// If the member does not stand it, or hostile clients see or change what they may not.
pub fn logins(input: &[u8]) {
    drive(Target::Logins, input);
}
