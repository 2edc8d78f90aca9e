//! Reads through the page cache, which is emptied behind the reader: the file's cache must not grow.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::{Parts, Source, drop_from_page_cache, no_read_ahead, read_at};
use crate::weights::SourceKind;

#[derive(Debug)]
pub(super) struct Buffered {
    parts: Parts,
}

impl Buffered {
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self, (PathBuf, io::Error)> {
        Ok(Self { parts: Parts::open(paths, open_plain)? })
    }
}

pub(super) fn open_plain(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    no_read_ahead(&file);
    #[cfg(target_vendor = "apple")]
    let _ = rustix::fs::fcntl_nocache(&file, true);
    Ok(file)
}

impl Source for Buffered {
    fn kind(&self) -> SourceKind {
        SourceKind::Buffered
    }

    fn alignment(&self) -> u64 {
        1
    }

    fn read(&self, part: u16, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let file = self.parts.file(part)?;
        let read = read_at(&file, offset, buffer);
        drop_from_page_cache(&file, offset, buffer.len() as u64);
        read
    }

    fn reopen(&self, part: u16) -> io::Result<()> {
        self.parts.reopen(part)
    }

    fn path(&self, part: u16) -> &Path {
        self.parts.path(part)
    }
}
