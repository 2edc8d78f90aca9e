//! Reading a header front to back through one small window: no mapping, and no allocation that a length in the
//! file decides before the length has been checked.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::error::GgufError;

const WINDOW_BYTES: usize = 64 << 10;

/// What the strings and directory entries of a header may take in memory, all together.
const RETAINED_LIMIT_BYTES: u64 = 64 << 20;

/// A position in a file, little endian.
pub(super) struct Cursor<'a> {
    pub(super) path: &'a Path,
    file: &'a File,
    len: u64,
    pos: u64,
    retained: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(path: &'a Path, file: &'a File, len: u64, pos: u64) -> Self {
        Self { path, file, len, pos, retained: 0, window: Vec::new(), window_start: 0 }
    }

    pub(super) fn pos(&self) -> u64 {
        self.pos
    }

    pub(super) fn remaining(&self) -> u64 {
        self.len.saturating_sub(self.pos)
    }

    pub(super) fn damaged(&self, what: impl Into<String>) -> GgufError {
        GgufError::damaged(self.path, self.pos, what)
    }

    /// Counts memory that what is being read will keep.
    pub(super) fn retain(&mut self, bytes: u64) -> Result<(), GgufError> {
        self.retained = self.retained.saturating_add(bytes);
        if self.retained > RETAINED_LIMIT_BYTES {
            return Err(self
                .damaged(format!("the header holds more than {} MiB of names and text", RETAINED_LIMIT_BYTES >> 20)));
        }
        Ok(())
    }

    fn check(&self, bytes: u64, what: &str) -> Result<(), GgufError> {
        if bytes > self.remaining() {
            let left = self.remaining();
            return Err(self.damaged(format!("{what} needs {bytes} bytes, the file has {left} left")));
        }
        Ok(())
    }

    pub(super) fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        const { assert!(N <= WINDOW_BYTES) };
        self.check(N as u64, what)?;
        let inside =
            self.pos >= self.window_start && self.pos + N as u64 <= self.window_start + self.window.len() as u64;
        if !inside {
            let fill = self.remaining().min(WINDOW_BYTES as u64) as usize;
            self.window.resize(fill, 0);
            self.window_start = self.pos;
            if let Err(source) = self.file.read_exact_at(&mut self.window, self.pos) {
                self.window.clear();
                return Err(GgufError::io(self.path, source));
            }
        }
        let at = (self.pos - self.window_start) as usize;
        let mut out = [0; N];
        out.copy_from_slice(&self.window[at..at + N]);
        self.pos += N as u64;
        Ok(out)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    pub(super) fn skip(&mut self, bytes: u64, what: &str) -> Result<(), GgufError> {
        self.check(bytes, what)?;
        self.pos += bytes;
        Ok(())
    }

    /// A string's bytes, kept in memory and counted as such.
    pub(super) fn string_bytes(&mut self, limit: u64, what: &str) -> Result<Vec<u8>, GgufError> {
        let len = self.u64(what)?;
        self.check(len, what)?;
        if len > limit {
            return Err(self.damaged(format!("{what} of {len} bytes is longer than the {limit} allowed")));
        }
        self.retain(len)?;
        let mut bytes = vec![0; len as usize];
        let inside = self.pos >= self.window_start && self.pos + len <= self.window_start + self.window.len() as u64;
        if inside {
            let at = (self.pos - self.window_start) as usize;
            bytes.copy_from_slice(&self.window[at..at + len as usize]);
        } else {
            self.file.read_exact_at(&mut bytes, self.pos).map_err(|source| GgufError::io(self.path, source))?;
        }
        self.pos += len;
        Ok(bytes)
    }

    /// A name: UTF-8, or the file is refused.
    pub(super) fn name(&mut self, limit: u64, what: &str) -> Result<String, GgufError> {
        let at = self.pos;
        let bytes = self.string_bytes(limit, what)?;
        String::from_utf8(bytes).map_err(|_| GgufError::damaged(self.path, at, format!("{what} is not UTF-8")))
    }

    /// Steps over a string without keeping it; returns its length.
    pub(super) fn skip_string(&mut self, what: &str) -> Result<u64, GgufError> {
        let len = self.u64(what)?;
        self.skip(len, what)?;
        Ok(len)
    }
}
