//! The handler of SIGBUS, which the kernel sends when a mapped byte cannot be read: the disk failed, or the file was truncated.
//!
//! The read cannot go on, so the handler names file and offset and ends the process. It calls only async-signal-safe functions.

use std::ffi::CString;
use std::path::Path;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Mappings that can be named; more still work, without a name in the message.
const REGIONS_MAX: usize = 4096;

struct Slot {
    start: AtomicUsize,
    len: AtomicUsize,
    name: AtomicPtr<libc::c_char>,
    /// A file that goes before the process ends.
    goes: AtomicPtr<libc::c_char>,
}

static REGIONS: [Slot; REGIONS_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        name: AtomicPtr::new(ptr::null_mut()),
        goes: AtomicPtr::new(ptr::null_mut()),
    }
}; REGIONS_MAX];

/// Slots that are free, and how many were ever used.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// A region's place in the table.
pub(crate) struct Registered {
    slot: Option<usize>,
}

/// Names a region for the handler.
pub(crate) fn register(start: usize, len: usize, path: &Path) -> Registered {
    let Some(name) = c_string(path) else { return Registered { slot: None } };
    let mut free = FREE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let slot = match free.0.pop() {
        Some(slot) => slot,
        None if free.1 < REGIONS_MAX => {
            free.1 += 1;
            free.1 - 1
        }
        None => return Registered { slot: None },
    };
    drop(free);
    let entry = &REGIONS[slot];
    entry.len.store(len, Ordering::Relaxed);
    release(entry.name.swap(name.into_raw(), Ordering::Relaxed));
    release(entry.goes.swap(ptr::null_mut(), Ordering::Relaxed));
    entry.start.store(start, Ordering::Release);
    Registered { slot: Some(slot) }
}

impl Registered {
    /// Has the handler remove a file before it ends the process. Without a slot of its own a region has none.
    pub(crate) fn removes(&self, path: &Path) {
        if let (Some(slot), Some(path)) = (self.slot, c_string(path)) {
            // Kept until the slot is used again, as a name is.
            release(REGIONS[slot].goes.swap(path.into_raw(), Ordering::Release));
        }
    }
}

fn c_string(path: &Path) -> Option<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).ok()
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            REGIONS[slot].start.store(0, Ordering::Release);
            FREE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).0.push(slot);
        }
    }
}

/// Frees a name that was replaced. Names are kept while a slot is free, so a handler that runs just then reads a valid one.
fn release(name: *mut libc::c_char) {
    if !name.is_null() {
        // SAFETY: it came from `CString::into_raw`, and the slot holds another one now.
        drop(unsafe { CString::from_raw(name) });
    }
}

/// Installs the handler.
pub fn install() {
    // SAFETY: the handler only uses async-signal-safe calls; all pointers are valid for the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
    }
}

extern "C" fn handle(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    say(b"fatal: a mapped file cannot be read (the disk failed, or the file was cut): ");
    let found = REGIONS.iter().find(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        start != 0 && (start..start + slot.len.load(Ordering::Relaxed)).contains(&address)
    });
    match found {
        Some(slot) => {
            let name = slot.name.load(Ordering::Relaxed);
            // SAFETY: a registered name is a C string that stays valid while its slot is in use.
            let name = unsafe { std::ffi::CStr::from_ptr(name) };
            say(name.to_bytes());
            say(b" at offset ");
            say_number(address - slot.start.load(Ordering::Relaxed));
            let goes = slot.goes.load(Ordering::Acquire);
            if !goes.is_null() {
                // SAFETY: as the name. `unlink` is async-signal-safe; a failure changes nothing.
                unsafe { libc::unlink(goes) };
            }
        }
        None => {
            say(b"unknown file, address ");
            say_number(address);
        }
    }
    say(b"\n");
    // SAFETY: ends the process at once, without running anything else of it.
    unsafe { libc::_exit(1) };
}

fn say(text: &[u8]) {
    // SAFETY: writes from a valid buffer; a failure cannot be told to anyone.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

fn say_number(mut number: usize) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    say(&digits[at..]);
}
