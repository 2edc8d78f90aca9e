//! Reading GGUF files: header, metadata and tensor directory, single or split, never trusting a length.
//!
//! Source: the GGUF specification of the GGML project, versions 2 and 3, little endian. Files are read by `pread`
//! through one small window; nothing is mapped, and arrays stay in the file until they are asked for.

mod arrays;
mod cursor;
mod directory;
mod error;
mod metadata;
mod split;
mod tensor_type;
pub mod writer;

#[cfg(test)]
mod tests;

pub use arrays::StringArena;
pub use directory::TensorInfo;
pub use error::GgufError;
pub use metadata::{ArrayInfo, Metadata, Value, ValueType};
pub use tensor_type::TensorType;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cursor::Cursor;

/// Where tensors begin when `general.alignment` does not say otherwise.
const DEFAULT_ALIGNMENT: u64 = 32;

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub path: PathBuf,
    pub bytes: u64,
}

/// Header, metadata and tensor directory of one model, all parts of a split file together.
#[derive(Debug)]
pub struct Gguf {
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Indices of `tensors`, sorted by name.
    by_name: Vec<u32>,
    parts: Vec<Part>,
    files: Vec<File>,
    version: u32,
}

impl Gguf {
    /// Reads and checks the header of the model at `path`; any part of a split model finds the rest.
    ///
    /// # Errors
    /// The file cannot be read, is no GGUF file of a known version, or is not what its header says.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let first = PartHeader::open(path, 0)?;
        let headers = match split::count(&first.metadata) {
            0 | 1 => vec![first],
            count => split::open_all(path, first, count)?,
        };
        let mut headers = headers.into_iter();
        let Some(first) = headers.next() else {
            return Err(GgufError::split(path, "the model has no parts"));
        };
        let mut model = Self {
            metadata: first.metadata,
            tensors: first.tensors,
            by_name: Vec::new(),
            parts: vec![first.part],
            files: vec![first.file],
            version: first.version,
        };
        for header in headers {
            model.tensors.extend(header.tensors);
            model.parts.push(header.part);
            model.files.push(header.file);
        }
        model.index_names()?;
        Ok(model)
    }

    fn index_names(&mut self) -> Result<(), GgufError> {
        let tensors = &self.tensors;
        self.by_name = (0..tensors.len() as u32).collect();
        self.by_name.sort_unstable_by(|&a, &b| tensors[a as usize].name.cmp(&tensors[b as usize].name));
        let twice = self.by_name.windows(2).find(|p| tensors[p[0] as usize].name == tensors[p[1] as usize].name);
        match twice {
            Some(pair) => {
                let tensor = &tensors[pair[1] as usize];
                let path = &self.parts[usize::from(tensor.part)].path;
                Err(GgufError::tensor(path, &tensor.name, "occurs twice; the file is damaged, fetch it again"))
            }
            None => Ok(()),
        }
    }

    /// `general.architecture`.
    ///
    /// # Errors
    /// The key is missing or no string.
    pub fn architecture(&self) -> Result<&str, GgufError> {
        const KEY: &str = "general.architecture";
        self.metadata.str(KEY).ok_or_else(|| {
            GgufError::key(
                &self.parts[0].path,
                KEY,
                "is missing or no string, so this is not a model; fetch another file",
            )
        })
    }

    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in directory order, part after part.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let found = self.by_name.binary_search_by(|&i| self.tensors[i as usize].name.as_str().cmp(name)).ok()?;
        Some(&self.tensors[self.by_name[found] as usize])
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The bytes of a small tensor (norms, biases); matrices are streamed elsewhere.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
    pub fn read_tensor(&self, tensor: &TensorInfo) -> Result<Vec<u8>, GgufError> {
        let part = usize::from(tensor.part);
        let mut bytes = vec![0; tensor.bytes as usize];
        self.files[part]
            .read_exact_at(&mut bytes, tensor.offset)
            .map_err(|source| GgufError::io(&self.parts[part].path, source))?;
        Ok(bytes)
    }

    /// Tells the kernel that what was read of the files so far need not stay in its cache.
    pub fn drop_file_cache(&self) {
        #[cfg(target_os = "linux")]
        for file in &self.files {
            // Advice only: a file system that does not take it changes nothing.
            let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }

    fn first_part(&self) -> (&Path, &File) {
        (&self.parts[0].path, &self.files[0])
    }
}

/// Reads the header of one file, which may be a part of a model.
///
/// # Errors
/// It is no GGUF file, its header is damaged, or it ends before its tensors do.
pub fn check_file(path: &Path) -> Result<(), GgufError> {
    PartHeader::open(path, 0).map(drop)
}

/// What one file says, before the parts are joined.
struct PartHeader {
    part: Part,
    file: File,
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
}

impl PartHeader {
    fn open(path: &Path, part: u16) -> Result<Self, GgufError> {
        let io = |source| GgufError::io(path, source);
        // Asked by name, since opening a pipe would wait for its other end.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(GgufError::not_readable(path, "is not a regular file; give a GGUF file"));
        }
        let file = File::open(path).map_err(io)?;
        let status = file.metadata().map_err(io)?;
        let bytes = status.len();
        let mut cursor = Cursor::new(path, &file, bytes, 0);
        let version = preamble(&mut cursor)?;
        let tensor_count = cursor.u64("the number of tensors")?;
        let pair_count = cursor.u64("the number of metadata pairs")?;
        let metadata = Metadata::read(&mut cursor, pair_count)?;
        let alignment = alignment(path, &metadata)?;
        let tensors = directory::read(&mut cursor, tensor_count, alignment, part, bytes)?;
        let part = Part { path: path.to_owned(), bytes };
        Ok(Self { part, file, version, metadata, tensors })
    }
}

/// Magic and version.
fn preamble(cursor: &mut Cursor) -> Result<u32, GgufError> {
    let path = cursor.path;
    match cursor.remaining() {
        0 => return Err(GgufError::not_readable(path, "is empty; fetch it again")),
        1..4 => return Err(GgufError::not_readable(path, "is not a GGUF file (too short); give a GGUF file")),
        _ => {}
    }
    let magic = cursor.bytes::<4>("the magic")?;
    match &magic {
        b"GGUF" => {}
        b"FUGG" => return Err(big_endian(path)),
        b"GGML" | b"lmgg" | b"tjgg" | b"fmgg" => {
            let what = "is of the old GGML format; convert the model to GGUF again";
            return Err(GgufError::not_readable(path, what));
        }
        other => {
            let begins = other.escape_ascii();
            let what = format!("is not a GGUF file (begins with \"{begins}\"); give a GGUF file");
            return Err(GgufError::not_readable(path, what));
        }
    }
    match cursor.u32("the version")? {
        version @ 2..=3 => Ok(version),
        1 => Err(GgufError::not_readable(path, "is of GGUF version 1, which is obsolete; convert the model again")),
        version if version.swap_bytes() <= 0xffff && version != 0 => Err(big_endian(path)),
        version => {
            let what = format!("is of GGUF version {version}, this program reads 2 and 3; fetch another file");
            Err(GgufError::not_readable(path, what))
        }
    }
}

fn big_endian(path: &Path) -> GgufError {
    GgufError::not_readable(
        path,
        "is a big-endian GGUF file, this program reads little-endian ones; convert it with gguf-convert-endian",
    )
}

fn alignment(path: &Path, metadata: &Metadata) -> Result<u64, GgufError> {
    const KEY: &str = "general.alignment";
    match metadata.get(KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(value) => value
            .as_u64()
            .filter(|alignment| alignment.is_power_of_two())
            .ok_or_else(|| GgufError::key(path, KEY, "is not a power of two; the file is damaged, fetch it again")),
    }
}
