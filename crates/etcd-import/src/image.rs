//! The database image that a leader of etcd sends as its snapshot.

use crate::target::write_store;
use crate::{Database, Error};
use api::raftpb::SnapshotMetadata;
use disk::Disk;
use std::path::Path;
use std::sync::Arc;

/// Makes a store in `dir`, which must be empty or not there, of the image in the file `image`. `sent` is what the leader's message says
/// of it. Returns the revision.
///
/// # Errors
/// If the image is damaged or is not what the message says, or the store cannot be written.
pub fn store_of_image(disk: Arc<dyn Disk>, image: &Path, dir: &Path, sent: &SnapshotMetadata) -> Result<i64, Error> {
    let database = Database::open(image)?;
    let mut contents = database.contents()?;
    if contents.index != sent.index() {
        return Err(Error::Refused(format!(
            "the image ends at entry {}, but the leader's message says {}",
            contents.index,
            sent.index()
        )));
    }
    // The log goes on after the message's entry, in the configuration that the message has.
    contents.term = sent.term();
    contents.conf_state.clone_from(&sent.conf_state);
    write_store(disk, dir, &database, |last| Ok(contents.checkpoint(last)))
}
