//! A checkpoint of the store.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = store::checkpoint::decode_checkpoint(data);
});
