//! MXFP4: 32 four-bit floats (E2M1) under one eight-bit exponent (E8M0).
//!
//! Source: OCP Microscaling Formats specification v1.0; `block_mxfp4`, `kvalues_mxfp4` and `dequantize_row_mxfp4` of GGML.

use super::block::block;

/// Twice the E2M1 values that the nibbles stand for; the scale is halved in exchange.
pub const MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

block! {
    /// `x = 2^(e - 128) * MXFP4_VALUES[q]`. Nibbles as in [`super::BlockQ4_0`].
    BlockMxfp4: MXFP4 {
        e: u8,
        qs: [u8; 16],
    }
    decode decode_mxfp4
}

impl BlockMxfp4 {
    /// `2^(e - 128)`, which is half of what E8M0 says, subnormal for the two smallest exponents.
    #[inline]
    pub fn scale(&self) -> f32 {
        match self.e {
            0 | 1 => f32::from_bits(0x0020_0000 << self.e),
            e => f32::from_bits(u32::from(e - 1) << 23),
        }
    }
}

fn decode_mxfp4(block: &BlockMxfp4, out: &mut [f32]) {
    let d = block.scale();
    let (low, high) = out.split_at_mut(16);
    for (j, &q) in block.qs.iter().enumerate() {
        low[j] = d * f32::from(MXFP4_VALUES[usize::from(q & 15)]);
        high[j] = d * f32::from(MXFP4_VALUES[usize::from(q >> 4)]);
    }
}
