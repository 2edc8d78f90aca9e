//! Q6_K: 256 elements of six bits in 16 sub-blocks, each with an eight-bit scale.
//!
//! Source: `block_q6_K` and `dequantize_row_q6_K` of GGML.

use super::block::{F16, block};

block! {
    /// `x = d * scale * (q - 32)`, sub-blocks of 16. Of each half of 128 elements, 64 bytes of `ql` hold the low
    /// nibbles (elements 0 to 63 in the low, 64 to 127 in the high halves) and 32 bytes of `qh` the upper two bits
    /// (bits 2i and 2i + 1 of byte l are those of element 32i + l).
    BlockQ6K: Q6_K {
        ql: [u8; 128],
        qh: [u8; 64],
        scales: [i8; 16],
        d: F16,
    }
    decode decode_q6_k
}

fn decode_q6_k(block: &BlockQ6K, out: &mut [f32]) {
    let d = block.d.to_f32();
    for (sub, x) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(block.scales[sub]);
        let (half, within) = (sub / 8, sub % 8 * 16);
        let (low_first, low_shift) = (half * 64 + within % 64, within / 64 * 4);
        let (high_first, high_shift) = (half * 32 + within % 32, within / 32 * 2);
        for (l, x) in x.iter_mut().enumerate() {
            let low = (block.ql[low_first + l] >> low_shift) & 15;
            let high = (block.qh[high_first + l] >> high_shift) & 3;
            *x = scale * f32::from((low | high << 4) as i8 - 32);
        }
    }
}
