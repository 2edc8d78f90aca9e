//! O_DIRECT: reads go from the device into our slots and leave the page cache alone.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::{Parts, Source, read_at};
use crate::weights::SourceKind;
use crate::weights::arena::{Slot, page_bytes};

#[derive(Debug)]
pub(super) struct Direct {
    parts: Parts,
    alignment: u64,
}

impl Direct {
    /// `None` where the file system of any part takes no direct reads (some overlays and network file systems).
    pub(super) fn open(paths: &[PathBuf]) -> Result<Option<Self>, (PathBuf, io::Error)> {
        // A plain open first: a missing file is to be told from a refusal.
        for path in paths {
            File::open(path).map_err(|error| (path.clone(), error))?;
        }
        let Ok(parts) = Parts::open(paths, open_direct) else { return Ok(None) };
        let mut alignment = 512;
        for part in 0..paths.len() as u16 {
            match parts.file(part).and_then(|file| probe(&file)) {
                Ok(of_part) => alignment = alignment.max(of_part),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(Self { parts, alignment }))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn open_direct(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT, Mode::empty())?;
    Ok(File::from(fd))
}

/// macOS has no O_DIRECT; `Buffered` asks it not to cache.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn open_direct(_path: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What reads of this file must be aligned to, tried out with one.
fn probe(file: &File) -> io::Result<u64> {
    let told = told_alignment(file);
    let page = page_bytes() as u64;
    let candidates = match told {
        Some(alignment) => [alignment, alignment.max(4096)],
        None => [4096, page.max(4096)],
    };
    let mut slot = Slot::anonymous(candidates[1] as usize)?;
    let mut last = io::Error::from(io::ErrorKind::Unsupported);
    for alignment in candidates {
        if !alignment.is_power_of_two() || alignment > 1 << 20 {
            continue;
        }
        match read_at(file, 0, slot.bytes_mut(alignment as usize)) {
            Ok(_) => return Ok(alignment),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The alignment that statx tells (Linux 6.1 and later).
#[cfg(any(target_os = "linux", target_os = "android"))]
fn told_alignment(file: &File) -> Option<u64> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let stat = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let told = u64::from(stat.stx_dio_offset_align).max(u64::from(stat.stx_dio_mem_align));
    (stat.stx_dio_offset_align > 0).then_some(told)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn told_alignment(_file: &File) -> Option<u64> {
    None
}

impl Source for Direct {
    fn kind(&self) -> SourceKind {
        SourceKind::Direct
    }

    fn alignment(&self) -> u64 {
        self.alignment
    }

    fn read(&self, part: u16, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        read_at(&*self.parts.file(part)?, offset, buffer)
    }

    fn reopen(&self, part: u16) -> io::Result<()> {
        self.parts.reopen(part)
    }

    fn path(&self, part: u16) -> &Path {
        self.parts.path(part)
    }
}
