//! Q8_0: 32 elements of eight bits.
//!
//! Source: `block_q8_0` and `dequantize_row_q8_0` of GGML.

use super::block::{F16, block};

block! {
    /// `x = d * q`.
    BlockQ8_0: Q8_0 {
        d: F16,
        qs: [i8; 32],
    }
    decode decode_q8_0
}

fn decode_q8_0(block: &BlockQ8_0, out: &mut [f32]) {
    let d = block.d.to_f32();
    for (x, &q) in out.iter_mut().zip(&block.qs) {
        *x = f32::from(q) * d;
    }
}
