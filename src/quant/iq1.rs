//! IQ1_S and IQ1_M: eight elements an 11-bit index into a table of ternary vectors, each shifted by an eighth.
//!
//! Source: `block_iq1_s`, `block_iq1_m` and `dequantize_row_iq1_*` of GGML.

use super::block::{F16, block};
use super::iq_grids::IQ1_GRID;

/// What is added to (or, where the bit is set, taken from) every element of a vector before scaling.
pub const IQ1_DELTA: f32 = 0.125;

block! {
    /// `x = d * (2 * scale + 1) * (grid ± 1/8)`, 8 sub-blocks of 32. Of sub-block i, `qs[4i..]` are the low bytes of
    /// four indices; `qh` word i (little endian) holds their upper three bits from bit 0 up, the scale in bits 12 to
    /// 14 and the sign of the shift in bit 15.
    BlockIq1S: IQ1_S {
        d: F16,
        qs: [u8; 32],
        qh: [u8; 16],
    }
    decode decode_iq1_s
}

block! {
    /// As [`BlockIq1S`] with sub-blocks of 16 and a sign of the shift for every eight elements. Nibble j of `qh` has
    /// the upper three bits of index j and the sign. Each of four words of `scales` holds four scales of three bits
    /// and, on top, four bits of `d`, the lowest in the first.
    BlockIq1M: IQ1_M {
        qs: [u8; 32],
        qh: [u8; 16],
        scales: [u8; 8],
    }
    decode decode_iq1_m
}

impl BlockIq1M {
    /// The scale of the block, gathered from the top bits of the scale words.
    #[inline]
    pub fn d(&self) -> F16 {
        let top = |i: usize| self.scales[2 * i + 1] >> 4;
        F16([top(0) | top(1) << 4, top(2) | top(3) << 4])
    }

    /// The scale of sub-block `i` of 16.
    #[inline]
    pub fn scale(&self, i: usize) -> u8 {
        let word = u16::from_le_bytes([self.scales[i / 4 * 2], self.scales[i / 4 * 2 + 1]]);
        (word >> (i % 4 * 3)) as u8 & 7
    }
}

fn vector(scale: f32, index: usize, delta: f32, out: &mut [f32; 8]) {
    for (x, &level) in out.iter_mut().zip(&IQ1_GRID[index]) {
        *x = scale * (f32::from(level) + delta);
    }
}

fn decode_iq1_s(block: &BlockIq1S, out: &mut [f32]) {
    let d = block.d.to_f32();
    for (j, x) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let high = u16::from_le_bytes([block.qh[j / 4 * 2], block.qh[j / 4 * 2 + 1]]);
        let scale = d * f32::from(2 * ((high >> 12) & 7) + 1);
        let delta = if high & 0x8000 == 0 { IQ1_DELTA } else { -IQ1_DELTA };
        let index = usize::from(block.qs[j]) | usize::from((high >> (j % 4 * 3)) & 7) << 8;
        vector(scale, index, delta, x);
    }
}

fn decode_iq1_m(block: &BlockIq1M, out: &mut [f32]) {
    let d = block.d().to_f32();
    for (j, x) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * f32::from(2 * block.scale(j / 2) + 1);
        let high = block.qh[j / 2] >> (j % 2 * 4);
        let delta = if high & 8 == 0 { IQ1_DELTA } else { -IQ1_DELTA };
        let index = usize::from(block.qs[j]) | usize::from(high & 7) << 8;
        vector(scale, index, delta, x);
    }
}
