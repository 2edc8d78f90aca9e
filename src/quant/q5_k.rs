//! Q5_K: Q4_K with a fifth bit an element.
//!
//! Source: `block_q5_K` and `dequantize_row_q5_K` of GGML.

use super::block::{F16, block};
use super::q4_k::unpack_scales_mins;

block! {
    /// `x = d * scale * q - dmin * min`, sub-blocks of 32. Scales and nibbles as in [`super::BlockQ4K`];
    /// bit i of `qh[l]` is the fifth bit of element 32i + l.
    BlockQ5K: Q5_K {
        d: F16,
        dmin: F16,
        scales: [u8; 12],
        qh: [u8; 32],
        qs: [u8; 128],
    }
    decode decode_q5_k
}

fn decode_q5_k(block: &BlockQ5K, out: &mut [f32]) {
    let (d, dmin) = (block.d.to_f32(), block.dmin.to_f32());
    let (scales, mins) = unpack_scales_mins(&block.scales);
    for (sub, x) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let scale = d * f32::from(scales[sub]);
        let min = dmin * f32::from(mins[sub]);
        let (shift, first) = (sub % 2 * 4, sub / 2 * 32);
        for (l, x) in x.iter_mut().enumerate() {
            let q = ((block.qs[first + l] >> shift) & 15) | ((block.qh[l] >> sub) & 1) << 4;
            *x = scale * f32::from(q) - min;
        }
    }
}
