//! The file that a model grows in until it is whole: `NAME.part`, beside where it belongs.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::gguf;

/// A locked part file: one process at a time fetches a model.
pub(super) struct PartFile {
    file: File,
    path: PathBuf,
    target: PathBuf,
    sum: Sha256,
    written: u64,
}

/// What [`PartFile::lock`] found.
pub(super) enum Locked {
    Ours(PartFile),
    /// Another process is at it.
    Busy,
}

impl PartFile {
    /// Opens or creates the part file of `target` and takes the lock on it.
    pub(super) fn lock(target: &Path) -> io::Result<Locked> {
        let path = suffixed(target, ".part");
        loop {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Locked::Busy),
                // Some network file systems have no locks; fetching alone there is the user's care.
                Err(TryLockError::Error(_)) => {}
            }
            // Between our opening and our locking another process may have finished and renamed it.
            let ours = file.metadata()?;
            match std::fs::metadata(&path) {
                Ok(named) if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) => {
                    return Ok(Locked::Ours(Self {
                        file,
                        path,
                        target: target.into(),
                        sum: Sha256::new(),
                        written: 0,
                    }));
                }
                _ => continue,
            }
        }
    }

    /// Bytes that an earlier fetch left, with what tells of which file they are.
    pub(super) fn left(&self) -> Option<(u64, String)> {
        let bytes = self.file.metadata().ok()?.len();
        let validator = std::fs::read_to_string(suffixed(&self.path, ".of")).ok()?;
        (bytes > 0 && !validator.is_empty()).then_some((bytes, validator))
    }

    /// Goes on after the first `bytes`, which are read again for the sum; `progress` hears how far that is and says
    /// whether to go on. False when it was stopped.
    pub(super) fn resume(&mut self, bytes: u64, progress: &mut dyn FnMut(u64) -> bool) -> io::Result<bool> {
        self.sum = Sha256::new();
        self.file.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; 1 << 20];
        let mut done = 0;
        while done < bytes {
            if !progress(done) {
                return Ok(false);
            }
            let want = usize::try_from(bytes - done).unwrap_or(buffer.len()).min(buffer.len());
            self.file.read_exact(&mut buffer[..want])?;
            self.sum.update(&buffer[..want]);
            done += want as u64;
        }
        self.file.set_len(bytes)?;
        self.written = bytes;
        Ok(true)
    }

    /// Begins anew, noting of which file the bytes will be.
    pub(super) fn restart(&mut self, validator: Option<&str>) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.sum = Sha256::new();
        self.written = 0;
        match validator {
            Some(validator) => std::fs::write(suffixed(&self.path, ".of"), validator),
            None => remove_if_there(&suffixed(&self.path, ".of")),
        }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.sum.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// sha256 of all that was written.
    pub(super) fn sum(&self) -> String {
        self.sum.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether what was written begins as a GGUF file does.
    pub(super) fn is_gguf(&mut self) -> io::Result<bool> {
        let mut magic = [0; 4];
        self.file.seek(SeekFrom::Start(0))?;
        match self.file.read_exact(&mut magic) {
            Ok(()) => Ok(&magic == b"GGUF"),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What is wrong with the model file that was written.
    pub(super) fn fault(&self) -> Option<String> {
        let error = gguf::check_file(&self.path).err()?.to_string();
        let path = format!("{}: ", self.path.display());
        Some(error.strip_prefix(&path).unwrap_or(&error).to_owned())
    }

    /// Puts the whole file in its place, on disk for good before it is seen there.
    pub(super) fn finish(self) -> io::Result<PathBuf> {
        self.file.sync_all()?;
        std::fs::rename(&self.path, &self.target)?;
        remove_if_there(&suffixed(&self.path, ".of"))?;
        // The rename itself; some file systems do not sync folders.
        if let Some(folder) = self.target.parent() {
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
        Ok(self.target)
    }

    /// Leaves nothing behind.
    pub(super) fn discard(self) -> io::Result<()> {
        remove_if_there(&suffixed(&self.path, ".of"))?;
        remove_if_there(&self.path)
    }
}

/// Bytes that a fetch which broke off left for `target`; 0 when there are none.
pub fn left_bytes(target: &Path) -> u64 {
    std::fs::metadata(suffixed(target, ".part")).map_or(0, |data| data.len())
}

/// Removes what a fetch which broke off left for `target`.
///
/// # Errors
/// It cannot be removed, or another process is at it.
pub fn discard_left(target: &Path) -> io::Result<()> {
    if left_bytes(target) == 0 && !suffixed(target, ".part").exists() {
        return Ok(());
    }
    match PartFile::lock(target)? {
        Locked::Ours(part) => part.discard(),
        Locked::Busy => Err(io::Error::other("it is being fetched by another process")),
    }
}

/// The path with something after its file name.
pub(super) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
