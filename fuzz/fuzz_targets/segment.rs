//! A segment of the revision log.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = store::log::scan_segment(data);
});
