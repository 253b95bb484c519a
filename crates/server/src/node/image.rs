//! Taking the snapshot of a leader that is etcd: its database becomes a store of its own, which then takes the place of the member's.

use super::Node;
use super::peer_handler::install;
use crate::cluster::corruption::{Unequal, open_and_compare};
use crate::yield_cpu;
use api::raftpb::{Message, SnapshotMetadata};
use disk::{Disk, File, Mode, OsDisk, WriteBack};
use peer::Image;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// So often the log says how much has come.
const TELL_INTERVAL: Duration = Duration::from_secs(5);
/// The free bytes of the disk are looked at after so many.
const LOOK_BYTES: u64 = 16 << 20;
/// Bytes of the disk that must stay free: the Raft log goes on meanwhile.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// An image that is being received. Its files go away with it.
pub(super) struct ReceivingImage {
    node: Arc<Node>,
    from: u64,
    /// Where the sender can be asked.
    urls: Vec<String>,
    began: Instant,
    dir: PathBuf,
    /// None once all of it has come.
    file: Option<Arc<dyn File>>,
    back: WriteBack,
    bytes: u64,
    looked_at: u64,
    told: Instant,
}

/// Removes what a member that was killed while it received an image has left.
pub(super) fn remove_leftovers(data_dir: &std::path::Path) {
    remove(&dir_in(data_dir));
}

fn dir_in(data_dir: &std::path::Path) -> PathBuf {
    data_dir.join("member").join("image")
}

impl ReceivingImage {
    /// Begins with an empty file. There is one at a time.
    pub(super) fn begin(node: Arc<Node>, from: u64, urls: Vec<String>) -> Result<ReceivingImage, String> {
        let dir = dir_in(&node.config.data_dir);
        remove_leftovers(&node.config.data_dir);
        let told = |error: std::io::Error| format!("cannot write `{}`: {error}", dir.display());
        DirBuilder::new().mode(0o700).create(&dir).map_err(told)?;
        // What is made of it is moved to the store's directory.
        let device = |dir: &Path| fs::metadata(dir).map(|found| found.dev());
        let store_dir = node.config.data_dir.join("member").join("store");
        if device(&dir).map_err(told)? != device(&store_dir).map_err(told)? {
            remove(&dir);
            return Err(format!("`{}` is not on the disk of `{}`", dir.display(), store_dir.display()));
        }
        // Of mode 0600.
        let file = OsDisk::default().open(&dir.join("db"), Mode::Create).map_err(told)?;
        let (began, back) = (Instant::now(), WriteBack::default());
        let file = Some(file);
        let image = ReceivingImage { node, from, urls, began, dir, file, back, bytes: 0, looked_at: 0, told: began };
        image.check_space(0)?;
        Ok(image)
    }

    /// Whether so many bytes more leave enough of the disk free.
    fn check_space(&self, bytes: u64) -> Result<(), String> {
        let free = OsDisk { unsafe_no_sync: false }.free_bytes(&self.dir).map_err(|error| self.told(error))?;
        if free >= bytes.saturating_add(FREE_BYTES_MIN) {
            return Ok(());
        }
        Err(format!(
            "no space left on the disk: {bytes} bytes more are needed, and {FREE_BYTES_MIN} must stay free of {free}"
        ))
    }

    fn told(&self, error: impl std::fmt::Display) -> String {
        format!("`{}`: {error}", self.dir.display())
    }

    /// A line about how far it is.
    fn tell(&self, text: &str) {
        let took = self.began.elapsed();
        logging::info(text, &[("bytes", self.bytes.into()), ("took", Value::Shown(&format_args!("{took:?}")))]);
    }
}

impl Drop for ReceivingImage {
    fn drop(&mut self) {
        let metrics = &self.node.metrics;
        metrics.image_received_bytes.store(0, Ordering::Relaxed);
        metrics.image_taken_bytes.store(0, Ordering::Relaxed);
        remove(&self.dir);
    }
}

/// Removes a directory with its files. Each is cut step by step before, so that the log does not wait for all of it at once; nobody has one
/// of them open or mapped any more.
fn remove(dir: &Path) {
    if fs::symlink_metadata(dir).is_ok_and(|found| !found.is_dir()) {
        // Not what this member makes there, and what it points to is not ours.
        let _ = fs::remove_file(dir);
        return;
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => remove(&entry.path()),
            Ok(_) => remove_file(&entry.path()),
            Err(_) => {}
        }
    }
    // What cannot be removed is in the way of the next image, which says so.
    let _ = fs::remove_dir_all(dir);
}

fn remove_file(path: &Path) {
    // None of it is to survive anything, so nothing is synced.
    let _ = disk::remove_in_steps(Arc::new(OsDisk { unsafe_no_sync: true }), path);
}

impl Image for ReceivingImage {
    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(file) = &mut self.file else { return Err("it has come whole already".into()) };
        let end = self.bytes.saturating_add(bytes.len() as u64);
        let written = file.write_at(bytes, self.bytes).and_then(|()| self.back.advance(&**file, end));
        written.map_err(|error| format!("`{}`: {error}", self.dir.display()))?;
        self.bytes = end;
        self.node.metrics.image_received_bytes.store(end, Ordering::Relaxed);
        if self.told.elapsed() >= TELL_INTERVAL {
            self.told = Instant::now();
            self.tell("receiving a database snapshot");
        }
        if self.bytes.saturating_sub(self.looked_at) >= LOOK_BYTES {
            self.looked_at = self.bytes;
            self.check_space(0)?;
        }
        Ok(())
    }

    fn install(mut self: Box<Self>, message: Message) -> Result<(), String> {
        let metadata = message.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.clone()).unwrap_or_default();
        self.tell("received all of the database snapshot; checking it");
        let (prepared, revision) = self.prepare(&metadata)?;
        install(&self.node, prepared, message)?;
        logging::info(
            "installed the database of an etcd member",
            &[
                ("from", Value::Shown(&format_args!("{:x}", self.from))),
                ("snapshot-index", metadata.index().into()),
                ("revision", revision.into()),
                ("bytes", self.bytes.into()),
                ("took", Value::Shown(&format_args!("{:?}", self.began.elapsed()))),
            ],
        );
        Ok(())
    }
}

impl ReceivingImage {
    /// Refuses a store whose history is not the sender's (`docs/adr/0009-comparing-an-image.md`).
    fn check_equal(&self, staged: &store::Store, compared: Result<(), Unequal>) -> Result<(), String> {
        let Err(unequal) = compared else { return Ok(()) };
        let metrics = &self.node.metrics;
        let counter = match unequal {
            Unequal::Differs { .. } => &metrics.images_that_differ,
            Unequal::NotCompared(_) => &metrics.images_not_compared,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        logging::warn(
            "refused the database of an etcd member: it is not proven to have the sender's history",
            &[
                ("from", Value::Shown(&format_args!("{:x}", self.from))),
                ("revision", staged.revision().into()),
                ("compact-revision", staged.compact_revision().into()),
                ("error", Value::Shown(&unequal)),
            ],
        );
        Err(unequal.to_string())
    }

    /// Makes a store of the image, and what can be installed of that store.
    fn prepare(&mut self, metadata: &SnapshotMetadata) -> Result<(store::Prepared, i64), String> {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk { unsafe_no_sync: self.node.config.unsafe_no_fsync });
        self.file = None;
        self.check_space(self.bytes)?;
        let (db, dir) = (self.dir.join("db"), self.dir.join("store"));
        let founding = store::Founding::beside(&self.node.store, disk.clone(), &dir, store::log::Options::default())
            .map_err(|error| error.to_string())?;
        let revision = etcd_import::store_of_image(founding, &db, metadata).map_err(|error| error.to_string())?;
        let options = store::Options {
            learners_max: usize::MAX,
            rest: yield_cpu::rest,
            pause: yield_cpu::pause,
            ..store::Options::default()
        };
        self.tell("made a store of the database snapshot; indexing it");
        // The store's index comes beside the member's own: the memory for it says nothing about how many keys this member can have.
        let _second_index = self.node.store.second_index();
        let open = || {
            let opened = store::open(disk, &dir, options).map_err(|error| error.to_string())?;
            self.tell("indexed the database snapshot; comparing it with its sender's");
            Ok(opened)
        };
        let (opened, compared) = thread::scope(|scope| {
            // Its pages are in the store now. To give them back takes as long as to read the store does; if no thread can be had for it,
            // they go with the directory.
            let _ = thread::Builder::new().name("snapshot-remove".into()).spawn_scoped(scope, || remove_file(&db));
            open_and_compare(&self.node, self.from, &self.urls, (revision, self.bytes), open)
        })?;
        self.check_equal(&opened.store, compared)?;
        self.tell("compared the database snapshot; installing it");
        let taken = &self.node.metrics.image_taken_bytes;
        let moved = |bytes| {
            taken.fetch_add(bytes, Ordering::Relaxed);
        };
        let prepared =
            store::Prepared::of_store(&self.node.store, opened, &moved).map_err(|error| error.to_string())?;
        Ok((prepared, revision))
    }
}
