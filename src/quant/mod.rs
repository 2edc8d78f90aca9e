//! Quantisation formats: block layouts and scalar decode of one row, which is the oracle for every kernel.
//!
//! One file a family of formats. Decode is defined to the operation (no fused multiply-add, no reordering), so its
//! bits are the same on every machine.

mod block;
mod float;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod iq_grids;
mod mxfp4;
mod q2_k;
mod q3_k;
mod q4;
mod q4_k;
mod q5;
mod q5_k;
mod q6_k;
mod q8;
mod random;
mod ternary;

pub use block::{Block, F16};
pub use iq_grids::{IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID, even_signs};
pub use iq1::{BlockIq1M, BlockIq1S, IQ1_DELTA};
pub use iq2::{BlockIq2S, BlockIq2Xs, BlockIq2Xxs};
pub use iq3::{BlockIq3S, BlockIq3Xxs};
pub use iq4::{BlockIq4Nl, BlockIq4Xs, IQ4_VALUES};
pub use mxfp4::{BlockMxfp4, MXFP4_VALUES};
pub use q2_k::BlockQ2K;
pub use q3_k::BlockQ3K;
pub use q4::{BlockQ4_0, BlockQ4_1};
pub use q4_k::{BlockQ4K, unpack_scales_mins};
pub use q5::{BlockQ5_0, BlockQ5_1};
pub use q5_k::BlockQ5K;
pub use q6_k::BlockQ6K;
pub use q8::BlockQ8_0;
pub use random::{Rng, fill_random_row};
pub use ternary::{BlockTq1_0, BlockTq2_0};

use crate::gguf::TensorType;
use block::decode_blocks;

macro_rules! formats {
    ($($ty:ident => $decode:expr,)*) => {
        /// The types that weights may have.
        pub const SUPPORTED: &[TensorType] = &[$(TensorType::$ty,)*];

        fn decoder(ty: TensorType) -> Option<fn(&[u8], &mut [f32])> {
            match ty {
                $(TensorType::$ty => Some($decode),)*
                _ => None,
            }
        }
    };
}

formats! {
    F32 => float::decode_f32,
    F16 => float::decode_f16,
    BF16 => float::decode_bf16,
    Q4_0 => decode_blocks::<BlockQ4_0>,
    Q4_1 => decode_blocks::<BlockQ4_1>,
    Q5_0 => decode_blocks::<BlockQ5_0>,
    Q5_1 => decode_blocks::<BlockQ5_1>,
    Q8_0 => decode_blocks::<BlockQ8_0>,
    Q2_K => decode_blocks::<BlockQ2K>,
    Q3_K => decode_blocks::<BlockQ3K>,
    Q4_K => decode_blocks::<BlockQ4K>,
    Q5_K => decode_blocks::<BlockQ5K>,
    Q6_K => decode_blocks::<BlockQ6K>,
    IQ4_NL => decode_blocks::<BlockIq4Nl>,
    IQ4_XS => decode_blocks::<BlockIq4Xs>,
    MXFP4 => decode_blocks::<BlockMxfp4>,
    IQ1_S => decode_blocks::<BlockIq1S>,
    IQ1_M => decode_blocks::<BlockIq1M>,
    IQ2_XXS => decode_blocks::<BlockIq2Xxs>,
    IQ2_XS => decode_blocks::<BlockIq2Xs>,
    IQ2_S => decode_blocks::<BlockIq2S>,
    IQ3_XXS => decode_blocks::<BlockIq3Xxs>,
    IQ3_S => decode_blocks::<BlockIq3S>,
    TQ1_0 => decode_blocks::<BlockTq1_0>,
    TQ2_0 => decode_blocks::<BlockTq2_0>,
}

/// Whether weights of this type can be decoded.
pub fn is_supported(ty: TensorType) -> bool {
    decoder(ty).is_some()
}

/// Decodes one row, or any run of whole blocks: `row` holds `ty.row_bytes(out.len())` bytes.
///
/// Of a type that is not [`SUPPORTED`] every element is NaN, so that a missing check cannot pass for weights.
pub fn decode_row(ty: TensorType, row: &[u8], out: &mut [f32]) {
    debug_assert_eq!(ty.row_bytes(out.len() as u64), Some(row.len() as u64), "{ty} row of {} elements", out.len());
    match decoder(ty) {
        Some(decode) => decode(row, out),
        None => out.fill(f32::NAN),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/tests/data/quants/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    fn reference(ty: TensorType) -> (Vec<u8>, Vec<f32>) {
        let values = fixture(&format!("{ty}.f32"));
        let values = values.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        (fixture(&format!("{ty}.blocks")), values)
    }

    #[test]
    fn every_format_decodes_to_the_bits_of_the_reference() {
        for &ty in SUPPORTED {
            if ty == TensorType::F32 {
                continue;
            }
            let (blocks, expected) = reference(ty);
            let mut decoded = vec![f32::NAN; expected.len()];
            decode_row(ty, &blocks, &mut decoded);
            for (i, (got, want)) in decoded.iter().zip(&expected).enumerate() {
                assert_eq!(got.to_bits(), want.to_bits(), "{ty} element {i}: {got} for {want}");
            }
        }
    }

    #[test]
    fn a_random_row_has_the_size_asked_for_and_is_centred() {
        for &ty in SUPPORTED {
            for scale in [0.02, 1.0] {
                let elements = 256 * 256;
                let mut row = vec![0; ty.row_bytes(elements).unwrap() as usize];
                fill_random_row(ty, &mut Rng::new(1), scale, &mut row);
                let mut values = vec![0.0; elements as usize];
                decode_row(ty, &row, &mut values);
                let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / elements as f64;
                let variance = values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / elements as f64;
                let ratio = variance.sqrt() / f64::from(scale);
                // MXFP4's scale is a power of two, so it may be off by half a step.
                let tolerance = if ty == TensorType::MXFP4 { 0.45 } else { 0.1 };
                assert!((ratio - 1.0).abs() < tolerance, "{ty} at {scale}: {ratio} of the size asked for");
                assert!(mean.abs() < 0.15 * f64::from(scale), "{ty} at {scale}: mean {mean}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_decode_and_each_block_on_its_own(which in 0..SUPPORTED.len(), seed: u64, blocks in 1..5usize) {
            let ty = SUPPORTED[which];
            let mut row = vec![0; blocks * ty.block_bytes()];
            Rng::new(seed).fill(&mut row);
            let mut whole = vec![0.0; blocks * ty.block_len()];
            decode_row(ty, &row, &mut whole);
            for (bytes, expected) in row.chunks_exact(ty.block_bytes()).zip(whole.chunks_exact(ty.block_len())) {
                let mut alone = vec![0.0; ty.block_len()];
                decode_row(ty, bytes, &mut alone);
                for (alone, expected) in alone.iter().zip(expected) {
                    proptest::prop_assert_eq!(alone.to_bits(), expected.to_bits());
                }
            }
        }
    }

    #[test]
    fn types_that_are_no_weights_decode_to_nothing_that_could_pass_for_them() {
        for &ty in TensorType::ALL.iter().filter(|&&ty| !is_supported(ty)) {
            let mut out = vec![0.0; ty.block_len()];
            decode_row(ty, &vec![1; ty.block_bytes()], &mut out);
            assert!(out.iter().all(|x| x.is_nan()), "{ty}");
        }
    }
}
