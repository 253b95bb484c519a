//! A checkpoint of the store: any bytes, and any content with a header and checksums that fit. Whatever comes is read or refused, and what is read
//! is the same when it is written again. A store that opens with it opens again as it was.
#![no_main]

#[path = "seal.rs"]
mod seal;

use api::Message;
use disk::sim::SimDisk;
use disk::{Disk, Mode};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use store::checkpoint::{Checkpoint, decode_checkpoint};
use store::{OpenError, Opened, Options};

fn open(disk: &SimDisk) -> Result<Opened, OpenError> {
    store::open(Arc::new(disk.clone()), Path::new("/store"), Options::default())
}

/// What of a store must be the same when it is opened again.
fn content(opened: &Opened) -> String {
    let store = &opened.store;
    let (auth, members) = (store.auth(), store.members());
    format!(
        "{:?} {} {:?} {:?} {} {}",
        opened.applied,
        store.revision(),
        store.alarms(),
        members.members.keys(),
        auth.revision(),
        auth.is_enabled()
    )
}

fn check(checkpoint: &Checkpoint, bytes: &[u8]) {
    let again = seal::checkpoint(1, &checkpoint.encode_to_vec());
    assert!(decode_checkpoint(&again).as_ref() == Ok(checkpoint), "it is written as something else");
    if !checkpoint.segments.is_empty() {
        return;
    }
    let (disk, dir) = (SimDisk::new(), Path::new("/store"));
    let name = format!("{:016x}.ckpt", checkpoint.applied_index);
    let write = || {
        disk.create_dir(dir)?;
        let file = disk.open(&dir.join(name), Mode::Create)?;
        file.write_at(bytes, 0)?;
        file.sync_data()
    };
    write().unwrap_or_else(|error| panic!("{error}"));
    let Ok(mut opened) = open(&disk) else { return };
    let before = content(&opened);
    assert!(opened.applied.index == checkpoint.applied_index && opened.store.revision() == checkpoint.revision);
    if let Err(error) = opened.applier.checkpoint().write() {
        panic!("{error}");
    }
    drop(opened);
    let opened = open(&disk).unwrap_or_else(|error| panic!("{error}"));
    let after = content(&opened);
    assert!(after == before, "it opens as it was:\n{before}\n{after}");
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else { return };
    let bytes = match mode % 4 {
        0 => rest.to_vec(),
        mode => {
            // The format of files, and with it more often that one; the one between members, which no file has.
            let mut bytes = seal::checkpoint(if mode == 3 { 2 } else { 1 }, rest);
            if data[0] == u8::MAX {
                bytes.push(0);
            }
            bytes
        }
    };
    match decode_checkpoint(&bytes) {
        Ok(checkpoint) => check(&checkpoint, &bytes),
        Err(damage) => assert!(damage.offset <= bytes.len() as u64, "{damage:?}"),
    }
});
