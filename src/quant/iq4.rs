//! IQ4_NL and IQ4_XS: four bits into a table of 16 values spaced unevenly.
//!
//! Source: `block_iq4_nl`, `block_iq4_xs`, `kvalues_iq4nl` and `dequantize_row_iq4_*` of GGML.

use super::block::{F16, block};

/// The values that the nibbles stand for.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

block! {
    /// `x = d * IQ4_VALUES[q]`. Nibbles as in [`super::BlockQ4_0`].
    BlockIq4Nl: IQ4_NL {
        d: F16,
        qs: [u8; 16],
    }
    decode decode_iq4_nl
}

block! {
    /// `x = d * (scale - 32) * IQ4_VALUES[q]`, 8 sub-blocks of 32, each 16 bytes of nibbles as in [`super::BlockQ4_0`].
    /// A scale's low nibble is in `scales_l` (two a byte), its upper two bits in `scales_h` (little endian).
    BlockIq4Xs: IQ4_XS {
        d: F16,
        scales_h: [u8; 2],
        scales_l: [u8; 4],
        qs: [u8; 128],
    }
    decode decode_iq4_xs
}

impl BlockIq4Xs {
    /// The 8 scales, 32 taken off.
    #[inline]
    pub fn unpack_scales(&self) -> [i8; 8] {
        let upper = u16::from_le_bytes(self.scales_h);
        std::array::from_fn(|i| {
            let low = (self.scales_l[i / 2] >> (i % 2 * 4)) & 15;
            let high = (upper >> (2 * i)) as u8 & 3;
            (low | high << 4) as i8 - 32
        })
    }
}

fn nibbles(scale: f32, qs: &[u8], out: &mut [f32]) {
    let (low, high) = out.split_at_mut(16);
    for (j, &q) in qs.iter().enumerate() {
        low[j] = scale * f32::from(IQ4_VALUES[usize::from(q & 15)]);
        high[j] = scale * f32::from(IQ4_VALUES[usize::from(q >> 4)]);
    }
}

fn decode_iq4_nl(block: &BlockIq4Nl, out: &mut [f32]) {
    nibbles(block.d.to_f32(), &block.qs, out);
}

fn decode_iq4_xs(block: &BlockIq4Xs, out: &mut [f32]) {
    let d = block.d.to_f32();
    let scales = block.unpack_scales();
    let subs = block.qs.chunks_exact(16).zip(out.chunks_exact_mut(32));
    for (scale, (qs, x)) in scales.into_iter().zip(subs) {
        nibbles(d * f32::from(scale), qs, x);
    }
}
