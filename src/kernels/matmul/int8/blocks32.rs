//! Formats of blocks of 32, whose rows in vectors are multiplied with activations in blocks of 32.

use super::super::super::Activations;
use super::super::blocks::{Blocks, Iq4Nl, Mxfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use super::lanes::{Lanes, Rows};
use super::operands::Operands;
use super::walk::Dots;
use crate::quant::{IQ4_VALUES, MXFP4_VALUES};

/// A block of each row: vector `i` of `w` has the rows' elements `4 i ..`.
pub(super) struct Block<L: Lanes> {
    w: [L::V; 8],
    d: L::F,
    m: L::F,
}

/// A format of blocks of 32.
pub(super) trait Format: Blocks {
    /// Bits that an unpacked element takes; 8 of them signed, fewer unsigned.
    const BITS: u32;
    /// What is taken off an unpacked element, if `BITS` is below 8, as a power of two; 0 for nothing.
    const ZERO: u32;

    fn load<L: Lanes>(l: L, rows: &Rows) -> Block<L>;
}

/// Low nibbles of 16 bytes, then high ones.
#[inline(always)]
pub(super) fn nibbles<L: Lanes>(l: L, packed: [L::V; 4]) -> [L::V; 8] {
    let mask = l.splat(0x0f0f_0f0f);
    let mut w = [mask; 8];
    for i in 0..4 {
        w[i] = l.and(packed[i], mask);
        w[i + 4] = l.and(l.shr::<4>(packed[i]), mask);
    }
    w
}

/// The same, with the table's value for each nibble.
#[inline(always)]
pub(super) fn looked_up<L: Lanes>(l: L, table: &[u8; 16], packed: [L::V; 4]) -> [L::V; 8] {
    let mut w = nibbles(l, packed);
    for w in &mut w {
        *w = l.lookup(table, *w);
    }
    w
}

/// The table of IQ4_NL and IQ4_XS as [`Lanes::dot`] takes 8-bit weights.
#[inline(always)]
pub(super) fn iq4_table<L: Lanes>() -> [u8; 16] {
    IQ4_VALUES.map(|value| value as u8 ^ if L::SIGNED { 0 } else { 128 })
}

/// The fifth bits of Q5_0 and Q5_1.
#[inline(always)]
fn set_fifth_bits<L: Lanes>(l: L, w: &mut [L::V; 8], bits: L::V) {
    w[0] = l.set_bit_4::<0>(w[0], bits);
    w[1] = l.set_bit_4::<1>(w[1], bits);
    w[2] = l.set_bit_4::<2>(w[2], bits);
    w[3] = l.set_bit_4::<3>(w[3], bits);
    w[4] = l.set_bit_4::<4>(w[4], bits);
    w[5] = l.set_bit_4::<5>(w[5], bits);
    w[6] = l.set_bit_4::<6>(w[6], bits);
    w[7] = l.set_bit_4::<7>(w[7], bits);
}

impl Format for Q4_0 {
    const BITS: u32 = 4;
    const ZERO: u32 = 8;

    #[inline(always)]
    fn load<L: Lanes>(l: L, rows: &Rows) -> Block<L> {
        Block { w: nibbles(l, l.words(rows, 2)), d: l.half(rows, 0), m: l.zero() }
    }
}

impl Format for Q4_1 {
    const BITS: u32 = 4;
    const ZERO: u32 = 0;

    #[inline(always)]
    fn load<L: Lanes>(l: L, rows: &Rows) -> Block<L> {
        let w = nibbles(l, l.words(rows, 4));
        let scales = l.word(rows, 0);
        Block { w, d: l.low_f16(scales), m: l.high_f16(scales) }
    }
}

impl Format for Q5_0 {
    const BITS: u32 = 5;
    const ZERO: u32 = 16;

    #[inline(always)]
    fn load<L: Lanes>(l: L, rows: &Rows) -> Block<L> {
        let mut w = nibbles(l, l.words(rows, 6));
        set_fifth_bits(l, &mut w, l.word(rows, 2));
        Block { w, d: l.half(rows, 0), m: l.zero() }
    }
}

impl Format for Q5_1 {
    const BITS: u32 = 5;
    const ZERO: u32 = 0;

    #[inline(always)]
    fn load<L: Lanes>(l: L, rows: &Rows) -> Block<L> {
        let mut w = nibbles(l, l.words(rows, 8));
        let scales = l.word(rows, 0);
        set_fifth_bits(l, &mut w, l.word(rows, 4));
        Block { w, d: l.low_f16(scales), m: l.high_f16(scales) }
    }
}

impl Format for Q8_0 {
    const BITS: u32 = 8;
    const ZERO: u32 = 0;

    #[inline(always)]
    fn load<L: Lanes>(l: L, rows: &Rows) -> Block<L> {
        let halves = [l.words(rows, 2), l.words(rows, 18)];
        let mut w = [l.splat(0); 8];
        for i in 0..8 {
            let signed = halves[i / 4][i % 4];
            w[i] = if L::SIGNED { signed } else { l.xor(signed, l.splat(0x8080_8080)) };
        }
        Block { w, d: l.half(rows, 0), m: l.zero() }
    }
}

impl Format for Iq4Nl {
    const BITS: u32 = 8;
    const ZERO: u32 = 0;

    #[inline(always)]
    fn load<L: Lanes>(l: L, rows: &Rows) -> Block<L> {
        let w = looked_up(l, &iq4_table::<L>(), l.words(rows, 2));
        Block { w, d: l.half(rows, 0), m: l.zero() }
    }
}

impl Format for Mxfp4 {
    const BITS: u32 = 5;
    const ZERO: u32 = 16;

    #[inline(always)]
    fn load<L: Lanes>(l: L, rows: &Rows) -> Block<L> {
        let w = looked_up(l, &MXFP4_VALUES.map(|value| (value + 16) as u8), l.words(rows, 1));
        // 2^(e - 128) can be subnormal: the product of two powers that are not, floor(e / 2) - 64 and ceil(e / 2) - 64.
        let e = l.single(rows, 0);
        let floor = l.add(l.shr::<1>(e), l.splat(127 - 64));
        let ceil = l.add(l.shr::<1>(l.add(e, l.splat(1))), l.splat(127 - 64));
        let d = l.mul(l.as_f32(l.shl::<23>(floor)), l.as_f32(l.shl::<23>(ceil)));
        Block { w, d, m: l.zero() }
    }
}

/// Minus what is taken off the unpacked elements times the activations, from -8 times the sum of those.
#[inline(always)]
fn start<L: Lanes, B: Format>(l: L, minus_8_sums: i32) -> L::V {
    let minus_8_sums = l.splat(minus_8_sums as u32);
    match (B::BITS, B::ZERO) {
        (8, _) if L::SIGNED => l.splat(0),
        (8, _) => l.shl::<4>(minus_8_sums),
        (_, 16) => l.shl::<1>(minus_8_sums),
        (_, 8) => minus_8_sums,
        _ => l.splat(0),
    }
}

/// Adds the products of a block with the activation blocks `at` to the accumulators of `U` positions.
///
/// # Safety
/// The activations have these blocks.
#[inline(always)]
unsafe fn add_block<L: Lanes, B: Format, P: Operands, const U: usize>(
    l: L,
    w: &P::Weights<L, 8>,
    [d, m]: [L::F; 2],
    acts: &Activations,
    at: [usize; U],
    acc: &mut [L::F; U],
) {
    let acts = &acts.q32;
    let (mut first, mut from) = (at, [l.splat(0); U]);
    for u in 0..U {
        first[u] = at[u] * 32;
        // SAFETY: block `at` is there, as asked of the caller.
        from[u] = start::<L, B>(l, unsafe { *acts.zero.get_unchecked(at[u]) });
    }
    // SAFETY: as above.
    let sums = unsafe { P::dot::<L, 8, U>(l, B::BITS, w, &acts.integers, first, from) };
    for u in 0..U {
        // SAFETY: as above.
        let (scale, sum) = unsafe { (*acts.scale.get_unchecked(at[u]), *acts.sum.get_unchecked(at[u])) };
        acc[u] = l.mul_add(l.mul(l.to_f32(sums[u]), l.splat_f32(scale)), d, acc[u]);
        if B::MIN {
            acc[u] = l.mul_add(l.splat_f32(sum), m, acc[u]);
        }
    }
}

/// The products of a format of blocks of 32.
pub(super) struct Products<B, P>(B, P);

impl<B: Format, P: Operands> Dots for Products<B, P> {
    type Blocks = B;

    #[inline(always)]
    unsafe fn add_one<L: Lanes>(l: L, rows: &Rows, acts: &Activations, block: usize, position: usize, acc: &mut L::F) {
        l.ahead(rows);
        let Block { w, d, m } = B::load(l, rows);
        let (w, at) = (P::weights(l, &w), [block * acts.positions + position]);
        let mut one = [*acc];
        // SAFETY: the caller vouches for the block and position.
        unsafe { add_block::<L, B, P, 1>(l, &w, [d, m], acts, at, &mut one) };
        *acc = one[0];
    }

    #[inline(always)]
    unsafe fn add_many<L: Lanes, const U: usize>(
        l: L,
        rows: &Rows,
        acts: &Activations,
        block: usize,
        positions: &[usize],
        sums: &mut [L::F],
    ) {
        l.ahead(rows);
        let Block { w, d, m } = B::load(l, rows);
        let w = P::weights(l, &w);
        let first = block * acts.positions;
        for (acc, positions) in sums.as_chunks_mut::<U>().0.iter_mut().zip(positions.as_chunks::<U>().0) {
            let mut at = *positions;
            for at in &mut at {
                *at += first;
            }
            // SAFETY: the caller vouches for the block and the positions.
            unsafe { add_block::<L, B, P, U>(l, &w, [d, m], acts, at, acc) };
        }
    }
}
