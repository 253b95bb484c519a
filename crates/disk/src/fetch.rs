//! A hint to the processor.

/// Bytes that come into the processor's caches together.
const LINE: usize = 64;

/// Has the processor fetch these items into its caches, without waiting for them. Nothing but a hint: where there is no instruction for it,
/// it does nothing.
#[inline]
pub fn fetch<T>(items: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of_val(items)).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction reads nothing and faults nowhere, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(items.as_ptr().cast::<i8>().wrapping_add(at)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, LINE);
}
