//! Q3_K: 256 elements of three bits in 16 sub-blocks, each with a six-bit scale.
//!
//! Source: `block_q3_K` and `dequantize_row_q3_K` of GGML.

use super::block::{F16, block};

block! {
    /// `x = d * (scale - 32) * q`, q in -4..=3, sub-blocks of 16. Low two bits in `qs` as in [`super::BlockQ2K`];
    /// bit i of `hmask[l]` is set when element 32i + l is not to be lowered by 4.
    BlockQ3K: Q3_K {
        hmask: [u8; 32],
        qs: [u8; 64],
        scales: [u8; 12],
        d: F16,
    }
    decode decode_q3_k
}

impl BlockQ3K {
    /// The 16 scales, 32 taken off: low nibbles in bytes 0 to 7 (scales 8 to 15 in the high halves),
    /// upper two bits in bytes 8 to 11.
    #[inline]
    pub fn unpack_scales(&self) -> [i8; 16] {
        std::array::from_fn(|i| {
            let low = (self.scales[i % 8] >> (i / 8 * 4)) & 15;
            let high = (self.scales[8 + i % 4] >> (i / 4 * 2)) & 3;
            (low | high << 4) as i8 - 32
        })
    }

    /// The inverse of [`Self::unpack_scales`]; values of -32..=31.
    pub(super) fn pack_scales(scales: &[i8; 16]) -> [u8; 12] {
        let mut packed = [0; 12];
        for (i, &scale) in scales.iter().enumerate() {
            let scale = (scale + 32) as u8;
            packed[i % 8] |= (scale & 15) << (i / 8 * 4);
            packed[8 + i % 4] |= (scale >> 4) << (i / 4 * 2);
        }
        packed
    }
}

fn decode_q3_k(block: &BlockQ3K, out: &mut [f32]) {
    let d = block.d.to_f32();
    let scales = block.unpack_scales();
    for (sub, x) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(scales[sub]);
        let (shift, half) = (sub / 2 % 4 * 2, sub % 2 * 16);
        let first = sub / 8 * 32 + half;
        for (l, x) in x.iter_mut().enumerate() {
            let low = ((block.qs[first + l] >> shift) & 3) as i8;
            let lowered = (!block.hmask[half + l] >> (sub / 2)) & 1;
            *x = scale * f32::from(low - (lowered << 2) as i8);
        }
    }
}
