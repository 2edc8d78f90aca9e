//! Any bytes as blocks of every type: decode neither panics nor leaves an element unwritten.
//!
//! `cargo +nightly fuzz run decode_row`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sipllm::quant::{SUPPORTED, decode_row};

/// A NaN that no decoding makes.
const UNWRITTEN: u32 = 0x7fc1_2345;

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, row)) = bytes.split_first() else { return };
    let ty = SUPPORTED[usize::from(which) % SUPPORTED.len()];
    let blocks = row.len() / ty.block_bytes();
    let mut out = vec![f32::from_bits(UNWRITTEN); blocks * ty.block_len()];
    decode_row(ty, &row[..blocks * ty.block_bytes()], &mut out);
    if ty.block_len() > 1 {
        assert!(out.iter().all(|x| x.to_bits() != UNWRITTEN));
    }
});
