//! How weights meet activations: in bytes, with each plane, or in words.

use super::super::super::planes::{Integers, One, Planes, Two, Words};
use super::lanes::Lanes;

/// A form of activations, and what weights are multiplied with it as.
pub(super) trait Operands: Planes {
    /// `N` vectors of four bytes of each row.
    type Weights<L: Lanes, const N: usize>: Copy;

    fn weights<L: Lanes, const N: usize>(l: L, w: &[L::V; N]) -> Self::Weights<L, N>;

    /// Four bytes of each row times the integers from each of `first` on: `start` plus the products.
    ///
    /// `bits` is what an element of the weights takes, see [`Simd::dot`](super::lanes::Simd::dot).
    ///
    /// # Safety
    /// There are `4 * N` integers from each of `first` on.
    unsafe fn dot<L: Lanes, const N: usize, const U: usize>(
        l: L,
        bits: u32,
        w: &Self::Weights<L, N>,
        integers: &Integers,
        first: [usize; U],
        start: [L::V; U],
    ) -> [L::V; U];
}

/// The bytes of a vector as pairs of 16 bits: 0 and 2, 1 and 3.
#[inline(always)]
pub(super) fn pairs<L: Lanes>(l: L, a: L::V) -> [L::V; 2] {
    let mask = l.splat(0x00ff_00ff);
    [l.and(a, mask), l.and(l.shr::<8>(a), mask)]
}

/// Four bytes, `N` times, from each of `first` on.
///
/// # Safety
/// They are there, for as long as `L` is used.
#[inline(always)]
unsafe fn bytes<'a, const N: usize, const U: usize>(plane: *const i8, first: [usize; U]) -> [&'a [[i8; 4]; N]; U] {
    let mut out = [&[[0; 4]; N]; U];
    for u in 0..U {
        // SAFETY: as asked of the caller.
        out[u] = unsafe { &*plane.add(first[u]).cast() };
    }
    out
}

impl Operands for One {
    type Weights<L: Lanes, const N: usize> = [L::V; N];

    #[inline(always)]
    fn weights<L: Lanes, const N: usize>(_: L, w: &[L::V; N]) -> [L::V; N] {
        *w
    }

    #[inline(always)]
    unsafe fn dot<L: Lanes, const N: usize, const U: usize>(
        l: L,
        bits: u32,
        w: &[L::V; N],
        integers: &Integers,
        first: [usize; U],
        start: [L::V; U],
    ) -> [L::V; U] {
        // SAFETY: as asked of the caller.
        l.dot(bits, w, unsafe { bytes(integers.high(), first) }, start)
    }
}

impl Operands for Two {
    type Weights<L: Lanes, const N: usize> = [L::V; N];

    #[inline(always)]
    fn weights<L: Lanes, const N: usize>(_: L, w: &[L::V; N]) -> [L::V; N] {
        *w
    }

    #[inline(always)]
    unsafe fn dot<L: Lanes, const N: usize, const U: usize>(
        l: L,
        bits: u32,
        w: &[L::V; N],
        integers: &Integers,
        first: [usize; U],
        mut start: [L::V; U],
    ) -> [L::V; U] {
        // SAFETY: as asked of the caller; there are two planes.
        let (high, low) = unsafe { (bytes::<N, U>(integers.high(), first), bytes(integers.low(), first)) };
        if U == 1 {
            // The planes side by side: there is nothing else to do while one sum waits for the last product.
            let [of_256, ones] = l.dot::<N, 2>(bits, w, [high[0], low[0]], [l.splat(0), start[0]]);
            start[0] = l.add(ones, l.shl::<8>(of_256));
            return start;
        }
        l.dot_two::<N, U>(bits, w, [high, low], start)
    }
}

impl Operands for Words {
    type Weights<L: Lanes, const N: usize> = [[L::V; 2]; N];

    #[inline(always)]
    fn weights<L: Lanes, const N: usize>(l: L, w: &[L::V; N]) -> [[L::V; 2]; N] {
        // They are taken as unsigned.
        const { assert!(!L::SIGNED) };
        let mut out = [[l.splat(0); 2]; N];
        for i in 0..N {
            out[i] = pairs(l, w[i]);
        }
        out
    }

    #[inline(always)]
    unsafe fn dot<L: Lanes, const N: usize, const U: usize>(
        l: L,
        _: u32,
        w: &[[L::V; 2]; N],
        integers: &Integers,
        first: [usize; U],
        start: [L::V; U],
    ) -> [L::V; U] {
        let mut words = [&[[[0; 2]; 2]; N]; U];
        for u in 0..U {
            // SAFETY: as asked of the caller; four words for four elements.
            words[u] = unsafe { &*integers.words().add(first[u]).cast() };
        }
        l.dot_pairs(w, words, start)
    }
}
