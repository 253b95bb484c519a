//! Many reads and writes at a time by one thread: the asynchronous I/O of the kernel that `fio` calls `libaio`, by its system calls.

use super::mixed::{BLOCK_BYTES, DEPTH, Page, Step, Timed};
use super::steady::nanos;
use crate::checks::watched::Progress;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// Why steps were not done.
#[derive(Debug)]
pub(super) enum QueueError {
    /// The kernel has no such queue for us.
    Refused(io::Error),
    Io(io::Error),
}

/// `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Order {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_descriptor: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    order: u64,
    result: i64,
    second_result: i64,
}

const READ: u16 = 0;
const WRITE: u16 = 1;

/// A queue of the kernel.
struct Queue(libc::c_ulong);

impl Queue {
    fn new(depth: usize) -> io::Result<Queue> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the pointer is valid for the call, and what it points at is zero, as the call wants it.
        match unsafe { libc::syscall(libc::SYS_io_setup, depth as libc::c_long, &raw mut id) } {
            0 => Ok(Queue(id)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Hands orders to the kernel; returns how many it took.
    ///
    /// # Safety
    /// The orders' buffers must be valid until their events have come.
    unsafe fn submit(&self, orders: &mut [*mut Order]) -> io::Result<usize> {
        let (count, list) = (orders.len() as libc::c_long, orders.as_mut_ptr());
        // SAFETY: the list is valid for the call, its orders are too, and the caller answers for the buffers.
        let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.0, count, list) };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }

    /// Waits for one event, and takes all that there are.
    fn wait(&self, events: &mut [Event]) -> io::Result<usize> {
        let (count, list) = (events.len() as libc::c_long, events.as_mut_ptr());
        let forever = std::ptr::null_mut::<libc::timespec>();
        loop {
            // SAFETY: the buffer has room for this many events.
            let found =
                unsafe { libc::syscall(libc::SYS_io_getevents, self.0, 1 as libc::c_long, count, list, forever) };
            match usize::try_from(found) {
                Ok(found) => return Ok(found),
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the queue is ours. The call waits for all that is on its way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// Where a step is while it is on its way.
struct Slot {
    page: Page,
    order: Order,
    /// What it does, and since when; none: nothing.
    busy: Option<(Step, Instant)>,
}

impl Slot {
    fn prepare(&mut self, file: &File, step: Step, number: usize) {
        self.order = Order {
            data: number as u64,
            opcode: if step.is_read { READ } else { WRITE },
            descriptor: file.as_raw_fd().unsigned_abs(),
            buffer: (&raw mut self.page) as u64,
            bytes: BLOCK_BYTES,
            offset: step.offset() as i64,
            ..Order::default()
        };
        self.busy = Some((step, Instant::now()));
    }
}

/// Keeps as many steps on their way as there may be.
pub(super) fn run(file: &File, steps: &[Step], progress: &Progress) -> Result<Vec<Timed>, QueueError> {
    let mut slots: Vec<Slot> =
        (0..DEPTH).map(|_| Slot { page: Page::noisy(), order: Order::default(), busy: None }).collect();
    // Dropped before the slots: what is on its way has then come to its end.
    let queue = Queue::new(DEPTH).map_err(QueueError::Refused)?;
    let (mut timed, mut rest, mut under_way) = (Vec::with_capacity(steps.len()), steps.iter(), 0);
    let mut events = [Event::default(); DEPTH];
    loop {
        let mut orders: Vec<*mut Order> = Vec::with_capacity(DEPTH);
        for (number, slot) in slots.iter_mut().enumerate().filter(|(_, slot)| slot.busy.is_none()) {
            let Some(step) = rest.next() else { break };
            slot.prepare(file, *step, number);
            orders.push(&raw mut slot.order);
        }
        let mut taken = 0;
        while taken < orders.len() {
            // SAFETY: pages are neither moved nor touched while their slot is busy, and outlive the queue.
            taken += unsafe { queue.submit(&mut orders[taken..]) }.map_err(QueueError::Io)?;
        }
        under_way += taken;
        if under_way == 0 {
            return Ok(timed);
        }
        let found = queue.wait(&mut events).map_err(QueueError::Io)?;
        let now = Instant::now();
        for event in &events[..found] {
            let slot = slots.get_mut(event.data as usize).and_then(|slot| slot.busy.take());
            let Some((step, started)) = slot else {
                return Err(QueueError::Io(io::Error::other("the kernel has done what it was not asked for")));
            };
            done(event.result).map_err(QueueError::Io)?;
            timed.push((step, nanos(now - started)));
        }
        under_way -= found;
        progress.add(found as u64 * BLOCK_BYTES);
    }
}

/// Whether a block was read or written as a whole.
fn done(result: i64) -> io::Result<()> {
    match u64::try_from(result) {
        Ok(BLOCK_BYTES) => Ok(()),
        Ok(bytes) => Err(io::Error::other(format!("{bytes} of {BLOCK_BYTES} bytes were read or written"))),
        Err(_) => Err(io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO))),
    }
}
