//! IQ3_XXS and IQ3_S: four magnitudes an index into a table, their signs apart.
//!
//! Source: `block_iq3_xxs`, `block_iq3_s` and `dequantize_row_iq3_*` of GGML.

use super::block::{F16, block};
use super::iq_grids::{IQ3_S_GRID, IQ3_XXS_GRID, even_signs};
use super::iq2::signed;

block! {
    /// `x = d * (scale + 1/2) / 2 * ±grid`, 8 sub-blocks of 32: eight indices of `qs` and a little-endian word of
    /// `scales_signs` with four times seven sign bits (see [`super::even_signs`]) and the scale in its top four.
    BlockIq3Xxs: IQ3_XXS {
        d: F16,
        qs: [u8; 64],
        scales_signs: [u8; 32],
    }
    decode decode_iq3_xxs
}

block! {
    /// `x = d * (2 * scale + 1) * ±grid`, 8 sub-blocks of 32, each nibble of `scales` a scale. Bit i of `qh[s]` is
    /// the ninth bit of index i of sub-block s; `signs` has a bit an element.
    BlockIq3S: IQ3_S {
        d: F16,
        qs: [u8; 64],
        qh: [u8; 8],
        signs: [u8; 32],
        scales: [u8; 4],
    }
    decode decode_iq3_s
}

fn decode_iq3_xxs(block: &BlockIq3Xxs, out: &mut [f32]) {
    let d = block.d.to_f32();
    for (j, x) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = u32::from_le_bytes(block.scales_signs.as_chunks::<4>().0[j / 4]);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        let signs = even_signs((word >> (j % 4 * 7)) as u8 & 127);
        let (first, second) = x.split_at_mut(4);
        signed(scale, &IQ3_XXS_GRID[usize::from(block.qs[2 * j])], signs, first);
        signed(scale, &IQ3_XXS_GRID[usize::from(block.qs[2 * j + 1])], signs >> 4, second);
    }
}

fn decode_iq3_s(block: &BlockIq3S, out: &mut [f32]) {
    let d = block.d.to_f32();
    for (j, x) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let sub = j / 4;
        let scale = d * f32::from(1 + 2 * ((block.scales[sub / 2] >> (sub % 2 * 4)) & 15));
        let index = |i: usize| usize::from(block.qs[i]) | usize::from((block.qh[sub] >> (i % 8)) & 1) << 8;
        let (first, second) = x.split_at_mut(4);
        signed(scale, &IQ3_S_GRID[index(2 * j)], block.signs[j], first);
        signed(scale, &IQ3_S_GRID[index(2 * j + 1)], block.signs[j] >> 4, second);
    }
}
