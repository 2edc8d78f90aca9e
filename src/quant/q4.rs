//! Q4_0 and Q4_1: 32 elements of four bits.
//!
//! Source: `block_q4_0`, `block_q4_1` and `dequantize_row_q4_*` of GGML.

use super::block::{F16, block};

block! {
    /// `x = d * (q - 8)`. Byte j holds element j in its low and element j + 16 in its high nibble.
    BlockQ4_0: Q4_0 {
        d: F16,
        qs: [u8; 16],
    }
    decode decode_q4_0
}

block! {
    /// `x = d * q + m`. Nibbles as in [`BlockQ4_0`].
    BlockQ4_1: Q4_1 {
        d: F16,
        m: F16,
        qs: [u8; 16],
    }
    decode decode_q4_1
}

fn decode_q4_0(block: &BlockQ4_0, out: &mut [f32]) {
    let d = block.d.to_f32();
    let (low, high) = out.split_at_mut(16);
    for (j, &q) in block.qs.iter().enumerate() {
        low[j] = d * (i32::from(q & 15) - 8) as f32;
        high[j] = d * (i32::from(q >> 4) - 8) as f32;
    }
}

fn decode_q4_1(block: &BlockQ4_1, out: &mut [f32]) {
    let (d, m) = (block.d.to_f32(), block.m.to_f32());
    let (low, high) = out.split_at_mut(16);
    for (j, &q) in block.qs.iter().enumerate() {
        low[j] = d * f32::from(q & 15) + m;
        high[j] = d * f32::from(q >> 4) + m;
    }
}
