//! Asking for memory before it is needed.

/// Asks for each cache line of some bytes, which may be of any address; where there is no instruction for it, does nothing.
#[inline(always)]
pub(super) fn prefetch(from: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        let line = from.wrapping_add(line);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing, and every x86-64 has it.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a prefetch may be of any address.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }
}

/// The same, in its place: the compiler moves no loads across, since for all it knows this writes memory.
#[inline(always)]
pub(super) fn prefetch_in_place(from: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        let line = from.wrapping_add(line);
        // SAFETY: a prefetch may be of any address.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }
}
