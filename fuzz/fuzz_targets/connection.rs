//! A whole connection: scripts as in the differential test of `crates/rpc`, and bare bytes.
#![no_main]

#[path = "../../crates/rpc/tests/differential/echo.rs"]
mod echo;
#[path = "../../crates/rpc/tests/differential/headers.rs"]
mod headers;
#[path = "../../crates/rpc/tests/differential/judgement.rs"]
mod judgement;
#[path = "../../crates/rpc/tests/differential/observation.rs"]
mod observation;
#[path = "../../crates/rpc/tests/differential/oracle.rs"]
mod oracle;
#[path = "../../crates/rpc/tests/differential/play.rs"]
mod play;
#[path = "../../crates/rpc/tests/differential/script.rs"]
mod script;

use echo::{CHAT, ECHO, LARGE, LATER, UNKNOWN};
use libfuzzer_sys::fuzz_target;

/// A SETTINGS frame without any, so that bare bytes need not begin with it.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

// The first byte says what the others are, the second in what pieces they come.
fuzz_target!(|data: &[u8]| {
    let [mode, size, rest @ ..] = data else { return };
    let sizes = || std::iter::repeat(usize::from(*size) + 1);
    match mode % 8 {
        0 => drop(play::in_pieces(&[&SETTINGS, rest].concat(), sizes())),
        1 | 2 => drop(play::in_pieces(&script::script(rest, &[ECHO, LATER, LARGE, CHAT, UNKNOWN]), sizes())),
        3 | 4 => {
            let script = script::script(rest, &[LATER, CHAT, UNKNOWN]);
            let whole = play::in_pieces(&script, std::iter::empty());
            assert!(whole == play::in_pieces(&script, sizes()), "how the bytes come in pieces makes no difference");
        }
        _ => {
            let script = script::script(rest, &[ECHO, UNKNOWN]);
            // `h2` is slow, so it is asked about one input in sixteen; which, is nothing that the fuzzer could learn to choose.
            let sum = data.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
            if sum % 16 != 0 {
                drop(play::in_pieces(&script, std::iter::empty()));
            } else if let Err(difference) = play::compare(&script) {
                panic!("{difference}");
            }
        }
    }
});
