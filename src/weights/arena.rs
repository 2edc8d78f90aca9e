//! Memory for weights, straight from the kernel and back to it.
//!
//! A [`Slot`] is a mapping of its own, so dropping it lowers the resident set at once; an allocator would keep it. Slots
//! are multiples of 64 KiB of address space, of which only pages that were written count. A [`HugeArena`] packs slots of
//! a model that is kept whole into huge pages, which is what a processor reads fastest.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

const SLOT_MULTIPLE: usize = 64 << 10;
const HUGE_PAGE: usize = 2 << 20;

/// Size of a memory page of this system.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

#[derive(Debug)]
enum Backing {
    /// An anonymous mapping of its own.
    Own,
    /// A shared mapping of a file from this offset; its pages leave the page cache with the slot.
    File { file: Arc<File>, offset: u64 },
    /// A range of an arena.
    Arena { arena: Arc<HugeArena>, index: usize },
}

/// A piece of memory for one extent.
#[derive(Debug)]
pub struct Slot {
    start: NonNull<u8>,
    capacity: usize,
    /// Bytes from the start that may be resident, whole pages.
    touched: usize,
    backing: Backing,
}

// SAFETY: a slot owns its memory exclusively; shared access only reads (or, for `File`, reads what nobody writes).
unsafe impl Send for Slot {}
// SAFETY: as above; `bytes_mut` needs `&mut`.
unsafe impl Sync for Slot {}

impl Slot {
    /// An anonymous slot of at least `bytes`. Costs nothing but addresses until it is written.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        let capacity = bytes.max(1).next_multiple_of(SLOT_MULTIPLE);
        let start = map_anonymous(capacity)?;
        #[cfg(target_os = "linux")]
        {
            // SAFETY: the range was just mapped and is owned here; the advice does not change its contents.
            let _ = unsafe { madvise(start.as_ptr().cast(), capacity, Advice::LinuxNoHugepage) };
        }
        Ok(Self { start, capacity, touched: 0, backing: Backing::Own })
    }

    /// A mapping of `bytes` of `file` from `offset` (both multiples of the page), read in before this returns.
    pub fn map_file(file: &Arc<File>, offset: u64, bytes: usize) -> io::Result<Self> {
        // SAFETY: a fresh shared read-only mapping aliases no Rust object. A file that shrinks under it raises SIGBUS,
        // which is stated of the mmap source; nothing here writes the file.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file.as_ref(), offset) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(null)?;
        let slot =
            Self { start, capacity: bytes, touched: bytes, backing: Backing::File { file: Arc::clone(file), offset } };
        // A fault must not read around itself: what it brought in would be nobody's to drop, and it comes in folios of up to
        // 2 MiB, which the kernel forgets only when asked for the whole of one.
        // SAFETY: the range was just mapped and is owned here; the advice does not change its contents.
        let _ = unsafe { madvise(slot.start.as_ptr().cast(), bytes, Advice::Random) };
        slot.populate()?;
        Ok(slot)
    }

    /// Has the kernel read the whole mapping, so that no kernel of ours waits on a page fault.
    fn populate(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            // SAFETY: the range is this slot's own mapping; populating changes no contents.
            let done = unsafe { madvise(self.start.as_ptr().cast(), self.capacity, Advice::LinuxPopulateRead) };
            match done {
                Ok(()) => return Ok(()),
                // Kernels before 5.14 know no such advice.
                Err(rustix::io::Errno::INVAL) => {}
                // A page that could not be read, where a plain access would raise SIGBUS.
                Err(error) => return Err(error.into()),
            }
        }
        let bytes = self.bytes(0..self.capacity);
        for at in (0..bytes.len()).step_by(page_bytes()) {
            std::hint::black_box(bytes[at]);
        }
        Ok(())
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that may be resident.
    pub fn resident_bytes(&self) -> u64 {
        self.touched as u64
    }

    pub fn is_anonymous(&self) -> bool {
        matches!(self.backing, Backing::Own)
    }

    pub fn is_in_arena(&self) -> bool {
        matches!(self.backing, Backing::Arena { .. })
    }

    /// Announces that the first `bytes` will be written; afterwards they count as resident.
    pub fn reserve(&mut self, bytes: usize) {
        self.touched = self.touched.max(bytes.next_multiple_of(page_bytes()).min(self.capacity));
    }

    /// The first `bytes` to write to. Empty for a mapped file.
    pub fn bytes_mut(&mut self, bytes: usize) -> &mut [u8] {
        let bytes = if matches!(self.backing, Backing::File { .. }) { 0 } else { bytes.min(self.capacity) };
        self.reserve(bytes);
        // SAFETY: the range lies inside this slot's writable mapping (`bytes <= capacity`, and file mappings, which are
        // read-only, give no bytes); `&mut self` makes the access exclusive; anonymous memory is initialised to zero.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), bytes) }
    }

    /// Bytes of the slot; a range past its end is cut.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        let end = range.end.min(self.capacity);
        let start = range.start.min(end);
        // SAFETY: the range lies inside the mapping, which lives as long as `self`; anonymous memory is initialised to
        // zero; writing needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(start), end - start) }
    }

    /// Gives whole pages past the first `bytes` back to the kernel.
    pub fn trim(&mut self, bytes: usize) {
        let keep = bytes.next_multiple_of(page_bytes());
        if keep < self.touched && matches!(self.backing, Backing::Own) {
            // SAFETY: the range lies inside this slot's own mapping and nothing borrows it; its contents become zero,
            // which is valid for bytes.
            unsafe { release_pages(self.start.as_ptr().add(keep), self.touched - keep) };
            self.touched = keep;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        match &self.backing {
            // SAFETY: the slot owns the mapping and nothing borrows it any more.
            Backing::Own => unsafe { unmap(self.start, self.capacity) },
            Backing::File { file, offset } => {
                // SAFETY: as above.
                unsafe { unmap(self.start, self.capacity) };
                super::source::drop_from_page_cache(file, *offset, self.capacity as u64);
            }
            Backing::Arena { arena, index } => arena.give_back(*index, self.start, self.capacity),
        }
    }
}

/// Slots packed one after another into huge pages.
#[derive(Debug)]
pub struct HugeArena {
    mapping: NonNull<u8>,
    mapped: usize,
    /// Where the first slot begins: a multiple of 2 MiB.
    base: usize,
    /// Where each slot begins, from the base, and the end.
    offsets: Vec<usize>,
    taken: Vec<AtomicBool>,
    /// Whether huge pages are still wanted: from the first slot given back on, the kernel may no longer fill holes.
    huge: AtomicBool,
}

// SAFETY: the arena hands each range out once at a time (`taken`), as a slot that owns it.
unsafe impl Send for HugeArena {}
// SAFETY: as above.
unsafe impl Sync for HugeArena {}

impl HugeArena {
    /// An arena for slots of these lengths (multiples of the page).
    pub fn new(lengths: impl Iterator<Item = u64>) -> io::Result<Arc<Self>> {
        let mut offsets = vec![0];
        let mut end = 0;
        for length in lengths {
            end += length as usize;
            offsets.push(end);
        }
        let mapped = end.next_multiple_of(HUGE_PAGE) + HUGE_PAGE;
        let mapping = map_anonymous(mapped)?;
        let base = mapping.as_ptr().align_offset(HUGE_PAGE);
        #[cfg(target_os = "linux")]
        {
            // SAFETY: the range lies inside the mapping just made; the advice does not change its contents.
            let _ = unsafe {
                madvise(mapping.as_ptr().add(base).cast(), end.next_multiple_of(HUGE_PAGE), Advice::LinuxHugepage)
            };
        }
        let taken = (1..offsets.len()).map(|_| AtomicBool::new(false)).collect();
        Ok(Arc::new(Self { mapping, mapped, base, offsets, taken, huge: AtomicBool::new(true) }))
    }

    /// The slot of this index, unless it is in use.
    pub fn take(self: &Arc<Self>, index: usize) -> Option<Slot> {
        if self.taken.get(index)?.swap(true, Ordering::Acquire) {
            return None;
        }
        let range = self.offsets[index]..self.offsets[index + 1];
        // SAFETY: offsets lie inside the mapping.
        let start = unsafe { self.mapping.add(self.base + range.start) };
        Some(Slot {
            start,
            capacity: range.len(),
            touched: 0,
            backing: Backing::Arena { arena: Arc::clone(self), index },
        })
    }

    fn give_back(&self, index: usize, start: NonNull<u8>, bytes: usize) {
        #[cfg(target_os = "linux")]
        if self.huge.swap(false, Ordering::Relaxed) {
            let length = self.offsets.last().copied().unwrap_or(0).next_multiple_of(HUGE_PAGE);
            // SAFETY: the range lies inside the mapping; the advice does not change its contents.
            let _ = unsafe { madvise(self.mapping.as_ptr().add(self.base).cast(), length, Advice::LinuxNoHugepage) };
        }
        // SAFETY: the range is that of a slot being dropped: inside the mapping, and nothing borrows it.
        unsafe { release_pages(start.as_ptr(), bytes) };
        self.taken[index].store(false, Ordering::Release);
    }
}

impl Drop for HugeArena {
    fn drop(&mut self) {
        // SAFETY: the arena owns the mapping; slots hold the arena alive, so none is left.
        unsafe { unmap(self.mapping, self.mapped) };
    }
}

fn null() -> io::Error {
    io::Error::other("the kernel mapped address 0")
}

fn map_anonymous(bytes: usize) -> io::Result<NonNull<u8>> {
    #[cfg(target_os = "linux")]
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    #[cfg(not(target_os = "linux"))]
    let flags = MapFlags::PRIVATE;
    // SAFETY: a fresh anonymous mapping aliases nothing.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    NonNull::new(start.cast()).ok_or_else(null)
}

/// # Safety
/// The mapping is owned by the caller and not borrowed.
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller. An error would mean a range that is not mapped, of which there is nothing to give back.
    let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
}

/// Gives pages back to the kernel; they read as zero afterwards (their contents are undefined on other systems).
///
/// # Safety
/// The range is whole pages of an anonymous mapping owned by the caller and not borrowed.
unsafe fn release_pages(start: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    let advice = Advice::LinuxDontNeed;
    #[cfg(not(target_os = "linux"))]
    let advice = Advice::DontNeed;
    // SAFETY: by the caller.
    let _ = unsafe { madvise(start.cast(), bytes, advice) };
}
