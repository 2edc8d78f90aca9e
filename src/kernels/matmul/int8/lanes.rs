//! Vectors with a row in each 32-bit lane: what an instruction set provides, and what the formats are written in.

use super::super::super::prefetch::{prefetch, prefetch_in_place};
#[cfg(doc)]
use super::super::blocks::Blocks;

/// An instruction set's vectors. A value is the proof that the processor has it.
pub(super) trait Simd: Copy {
    /// 32-bit lanes, a row in each.
    type V: Copy;
    /// f32 lanes, a row in each.
    type F: Copy;
    const LANES: usize;
    /// Whether [`dot`](Self::dot) of 8-bit weights takes them as they are, or else with 128 added.
    const SIGNED: bool;

    fn splat(self, x: u32) -> Self::V;
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn shl<const N: u32>(self, a: Self::V) -> Self::V;
    fn shr<const N: u32>(self, a: Self::V) -> Self::V;
    /// Byte `N` of each lane, sign-extended.
    fn signed_byte<const N: u32>(self, a: Self::V) -> Self::V;
    /// Bits `4 * J ..` of `bits`, one onto bit 4 of each byte of `a`, where they are zero.
    fn set_bit_4<const J: u32>(self, a: Self::V, bits: Self::V) -> Self::V;
    /// The table's entry for each byte of `index`, which is 0 to 15.
    fn lookup(self, table: &[u8; 16], index: Self::V) -> Self::V;

    fn zero(self) -> Self::F;
    fn splat_f32(self, x: f32) -> Self::F;
    /// Of signed integers.
    fn to_f32(self, a: Self::V) -> Self::F;
    /// Of the same bits.
    fn as_f32(self, a: Self::V) -> Self::F;
    /// Of the half-precision number in the lower half of each lane.
    fn low_f16(self, a: Self::V) -> Self::F;
    /// Of the half-precision number in the upper half of each lane.
    fn high_f16(self, a: Self::V) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c - a * b`, rounded once.
    fn neg_mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    /// Four bytes of each row.
    ///
    /// # Safety
    /// `4 * LANES` bytes are readable.
    unsafe fn load(self, from: *const u8) -> Self::V;
    /// A half-precision number of each row.
    ///
    /// # Safety
    /// `2 * LANES` bytes are readable.
    unsafe fn load_f16(self, from: *const u8) -> Self::F;
    /// A byte of each row, the rest of the lane zero.
    ///
    /// # Safety
    /// `LANES` bytes are readable.
    unsafe fn load_byte(self, from: *const u8) -> Self::V;
    /// # Safety
    /// `to` has room for `LANES` elements.
    unsafe fn store(self, to: *mut f32, a: Self::F);

    /// For each position and vector of rows: `start` plus the products of the rows' bytes `w`, of `bits` bits (unsigned
    /// below 8; a constant), with the position's bytes `a`.
    fn dot<const N: usize, const U: usize, const T: usize>(
        self,
        bits: u32,
        w: &[[Self::V; T]; N],
        a: [&[[i8; 4]; N]; U],
        start: [[Self::V; T]; U],
    ) -> [[Self::V; T]; U];
    /// [`dot`](Self::dot) of two planes: `start` plus 256 times the products with the high one plus those with the low.
    #[inline(always)]
    fn dot_two<const N: usize, const U: usize, const T: usize>(
        self,
        bits: u32,
        w: &[[Self::V; T]; N],
        [high, low]: [[&[[i8; 4]; N]; U]; 2],
        mut start: [[Self::V; T]; U],
    ) -> [[Self::V; T]; U] {
        let of_256 = self.dot(bits, w, high, [[self.splat(0); T]; U]);
        for u in 0..U {
            for t in 0..T {
                start[u][t] = self.add(start[u][t], self.shl::<8>(of_256[u][t]));
            }
        }
        self.dot(bits, w, low, start)
    }
    /// For each position and vector of rows: `start` plus the products of the rows' pairs of 16-bit integers `w` with the
    /// position's pairs `a`.
    fn dot_pairs<const N: usize, const U: usize, const T: usize>(
        self,
        w: &[[[Self::V; T]; 2]; N],
        a: [&[[[i16; 2]; 2]; N]; U],
        start: [[Self::V; T]; U],
    ) -> [[Self::V; T]; U];
}

/// A pair of 16-bit integers in a lane.
#[inline(always)]
pub(super) fn two(pair: [i16; 2]) -> u32 {
    u32::from(pair[0] as u16) | u32::from(pair[1] as u16) << 16
}

/// Bytes that memory is asked for ahead of what is loaded. Half as many to eight times as many are measured to do as well.
const AHEAD: usize = 4096;

/// The blocks at the same place in each row of some groups, interleaved.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    base: *const u8,
    group_bytes: usize,
    block_bytes: usize,
}

impl Rows {
    /// # Safety
    /// At `base` a group's blocks of `block_bytes` bytes are readable, and so for each vector that these are loaded into,
    /// `group_bytes` bytes apart.
    #[inline(always)]
    pub(super) unsafe fn new(base: *const u8, group_bytes: usize, block_bytes: usize) -> Self {
        Self { base, group_bytes, block_bytes }
    }

    /// Where `len` bytes of each row of vector `t` begin that are at `offset` in the block.
    #[inline(always)]
    fn at(&self, lanes: usize, t: usize, offset: usize, len: usize) -> *const u8 {
        // All is known when this is compiled into a kernel.
        assert!(offset + len <= self.block_bytes, "read past a block");
        self.base.wrapping_add(t * self.group_bytes + offset * lanes)
    }
}

/// `T` vectors of an instruction set, side by side: `T` times as many rows.
///
/// With two, each load of activations serves twice the rows.
#[derive(Clone, Copy)]
pub(super) struct Wide<S, const T: usize>(pub S);

/// The vector operations that formats and kernels are written in; see [`Simd`] for what they do.
pub(super) trait Lanes: Copy {
    type V: Copy;
    type F: Copy;
    const ROWS: usize;
    const SIGNED: bool;

    fn splat(self, x: u32) -> Self::V;
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn shl<const N: u32>(self, a: Self::V) -> Self::V;
    fn shr<const N: u32>(self, a: Self::V) -> Self::V;
    fn signed_byte<const N: u32>(self, a: Self::V) -> Self::V;
    fn set_bit_4<const J: u32>(self, a: Self::V, bits: Self::V) -> Self::V;
    fn lookup(self, table: &[u8; 16], index: Self::V) -> Self::V;
    fn zero(self) -> Self::F;
    fn splat_f32(self, x: f32) -> Self::F;
    fn to_f32(self, a: Self::V) -> Self::F;
    fn as_f32(self, a: Self::V) -> Self::F;
    fn low_f16(self, a: Self::V) -> Self::F;
    fn high_f16(self, a: Self::V) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn neg_mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    /// # Safety
    /// `to` has room for `ROWS` elements.
    unsafe fn store(self, to: *mut f32, a: Self::F);
    /// Asks memory for the blocks that are some way ahead.
    fn ahead(self, rows: &Rows);
    /// Asks for an eighth of them, number `part`. No load is moved across by the compiler.
    fn eighth_ahead(self, rows: &Rows, part: usize);
    /// The four bytes at `offset` of each row's block, a whole number of them after [`LEAD`](Blocks::LEAD).
    fn word(self, rows: &Rows, offset: usize) -> Self::V;
    /// Those and the three that follow.
    fn words(self, rows: &Rows, offset: usize) -> [Self::V; 4];
    /// The half-precision number that [`LEAD`](Blocks::LEAD) is, or that is left over at the end.
    fn half(self, rows: &Rows, offset: usize) -> Self::F;
    /// The single byte that [`LEAD`](Blocks::LEAD) is.
    fn single(self, rows: &Rows, offset: usize) -> Self::V;
    fn dot<const N: usize, const U: usize>(
        self,
        bits: u32,
        w: &[Self::V; N],
        a: [&[[i8; 4]; N]; U],
        start: [Self::V; U],
    ) -> [Self::V; U];
    fn dot_two<const N: usize, const U: usize>(
        self,
        bits: u32,
        w: &[Self::V; N],
        planes: [[&[[i8; 4]; N]; U]; 2],
        start: [Self::V; U],
    ) -> [Self::V; U];
    fn dot_pairs<const N: usize, const U: usize>(
        self,
        w: &[[Self::V; 2]; N],
        a: [&[[[i16; 2]; 2]; N]; U],
        start: [Self::V; U],
    ) -> [Self::V; U];

    /// Byte `N` of each lane.
    #[inline(always)]
    fn byte<const N: u32>(self, a: Self::V) -> Self::V {
        match N {
            0 => self.and(a, self.splat(0xff)),
            1 => self.and(self.shr::<8>(a), self.splat(0xff)),
            2 => self.and(self.shr::<16>(a), self.splat(0xff)),
            _ => self.shr::<24>(a),
        }
    }
}

/// Implements an operation on `T` vectors as the operation on each.
macro_rules! lift {
    ($($name:ident $(<$n:ident>)? ($($a:ident: $in:ident),+) -> $out:ident;)*) => {
        $(
            #[inline(always)]
            fn $name $(<const $n: u32>)? (self, $($a: Self::$in),+) -> Self::$out {
                let mut out = [self.0.$name $(::<$n>)? ($($a[0]),+); T];
                for t in 1..T {
                    out[t] = self.0.$name $(::<$n>)? ($($a[t]),+);
                }
                out
            }
        )*
    };
}

impl<S: Simd, const T: usize> Lanes for Wide<S, T> {
    type V = [S::V; T];
    type F = [S::F; T];
    const ROWS: usize = S::LANES * T;
    const SIGNED: bool = S::SIGNED;

    lift! {
        and(a: V, b: V) -> V;
        or(a: V, b: V) -> V;
        xor(a: V, b: V) -> V;
        add(a: V, b: V) -> V;
        shl<N>(a: V) -> V;
        shr<N>(a: V) -> V;
        signed_byte<N>(a: V) -> V;
        set_bit_4<J>(a: V, bits: V) -> V;
        to_f32(a: V) -> F;
        as_f32(a: V) -> F;
        low_f16(a: V) -> F;
        high_f16(a: V) -> F;
        mul(a: F, b: F) -> F;
        mul_add(a: F, b: F, c: F) -> F;
        neg_mul_add(a: F, b: F, c: F) -> F;
    }

    #[inline(always)]
    fn splat(self, x: u32) -> Self::V {
        [self.0.splat(x); T]
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: Self::V) -> Self::V {
        let mut out = index;
        for t in 0..T {
            out[t] = self.0.lookup(table, index[t]);
        }
        out
    }

    #[inline(always)]
    fn zero(self) -> Self::F {
        [self.0.zero(); T]
    }

    #[inline(always)]
    fn splat_f32(self, x: f32) -> Self::F {
        [self.0.splat_f32(x); T]
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, a: Self::F) {
        for t in 0..T {
            // SAFETY: the room asked for is `T` vectors.
            unsafe { self.0.store(to.add(t * S::LANES), a[t]) };
        }
    }

    #[inline(always)]
    fn ahead(self, rows: &Rows) {
        for t in 0..T {
            prefetch(rows.base.wrapping_add(t * rows.group_bytes + AHEAD), S::LANES * rows.block_bytes);
        }
    }

    #[inline(always)]
    fn eighth_ahead(self, rows: &Rows, part: usize) {
        let bytes = S::LANES * rows.block_bytes;
        let (from, to) = (bytes * part / 8, bytes * (part + 1) / 8);
        for t in 0..T {
            prefetch_in_place(rows.base.wrapping_add(t * rows.group_bytes + AHEAD + from), to - from);
        }
    }

    #[inline(always)]
    fn word(self, rows: &Rows, offset: usize) -> Self::V {
        let mut out = self.splat(0);
        for t in 0..T {
            let from = rows.at(S::LANES, t, offset, 4);
            // SAFETY: `Rows::new` vouches for the blocks, and `at` that these bytes lie in them.
            out[t] = unsafe { self.0.load(from) };
        }
        out
    }

    #[inline(always)]
    fn words(self, rows: &Rows, offset: usize) -> [Self::V; 4] {
        let mut out = [self.splat(0); 4];
        for t in 0..T {
            let from = rows.at(S::LANES, t, offset, 16);
            for i in 0..4 {
                // SAFETY: as in `word`.
                out[i][t] = unsafe { self.0.load(from.add(4 * i * S::LANES)) };
            }
        }
        out
    }

    #[inline(always)]
    fn half(self, rows: &Rows, offset: usize) -> Self::F {
        let mut out = self.zero();
        for t in 0..T {
            let from = rows.at(S::LANES, t, offset, 2);
            // SAFETY: as in `word`.
            out[t] = unsafe { self.0.load_f16(from) };
        }
        out
    }

    #[inline(always)]
    fn single(self, rows: &Rows, offset: usize) -> Self::V {
        let mut out = self.splat(0);
        for t in 0..T {
            let from = rows.at(S::LANES, t, offset, 1);
            // SAFETY: as in `word`.
            out[t] = unsafe { self.0.load_byte(from) };
        }
        out
    }

    #[inline(always)]
    fn dot<const N: usize, const U: usize>(
        self,
        bits: u32,
        w: &[Self::V; N],
        a: [&[[i8; 4]; N]; U],
        start: [Self::V; U],
    ) -> [Self::V; U] {
        self.0.dot::<N, U, T>(bits, w, a, start)
    }

    #[inline(always)]
    fn dot_two<const N: usize, const U: usize>(
        self,
        bits: u32,
        w: &[Self::V; N],
        planes: [[&[[i8; 4]; N]; U]; 2],
        start: [Self::V; U],
    ) -> [Self::V; U] {
        self.0.dot_two::<N, U, T>(bits, w, planes, start)
    }

    #[inline(always)]
    fn dot_pairs<const N: usize, const U: usize>(
        self,
        w: &[[Self::V; 2]; N],
        a: [&[[[i16; 2]; 2]; N]; U],
        start: [Self::V; U],
    ) -> [Self::V; U] {
        self.0.dot_pairs::<N, U, T>(w, a, start)
    }
}
