//! A simulated disk in memory that knows what was synced.
//!
//! [`SimDisk`] counts every operation that changes it, cuts the power at a chosen one, and then makes disks that could have
//! been found afterwards: of all sectors, lengths and names that were not synced, any subset survives, drawn from a seed.
//! The model is harsh within the contract of [`crate::Disk`]: unsynced changes survive in any combination whatever their
//! order, and a sector written several times may come back in any of these states. It can also fail a write or a sync, and
//! be full.

mod contents;
mod faults;
mod file;
mod memory;
mod names;
mod random;

pub use contents::SECTOR_BYTES;
pub use random::Random;

use crate::{Disk, File, Mode};
use contents::{Contents, Odds};
use faults::{Faults, Power, os_error};
use file::SimFile;
use names::{Directory, Inode, Node};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The recording disk. Clones share it. It has the directories `/` and the current one; all others need
/// [`Disk::create_dir`], and a [`Disk::sync_dir`] of the parent to survive a cut.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    directories: BTreeMap<PathBuf, Directory>,
    faults: Faults,
}

impl Default for SimDisk {
    fn default() -> Self {
        SimDisk::new()
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> SimDisk {
        let directories = [PathBuf::from("/"), PathBuf::new()].map(|path| (path, Directory::default()));
        SimDisk::of(directories.into())
    }

    fn of(directories: BTreeMap<PathBuf, Directory>) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(State { directories, faults: Faults::default() })) }
    }

    /// Operations so far that changed the disk or synced: writes, syncs, allocations, truncations, creations, renames, removals.
    pub fn operations(&self) -> u64 {
        self.state().faults.operations
    }

    /// Cuts the power during operation `number`, counted from 0 as [`SimDisk::operations`] does. That operation takes effect
    /// in part or not at all and fails; every later call fails.
    pub fn cut_at(&self, number: u64) {
        self.state().faults.cut_at = Some(number);
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        self.state().faults.off = true;
    }

    /// True once the power is off.
    pub fn is_cut(&self) -> bool {
        self.state().faults.off
    }

    /// Fails one write with EIO after `writes` more have succeeded. The sectors in its first half may have reached the disk.
    pub fn fail_write_after(&self, writes: u64) {
        self.state().faults.fail_write_after(writes, libc::EIO);
    }

    /// As [`SimDisk::fail_write_after`], with ENOSPC: a disk that is full for a moment.
    pub fn fill_at_write_after(&self, writes: u64) {
        self.state().faults.fail_write_after(writes, libc::ENOSPC);
    }

    /// Fails one sync (of a file or a directory) with EIO after `syncs` more have succeeded. What it should have made durable
    /// is not made durable by a later one either, unless it is written again.
    pub fn fail_sync_after(&self, syncs: u64) {
        self.state().faults.fail_sync_after(syncs, libc::EIO);
    }

    /// As [`SimDisk::fail_sync_after`], but no sync of a directory: a file system with a journal shuts down when it cannot write that.
    pub fn fail_file_sync_after(&self, syncs: u64) {
        self.state().faults.fail_file_sync_after(syncs);
    }

    /// As [`SimDisk::fail_sync_after`], with ENOSPC: a disk that finds out late that it is full.
    pub fn fill_at_sync_after(&self, syncs: u64) {
        self.state().faults.fail_sync_after(syncs, libc::ENOSPC);
    }

    /// Fails one write-back with EIO after `write_backs` more have succeeded. What it should have sent is not made durable by a later sync,
    /// which knows of no error.
    pub fn fail_write_back_after(&self, write_backs: u64) {
        self.state().faults.fail_write_back_after(write_backs);
    }

    /// Writes and syncs that have failed as planned.
    pub fn errors(&self) -> u64 {
        self.state().faults.errors
    }

    /// Counts [`SimDisk::errors`] from 0 again.
    pub fn forget_errors(&self) {
        self.state().faults.errors = 0;
    }

    /// Takes back what was planned with [`SimDisk::fail_write_after`] and its like.
    pub fn repair(&self) {
        self.state().faults.repair();
    }

    /// Makes every attempt to cut or remove a file fail with this error of the operating system. `None` ends that.
    pub fn fail_shrinking(&self, code: Option<i32>) {
        self.state().faults.shrink_error = code;
    }

    /// Makes every rename to a name that ends with `end` fail with this error of the operating system. `None` ends that.
    pub fn fail_renames(&self, error: Option<(&'static str, i32)>) {
        self.state().faults.fail_renames(error);
    }

    /// Gives a file a second name in the directory of the first, durably. Not an operation.
    pub fn link(&self, path: &Path, other: &str) -> io::Result<()> {
        let mut state = self.state();
        let inode = state.file(path)?;
        let directory = state.directory(&split(path)?.0)?;
        directory.link(other, Node::File(inode));
        directory.sync();
        Ok(())
    }

    /// Has every file seem to have one name, as after a power cut on a file system without a journal that was not checked since.
    pub fn miscount_names(&self) {
        self.state().faults.miscounts_names = true;
    }

    /// From now on it panics when a file is cut that is mapped beyond its new end: a reader of it would end the process. Disks after a power
    /// cut do the same. Mappings that were made before are those of an earlier process, and do not count.
    pub fn guard_mappings(&self) {
        self.state().faults.guard += 1;
    }

    /// Limits the sum of the lengths of all files; what would go beyond fails with ENOSPC. `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().faults.capacity_bytes = bytes;
    }

    /// A disk as it could be found after a power cut at this moment. The same seed on the same history gives the same disk.
    /// This one stays as it is, so several outcomes of one cut can be tried.
    pub fn after_cut(&self, seed: u64) -> SimDisk {
        let state = self.state();
        let mut random = Random::new(seed);
        let odds = Odds::draw(&mut random);
        let mut survivors = Survivors { odds, random, inodes: HashMap::new(), directories: BTreeMap::new() };
        for root in [Path::new("/"), Path::new("")] {
            survivors.directory(&state, root);
        }
        let after = SimDisk::of(survivors.directories);
        after.state().faults.guard = state.faults.guard;
        after
    }

    /// Reads of a file fail from now on, as those of a bad sector do. A mapping of it still has its bytes.
    pub fn spoil(&self, path: &Path) -> io::Result<()> {
        self.state().file(path)?.is_spoiled.store(true, std::sync::atomic::Ordering::Release);
        Ok(())
    }

    /// The bytes of a file.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.state();
        let inode = state.file(path)?;
        let contents = lock(&inode.contents);
        let mut bytes = vec![0; contents.length() as usize];
        contents.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Puts a file there, durable in contents and name, with its directories; replaces what was there. Not an operation.
    pub fn install(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let (dir, name) = split(path)?;
        state.create_dir(&dir)?;
        let mut contents = Contents::new()?;
        contents.write(bytes, 0)?;
        contents.sync();
        let inode = Inode::new(contents);
        state.directory(&dir)?.link(name, Node::File(Arc::new(inode)));
        for dir in dir.ancestors() {
            state.directory(dir)?.sync();
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn directory(&mut self, path: &Path) -> io::Result<&mut Directory> {
        self.directories.get_mut(path).ok_or(io::ErrorKind::NotFound.into())
    }

    fn file(&self, path: &Path) -> io::Result<Arc<Inode>> {
        let (dir, name) = split(path)?;
        match self.directories.get(&dir).and_then(|directory| directory.names.get(name)) {
            Some(Node::File(inode)) => Ok(inode.clone()),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn names_of(&self, inode: &Arc<Inode>) -> usize {
        let nodes = self.directories.values().flat_map(|directory| directory.names.values());
        nodes.filter(|node| matches!(node, Node::File(other) if Arc::ptr_eq(other, inode))).count()
    }

    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        if self.directories.contains_key(path) {
            return Ok(());
        }
        let (parent, name) = split(path)?;
        self.create_dir(&parent)?;
        let parent = self.directory(&parent)?;
        if parent.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        parent.link(name, Node::Directory);
        self.directories.insert(path.into(), Directory::default());
        Ok(())
    }

    /// Fails when a file that grows by `bytes` would not fit.
    fn check_space(&self, bytes: u64) -> io::Result<()> {
        if bytes <= self.free_bytes() { Ok(()) } else { Err(os_error(libc::ENOSPC)) }
    }

    fn free_bytes(&self) -> u64 {
        let Some(capacity) = self.faults.capacity_bytes else { return u64::MAX };
        let mut used = 0;
        for node in self.directories.values().flat_map(|directory| directory.names.values()) {
            if let Node::File(inode) = node {
                used += lock(&inode.contents).length();
            }
        }
        capacity.saturating_sub(used)
    }
}

struct Survivors {
    odds: Odds,
    random: Random,
    /// By address of the old inode: one file with two surviving names stays one file.
    inodes: HashMap<usize, Arc<Inode>>,
    directories: BTreeMap<PathBuf, Directory>,
}

impl Survivors {
    fn directory(&mut self, state: &State, path: &Path) {
        let Some(directory) = state.directories.get(path) else { return };
        let mut names = directory.after_cut(&self.odds, &mut self.random);
        for (name, node) in &mut names {
            match node {
                Node::File(inode) => *inode = self.inode(inode),
                Node::Directory => self.directory(state, &path.join(name)),
            }
        }
        self.directories.insert(path.into(), Directory::durable(names));
    }

    fn inode(&mut self, old: &Arc<Inode>) -> Arc<Inode> {
        let address = Arc::as_ptr(old) as usize;
        if let Some(known) = self.inodes.get(&address) {
            return known.clone();
        }
        let after = lock(&old.contents).after_cut(&self.odds, &mut self.random);
        let contents = after.unwrap_or_else(|error| panic!("no memory for a simulated file: {error}"));
        let inode = Arc::new(Inode::new(contents));
        self.inodes.insert(address, inode.clone());
        inode
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        let mut state = self.state();
        if mode != Mode::Create {
            state.faults.check_power()?;
            return Ok(Arc::new(SimFile::new(self.clone(), state.file(path)?, mode)));
        }
        let power = state.faults.begin()?;
        let (dir, name) = split(path)?;
        let directory = state.directory(&dir)?;
        if directory.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = Arc::new(Inode::new(Contents::new()?));
        directory.link(name, Node::File(inode.clone()));
        power.finish()?;
        Ok(Arc::new(SimFile::new(self.clone(), inode, mode)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.faults.check_rename(&to.to_string_lossy())?;
        let power = state.faults.begin()?;
        let inode = state.file(from)?;
        let ((from_dir, from_name), (to_dir, to_name)) = (split(from)?, split(to)?);
        if matches!(state.directory(&to_dir)?.names.get(to_name), Some(Node::Directory)) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if from_dir == to_dir {
            state.directory(&from_dir)?.rename(from_name, to_name);
        } else {
            // Two directories are two syncs: either half may survive alone.
            state.directory(&to_dir)?.link(to_name, Node::File(inode));
            state.directory(&from_dir)?.unlink(from_name);
        }
        power.finish()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.file(path)?;
        state.faults.check_shrink()?;
        let power = state.faults.begin()?;
        let (dir, name) = split(path)?;
        state.directory(&dir)?.unlink(name);
        power.finish()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.faults.check_power()?;
        Ok(state.directory(&normal(dir))?.names.keys().cloned().collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        let power = state.faults.begin()?;
        state.create_dir(&normal(dir))?;
        power.finish()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        let power = state.faults.begin()?;
        if let Some(error) = state.faults.directory_sync_error() {
            state.directory(&normal(dir))?.fail_sync();
            return Err(error);
        }
        let directory = state.directory(&normal(dir))?;
        if power == Power::On {
            directory.sync();
        }
        power.finish()
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        let state = self.state();
        state.faults.check_power()?;
        Ok(state.free_bytes())
    }
}

fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != std::path::Component::CurDir).collect()
}

fn split(path: &Path) -> io::Result<(PathBuf, &str)> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
    Ok((normal(path.parent().unwrap_or(Path::new(""))), name))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
