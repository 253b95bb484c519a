//! The disk that a directory is on.

use std::fs::read_to_string;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The known facts about a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Disk {
    pub(crate) path: String,
    pub(crate) device: String,
    pub(crate) file_system: String,
    /// The model that the device reports, if any.
    pub(crate) model: Option<String>,
}

impl Disk {
    /// The disk of `path`, which must exist.
    pub(crate) fn of(path: &Path) -> Result<Disk, std::io::Error> {
        let number = std::fs::metadata(path)?.dev();
        let number = format!("{}:{}", libc::major(number), libc::minor(number));
        let mounts = read_to_string("/proc/self/mountinfo")?;
        let (device, file_system) = mount(&mounts, &number).unwrap_or_default();
        let model = ["device/model", "../device/model"]
            .iter()
            .find_map(|file| read_to_string(format!("/sys/dev/block/{number}/{file}")).ok())
            .map(|model| model.trim().to_owned());
        Ok(Disk { path: path.display().to_string(), device, file_system, model })
    }
}

/// Device and file system of the mount with the device `number`: fields of `mountinfo`, of which the last two follow a
/// dash.
fn mount(mounts: &str, number: &str) -> Option<(String, String)> {
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(number))?;
    let mut fields = line.split_once(" - ")?.1.split(' ');
    let file_system = fields.next()?.to_owned();
    Some((fields.next()?.to_owned(), file_system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number() {
        let mounts = "21 1 0:20 / /proc rw - proc proc rw\n28 1 254:0 / / rw,noatime shared:1 - ext4 /dev/vda rw\n";
        assert_eq!(mount(mounts, "254:0"), Some(("/dev/vda".into(), "ext4".into())));
        assert_eq!(mount(mounts, "8:1"), None);
        assert!(Disk::of(Path::new("/nowhere")).is_err());
        assert_eq!(Disk::of(Path::new("/")).expect("it is there").path, "/");
    }
}
