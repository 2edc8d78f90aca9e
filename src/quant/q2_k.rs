//! Q2_K: 256 elements of two bits in 16 sub-blocks, each with a four-bit scale and a four-bit minimum.
//!
//! Source: `block_q2_K` and `dequantize_row_q2_K` of GGML.

use super::block::{F16, block};

block! {
    /// `x = d * scale * q - dmin * min`, sub-blocks of 16. `scales` holds the scale in the low, the minimum in the
    /// high nibble. Each 32 bytes of `qs` hold 128 elements: bits 2i and 2i + 1 of byte l are element 32i + l.
    BlockQ2K: Q2_K {
        scales: [u8; 16],
        qs: [u8; 64],
        d: F16,
        dmin: F16,
    }
    decode decode_q2_k
}

fn decode_q2_k(block: &BlockQ2K, out: &mut [f32]) {
    let (d, dmin) = (block.d.to_f32(), block.dmin.to_f32());
    for (sub, x) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(block.scales[sub] & 15);
        let min = dmin * f32::from(block.scales[sub] >> 4);
        let (shift, first) = (sub / 2 % 4 * 2, sub / 8 * 32 + sub % 2 * 16);
        for (x, &q) in x.iter_mut().zip(&block.qs[first..first + 16]) {
            *x = scale * f32::from((q >> shift) & 3) - min;
        }
    }
}
