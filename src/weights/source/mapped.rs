//! Maps of the file, one for each extent in memory, for comparison with what other programs do.
//!
//! A map of its own for each extent keeps the kernel from mapping neighbours in along with it, and lets the pages go for
//! good, from the process and from the page cache, when the extent leaves.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::buffered::open_plain;
use super::{Parts, Source, read_at};
use crate::weights::SourceKind;
use crate::weights::arena::{Slot, page_bytes};

#[derive(Debug)]
pub(super) struct Mapped {
    parts: Parts,
}

impl Mapped {
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self, (PathBuf, io::Error)> {
        Ok(Self { parts: Parts::open(paths, open_plain)? })
    }
}

/// What the kernel reads ahead for one call at least, whatever the device.
const READ_AHEAD_BYTES: usize = 128 << 10;

/// Has the kernel begin to read a range: all of it at once, where faults would read page after page.
fn read_ahead(file: &File, offset: u64, bytes: u64) {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    for at in (offset..offset + bytes).step_by(READ_AHEAD_BYTES) {
        let length = std::num::NonZeroU64::new((offset + bytes - at).min(READ_AHEAD_BYTES as u64));
        let _ = rustix::fs::fadvise(file, at, length, rustix::fs::Advice::WillNeed);
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    let _ = (file, offset, bytes, READ_AHEAD_BYTES);
}

impl Source for Mapped {
    fn kind(&self) -> SourceKind {
        SourceKind::Mmap
    }

    fn alignment(&self) -> u64 {
        page_bytes() as u64
    }

    /// For embedding rows and extents that are expanded: a plain read.
    fn read(&self, part: u16, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let file = self.parts.file(part)?;
        let read = read_at(&file, offset, buffer);
        super::drop_from_page_cache(&file, offset, buffer.len() as u64);
        read
    }

    fn map(&self, part: u16, offset: u64, bytes: usize) -> Option<io::Result<Slot>> {
        let map = || -> io::Result<Slot> {
            let file = self.parts.file(part)?;
            // A map past the end of a file that was cut faults; ask first.
            let end = file.metadata()?.len();
            if offset + bytes as u64 > end.next_multiple_of(page_bytes() as u64) {
                return Err(io::Error::other(format!("the file ends at byte {end}: it was cut while in use")));
            }
            read_ahead(&file, offset, bytes as u64);
            Slot::map_file(&file, offset, bytes)
        };
        Some(map())
    }

    fn reopen(&self, part: u16) -> io::Result<()> {
        self.parts.reopen(part)
    }

    fn path(&self, part: u16) -> &Path {
        self.parts.path(part)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;

    use super::*;
    use crate::weights::memory::file_cache_bytes;
    use crate::weights::source::drop_from_page_cache;

    #[test]
    fn a_map_brings_no_page_but_its_own_into_the_cache_even_where_a_page_was_not_read_ahead() {
        const BYTES: usize = 8 << 20;
        let slot_bytes = page_bytes() * 4;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![7; BYTES]).unwrap();
        file.sync_all().unwrap();
        let paths = [path];
        let cached = || file_cache_bytes(&paths).unwrap();
        let source = Mapped::open(&paths).unwrap();
        let file = source.parts.file(0).unwrap();
        drop_from_page_cache(&file, 0, BYTES as u64);
        let before = cached();
        if before > 0 {
            // A file system in memory: nothing can be told there.
            return;
        }
        // Straight to the map, as if what was read ahead had been dropped along with a neighbour.
        let slot = Slot::map_file(&file, BYTES as u64 / 2, slot_bytes).unwrap();
        assert_eq!(slot.bytes(0..slot_bytes), vec![7; slot_bytes]);
        assert_eq!(cached(), slot_bytes as u64);
        drop(slot);
        let slot = source.map(0, BYTES as u64 / 4, slot_bytes).unwrap().unwrap();
        assert_eq!(cached(), slot_bytes as u64);
        drop(slot);
        assert_eq!(cached(), 0);
    }
}
