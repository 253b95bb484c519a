//! A hint to the processor.

/// Bytes that come into the processor's caches together.
const LINE: usize = 64;

/// Has the processor fetch these items into its caches, without waiting for them. Nothing but a hint: where there is no instruction for it
/// here, it does nothing.
#[inline]
pub fn fetch<T>(items: &[T]) {
    let begin = items.as_ptr().cast::<u8>();
    let before = begin.addr() % LINE;
    for at in (0..before.saturating_add(size_of_val(items))).step_by(LINE) {
        fetch_line(begin.wrapping_sub(before).wrapping_add(at));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn fetch_line(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction reads nothing and faults nowhere, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn fetch_line(at: *const u8) {
    // SAFETY: the instruction reads nothing and faults nowhere, whatever the address, and changes no register.
    unsafe { std::arch::asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
fn fetch_line(_: *const u8) {}
