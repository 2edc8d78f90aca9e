//! Arrays of the metadata, read from the file when asked for.

use std::os::unix::fs::FileExt;

use super::cursor::Cursor;
use super::metadata::{ArrayInfo, Value, ValueType};
use super::{Gguf, GgufError};

/// No vocabulary comes near this; the file's length alone would let an array fill the memory.
const ARRAY_LIMIT_BYTES: u64 = 256 << 20;

/// Strings of an array, end to end in one allocation.
#[derive(Debug, Default)]
pub struct StringArena {
    bytes: Vec<u8>,
    /// Where each string ends in `bytes`.
    ends: Vec<u32>,
}

impl StringArena {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`; empty when there is none.
    pub fn get(&self, index: usize) -> &[u8] {
        let Some(&end) = self.ends.get(index) else { return &[] };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..end as usize]
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Bytes this arena holds in memory.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

impl Gguf {
    /// The strings of array `key`; `None` when there is no such key.
    ///
    /// # Errors
    /// The key holds something else, or the file cannot be read.
    pub fn strings(&self, key: &str) -> Result<Option<StringArena>, GgufError> {
        let Some(value) = self.metadata().get(key) else { return Ok(None) };
        let info = match value {
            Value::Array(info) if info.element == ValueType::String => info,
            other => return Err(self.wrong_type(key, other, "an array of strings")),
        };
        let (path, file) = self.first_part();
        self.refuse_large(key, info)?;
        let mut raw = vec![0; info.bytes as usize];
        file.read_exact_at(&mut raw, info.offset).map_err(|source| GgufError::io(path, source))?;
        // Compacted in place: the text moves down over the length prefixes.
        let mut ends = Vec::with_capacity(info.len as usize);
        let (mut read, mut write) = (0, 0);
        for _ in 0..info.len {
            let changed = || GgufError::key(path, key, "changed while it was read; try again");
            let prefix = raw.get(read..).and_then(|rest| rest.first_chunk::<8>()).ok_or_else(changed)?;
            let len = u64::from_le_bytes(*prefix) as usize;
            read += 8;
            let end = read.checked_add(len).filter(|&end| end <= raw.len()).ok_or_else(changed)?;
            raw.copy_within(read..end, write);
            read = end;
            write += len;
            ends.push(write as u32);
        }
        raw.truncate(write);
        raw.shrink_to_fit();
        Ok(Some(StringArena { bytes: raw, ends }))
    }

    /// The numbers of array `key`, of any numeric type. A single number counts as an array of one.
    ///
    /// # Errors
    /// The key holds something else, or the file cannot be read.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        self.numbers(key, "numbers", |value| value.as_f64().map(|v| v as f32))
    }

    /// The integers of array `key`, of any width and sign (booleans count as 0 and 1). A single one counts as an array of one.
    ///
    /// # Errors
    /// The key holds something else, one does not fit, or the file cannot be read.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>, GgufError> {
        self.numbers(key, "32-bit integers", |value| integer(value).and_then(|v| i32::try_from(v).ok()))
    }

    /// As [`Gguf::i32s`], unsigned.
    ///
    /// # Errors
    /// As [`Gguf::i32s`].
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>, GgufError> {
        self.numbers(key, "unsigned 32-bit integers", |value| integer(value).and_then(|v| u32::try_from(v).ok()))
    }

    /// As [`Gguf::i32s`], unsigned and wide.
    ///
    /// # Errors
    /// As [`Gguf::i32s`].
    pub fn u64s(&self, key: &str) -> Result<Option<Vec<u64>>, GgufError> {
        self.numbers(key, "unsigned integers", |value| value.as_u64().or_else(|| value.as_bool().map(u64::from)))
    }

    /// The first elements of an array, at most `count`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn array_head(&self, info: &ArrayInfo, count: u64) -> Result<Vec<Value>, GgufError> {
        let (path, file) = self.first_part();
        let mut cursor = Cursor::new(path, file, info.offset + info.bytes, info.offset);
        (0..info.len.min(count)).map(|_| Value::read(&mut cursor, info.element)).collect()
    }

    fn numbers<T>(
        &self,
        key: &str,
        wanted: &str,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, GgufError> {
        let Some(value) = self.metadata().get(key) else { return Ok(None) };
        let Value::Array(info) = value else {
            return match convert(value) {
                Some(number) => Ok(Some(vec![number])),
                None => Err(self.wrong_type(key, value, wanted)),
            };
        };
        self.refuse_large(key, info)?;
        let ArrayInfo { element, len, offset, .. } = *info;
        let (path, file) = self.first_part();
        let mut cursor = Cursor::new(path, file, offset + info.bytes, offset);
        let mut numbers = Vec::with_capacity(len as usize);
        for index in 0..len {
            let element = Value::read_fixed(&mut cursor, element, "an array")?
                .ok_or_else(|| self.wrong_type(key, value, wanted))?;
            let number = convert(&element).ok_or_else(|| {
                GgufError::key(
                    path,
                    key,
                    format!("element {index} is not one of {wanted}; the file is damaged, fetch it again"),
                )
            })?;
            numbers.push(number);
        }
        Ok(Some(numbers))
    }

    fn refuse_large(&self, key: &str, info: &ArrayInfo) -> Result<(), GgufError> {
        if info.bytes <= ARRAY_LIMIT_BYTES {
            return Ok(());
        }
        let what = format!("is {} bytes long, {ARRAY_LIMIT_BYTES} at most are read; fetch another file", info.bytes);
        Err(GgufError::key(self.first_part().0, key, what))
    }

    fn wrong_type(&self, key: &str, value: &Value, wanted: &str) -> GgufError {
        let is = match value {
            Value::Array(info) => format!("an array of {}", info.element.name()),
            other => other.value_type().name().to_owned(),
        };
        GgufError::key(self.first_part().0, key, format!("is {is} where {wanted} is needed; fetch another file"))
    }
}

fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_bool().map(i64::from))
}
