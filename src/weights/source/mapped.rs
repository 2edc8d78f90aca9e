//! Maps of the file, one for each extent in memory, for comparison with what other programs do.
//!
//! A map of its own for each extent keeps the kernel from mapping neighbours in along with it, and lets the pages go for
//! good, from the process and from the page cache, when the extent leaves.

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
            #[cfg(target_os = "linux")]
            let _ = rustix::fs::fadvise(
                &file,
                offset,
                std::num::NonZeroU64::new(bytes as u64),
                rustix::fs::Advice::WillNeed,
            );
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
