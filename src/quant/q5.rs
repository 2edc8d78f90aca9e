//! Q5_0 and Q5_1: 32 elements of five bits, the fifth bits apart.
//!
//! Source: `block_q5_0`, `block_q5_1` and `dequantize_row_q5_*` of GGML.

use super::block::{F16, block};

block! {
    /// `x = d * (q - 16)`. Nibbles as in [`super::BlockQ4_0`]; bit j of `qh` (little endian) is the fifth bit of element j.
    BlockQ5_0: Q5_0 {
        d: F16,
        qh: [u8; 4],
        qs: [u8; 16],
    }
    decode decode_q5_0
}

block! {
    /// `x = d * q + m`. Bits as in [`BlockQ5_0`].
    BlockQ5_1: Q5_1 {
        d: F16,
        m: F16,
        qh: [u8; 4],
        qs: [u8; 16],
    }
    decode decode_q5_1
}

/// Elements j and j + 16.
fn pair(qs: &[u8; 16], qh: u32, j: usize) -> (u8, u8) {
    let low = (qs[j] & 15) | ((qh >> j) << 4) as u8 & 16;
    let high = (qs[j] >> 4) | ((qh >> (j + 16)) << 4) as u8 & 16;
    (low, high)
}

fn decode_q5_0(block: &BlockQ5_0, out: &mut [f32]) {
    let d = block.d.to_f32();
    let qh = u32::from_le_bytes(block.qh);
    for j in 0..16 {
        let (low, high) = pair(&block.qs, qh, j);
        out[j] = d * (i32::from(low) - 16) as f32;
        out[j + 16] = d * (i32::from(high) - 16) as f32;
    }
}

fn decode_q5_1(block: &BlockQ5_1, out: &mut [f32]) {
    let (d, m) = (block.d.to_f32(), block.m.to_f32());
    let qh = u32::from_le_bytes(block.qh);
    for j in 0..16 {
        let (low, high) = pair(&block.qs, qh, j);
        out[j] = d * f32::from(low) + m;
        out[j + 16] = d * f32::from(high) + m;
    }
}
