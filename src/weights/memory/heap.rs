//! Keeping the allocator from hoarding: what is freed goes back to the kernel, and nothing grows to huge pages unasked.

/// Call first thing in `main`, before any thread starts.
pub fn keep_small() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    gnu::configure();
    #[cfg(target_os = "linux")]
    no_unasked_huge_pages();
}

/// Gives what is freed but still in the allocator's hands back to the kernel: takes milliseconds, for quiet moments.
pub fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    gnu::trim();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod gnu {
    use std::ffi::c_int;

    unsafe extern "C" {
        fn mallopt(parameter: c_int, value: c_int) -> c_int;
        fn malloc_trim(pad: usize) -> c_int;
    }

    pub(super) fn trim() {
        // SAFETY: the call takes an integer and locks the allocator itself.
        unsafe { malloc_trim(0) };
    }

    // malloc.h of the GNU C library.
    const M_TRIM_THRESHOLD: c_int = -1;
    const M_TOP_PAD: c_int = -2;
    const M_MMAP_THRESHOLD: c_int = -3;
    const M_ARENA_MAX: c_int = -8;

    pub(super) fn configure() {
        // An arena a thread would be up to 64 MiB of fragments each; a threshold set by hand stops the library from
        // raising it after the first large block is freed.
        for (parameter, value) in
            [(M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, 64 << 10), (M_TRIM_THRESHOLD, 128 << 10), (M_TOP_PAD, 16 << 10)]
        {
            // SAFETY: the call takes two integers; unknown parameters are refused without effect.
            unsafe { mallopt(parameter, value) };
        }
    }
}

/// Where the system makes huge pages of any memory ("always"), a heap of 3 MiB takes 4. Ours are asked for by name.
#[cfg(target_os = "linux")]
fn no_unasked_huge_pages() {
    use std::ffi::{c_int, c_ulong};

    unsafe extern "C" {
        fn prctl(option: c_int, ...) -> c_int;
    }
    const PR_SET_THP_DISABLE: c_int = 41;
    const EXCEPT_ADVISED: c_ulong = 1 << 1;

    let always = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|text| text.contains("[always]"));
    if !always {
        return;
    }
    let zero: c_ulong = 0;
    let one: c_ulong = 1;
    // SAFETY: the option takes integers only; a kernel before 6.18 refuses the flag and changes nothing.
    let refused = unsafe { prctl(PR_SET_THP_DISABLE, one, EXCEPT_ADVISED, zero, zero) } != 0;
    if refused {
        // SAFETY: as above.
        unsafe { prctl(PR_SET_THP_DISABLE, one, zero, zero, zero) };
    }
}
