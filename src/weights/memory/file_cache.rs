//! How much of a file the page cache holds: the memory that a process takes and does not show.

use std::fs::File;
use std::path::PathBuf;

/// Bytes of these files in the page cache; `None` where the system does not tell.
pub fn file_cache_bytes(paths: &[PathBuf]) -> Option<u64> {
    paths.iter().map(|path| of_file(&File::open(path).ok()?)).sum()
}

#[cfg(target_os = "linux")]
fn of_file(file: &File) -> Option<u64> {
    linux::by_cachestat(file).or_else(|| linux::by_mincore(file))
}

#[cfg(not(target_os = "linux"))]
fn of_file(_file: &File) -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{c_int, c_long, c_uint, c_void};
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    use crate::weights::arena::page_bytes;

    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
        fn mincore(start: *mut c_void, bytes: usize, resident: *mut u8) -> c_int;
    }

    /// The same on every architecture (Linux 6.5).
    const SYS_CACHESTAT: c_long = 451;

    #[repr(C)]
    struct CachestatRange {
        offset: u64,
        bytes: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    struct Cachestat {
        cached_pages: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }

    /// One call, whatever the size of the file.
    pub(super) fn by_cachestat(file: &File) -> Option<u64> {
        let range = CachestatRange { offset: 0, bytes: 0 };
        let mut stat = Cachestat::default();
        // SAFETY: the structures have the layout that the call expects (linux/mman.h) and outlive it; a kernel without
        // the call answers with an error.
        let answer = unsafe { syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0 as c_uint) };
        (answer == 0).then(|| stat.cached_pages * page_bytes() as u64)
    }

    /// Maps the file piece by piece, without touching it, and asks which pages are there.
    pub(super) fn by_mincore(file: &File) -> Option<u64> {
        const WINDOW: u64 = 64 << 20;
        let length = file.metadata().ok()?.len();
        let page = page_bytes();
        let mut resident = vec![0u8; WINDOW as usize / page];
        let mut pages = 0;
        for offset in (0..length).step_by(WINDOW as usize) {
            let bytes = (length - offset).min(WINDOW) as usize;
            // SAFETY: a fresh read-only mapping that nobody dereferences.
            let start =
                unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, offset) }.ok()?;
            // SAFETY: the range is mapped, and the vector has a byte for each of its pages.
            let answer = unsafe { mincore(start, bytes, resident.as_mut_ptr()) };
            // SAFETY: the mapping made above.
            let _ = unsafe { munmap(start, bytes) };
            if answer != 0 {
                return None;
            }
            pages += resident[..bytes.div_ceil(page)].iter().filter(|&&byte| byte & 1 == 1).count();
        }
        Some((pages * page) as u64)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_written_is_cached_and_what_was_dropped_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![7; 300_000]).unwrap();
        file.sync_all().unwrap();
        let pages = 300_000u64.next_multiple_of(crate::weights::arena::page_bytes() as u64);
        let read = File::open(&path).unwrap();
        assert_eq!(linux::by_mincore(&read), Some(pages));
        assert_eq!(file_cache_bytes(std::slice::from_ref(&path)), Some(pages));
        crate::weights::source::drop_from_page_cache(&read, 0, 300_000);
        let left = file_cache_bytes(&[path]).unwrap();
        assert!(left < pages / 2, "{left}");
        assert_eq!(Some(left), linux::by_mincore(&read));
    }
}
