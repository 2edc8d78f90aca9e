//! What the packed formats share: a block is read from bytes and decodes to its elements.

use crate::gguf::TensorType;

/// A packed block: a fixed number of elements in a fixed number of bytes.
///
/// Every block struct is `#[repr(C)]` with byte alignment and exactly the file's layout, little endian, so a row
/// of bytes is an array of blocks.
pub trait Block: Copy {
    const TYPE: TensorType;

    /// The block at the start of `bytes`, which holds at least one.
    fn read(bytes: &[u8]) -> Self;

    /// Writes the block's elements; `out` has exactly `TYPE.block_len()`.
    fn decode(&self, out: &mut [f32]);
}

/// A half-precision number as its bytes stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub [u8; 2]);

impl F16 {
    #[inline]
    pub fn to_f32(self) -> f32 {
        half::f16::from_le_bytes(self.0).to_f32()
    }

    pub fn from_f32(value: f32) -> Self {
        Self(half::f16::from_f32(value).to_le_bytes())
    }
}

/// A field of a block struct.
pub trait Field: Sized {
    /// Takes the field from the front of `bytes`.
    fn take(bytes: &mut &[u8]) -> Self;
}

impl<const N: usize> Field for [u8; N] {
    #[inline]
    fn take(bytes: &mut &[u8]) -> Self {
        let (head, rest) = bytes.split_at(N);
        *bytes = rest;
        let mut field = [0; N];
        field.copy_from_slice(head);
        field
    }
}

impl<const N: usize> Field for [i8; N] {
    #[inline]
    fn take(bytes: &mut &[u8]) -> Self {
        <[u8; N]>::take(bytes).map(|byte| byte as i8)
    }
}

impl Field for F16 {
    #[inline]
    fn take(bytes: &mut &[u8]) -> Self {
        Self(<[u8; 2]>::take(bytes))
    }
}

impl Field for u8 {
    #[inline]
    fn take(bytes: &mut &[u8]) -> Self {
        <[u8; 1]>::take(bytes)[0]
    }
}

/// Declares a block struct and how it is read; its size is checked against the type's.
macro_rules! block {
    ($(#[$meta:meta])* $name:ident: $ty:ident { $($(#[$field_meta:meta])* $field:ident: $field_ty:ty,)* } decode $decode:path) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct $name { $($(#[$field_meta])* pub $field: $field_ty,)* }

        const _: () = assert!(size_of::<$name>() == <$name as $crate::quant::Block>::TYPE.block_bytes());
        const _: () = assert!(align_of::<$name>() == 1);

        impl $crate::quant::Block for $name {
            const TYPE: $crate::gguf::TensorType = $crate::gguf::TensorType::$ty;

            #[inline]
            fn read(bytes: &[u8]) -> Self {
                let mut rest = bytes;
                Self { $($field: <$field_ty as $crate::quant::block::Field>::take(&mut rest),)* }
            }

            #[inline]
            fn decode(&self, out: &mut [f32]) {
                $decode(self, out);
            }
        }
    };
}
pub(super) use block;

/// Decodes whole blocks of `row` into `out`.
pub(super) fn decode_blocks<B: Block>(row: &[u8], out: &mut [f32]) {
    let blocks = row.chunks_exact(B::TYPE.block_bytes());
    for (bytes, elements) in blocks.zip(out.chunks_exact_mut(B::TYPE.block_len())) {
        B::read(bytes).decode(elements);
    }
}
