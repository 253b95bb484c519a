//! Rotation of a log file: when full, `a.log` becomes `a-2026-08-20T12-00-00.123.log`, and later, if configured, is compressed or
//! removed.

use super::Rotation;
use super::output::{MODE, append};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: Duration = Duration::from_secs(24 * 3600);
const COMPRESSED: &str = ".gz";

pub(super) struct Rotating {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    bytes: u64,
    /// Wakes the thread that looks after old files: compressing one must not hold up the log.
    tidy: Sender<()>,
}

impl Rotating {
    pub(super) fn open(path: &Path, rotation: Rotation) -> io::Result<Rotating> {
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        let (tidy, asked) = channel();
        let files = path.to_path_buf();
        std::thread::Builder::new().name("log-tidy".into()).spawn(move || {
            for () in asked {
                // What cannot be tidied stays; the next time it is tried again.
                drop(clean(&files, rotation, SystemTime::now()));
            }
        })?;
        let rotating = Rotating { path: path.into(), rotation, file, bytes, tidy };
        let _ = rotating.tidy.send(());
        Ok(rotating)
    }

    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.rotation.bytes_max {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file anew.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let file = append(&self.path)?;
        self.bytes = file.metadata()?.len();
        self.file = file;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let mut now = SystemTime::now();
        let mut aside = backup(&self.path, now, self.rotation.local_time);
        // Two within a millisecond must not become one.
        while aside.exists() || aside.with_extension_added(COMPRESSED).exists() {
            now += Duration::from_millis(1);
            aside = backup(&self.path, now, self.rotation.local_time);
        }
        let mode = self.file.metadata()?.permissions();
        fs::rename(&self.path, aside)?;
        self.file = append(&self.path)?;
        self.file.set_permissions(mode)?;
        self.bytes = 0;
        let _ = self.tidy.send(());
        Ok(())
    }
}

trait Added {
    fn with_extension_added(&self, extension: &str) -> PathBuf;
}

impl Added for PathBuf {
    fn with_extension_added(&self, extension: &str) -> PathBuf {
        let mut name = self.clone().into_os_string();
        name.push(extension);
        name.into()
    }
}

/// The parts of a file's name that are before and after the time.
fn parts(path: &Path) -> (String, String) {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match name.rfind('.') {
        Some(dot) if dot > 0 => (format!("{}-", &name[..dot]), name[dot..].to_string()),
        _ => (format!("{name}-"), String::new()),
    }
}

fn backup(path: &Path, at: SystemTime, local: bool) -> PathBuf {
    let (before, after) = parts(path);
    path.with_file_name(format!("{before}{}{after}", stamp(at, local)))
}

/// A time as it stands in a file's name, to the millisecond.
fn stamp(at: SystemTime, local: bool) -> String {
    let at = if local { shifted_to_local(at) } else { at };
    let text = super::timestamp(at);
    // 2026-08-20T12:00:00.123456Z
    text[..23].replace(':', "-")
}

/// The time whose UTC reading is this time's local reading.
fn shifted_to_local(at: SystemTime) -> SystemTime {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as libc::time_t;
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    unsafe { libc::localtime_r(&seconds, &mut parts) };
    let shift = Duration::from_secs(parts.tm_gmtoff.unsigned_abs());
    if parts.tm_gmtoff < 0 { at - shift } else { at + shift }
}

/// Files put aside earlier, newest first, with the time of their last line.
fn backups(path: &Path) -> io::Result<Vec<(PathBuf, SystemTime)>> {
    let (before, after) = parts(path);
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let bare = name.strip_suffix(COMPRESSED).unwrap_or(&name);
        let Some(time) = bare.strip_prefix(&before).and_then(|rest| rest.strip_suffix(&after)) else { continue };
        if is_stamp(time) {
            found.push((time.to_string(), entry.path(), entry.metadata()?.modified()?));
        }
    }
    found.sort_by(|a, b| b.0.cmp(&a.0));
    Ok(found.into_iter().map(|(_, path, modified)| (path, modified)).collect())
}

/// Whether this is what [`stamp`] makes: other people's files are left alone.
fn is_stamp(text: &str) -> bool {
    let pattern = "0000-00-00T00-00-00.000";
    text.len() == pattern.len()
        && text
            .chars()
            .zip(pattern.chars())
            .all(|(c, wanted)| if wanted == '0' { c.is_ascii_digit() } else { c == wanted })
}

/// Removes what is too old or too many, and compresses the rest.
fn clean(path: &Path, rotation: Rotation, now: SystemTime) -> io::Result<()> {
    for (place, (file, modified)) in backups(path)?.into_iter().enumerate() {
        let age = now.duration_since(modified).unwrap_or_default();
        let is_old =
            rotation.age_days_max.is_some_and(|days| age > DAY.saturating_mul(days.min(u32::MAX.into()) as u32));
        if is_old || rotation.backups_max.is_some_and(|max| place >= max) {
            fs::remove_file(&file)?;
        } else if rotation.compress && !file.to_string_lossy().ends_with(COMPRESSED) {
            compress(&file)?;
        }
    }
    Ok(())
}

fn compress(file: &Path) -> io::Result<()> {
    let target = file.to_path_buf().with_extension_added(COMPRESSED);
    let half = file.to_path_buf().with_extension_added(".tmp");
    // One that was left over may have any mode.
    match fs::remove_file(&half) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut from = File::open(file)?;
    let to = File::options().create_new(true).write(true).mode(MODE).open(&half)?;
    to.set_permissions(from.metadata()?.permissions())?;
    let mut out = GzEncoder::new(to, Compression::default());
    io::copy(&mut from, &mut out)?;
    out.finish()?;
    fs::rename(&half, &target)?;
    fs::remove_file(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    const ROTATION: Rotation =
        Rotation { bytes_max: 100, age_days_max: None, backups_max: Some(2), local_time: false, compress: true };

    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("cairn-log-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&dir));
        fs::create_dir_all(&dir).expect("a directory");
        dir
    }

    #[test]
    fn full_files_are_put_aside_and_the_oldest_removed() {
        let dir = directory("rotate");
        let path = dir.join("a.log");
        fs::write(dir.join("a-notes.log"), "mine").expect("written");
        let mut file = Rotating::open(&path, ROTATION).expect("opened");
        for line in 0..50u32 {
            file.write(format!("{line:030}\n").as_bytes()).expect("written");
        }
        assert!(fs::metadata(&path).expect("there").len() <= 100);
        let is_tidy = |kept: &[(PathBuf, SystemTime)]| {
            kept.len() == 2 && kept.iter().all(|(file, _)| file.to_string_lossy().ends_with(COMPRESSED))
        };
        let until = std::time::Instant::now() + Duration::from_secs(20);
        let kept = loop {
            match backups(&path) {
                Ok(kept) if is_tidy(&kept) => break kept,
                // Files go away while they are listed.
                found => assert!(std::time::Instant::now() < until, "{found:?}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o7777;
        assert_eq!([mode(&path), mode(&kept[0].0), mode(&kept[1].0)], [MODE; 3], "others read along");
        let mut text = String::new();
        let newest = File::open(&kept[0].0).expect("there");
        flate2::read::GzDecoder::new(newest).read_to_string(&mut text).expect("compressed");
        assert!(text.lines().count() == 3, "{text}");
        assert!(dir.join("a-notes.log").exists(), "not ours");
        drop(fs::remove_dir_all(&dir));
    }

    #[test]
    fn a_mode_that_was_chosen_is_kept() {
        let dir = directory("mode");
        let path = dir.join("a.log");
        fs::write(&path, "").expect("written");
        let chosen = fs::Permissions::from_mode(0o640);
        fs::set_permissions(&path, chosen.clone()).expect("set");
        let rotation = Rotation { compress: false, backups_max: None, ..ROTATION };
        let mut file = Rotating::open(&path, rotation).expect("opened");
        for _ in 0..4 {
            file.write(&[b'x'; 60]).expect("written");
        }
        let all =
            fs::read_dir(&dir).expect("a directory").map(|entry| entry.expect("a file").metadata().expect("there"));
        let modes: Vec<_> = all.map(|file| file.permissions().mode() & 0o7777).collect();
        assert_eq!(modes, [0o640; 4]);
        drop(fs::remove_dir_all(&dir));
    }

    #[test]
    fn names_tell_the_time() {
        let at = UNIX_EPOCH + Duration::from_millis(951_782_400_123);
        let path = backup(Path::new("/x/a.log"), at, false);
        assert_eq!(path, Path::new("/x/a-2000-02-29T00-00-00.123.log"));
        assert!(is_stamp(&stamp(at, true)) && !is_stamp("notes"));
        assert_eq!(backup(Path::new("log"), at, false), Path::new("log-2000-02-29T00-00-00.123"));
    }
}
