//! Metadata: key-value pairs as the file holds them. Arrays are known by their place only, since vocabularies
//! of hundreds of thousands of strings must not cost memory until they are asked for.
//!
//! Source: GGUF specification, `gguf_metadata_value_t`.

use super::cursor::Cursor;
use super::error::{GgufError, printable};

/// A key of the file is at most this long (GGUF specification: 2^16 - 1).
const KEY_LIMIT_BYTES: u64 = 65_535;
const TEXT_LIMIT_BYTES: u64 = 16 << 20;

/// Type of a metadata value; the numbers are the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    pub(super) fn from_id(id: u32) -> Option<Self> {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64].get(id as usize).copied()
    }

    /// Bytes of one value; `None` for strings and arrays, whose length is their own.
    pub(super) fn fixed_bytes(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

/// Where an array lies in the (first part of the) file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayInfo {
    pub element: ValueType,
    pub len: u64,
    /// Byte of the file at which the first element begins.
    pub offset: u64,
    /// Bytes of all elements, the length prefixes of strings included.
    pub bytes: u64,
}

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    /// Bytes that are not UTF-8 are replaced. The text is the file's: sanitise it before it meets a terminal.
    String(String),
    Array(ArrayInfo),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    pub(super) fn read_fixed(cursor: &mut Cursor, ty: ValueType, what: &str) -> Result<Option<Self>, GgufError> {
        Ok(Some(match ty {
            ValueType::U8 => Self::U8(cursor.bytes::<1>(what)?[0]),
            ValueType::I8 => Self::I8(i8::from_le_bytes(cursor.bytes(what)?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(cursor.bytes(what)?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(cursor.bytes(what)?)),
            ValueType::U32 => Self::U32(u32::from_le_bytes(cursor.bytes(what)?)),
            ValueType::I32 => Self::I32(i32::from_le_bytes(cursor.bytes(what)?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(cursor.bytes(what)?)),
            ValueType::Bool => Self::Bool(cursor.bytes::<1>(what)?[0] != 0),
            ValueType::U64 => Self::U64(u64::from_le_bytes(cursor.bytes(what)?)),
            ValueType::I64 => Self::I64(i64::from_le_bytes(cursor.bytes(what)?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(cursor.bytes(what)?)),
            ValueType::String | ValueType::Array => return Ok(None),
        }))
    }

    pub(super) fn read(cursor: &mut Cursor, ty: ValueType) -> Result<Self, GgufError> {
        const WHAT: &str = "a metadata value";
        if let Some(value) = Self::read_fixed(cursor, ty, WHAT)? {
            return Ok(value);
        }
        if ty == ValueType::String {
            let bytes = cursor.string_bytes(TEXT_LIMIT_BYTES, WHAT)?;
            return Ok(Self::String(match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
            }));
        }
        let id = cursor.u32("an array's element type")?;
        let element = ValueType::from_id(id)
            .filter(|element| *element != ValueType::Array)
            .ok_or_else(|| cursor.damaged(format!("an array has elements of type {id}, which no array may have")))?;
        let len = cursor.u64("an array's length")?;
        let offset = cursor.pos();
        match element.fixed_bytes() {
            Some(size) => {
                let bytes = len.checked_mul(size).ok_or_else(|| {
                    cursor.damaged(format!("an array of {len} elements is larger than any file can be"))
                })?;
                cursor.skip(bytes, "an array")?;
            }
            None => {
                if len > cursor.remaining() / 8 {
                    return Err(cursor.damaged(format!(
                        "an array of {len} strings does not fit in the {} bytes left",
                        cursor.remaining()
                    )));
                }
                for _ in 0..len {
                    cursor.skip_string("a string of an array")?;
                }
            }
        }
        Ok(Self::Array(ArrayInfo { element, len, offset, bytes: cursor.pos() - offset }))
    }

    pub fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// An integer of any width, if it is one and not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U64(v) => Some(v),
            _ => self.as_i64().and_then(|v| u64::try_from(v).ok()),
        }
    }

    /// An integer of any width, if it is one and fits.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::I8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::I16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::I32(v) => Some(v.into()),
            Self::U64(v) => i64::try_from(v).ok(),
            Self::I64(v) => Some(v),
            _ => None,
        }
    }

    /// A number of any type.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            Self::U64(v) => Some(v as f64),
            _ => self.as_i64().map(|v| v as f64),
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(v) => Some(v),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&ArrayInfo> {
        match self {
            Self::Array(info) => Some(info),
            _ => None,
        }
    }
}

/// All metadata of a model, in the file's order. Of a split model: that of the first part.
#[derive(Debug, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    /// Indices of `entries`, sorted by key.
    by_key: Vec<u32>,
}

impl Metadata {
    pub(super) fn read(cursor: &mut Cursor, count: u64) -> Result<Self, GgufError> {
        // A key's length, a type and one byte of value: no pair is smaller.
        if count > cursor.remaining() / 13 {
            return Err(
                cursor.damaged(format!("the header promises {count} metadata pairs, more than fit in the file"))
            );
        }
        let mut entries = Vec::new();
        for _ in 0..count {
            let key = cursor.name(KEY_LIMIT_BYTES, "a metadata key")?;
            let at = cursor.pos();
            let id = cursor.u32("a metadata value's type")?;
            let ty = ValueType::from_id(id).ok_or_else(|| {
                GgufError::damaged(cursor.path, at, format!("metadata {} has the unknown type {id}", printable(&key)))
            })?;
            cursor.retain(size_of::<(String, Value)>() as u64)?;
            entries.push((key, Value::read(cursor, ty)?));
        }
        let mut by_key: Vec<u32> = (0..entries.len() as u32).collect();
        by_key.sort_unstable_by(|&a, &b| entries[a as usize].0.cmp(&entries[b as usize].0));
        if let Some(pair) = by_key.windows(2).find(|p| entries[p[0] as usize].0 == entries[p[1] as usize].0) {
            let key = &entries[pair[0] as usize].0;
            return Err(GgufError::key(cursor.path, key, "occurs twice; the file is damaged, fetch it again"));
        }
        Ok(Self { entries, by_key })
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        let found = self.by_key.binary_search_by(|&i| self.entries[i as usize].0.as_str().cmp(key)).ok()?;
        Some(&self.entries[self.by_key[found] as usize].1)
    }

    pub fn str(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// An integer of any width that is not negative.
    pub fn u64(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_u64()
    }

    /// An integer of any width.
    pub fn i64(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64()
    }

    /// A number of any type.
    pub fn f64(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    pub fn bool(&self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    pub fn array(&self, key: &str) -> Option<&ArrayInfo> {
        self.get(key)?.as_array()
    }

    /// Keys and values in the file's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
