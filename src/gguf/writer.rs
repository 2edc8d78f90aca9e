//! Writing GGUF files (version 3, little endian): toy models and test files. Tensor data is streamed, so a file of any
//! size is written in constant memory.

use std::io::{self, Write};

use super::directory::TensorInfo;
use super::metadata::ValueType;
use super::tensor_type::TensorType;

/// A value as it can be written to metadata.
pub trait WriteValue {
    const TYPE: ValueType;
    /// Appends the value's bytes, without its type.
    fn append(&self, out: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($rust:ty => $ty:ident),*) => {$(
        impl WriteValue for $rust {
            const TYPE: ValueType = ValueType::$ty;
            fn append(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
numbers!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, u64 => U64, i64 => I64, f64 => F64);

impl WriteValue for bool {
    const TYPE: ValueType = ValueType::Bool;
    fn append(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl WriteValue for &str {
    const TYPE: ValueType = ValueType::String;
    fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        out.extend_from_slice(self.as_bytes());
    }
}

impl WriteValue for String {
    const TYPE: ValueType = ValueType::String;
    fn append(&self, out: &mut Vec<u8>) {
        self.as_str().append(out);
    }
}

impl<T: WriteValue> WriteValue for &[T] {
    const TYPE: ValueType = ValueType::Array;
    fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(T::TYPE as u32).to_le_bytes());
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        for element in *self {
            element.append(out);
        }
    }
}

/// A file in the making: first its metadata and directory, then its data in one go.
#[derive(Debug)]
pub struct Writer {
    alignment: u64,
    pairs: u64,
    metadata: Vec<u8>,
    /// Offsets count from the start of the data here.
    tensors: Vec<TensorInfo>,
    data_bytes: u64,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    pub fn new() -> Self {
        let alignment = super::DEFAULT_ALIGNMENT;
        Self { alignment, pairs: 0, metadata: Vec::new(), tensors: Vec::new(), data_bytes: 0 }
    }

    /// A writer whose tensors begin at multiples of `alignment`, a power of two.
    pub fn with_alignment(alignment: u32) -> Self {
        let mut writer = Self { alignment: alignment.into(), ..Self::new() };
        writer.set("general.alignment", alignment);
        writer
    }

    pub fn set<V: WriteValue>(&mut self, key: &str, value: V) {
        key.append(&mut self.metadata);
        self.metadata.extend_from_slice(&(V::TYPE as u32).to_le_bytes());
        value.append(&mut self.metadata);
        self.pairs += 1;
    }

    /// Adds a tensor after those before it; `shape[0]` is the row length.
    ///
    /// # Errors
    /// The rows are not whole blocks of the type, or the shape is larger than a file can be.
    pub fn tensor(&mut self, name: impl Into<String>, shape: &[u64], ty: TensorType) -> io::Result<()> {
        let name = name.into();
        let bytes = ty
            .row_bytes(shape.first().copied().unwrap_or(0))
            .and_then(|row| shape.get(1..)?.iter().try_fold(row, |bytes, &dim| bytes.checked_mul(dim)))
            .ok_or_else(|| io::Error::other(format!("{name}: shape {shape:?} is not whole {ty} blocks")))?;
        let offset = self.data_bytes;
        self.data_bytes = (offset + bytes).next_multiple_of(self.alignment);
        self.tensors.push(TensorInfo { name, shape: shape.to_vec(), ty, part: 0, offset, bytes });
        Ok(())
    }

    /// The tensors so far, in the order in which [`Writer::write`] asks for their data.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Writes the file; `data` writes each tensor's bytes.
    ///
    /// # Errors
    /// Writing fails, or `data` does not write as many bytes as the tensor has.
    pub fn write<W: Write>(
        &self,
        out: W,
        mut data: impl FnMut(&TensorInfo, &mut Counted<W>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut out = Counted { inner: out, written: 0 };
        out.write_all(&self.header())?;
        let start = out.written;
        for tensor in &self.tensors {
            data(tensor, &mut out)?;
            let written = out.written - start - tensor.offset;
            if written != tensor.bytes {
                let what = format!("{}: {written} bytes written, {} expected", tensor.name, tensor.bytes);
                return Err(io::Error::other(what));
            }
            let padding = written.next_multiple_of(self.alignment) - written;
            io::copy(&mut io::Read::take(io::repeat(0), padding), &mut out)?;
        }
        out.flush()
    }

    /// Everything before the data, padded.
    fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        header.extend_from_slice(b"GGUF");
        header.extend_from_slice(&3u32.to_le_bytes());
        header.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        header.extend_from_slice(&self.pairs.to_le_bytes());
        header.extend_from_slice(&self.metadata);
        for tensor in &self.tensors {
            tensor.name.append(&mut header);
            header.extend_from_slice(&(tensor.shape.len() as u32).to_le_bytes());
            for dim in &tensor.shape {
                header.extend_from_slice(&dim.to_le_bytes());
            }
            header.extend_from_slice(&(tensor.ty as u32).to_le_bytes());
            header.extend_from_slice(&tensor.offset.to_le_bytes());
        }
        header.resize(header.len().next_multiple_of(self.alignment as usize), 0);
        header
    }
}

/// A writer that knows how much went through it.
pub struct Counted<W> {
    inner: W,
    written: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
