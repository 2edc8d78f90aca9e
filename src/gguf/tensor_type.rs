//! The numbers that GGUF gives to tensor element types, with the size of one block of each.
//!
//! Source: `enum ggml_type` and the block structs of the GGML project, as listed by the GGUF specification.

use std::fmt;

macro_rules! tensor_types {
    ($($variant:ident = $id:literal, $name:literal, $block:literal, $bytes:literal;)*) => {
        /// Element type of a tensor, named as llama.cpp names it.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum TensorType { $($variant = $id,)* }

        impl TensorType {
            /// Every type this program knows by name.
            pub const ALL: &'static [TensorType] = &[$(TensorType::$variant,)*];

            /// The type with this number, if it is one the GGUF specification lists.
            pub fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(Self::$variant),)* _ => None }
            }

            /// The name as llama.cpp prints it, such as `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Elements in one block.
            pub const fn block_len(self) -> usize {
                match self { $(Self::$variant => $block,)* }
            }

            /// Bytes of one block.
            pub const fn block_bytes(self) -> usize {
                match self { $(Self::$variant => $bytes,)* }
            }
        }
    };
}

tensor_types! {
    F32 = 0, "F32", 1, 4;
    F16 = 1, "F16", 1, 2;
    Q4_0 = 2, "Q4_0", 32, 18;
    Q4_1 = 3, "Q4_1", 32, 20;
    Q5_0 = 6, "Q5_0", 32, 22;
    Q5_1 = 7, "Q5_1", 32, 24;
    Q8_0 = 8, "Q8_0", 32, 34;
    Q8_1 = 9, "Q8_1", 32, 36;
    Q2_K = 10, "Q2_K", 256, 84;
    Q3_K = 11, "Q3_K", 256, 110;
    Q4_K = 12, "Q4_K", 256, 144;
    Q5_K = 13, "Q5_K", 256, 176;
    Q6_K = 14, "Q6_K", 256, 210;
    Q8_K = 15, "Q8_K", 256, 292;
    IQ2_XXS = 16, "IQ2_XXS", 256, 66;
    IQ2_XS = 17, "IQ2_XS", 256, 74;
    IQ3_XXS = 18, "IQ3_XXS", 256, 98;
    IQ1_S = 19, "IQ1_S", 256, 50;
    IQ4_NL = 20, "IQ4_NL", 32, 18;
    IQ3_S = 21, "IQ3_S", 256, 110;
    IQ2_S = 22, "IQ2_S", 256, 82;
    IQ4_XS = 23, "IQ4_XS", 256, 136;
    I8 = 24, "I8", 1, 1;
    I16 = 25, "I16", 1, 2;
    I32 = 26, "I32", 1, 4;
    I64 = 27, "I64", 1, 8;
    F64 = 28, "F64", 1, 8;
    IQ1_M = 29, "IQ1_M", 256, 56;
    BF16 = 30, "BF16", 1, 2;
    TQ1_0 = 34, "TQ1_0", 256, 54;
    TQ2_0 = 35, "TQ2_0", 256, 66;
    MXFP4 = 39, "MXFP4", 32, 17;
}

impl TensorType {
    /// Bytes of a row of `elements`, or `None` when the row is not whole blocks or overflows.
    pub fn row_bytes(self, elements: u64) -> Option<u64> {
        let block = self.block_len() as u64;
        elements.is_multiple_of(block).then(|| (elements / block).checked_mul(self.block_bytes() as u64)).flatten()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
