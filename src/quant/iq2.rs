//! IQ2_XXS, IQ2_XS and IQ2_S: eight magnitudes an index into a table, their signs apart.
//!
//! Source: `block_iq2_xxs`, `block_iq2_xs`, `block_iq2_s` and `dequantize_row_iq2_*` of GGML.

use super::block::{F16, block};
use super::iq_grids::{IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, even_signs};

block! {
    /// `x = d * (scale + 1/2) / 4 * ±grid`, 8 sub-blocks of 32, each eight bytes of `qs`: four indices, then a
    /// little-endian word with four times seven sign bits (see [`super::even_signs`]) and the scale in its top four.
    BlockIq2Xxs: IQ2_XXS {
        d: F16,
        qs: [u8; 64],
    }
    decode decode_iq2_xxs
}

block! {
    /// As [`BlockIq2Xxs`] with sub-blocks of 16: each word of `qs` is nine bits of index and seven of signs, each
    /// nibble of `scales` a scale.
    BlockIq2Xs: IQ2_XS {
        d: F16,
        qs: [u8; 64],
        scales: [u8; 8],
    }
    decode decode_iq2_xs
}

block! {
    /// As [`BlockIq2Xs`] with ten bits of index, the upper two in `qh` (four a byte), and eight sign bits in `signs`.
    BlockIq2S: IQ2_S {
        d: F16,
        qs: [u8; 32],
        signs: [u8; 32],
        qh: [u8; 8],
        scales: [u8; 8],
    }
    decode decode_iq2_s
}

/// Writes `scale * ±grid`; bit i of `signs` set makes element i negative.
pub(super) fn signed<const N: usize>(scale: f32, grid: &[i8; N], signs: u8, out: &mut [f32]) {
    for (i, (x, &magnitude)) in out.iter_mut().zip(grid).enumerate() {
        let value = scale * f32::from(magnitude);
        *x = if (signs >> i) & 1 == 0 { value } else { -value };
    }
}

fn scale(d: f32, bits: u8) -> f32 {
    d * (0.5 + f32::from(bits)) * 0.25
}

fn decode_iq2_xxs(block: &BlockIq2Xxs, out: &mut [f32]) {
    let d = block.d.to_f32();
    for (sub, x) in block.qs.as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let [indices @ .., s0, s1, s2, s3] = *sub;
        let word = u32::from_le_bytes([s0, s1, s2, s3]);
        let scale = scale(d, (word >> 28) as u8);
        for (i, (index, x)) in indices.into_iter().zip(x.as_chunks_mut::<8>().0).enumerate() {
            let signs = even_signs((word >> (7 * i)) as u8 & 127);
            signed(scale, &IQ2_XXS_GRID[usize::from(index)], signs, x);
        }
    }
}

fn decode_iq2_xs(block: &BlockIq2Xs, out: &mut [f32]) {
    let d = block.d.to_f32();
    for (j, (word, x)) in block.qs.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<8>().0).enumerate() {
        let word = u16::from_le_bytes(*word);
        let scale = scale(d, (block.scales[j / 4] >> (j / 2 % 2 * 4)) & 15);
        signed(scale, &IQ2_XS_GRID[usize::from(word & 511)], even_signs((word >> 9) as u8), x);
    }
}

fn decode_iq2_s(block: &BlockIq2S, out: &mut [f32]) {
    let d = block.d.to_f32();
    for (j, x) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = scale(d, (block.scales[j / 4] >> (j / 2 % 2 * 4)) & 15);
        let high = (block.qh[j / 4] >> (j % 4 * 2)) & 3;
        let index = usize::from(block.qs[j]) | usize::from(high) << 8;
        signed(scale, &IQ2_S_GRID[index], block.signs[j], x);
    }
}
