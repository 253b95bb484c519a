//! Power cuts and injected errors.

use std::io;

/// The faults that are planned, and those that have happened.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) operations: u64,
    pub(super) cut_at: Option<u64>,
    pub(super) off: bool,
    pub(super) capacity_bytes: Option<u64>,
    writes_until_error: Option<u64>,
    syncs_until_error: Option<u64>,
    write_backs_until_error: Option<u64>,
    /// Counts the processes whose mappings are guarded; 0 if none is.
    pub(super) guard: u64,
    /// What cutting or removing a file says, if it fails.
    pub(super) shrink_error: Option<i32>,
    /// What a rename to a name with this end says, if it fails.
    rename_error: Option<(&'static str, i32)>,
    /// Files seem to have one name, however many they have.
    pub(super) miscounts_names: bool,
    /// Errors so far that were planned as such, but for those of [`Faults::check_shrink`] and [`Faults::check_rename`].
    pub(super) errors: u64,
    /// Only syncs of files are to fail, and none of a directory.
    spares_directories: bool,
    /// What a failing sync says.
    sync_error: i32,
    /// What a failing write says.
    write_error: i32,
}

/// The power during an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Power {
    On,
    /// The power goes during this operation: it may take effect in part and must fail.
    Going,
}

impl Faults {
    pub(super) fn check_power(&self) -> io::Result<()> {
        if self.off { Err(power_off()) } else { Ok(()) }
    }

    /// Counts an operation that changes the disk.
    pub(super) fn begin(&mut self) -> io::Result<Power> {
        self.check_power()?;
        let number = self.operations;
        self.operations += 1;
        if self.cut_at == Some(number) {
            self.off = true;
            return Ok(Power::Going);
        }
        Ok(Power::On)
    }

    pub(super) fn fail_write_after(&mut self, writes: u64, code: i32) {
        self.writes_until_error = Some(writes);
        self.write_error = code;
    }

    pub(super) fn fail_sync_after(&mut self, syncs: u64, code: i32) {
        self.syncs_until_error = Some(syncs);
        self.sync_error = code;
        self.spares_directories = false;
    }

    pub(super) fn fail_file_sync_after(&mut self, syncs: u64) {
        self.fail_sync_after(syncs, libc::EIO);
        self.spares_directories = true;
    }

    pub(super) fn fail_write_back_after(&mut self, write_backs: u64) {
        self.write_backs_until_error = Some(write_backs);
    }

    pub(super) fn write_back_fails(&mut self) -> bool {
        falls_due(&mut self.write_backs_until_error)
    }

    /// Plans no error any more.
    pub(super) fn repair(&mut self) {
        (self.writes_until_error, self.syncs_until_error, self.write_backs_until_error) = (None, None, None);
    }

    /// Fails when no file can be made shorter or removed.
    pub(super) fn check_shrink(&self) -> io::Result<()> {
        self.shrink_error.map_or(Ok(()), |code| Err(os_error(code)))
    }

    pub(super) fn fail_renames(&mut self, error: Option<(&'static str, i32)>) {
        self.rename_error = error;
    }

    pub(super) fn check_rename(&self, to: &str) -> io::Result<()> {
        match self.rename_error {
            Some((end, code)) if to.ends_with(end) => Err(os_error(code)),
            _ => Ok(()),
        }
    }

    /// The error that this write fails with, if it is to fail.
    pub(super) fn write_error(&mut self) -> Option<io::Error> {
        let fails = falls_due(&mut self.writes_until_error);
        self.errors += u64::from(fails);
        fails.then(|| os_error(self.write_error))
    }

    /// The error that this sync of a directory fails with, if it is to fail.
    pub(super) fn directory_sync_error(&mut self) -> Option<io::Error> {
        if self.spares_directories { None } else { self.sync_error() }
    }

    /// The error that this sync fails with, if it is to fail.
    pub(super) fn sync_error(&mut self) -> Option<io::Error> {
        let fails = falls_due(&mut self.syncs_until_error);
        self.errors += u64::from(fails);
        fails.then(|| os_error(self.sync_error))
    }
}

fn falls_due(countdown: &mut Option<u64>) -> bool {
    match countdown {
        Some(0) => {
            *countdown = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

pub(super) fn power_off() -> io::Error {
    io::Error::other("the power is off")
}

pub(super) fn os_error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl Power {
    pub(super) fn finish(self) -> io::Result<()> {
        if self == Power::On { Ok(()) } else { Err(power_off()) }
    }
}
