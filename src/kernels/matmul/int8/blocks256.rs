//! Formats of super-blocks of 256, whose rows in vectors are multiplied with activations in blocks of 256.

use std::marker::PhantomData;

use super::super::super::Activations;
use super::super::super::activations::Q256;
use super::super::blocks::{Blocks, Iq4Xs, Q2K, Q3K, Q4K, Q5K, Q6K};
use super::super::tile::TILE_POSITIONS;
use super::blocks32::{iq4_table, looked_up};
use super::lanes::{Lanes, Rows};
use super::operands::{Operands, pairs};
use super::walk::Dots;

/// What remains to be done when all sub-blocks of a super-block are through.
pub(super) struct Rest<L: Lanes> {
    d: L::F,
    m: L::F,
    mins: Mins<L>,
}

/// The mins of the sub-blocks in pairs of 16 bits, in the order of the activations' sums.
pub(super) enum Mins<L: Lanes> {
    None,
    Of32([[L::V; 2]; 2]),
    Of16([[L::V; 2]; 4]),
}

/// A format of super-blocks.
pub(super) trait Format: Blocks {
    /// Bits that an unpacked element takes; 8 of them signed, fewer unsigned.
    const BITS: u32;
    /// What is taken off an unpacked element, if `BITS` is below 8, as a power of two; 0 for nothing.
    const ZERO: u32;

    /// Unpacks the sub-blocks of 32 one after the other, in the format's order.
    fn visit<L: Lanes>(l: L, rows: &Rows, take: &mut impl Take<L>) -> Rest<L>;
}

/// What is done with a sub-block of each row, 32 elements: vector `i` of `w` has the rows' elements `4 i ..`.
///
/// Each time memory is asked for an eighth of the super-blocks ahead, front to back: all at once would wait for room among
/// the loads under way. And what a sub-block needs is loaded in its turn, not early as the compiler would do with a whole
/// super-block, for which there are no registers.
pub(super) trait Take<L: Lanes> {
    /// With one scale.
    fn whole(&mut self, sub: usize, w: &[L::V; 8], scale: L::F);
    /// With a scale for each 16 elements.
    fn halves(&mut self, sub: usize, w: &[L::V; 8], scales: [L::F; 2]);
}

/// The unsigned bytes of a vector as numbers.
#[inline(always)]
fn bytes<L: Lanes>(l: L, a: L::V) -> [L::F; 4] {
    [l.to_f32(l.byte::<0>(a)), l.to_f32(l.byte::<1>(a)), l.to_f32(l.byte::<2>(a)), l.to_f32(l.byte::<3>(a))]
}

/// The unsigned bytes of a vector, less 32, as numbers.
#[inline(always)]
fn less_32<L: Lanes>(l: L, a: L::V) -> [L::F; 4] {
    let offset = l.splat(-32_i32 as u32);
    [
        l.to_f32(l.add(l.byte::<0>(a), offset)),
        l.to_f32(l.add(l.byte::<1>(a), offset)),
        l.to_f32(l.add(l.byte::<2>(a), offset)),
        l.to_f32(l.add(l.byte::<3>(a), offset)),
    ]
}

/// `mask` applied to each vector shifted right by `N`.
#[inline(always)]
fn shr_and<L: Lanes, const N: u32>(l: L, a: [[L::V; 4]; 2], mask: u32) -> [L::V; 8] {
    let mask = l.splat(mask);
    let mut out = [mask; 8];
    for i in 0..8 {
        let a = a[i / 4][i % 4];
        out[i] = l.and(if N == 0 { a } else { l.shr::<N>(a) }, mask);
    }
    out
}

/// `mask` applied to each vector shifted left by `N`.
#[inline(always)]
fn shl_and<L: Lanes, const N: u32>(l: L, a: [[L::V; 4]; 2], mask: u32) -> [L::V; 8] {
    let mask = l.splat(mask);
    let mut out = [mask; 8];
    for i in 0..8 {
        out[i] = l.and(l.shl::<N>(a[i / 4][i % 4]), mask);
    }
    out
}

#[inline(always)]
fn or<L: Lanes>(l: L, mut a: [L::V; 8], b: [L::V; 8]) -> [L::V; 8] {
    for i in 0..8 {
        a[i] = l.or(a[i], b[i]);
    }
    a
}

impl Format for Q2K {
    const BITS: u32 = 2;
    const ZERO: u32 = 0;

    #[inline(always)]
    fn visit<L: Lanes>(l: L, rows: &Rows, take: &mut impl Take<L>) -> Rest<L> {
        let both = l.words(rows, 0);
        let mut mins = [[both[0]; 2]; 4];
        for half in 0..2 {
            let packed = [l.words(rows, 16 + half * 32), l.words(rows, 32 + half * 32)];
            let mut scales = [[l.zero(); 4]; 2];
            for i in 0..2 {
                let both = both[half * 2 + i];
                scales[i] = bytes(l, l.and(both, l.splat(0x0f0f_0f0f)));
                mins[half * 2 + i] = pairs(l, l.and(l.shr::<4>(both), l.splat(0x0f0f_0f0f)));
            }
            let mask = 0x0303_0303;
            take.halves(half * 4, &shr_and::<L, 0>(l, packed, mask), [scales[0][0], scales[0][1]]);
            take.halves(half * 4 + 1, &shr_and::<L, 2>(l, packed, mask), [scales[0][2], scales[0][3]]);
            take.halves(half * 4 + 2, &shr_and::<L, 4>(l, packed, mask), [scales[1][0], scales[1][1]]);
            take.halves(half * 4 + 3, &shr_and::<L, 6>(l, packed, mask), [scales[1][2], scales[1][3]]);
        }
        let d = l.word(rows, 80);
        Rest { d: l.low_f16(d), m: l.high_f16(d), mins: Mins::Of16(mins) }
    }
}

impl Format for Q3K {
    const BITS: u32 = 3;
    const ZERO: u32 = 4;

    #[inline(always)]
    fn visit<L: Lanes>(l: L, rows: &Rows, take: &mut impl Take<L>) -> Rest<L> {
        let packed = [l.word(rows, 96), l.word(rows, 100), l.word(rows, 104)];
        let (low, two) = (l.splat(0x0f0f_0f0f), l.splat(0x3030_3030));
        let sixes = [
            l.or(l.and(packed[0], low), l.and(l.shl::<4>(packed[2]), two)),
            l.or(l.and(packed[1], low), l.and(l.shl::<2>(packed[2]), two)),
            l.or(l.and(l.shr::<4>(packed[0]), low), l.and(packed[2], two)),
            l.or(l.and(l.shr::<4>(packed[1]), low), l.and(l.shr::<2>(packed[2]), two)),
        ];
        let high = [l.words(rows, 0), l.words(rows, 16)];
        let (mask, bit) = (0x0303_0303, 0x0404_0404);
        {
            let packed = [l.words(rows, 32), l.words(rows, 48)];
            let (a, b) = (less_32(l, sixes[0]), less_32(l, sixes[1]));
            take.halves(0, &or(l, shr_and::<L, 0>(l, packed, mask), shl_and::<L, 2>(l, high, bit)), [a[0], a[1]]);
            take.halves(1, &or(l, shr_and::<L, 2>(l, packed, mask), shl_and::<L, 1>(l, high, bit)), [a[2], a[3]]);
            take.halves(2, &or(l, shr_and::<L, 4>(l, packed, mask), shr_and::<L, 0>(l, high, bit)), [b[0], b[1]]);
            take.halves(3, &or(l, shr_and::<L, 6>(l, packed, mask), shr_and::<L, 1>(l, high, bit)), [b[2], b[3]]);
        }
        {
            let packed = [l.words(rows, 64), l.words(rows, 80)];
            let (a, b) = (less_32(l, sixes[2]), less_32(l, sixes[3]));
            take.halves(4, &or(l, shr_and::<L, 0>(l, packed, mask), shr_and::<L, 2>(l, high, bit)), [a[0], a[1]]);
            take.halves(5, &or(l, shr_and::<L, 2>(l, packed, mask), shr_and::<L, 3>(l, high, bit)), [a[2], a[3]]);
            take.halves(6, &or(l, shr_and::<L, 4>(l, packed, mask), shr_and::<L, 4>(l, high, bit)), [b[0], b[1]]);
            take.halves(7, &or(l, shr_and::<L, 6>(l, packed, mask), shr_and::<L, 5>(l, high, bit)), [b[2], b[3]]);
        }
        Rest { d: l.half(rows, 108), m: l.zero(), mins: Mins::None }
    }
}

/// The first 16 bytes of Q4_K and Q5_K: eight scales of 6 bits, and what mins and scales of the whole there are.
#[inline(always)]
fn scales_and_mins<L: Lanes>(l: L, rows: &Rows) -> ([[L::F; 4]; 2], Rest<L>) {
    let [d, scales, mins, high] = l.words(rows, 0);
    let (six, low, two) = (l.splat(0x3f3f_3f3f), l.splat(0x0f0f_0f0f), l.splat(0x3030_3030));
    let last_scales = l.or(l.and(high, low), l.and(l.shr::<2>(scales), two));
    let last_mins = l.or(l.and(l.shr::<4>(high), low), l.and(l.shr::<2>(mins), two));
    let mins = Mins::Of32([pairs(l, l.and(mins, six)), pairs(l, last_mins)]);
    ([bytes(l, l.and(scales, six)), bytes(l, last_scales)], Rest { d: l.low_f16(d), m: l.high_f16(d), mins })
}

impl Format for Q4K {
    const BITS: u32 = 4;
    const ZERO: u32 = 0;

    #[inline(always)]
    fn visit<L: Lanes>(l: L, rows: &Rows, take: &mut impl Take<L>) -> Rest<L> {
        let (scales, rest) = scales_and_mins(l, rows);
        for pair in 0..4 {
            let packed = [l.words(rows, 16 + pair * 32), l.words(rows, 32 + pair * 32)];
            let scales = &scales[pair / 2][pair % 2 * 2..];
            take.whole(2 * pair, &shr_and::<L, 0>(l, packed, 0x0f0f_0f0f), scales[0]);
            take.whole(2 * pair + 1, &shr_and::<L, 4>(l, packed, 0x0f0f_0f0f), scales[1]);
        }
        rest
    }
}

impl Format for Q5K {
    const BITS: u32 = 5;
    const ZERO: u32 = 0;

    #[inline(always)]
    fn visit<L: Lanes>(l: L, rows: &Rows, take: &mut impl Take<L>) -> Rest<L> {
        let (scales, rest) = scales_and_mins(l, rows);
        let (nibble, bit) = (0x0f0f_0f0f, 0x1010_1010);
        // The bits of sub-block 2 * pair are bit 2 * pair of each byte, those of the next the one above.
        macro_rules! pair {
            ($pair:literal, |$high:ident| $low_bits:expr, $high_bits:expr) => {{
                let $high = [l.words(rows, 16), l.words(rows, 32)];
                let packed = [l.words(rows, 48 + $pair * 32), l.words(rows, 64 + $pair * 32)];
                let scales = &scales[$pair / 2][$pair % 2 * 2..];
                take.whole(2 * $pair, &or(l, shr_and::<L, 0>(l, packed, nibble), $low_bits), scales[0]);
                take.whole(2 * $pair + 1, &or(l, shr_and::<L, 4>(l, packed, nibble), $high_bits), scales[1]);
            }};
        }
        pair!(0, |high| shl_and::<L, 4>(l, high, bit), shl_and::<L, 3>(l, high, bit));
        pair!(1, |high| shl_and::<L, 2>(l, high, bit), shl_and::<L, 1>(l, high, bit));
        pair!(2, |high| shr_and::<L, 0>(l, high, bit), shr_and::<L, 1>(l, high, bit));
        pair!(3, |high| shr_and::<L, 2>(l, high, bit), shr_and::<L, 3>(l, high, bit));
        rest
    }
}

impl Format for Q6K {
    const BITS: u32 = 6;
    const ZERO: u32 = 32;

    #[inline(always)]
    fn visit<L: Lanes>(l: L, rows: &Rows, take: &mut impl Take<L>) -> Rest<L> {
        let all_scales = l.words(rows, 192);
        let (nibble, two) = (0x0f0f_0f0f, 0x3030_3030);
        for half in 0..2 {
            let mut scales = [[l.zero(); 4]; 2];
            for i in 0..2 {
                let a = all_scales[half * 2 + i];
                scales[i] = [
                    l.to_f32(l.signed_byte::<0>(a)),
                    l.to_f32(l.signed_byte::<1>(a)),
                    l.to_f32(l.signed_byte::<2>(a)),
                    l.to_f32(l.signed_byte::<3>(a)),
                ];
            }
            let [a, b] = scales;
            let high = [l.words(rows, 128 + half * 32), l.words(rows, 144 + half * 32)];
            let low = [l.words(rows, half * 64), l.words(rows, half * 64 + 16)];
            let sub = half * 4;
            take.halves(sub, &or(l, shr_and::<L, 0>(l, low, nibble), shl_and::<L, 4>(l, high, two)), [a[0], a[1]]);
            take.halves(sub + 2, &or(l, shr_and::<L, 4>(l, low, nibble), shr_and::<L, 0>(l, high, two)), [b[0], b[1]]);
            let low = [l.words(rows, half * 64 + 32), l.words(rows, half * 64 + 48)];
            take.halves(sub + 1, &or(l, shr_and::<L, 0>(l, low, nibble), shl_and::<L, 2>(l, high, two)), [a[2], a[3]]);
            take.halves(sub + 3, &or(l, shr_and::<L, 4>(l, low, nibble), shr_and::<L, 2>(l, high, two)), [b[2], b[3]]);
        }
        Rest { d: l.half(rows, 208), m: l.zero(), mins: Mins::None }
    }
}

impl Format for Iq4Xs {
    const BITS: u32 = 8;
    const ZERO: u32 = 0;

    #[inline(always)]
    fn visit<L: Lanes>(l: L, rows: &Rows, take: &mut impl Take<L>) -> Rest<L> {
        let (first, lows) = (l.word(rows, 0), l.word(rows, 4));
        let table = iq4_table::<L>();
        macro_rules! sub {
            ($sub:literal) => {{
                let low = l.and(l.shr::<{ 4 * $sub }>(lows), l.splat(15));
                let high = l.and(l.shr::<{ 2 * $sub + 12 }>(first), l.splat(0x30));
                let scale = l.to_f32(l.add(l.or(low, high), l.splat(-32_i32 as u32)));
                take.whole($sub, &looked_up(l, &table, l.words(rows, 8 + $sub * 16)), scale);
            }};
        }
        sub!(0);
        sub!(1);
        sub!(2);
        sub!(3);
        sub!(4);
        sub!(5);
        sub!(6);
        sub!(7);
        Rest { d: l.low_f16(first), m: l.zero(), mins: Mins::None }
    }
}

/// Minus what is taken off the unpacked elements times the activations, from -4 times the sum of those.
#[inline(always)]
fn start<L: Lanes, B: Format>(l: L, minus_4_sums: i32) -> L::V {
    let minus_4_sums = l.splat(minus_4_sums as u32);
    match (B::BITS, B::ZERO) {
        (8, _) if L::SIGNED => l.splat(0),
        (8, _) => l.shl::<5>(minus_4_sums),
        (_, 32) => l.shl::<3>(minus_4_sums),
        (_, 4) => minus_4_sums,
        _ => l.splat(0),
    }
}

/// Adds the products of sub-block `sub` with the activation blocks `at` to the sums of `U` positions.
///
/// # Safety
/// The activations have these blocks.
#[inline(always)]
unsafe fn add_whole<L: Lanes, B: Format, P: Operands, const U: usize>(
    l: L,
    w: &P::Weights<L, 8>,
    scale: L::F,
    acts: &Q256,
    sub: usize,
    at: [usize; U],
    sums: &mut [L::F; U],
) {
    let (mut first, mut from) = (at, [l.splat(0); U]);
    for u in 0..U {
        first[u] = at[u] * 256 + sub * 32;
        if B::BITS == 8 && !L::SIGNED {
            // SAFETY: block `at` is there, as asked of the caller, and has 16 sums.
            let minus_4_sums = unsafe {
                let zero = acts.zero.as_ptr().add(at[u] * 16 + sub * 2);
                *zero + *zero.add(1)
            };
            from[u] = start::<L, B>(l, minus_4_sums);
        }
    }
    // SAFETY: as above, and it has 256 integers.
    let dots = unsafe { P::dot::<L, 8, U>(l, B::BITS, w, &acts.integers, first, from) };
    for u in 0..U {
        sums[u] = l.mul_add(l.to_f32(dots[u]), scale, sums[u]);
    }
}

/// The same with a scale for each half of the sub-block.
///
/// # Safety
/// As [`add_whole`].
#[inline(always)]
unsafe fn add_halves<L: Lanes, B: Format, P: Operands, const U: usize>(
    l: L,
    w: &[P::Weights<L, 4>; 2],
    scales: [L::F; 2],
    acts: &Q256,
    sub: usize,
    at: [usize; U],
    sums: &mut [L::F; U],
) {
    // Kept in registers until both halves are through.
    let mut added = *sums;
    for half in 0..2 {
        let (mut first, mut from) = (at, [l.splat(0); U]);
        for u in 0..U {
            first[u] = at[u] * 256 + sub * 32 + half * 16;
            // SAFETY: as in `add_whole`.
            from[u] = start::<L, B>(l, unsafe { *acts.zero.as_ptr().add(at[u] * 16 + sub * 2 + half) });
        }
        // SAFETY: as in `add_whole`.
        let dots = unsafe { P::dot::<L, 4, U>(l, B::BITS, &w[half], &acts.integers, first, from) };
        for u in 0..U {
            added[u] = l.mul_add(l.to_f32(dots[u]), scales[half], added[u]);
        }
    }
    *sums = added;
}

/// The two halves of a sub-block's vectors.
#[inline(always)]
fn in_halves<L: Lanes, P: Operands>(l: L, w: &[L::V; 8]) -> [P::Weights<L, 4>; 2] {
    let w = w.as_chunks::<4>().0;
    [P::weights(l, &w[0]), P::weights(l, &w[1])]
}

/// The sub-blocks of one position.
struct Single<'a, L: Lanes, B, P> {
    l: L,
    rows: &'a Rows,
    acts: &'a Q256,
    at: usize,
    sum: L::F,
    kind: PhantomData<(B, P)>,
}

impl<L: Lanes, B: Format, P: Operands> Take<L> for Single<'_, L, B, P> {
    #[inline(always)]
    fn whole(&mut self, sub: usize, w: &[L::V; 8], scale: L::F) {
        self.l.eighth_ahead(self.rows, B::ORDER[sub]);
        let w = P::weights(self.l, w);
        let mut sum = [self.sum];
        // SAFETY: whoever makes a `Single` vouches for the block.
        unsafe { add_whole::<L, B, P, 1>(self.l, &w, scale, self.acts, sub, [self.at], &mut sum) };
        self.sum = sum[0];
    }

    #[inline(always)]
    fn halves(&mut self, sub: usize, w: &[L::V; 8], scales: [L::F; 2]) {
        self.l.eighth_ahead(self.rows, B::ORDER[sub]);
        let w = in_halves::<L, P>(self.l, w);
        let mut sum = [self.sum];
        // SAFETY: whoever makes a `Single` vouches for the block.
        unsafe { add_halves::<L, B, P, 1>(self.l, &w, scales, self.acts, sub, [self.at], &mut sum) };
        self.sum = sum[0];
    }
}

/// The sub-blocks of many positions, `U` at a time.
struct Many<'a, L: Lanes, B, P, const U: usize> {
    l: L,
    rows: &'a Rows,
    acts: &'a Q256,
    /// The number of this block at position 0.
    first: usize,
    positions: &'a [usize],
    sums: &'a mut [L::F],
    kind: PhantomData<(B, P)>,
}

/// The numbers of a block at `U` positions, from that at position 0.
#[inline(always)]
fn blocks_at<const U: usize>(first: usize, mut positions: [usize; U]) -> [usize; U] {
    for position in &mut positions {
        *position += first;
    }
    positions
}

impl<L: Lanes, B: Format, P: Operands, const U: usize> Take<L> for Many<'_, L, B, P, U> {
    #[inline(always)]
    fn whole(&mut self, sub: usize, w: &[L::V; 8], scale: L::F) {
        self.l.eighth_ahead(self.rows, B::ORDER[sub]);
        let w = P::weights(self.l, w);
        for (sums, positions) in self.sums.as_chunks_mut().0.iter_mut().zip(self.positions.as_chunks::<U>().0) {
            let at = blocks_at(self.first, *positions);
            // SAFETY: whoever makes a `Many` vouches for the block and positions.
            unsafe { add_whole::<L, B, P, U>(self.l, &w, scale, self.acts, sub, at, sums) };
        }
    }

    #[inline(always)]
    fn halves(&mut self, sub: usize, w: &[L::V; 8], scales: [L::F; 2]) {
        self.l.eighth_ahead(self.rows, B::ORDER[sub]);
        let w = in_halves::<L, P>(self.l, w);
        for (sums, positions) in self.sums.as_chunks_mut().0.iter_mut().zip(self.positions.as_chunks::<U>().0) {
            let at = blocks_at(self.first, *positions);
            // SAFETY: whoever makes a `Many` vouches for the block and positions.
            unsafe { add_halves::<L, B, P, U>(self.l, &w, scales, self.acts, sub, at, sums) };
        }
    }
}

/// Adds a super-block's sum over its sub-blocks, and its mins, to an accumulator.
///
/// # Safety
/// The activations have block `at`.
#[inline(always)]
unsafe fn finish<L: Lanes, P: Operands>(l: L, rest: &Rest<L>, acts: &Q256, at: usize, sum: L::F, acc: L::F) -> L::F {
    // SAFETY: block `at` is there, as asked of the caller.
    let (scale, sums32, sums16) = unsafe {
        (l.splat_f32(*acts.scale.get_unchecked(at)), acts.sums32.as_ptr().add(at), acts.sums16.as_ptr().add(at))
    };
    let acc = l.mul_add(l.mul(sum, scale), rest.d, acc);
    // SAFETY: as above; the arrays of pairs are arrays of as many numbers.
    let mins = unsafe {
        match &rest.mins {
            Mins::None => return acc,
            Mins::Of32(mins) => min_sums::<L, P, 2>(l, mins, &*sums32.cast()),
            Mins::Of16(mins) => min_sums::<L, P, 4>(l, mins, &*sums16.cast()),
        }
    };
    l.neg_mul_add(l.mul(l.to_f32(mins), scale), rest.m, acc)
}

/// The mins times the sums of the activations, by plane.
#[inline(always)]
fn min_sums<L: Lanes, P: Operands, const N: usize>(
    l: L,
    mins: &[[L::V; 2]; N],
    sums: &[[[[i16; 2]; 2]; N]; 2],
) -> L::V {
    if P::COUNT == 1 {
        return l.dot_pairs::<N, 1>(mins, [&sums[0]], [l.splat(0)])[0];
    }
    let [high, low] = l.dot_pairs::<N, 2>(mins, [&sums[0], &sums[1]], [l.splat(0); 2]);
    l.add(l.shl::<8>(high), low)
}

/// The products of a format of super-blocks.
pub(super) struct Products<B, P>(B, P);

impl<B: Format, P: Operands> Dots for Products<B, P> {
    type Blocks = B;

    #[inline(always)]
    unsafe fn add_one<L: Lanes>(l: L, rows: &Rows, acts: &Activations, block: usize, position: usize, acc: &mut L::F) {
        let (acts, at) = (&acts.q256, block * acts.positions + position);
        let mut one = Single { l, rows, acts, at, sum: l.zero(), kind: PhantomData::<(B, P)> };
        let rest = B::visit(l, rows, &mut one);
        // SAFETY: the caller vouches for the block and position.
        *acc = unsafe { finish::<L, P>(l, &rest, acts, at, one.sum, *acc) };
    }

    #[inline(always)]
    unsafe fn add_many<L: Lanes, const U: usize>(
        l: L,
        rows: &Rows,
        acts: &Activations,
        block: usize,
        positions: &[usize],
        accs: &mut [L::F],
    ) {
        let (acts, first) = (&acts.q256, block * acts.positions);
        let mut sums = [l.zero(); TILE_POSITIONS];
        let sums = &mut sums[..accs.len()];
        let rest =
            B::visit(l, rows, &mut Many::<L, B, P, U> { l, rows, acts, first, positions, sums, kind: PhantomData });
        for ((acc, sum), position) in accs.iter_mut().zip(sums).zip(positions) {
            // SAFETY: the caller vouches for the block and positions.
            *acc = unsafe { finish::<L, P>(l, &rest, acts, first + position, *sum, *acc) };
        }
    }
}
