//! A whole member: every protocol on its client and peer ports, by the scripts of `crates/hostile`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| hostile::front_door(data));
