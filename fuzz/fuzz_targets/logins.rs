//! A whole member whose users count: logins, tokens, watches and leases of strangers who know one password.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| hostile::logins(data));
