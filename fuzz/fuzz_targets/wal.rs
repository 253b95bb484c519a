//! A segment of the Raft log.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut records = 0usize;
    let _ = wal::decode_segment(data, 0, &mut |_| records += 1);
    assert!(records <= data.len());
});
