//! Q4_K: 256 elements of four bits in 8 sub-blocks, each with a six-bit scale and a six-bit minimum.
//!
//! Source: `block_q4_K`, `get_scale_min_k4` and `dequantize_row_q4_K` of GGML.

use super::block::{F16, block};

block! {
    /// `x = d * scale * q - dmin * min`, sub-blocks of 32. Each 32 bytes of `qs` hold 64 elements: the low nibbles
    /// first, then the high ones.
    BlockQ4K: Q4_K {
        d: F16,
        dmin: F16,
        scales: [u8; 12],
        qs: [u8; 128],
    }
    decode decode_q4_k
}

/// Scale and minimum of each of 8 sub-blocks from their 12 packed bytes (Q4_K and Q5_K).
///
/// Those of sub-blocks 0 to 3 are the low six bits of bytes 0 to 7; of the others, the low four bits are in bytes
/// 8 to 11 and the upper two are the top bits of bytes 0 to 7.
#[inline]
pub fn unpack_scales_mins(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let scales = std::array::from_fn(|i| match i {
        0..4 => packed[i] & 63,
        _ => (packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4,
    });
    let mins = std::array::from_fn(|i| match i {
        0..4 => packed[i + 4] & 63,
        _ => (packed[i + 4] >> 4) | (packed[i] >> 6) << 4,
    });
    (scales, mins)
}

/// The inverse of [`unpack_scales_mins`]; values of 0..=63.
pub(super) fn pack_scales_mins(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for i in 0..4 {
        packed[i] = scales[i] | scales[i + 4] >> 4 << 6;
        packed[i + 4] = mins[i] | mins[i + 4] >> 4 << 6;
        packed[i + 8] = (scales[i + 4] & 15) | mins[i + 4] << 4;
    }
    packed
}

fn decode_q4_k(block: &BlockQ4K, out: &mut [f32]) {
    let (d, dmin) = (block.d.to_f32(), block.dmin.to_f32());
    let (scales, mins) = unpack_scales_mins(&block.scales);
    for (sub, x) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let scale = d * f32::from(scales[sub]);
        let min = dmin * f32::from(mins[sub]);
        let (shift, first) = (sub % 2 * 4, sub / 2 * 32);
        for (x, &q) in x.iter_mut().zip(&block.qs[first..first + 32]) {
            *x = scale * f32::from((q >> shift) & 15) - min;
        }
    }
}
