//! The database image that a leader of etcd sends as its snapshot.

use crate::target::write_store;
use crate::{Contents, Database, Error};
use api::raftpb::SnapshotMetadata;
use std::path::Path;
use store::Founding;

/// The first version of etcd whose databases say their version.
const VERSION_MIN: (u64, u64) = (3, 6);

/// Fills a store with the image in the file `image`. `sent` is what the leader's message says of it. Returns the revision.
///
/// # Errors
/// If the image is damaged, is not what the message says, or is of a version that is not known, or the store cannot be written.
pub fn store_of_image(store: Founding, image: &Path, sent: &SnapshotMetadata) -> Result<i64, Error> {
    let database = Database::open(image)?;
    let mut contents = database.contents()?;
    if contents.index != sent.index() {
        return Err(Error::Refused(format!(
            "the image ends at entry {}, but the leader's message says {}",
            contents.index,
            sent.index()
        )));
    }
    check_version(&contents)?;
    // The log goes on after the message's entry, in the configuration that the message has.
    contents.term = sent.term();
    contents.conf_state.clone_from(&sent.conf_state);
    write_store(store, &database, |last| Ok(contents.checkpoint(last)))
}

/// Refuses what other versions have written: theirs may have in it what is not known here, or lack what is needed.
fn check_version(contents: &Contents) -> Result<(), Error> {
    let Contents { storage_version, cluster_version, .. } = contents;
    let latest = minor(api::version::STORAGE);
    let found = minor(storage_version);
    let is_known = match found {
        Some(found) => found >= VERSION_MIN && Some(found) <= latest,
        // A member writes it some seconds after the cluster has agreed on its version.
        None => storage_version.is_empty() && minor(cluster_version).is_some_and(|version| version >= VERSION_MIN),
    };
    if is_known {
        return Ok(());
    }
    let named = |version: &str| if version.is_empty() { "none".to_string() } else { format!("`{version}`") };
    Err(Error::Refused(format!(
        "the image is of another version of etcd than 3.6 and 3.7: its storage version is {}, its cluster's version {}",
        named(storage_version),
        named(cluster_version)
    )))
}

/// Major and minor number of a version.
fn minor(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests;
