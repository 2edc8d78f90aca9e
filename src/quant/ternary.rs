//! TQ1_0 and TQ2_0: elements of -1, 0, 1 under one scale.
//!
//! Source: `block_tq1_0`, `block_tq2_0` and `dequantize_row_tq*_0` of GGML.

use super::block::{F16, block};

block! {
    /// `x = d * (q - 1)`. A byte is a fixed-point fraction in base 3 whose digits are read from the top: five elements
    /// a byte of `qs`, four a byte of `qh`. Digit n of `qs[l]` is element 32n + l (first 32 bytes) or
    /// 160 + 16n + l (the other 16); of `qh[l]`, 240 + 4n + l.
    BlockTq1_0: TQ1_0 {
        qs: [u8; 48],
        qh: [u8; 4],
        d: F16,
    }
    decode decode_tq1_0
}

block! {
    /// `x = d * (q - 1)`. Each 32 bytes hold 128 elements: bits 2n and 2n + 1 of byte l are element 32n + l.
    BlockTq2_0: TQ2_0 {
        qs: [u8; 64],
        d: F16,
    }
    decode decode_tq2_0
}

/// Digits of base 3, the topmost first: `out[n * bytes.len() + l]` is digit n of byte l.
fn digits(d: f32, bytes: &[u8], out: &mut [f32]) {
    let mut power = 1u8;
    for x in out.chunks_exact_mut(bytes.len()) {
        for (x, &byte) in x.iter_mut().zip(bytes) {
            let digit = (u16::from(byte.wrapping_mul(power)) * 3) >> 8;
            *x = d * (digit as i16 - 1) as f32;
        }
        power = power.wrapping_mul(3);
    }
}

fn decode_tq1_0(block: &BlockTq1_0, out: &mut [f32]) {
    let d = block.d.to_f32();
    digits(d, &block.qs[..32], &mut out[..160]);
    digits(d, &block.qs[32..], &mut out[160..240]);
    digits(d, &block.qh, &mut out[240..]);
}

fn decode_tq2_0(block: &BlockTq2_0, out: &mut [f32]) {
    let d = block.d.to_f32();
    for (n, x) in out.chunks_exact_mut(32).enumerate() {
        let (first, shift) = (n / 4 * 32, n % 4 * 2);
        for (x, &byte) in x.iter_mut().zip(&block.qs[first..first + 32]) {
            *x = d * (i16::from((byte >> shift) & 3) - 1) as f32;
        }
    }
}
