//! A directory that is only read, under another one that takes what is written: the store of a stopped member can be opened, and its
//! log applied, while its files stay as they are.

use disk::{Disk, File, Mapping, Mode, OsDisk};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of `below`, with the changes that lie in `above`. Paths are those below.
pub(crate) struct Overlay {
    above: PathBuf,
    removed: Mutex<BTreeSet<PathBuf>>,
}

const OS: OsDisk = OsDisk { unsafe_no_sync: true };

impl Overlay {
    /// Changes go to `above`, a directory that is there and empty. Only one directory below has files: their names are told apart there.
    pub(crate) fn new(above: &Path) -> Overlay {
        Overlay { above: above.into(), removed: Mutex::default() }
    }

    fn changed(&self, path: &Path) -> PathBuf {
        self.above.join(path.file_name().unwrap_or_default())
    }

    fn is_removed(&self, path: &Path) -> bool {
        self.removed.lock().contains(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.changed(path).exists() || (!self.is_removed(path) && path.exists())
    }
}

impl Disk for Overlay {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        let changed = self.changed(path);
        match mode {
            Mode::Create if self.exists(path) => Err(ErrorKind::AlreadyExists.into()),
            Mode::Create => OS.open(&changed, Mode::Create),
            mode if changed.exists() => OS.open(&changed, mode),
            _ if self.is_removed(path) => Err(ErrorKind::NotFound.into()),
            Mode::Read => OS.open(path, Mode::Read),
            Mode::Own if !std::fs::symlink_metadata(path)?.is_file() => {
                Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"))
            }
            Mode::Write | Mode::Own => {
                let below = OS.open(path, Mode::Read)?;
                Ok(Arc::new(Untouched { below, path: path.into(), changed, above: Mutex::default() }))
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let changed = self.changed(from);
        if !changed.exists() {
            copy(from, &changed, u64::MAX)?;
        }
        OS.rename(&changed, &self.changed(to))?;
        self.removed.lock().insert(from.into());
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if !self.exists(path) {
            return Err(ErrorKind::NotFound.into());
        }
        self.removed.lock().insert(path.into());
        match OS.remove(&self.changed(path)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let below = OS.list(dir)?;
        let kept = below.into_iter().filter(|name| !self.is_removed(&dir.join(name)));
        let names: BTreeSet<String> = kept.chain(OS.list(&self.above)?).collect();
        Ok(names.into_iter().collect())
    }

    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        OS.free_bytes(&self.above)
    }
}

/// A file that is copied when it is first changed.
struct Untouched {
    below: Arc<dyn File>,
    path: PathBuf,
    changed: PathBuf,
    above: Mutex<Option<Arc<dyn File>>>,
}

impl Untouched {
    fn present(&self) -> Arc<dyn File> {
        self.above.lock().as_ref().unwrap_or(&self.below).clone()
    }

    /// The copy, of which no more than `bytes` are needed.
    fn own(&self, bytes: u64) -> io::Result<Arc<dyn File>> {
        let mut above = self.above.lock();
        if let Some(file) = &*above {
            return Ok(file.clone());
        }
        copy(&self.path, &self.changed, bytes)?;
        Ok(above.insert(OS.open(&self.changed, Mode::Write)?).clone())
    }
}

impl File for Untouched {
    fn len(&self) -> io::Result<u64> {
        self.present().len()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.own(u64::MAX)?.write_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.present().read_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write_back(&self, _offset: u64, _len: u64, _waits: bool) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.own(u64::MAX)?.allocate(len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.own(len)?.truncate(len)
    }

    /// What lies below is the stopped member's: who no longer needs it takes only its name away, and nothing is copied to be cut.
    fn is_shared(&self) -> io::Result<bool> {
        match &*self.above.lock() {
            Some(own) => own.is_shared(),
            None => Ok(true),
        }
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        self.present().identity()
    }

    fn map(&self, len: u64) -> io::Result<Mapping> {
        self.present().map(len)
    }

    fn lock(&self) -> io::Result<()> {
        Ok(())
    }
}

fn copy(from: &Path, to: &Path, bytes: u64) -> io::Result<()> {
    let mut from = std::fs::File::open(from)?.take(bytes);
    let mut to = std::fs::File::create_new(to)?;
    io::copy(&mut from, &mut to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_stays() {
        let dir = std::env::temp_dir().join(format!("cairn-overlay-{}", std::process::id()));
        let (below, above) = (dir.join("below"), dir.join("above"));
        for dir in [&below, &above] {
            std::fs::create_dir_all(dir).expect("room");
        }
        for name in ["a", "b", "c"] {
            std::fs::write(below.join(name), format!("contents of {name}")).expect("room");
        }
        let disk = Overlay::new(&above);
        let (a, b, c, new) = (below.join("a"), below.join("b"), below.join("c"), below.join("new"));
        let file = disk.open(&a, Mode::Own).expect("it is there");
        assert_eq!((file.len().ok(), file.is_shared().ok()), (Some(13), Some(true)));
        file.truncate(8).expect("room");
        assert_eq!(file.is_shared().ok(), Some(false));
        file.write_at(b"!", 8).expect("room");
        let read = |path: &Path| {
            let file = disk.open(path, Mode::Read).expect("it is there");
            let mut bytes = vec![0; file.len().expect("a length") as usize];
            file.read_at(&mut bytes, 0).expect("its bytes");
            String::from_utf8(bytes).expect("text")
        };
        assert_eq!((read(&a), read(&b)), ("contents!".into(), "contents of b".into()));
        disk.remove(&b).expect("it is there");
        assert_eq!(disk.open(&b, Mode::Read).err().map(|error| error.kind()), Some(ErrorKind::NotFound));
        assert!(disk.open(&c, Mode::Create).is_err());
        disk.rename(&c, &new).expect("it is there");
        assert_eq!(disk.list(&below).expect("names"), ["a", "new"]);
        assert_eq!(read(&new), "contents of c");
        drop(disk.open(&b, Mode::Create).expect("there is none any more"));
        assert_eq!(disk.list(&below).expect("names"), ["a", "b", "new"]);
        for name in ["a", "b", "c"] {
            assert_eq!(std::fs::read_to_string(below.join(name)).ok(), Some(format!("contents of {name}")));
        }
        std::fs::remove_dir_all(&dir).expect("it is there");
    }
}
