//! Reads files that a user or a setting names and that are held in memory whole: regular files of a bounded size.
//!
//! A pipe would be waited for without end, a device is without end, and a file may have been made large on purpose.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::size::format_size;

/// Bytes of a file that goes into a message; no model's context holds more.
pub const FOR_A_MESSAGE: u64 = 4 << 20;

/// The bytes of the file at `path`.
///
/// # Errors
/// It is no regular file, is larger than `most_bytes`, or cannot be read.
pub fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let too_large = || io::Error::new(ErrorKind::FileTooLarge, format!("larger than {}", format_size(most_bytes)));
    if file.metadata()?.len() > most_bytes {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile, and files of the kernel say that they are empty.
    file.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes { Err(too_large()) } else { Ok(bytes) }
}

/// The text of the file at `path`.
///
/// # Errors
/// As [`read`], and where it is not UTF-8.
pub fn read_text(path: &Path, most_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, most_bytes)?).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not text in UTF-8"))
}

fn open(path: &Path) -> io::Result<File> {
    let no_file = || io::Error::new(ErrorKind::InvalidInput, "not a file");
    // Asked by name first, since opening a device may do something.
    if !std::fs::metadata(path)?.is_file() {
        return Err(no_file());
    }
    // What has taken the name meanwhile is not waited for either.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_that_are_small_and_text_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "four").unwrap();
        let why = |path: &Path, most| read_text(path, most).unwrap_err().to_string();
        assert_eq!(read_text(&path, 4).unwrap(), "four");
        assert_eq!(why(&path, 3), "larger than 3 B");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(why(&path, 4), "not text in UTF-8");
        assert_eq!(why(folder.path(), 4), "not a file");
        assert_eq!(why("/dev/zero".as_ref(), 4), "not a file");
        assert_eq!(read(&folder.path().join("none"), 4).unwrap_err().kind(), ErrorKind::NotFound);
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(why(&pipe, 4), "not a file");
    }
}
