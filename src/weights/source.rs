//! Where the bytes of weights come from: the parts of a model's file, read past the page cache, through it, or mapped.

mod buffered;
mod direct;
mod mapped;

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::SourceKind;
use super::arena::Slot;
use super::store::StoreError;

/// A way of reading the parts of a file.
pub trait Source: Send + Sync + Debug {
    fn kind(&self) -> SourceKind;

    /// Reads begin at multiples of this, and are multiples of it long.
    fn alignment(&self) -> u64;

    /// One read of at most `buffer`; fewer bytes only at the end of the file (or where the system is so minded).
    fn read(&self, part: u16, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// A slot that is a map of the range, already read in; `None` where this source reads into memory of ours.
    fn map(&self, _part: u16, _offset: u64, _bytes: usize) -> Option<io::Result<Slot>> {
        None
    }

    /// After a failed read: opens the part anew by its path, as a disk that was away may be back.
    fn reopen(&self, part: u16) -> io::Result<()>;

    fn path(&self, part: u16) -> &Path;
}

/// Opens the parts with the source asked for, or `Buffered` where the file system refuses `Direct`.
pub fn open(kind: SourceKind, paths: &[PathBuf]) -> Result<Box<dyn Source>, StoreError> {
    let refused = |(path, source): (PathBuf, io::Error)| StoreError::Open { path, source };
    Ok(match kind {
        SourceKind::Direct => match direct::Direct::open(paths).map_err(refused)? {
            Some(direct) => Box::new(direct),
            None => Box::new(buffered::Buffered::open(paths).map_err(refused)?),
        },
        SourceKind::Buffered => Box::new(buffered::Buffered::open(paths).map_err(refused)?),
        SourceKind::Mmap => Box::new(mapped::Mapped::open(paths).map_err(refused)?),
    })
}

/// One open part; reopened when the disk comes back.
#[derive(Debug)]
struct PartFile {
    path: PathBuf,
    bytes: u64,
    file: Mutex<Arc<File>>,
}

type Opener = fn(&Path) -> io::Result<File>;

/// All parts of a model.
#[derive(Debug)]
struct Parts {
    parts: Vec<PartFile>,
    opener: Opener,
}

impl Parts {
    fn open(paths: &[PathBuf], opener: Opener) -> Result<Self, (PathBuf, io::Error)> {
        let open = |path: &PathBuf| -> io::Result<PartFile> {
            let file = opener(path)?;
            let bytes = file.metadata()?.len();
            Ok(PartFile { path: path.clone(), bytes, file: Mutex::new(Arc::new(file)) })
        };
        let parts = paths
            .iter()
            .map(|path| open(path).map_err(|error| (path.clone(), error)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { parts, opener })
    }

    fn part(&self, part: u16) -> io::Result<&PartFile> {
        self.parts.get(usize::from(part)).ok_or_else(|| io::Error::other(format!("there is no part {part}")))
    }

    fn file(&self, part: u16) -> io::Result<Arc<File>> {
        Ok(Arc::clone(&self.part(part)?.file.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn path(&self, part: u16) -> &Path {
        self.parts.get(usize::from(part)).map_or(Path::new(""), |part| &part.path)
    }

    fn reopen(&self, part: u16) -> io::Result<()> {
        let part = self.part(part)?;
        let file = (self.opener)(&part.path)?;
        let bytes = file.metadata()?.len();
        if bytes != part.bytes {
            return Err(io::Error::other(format!("the file has {bytes} bytes now and had {} when loaded", part.bytes)));
        }
        *part.file.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(file);
        Ok(())
    }
}

fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::pread(file, &mut *buffer, offset) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Asks the kernel to forget a range of a file, the pages at its ends included.
pub(super) fn drop_from_page_cache(file: &File, offset: u64, bytes: u64) {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    {
        let page = super::arena::page_bytes() as u64;
        let start = offset / page * page;
        let length = std::num::NonZeroU64::new((offset + bytes).next_multiple_of(page) - start);
        let _ = rustix::fs::fadvise(file, start, length, rustix::fs::Advice::DontNeed);
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    let _ = (file, offset, bytes);
}

/// Switches the kernel's own read-ahead off: ours knows better.
fn no_read_ahead(file: &File) {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    let _ = file;
}
