//! Activations in the forms that matrix products take: f32, or blocks of 32 or of 256 integers with a scale each.
//!
//! An integer is `256 * high + low`, both of them 8 bits within -127..=127: two planes for the 8-bit instructions. One
//! plane does with half the work, but its rounding is what makes answers differ from those of exact arithmetic: a
//! block's outlier leaves few bits to its other elements. A block's scale is its largest magnitude / 32512 (/ 127 with one
//! plane); elements are rounded to the nearest integer, ties to even, those that leave a low part of -128 to the next.
//! Sums of the integers come along: a weight format with a zero point or a minimum needs them.
//!
//! AVX2 has no sum of four products of bytes, and takes the integers of many positions as words of 16 bits: two products
//! of those at once do the work of four of bytes, half of them with each plane.

use super::multiversion::compiled_for_each_isa;
use super::planes::{Integers, IntegersOut, One, Planes, Two, Words};
use super::{Arithmetic, Isa, Kernels, Pool};
use crate::gguf::TensorType;

/// The form in which a weight type meets the activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    F32,
    Q32,
    Q256,
}

impl Form {
    pub(super) fn of(arithmetic: Arithmetic, ty: TensorType) -> Form {
        use TensorType as T;
        match (arithmetic, ty) {
            (Arithmetic::Exact, _) => Form::F32,
            (_, T::Q4_0 | T::Q4_1 | T::Q5_0 | T::Q5_1 | T::Q8_0 | T::IQ4_NL | T::MXFP4) => Form::Q32,
            (_, T::Q2_K | T::Q3_K | T::Q4_K | T::Q5_K | T::Q6_K | T::IQ4_XS) => Form::Q256,
            _ => Form::F32,
        }
    }
}

/// Planes of integers that activations are rounded to.
fn planes(kernels: Kernels) -> usize {
    if kernels.arithmetic == Arithmetic::Fast { One::COUNT } else { Two::COUNT }
}

/// Which forms, by number, weights of these types ask for.
fn forms(kernels: Kernels, types: &[TensorType]) -> [bool; 3] {
    [Form::F32, Form::Q32, Form::Q256].map(|form| types.iter().any(|ty| Form::of(kernels.arithmetic, *ty) == form))
}

/// Blocks of 32, block after block, each for all positions.
#[derive(Default)]
pub(super) struct Q32 {
    /// (blocks, positions, 32)
    pub integers: Integers,
    /// (blocks, positions)
    pub scale: Vec<f32>,
    /// (blocks, positions): the scale times the sum of the integers
    pub sum: Vec<f32>,
    /// (blocks, positions): -8 times the sum of the integers
    pub zero: Vec<i32>,
}

/// Sums of a block of 256, by plane.
type SumsOf32 = [[i16; 8]; 2];
type SumsOf16 = [[i16; 16]; 2];

/// Blocks of 256, block after block, each for all positions.
#[derive(Default)]
pub(super) struct Q256 {
    /// (blocks, positions, 256)
    pub integers: Integers,
    /// (blocks, positions)
    pub scale: Vec<f32>,
    /// (blocks, positions, 16): -4 times the sum of each 16 integers
    pub zero: Vec<i32>,
    /// (blocks, positions, planes, 4, 2): sums of each 32, high plane first, in the order 0 2, 1 3, 4 6, 5 7
    pub sums32: Vec<SumsOf32>,
    /// (blocks, positions, planes, 8, 2): sums of each 16, high plane first, in the order 0 2, 1 3, 4 6, 5 7, ...
    pub sums16: Vec<SumsOf16>,
}

/// Activations of some positions, in the forms that the weight types of the next products need.
///
/// The buffers are allocated once; memory that is never written is never touched.
pub struct Activations {
    kernels: Kernels,
    max_k: usize,
    max_positions: usize,
    pub(super) k: usize,
    pub(super) positions: usize,
    /// The forms that there is room for.
    room: [bool; 3],
    /// The forms that `prepare` last wrote.
    prepared: [bool; 3],
    /// (positions, k)
    pub(super) f32s: Vec<f32>,
    pub(super) q32: Q32,
    pub(super) q256: Q256,
}

impl Activations {
    /// Room for `max_positions` rows of `max_k` elements, or as much in another shape, whatever types of weights they meet.
    pub fn new(kernels: Kernels, max_k: usize, max_positions: usize) -> Self {
        Self::for_types(kernels, max_k, max_positions, TensorType::ALL)
    }

    /// The same for weights of `types` only.
    pub fn for_types(kernels: Kernels, max_k: usize, max_positions: usize, types: &[TensorType]) -> Self {
        let room = forms(kernels, types);
        let elements = |form: Form| if room[form as usize] { max_k * max_positions } else { 0 };
        let (n32, n256) = (elements(Form::Q32).div_ceil(32), elements(Form::Q256) / 256);
        Self {
            kernels,
            max_k,
            max_positions,
            room,
            k: 0,
            positions: 0,
            prepared: [false; 3],
            f32s: vec![0.0; elements(Form::F32)],
            q32: Q32 {
                integers: Integers::new(n32 * 32, planes(kernels)),
                scale: vec![0.0; n32],
                sum: vec![0.0; n32],
                zero: vec![0; n32],
            },
            q256: Q256 {
                integers: Integers::new(n256 * 256, planes(kernels)),
                scale: vec![0.0; n256],
                zero: vec![0; n256 * 16],
                sums32: vec![[[0; 8]; 2]; n256],
                sums16: vec![[[0; 16]; 2]; n256],
            },
        }
    }

    /// Bytes that [`new`](Self::new) with the same arguments can come to touch.
    pub fn bytes_for(kernels: Kernels, max_k: usize, max_positions: usize) -> usize {
        Self::bytes_for_types(kernels, max_k, max_positions, TensorType::ALL)
    }

    /// Bytes that [`for_types`](Self::for_types) with the same arguments can come to touch.
    pub fn bytes_for_types(kernels: Kernels, max_k: usize, max_positions: usize, types: &[TensorType]) -> usize {
        Self::bytes_of(kernels, forms(kernels, types), max_k * max_positions)
    }

    fn bytes_of(kernels: Kernels, [f32s, q32, q256]: [bool; 3], elements: usize) -> usize {
        let q32_block = planes(kernels) * 32 + size_of::<f32>() * 2 + size_of::<i32>();
        let q256_block = planes(kernels) * 256
            + size_of::<f32>()
            + size_of::<[i32; 16]>()
            + 2 * size_of::<[i16; 8]>()
            + 2 * size_of::<[i16; 16]>();
        usize::from(f32s) * elements * size_of::<f32>()
            + usize::from(q32) * elements.div_ceil(32) * q32_block
            + usize::from(q256) * (elements / 256) * q256_block
    }

    /// Bytes that these buffers can come to touch.
    pub fn bytes(&self) -> usize {
        Self::bytes_of(self.kernels, self.room, self.max_k * self.max_positions)
    }

    /// Takes `x`, shape (positions, k), in the forms that products with weights of `types` need.
    ///
    /// # Panics
    /// On a processor without the kernels' instruction set; when `x` is not of that shape, exceeds what `new` made room for, or `k` is not whole blocks of a type.
    pub fn prepare(&mut self, pool: &Pool, x: &[f32], positions: usize, k: usize, types: &[TensorType]) {
        assert_eq!(x.len(), positions * k, "activations of shape ({positions}, {k})");
        let room = self.max_k * self.max_positions;
        assert!(positions * k <= room, "{positions} positions of {k} in a room of {room}");
        assert!(types.iter().all(|ty| k.is_multiple_of(ty.block_len())), "rows of {k} are not whole blocks");
        assert!(self.kernels.isa.is_supported(), "this processor has no {}", self.kernels.isa.name());
        (self.positions, self.k) = (positions, k);
        self.prepared = forms(self.kernels, types);
        assert!((0..3).all(|form| self.room[form] || !self.prepared[form]), "no room for activations for {types:?}");
        let [f32s, q32, q256] = self.prepared;
        let isa = self.kernels.isa;
        let (planes, words) = (planes(self.kernels), self.has_words());
        let writer = Writer::new(self, x);
        pool.for_each_chunk(positions, 1, &|_, mine| {
            for position in mine {
                // SAFETY: chunks are disjoint; each writes what belongs to its own positions only. The processor has the
                // instruction set.
                unsafe {
                    if f32s {
                        writer.copy(position);
                    }
                    match (planes, words) {
                        _ if !q32 => {}
                        (1, _) => write_q32::<One>(isa, &writer, position),
                        (_, false) => write_q32::<Two>(isa, &writer, position),
                        (_, true) => write_q32::<Words>(isa, &writer, position),
                    }
                    match (planes, words) {
                        _ if !q256 => {}
                        (1, _) => write_q256::<One>(isa, &writer, position),
                        (_, false) => write_q256::<Two>(isa, &writer, position),
                        (_, true) => write_q256::<Words>(isa, &writer, position),
                    }
                }
            }
        });
    }

    /// Whether the integers are words.
    pub(super) fn has_words(&self) -> bool {
        self.kernels.isa == Isa::Avx2 && planes(self.kernels) == 2 && self.positions > 1
    }

    /// Whether the activations are there in this form.
    pub(super) fn has(&self, form: Form) -> bool {
        self.prepared[form as usize]
    }
}

/// Where the threads of one `prepare` write: each its own positions, which lie apart in every buffer.
struct Writer<'a> {
    x: &'a [f32],
    positions: usize,
    k: usize,
    f32s: *mut f32,
    q32: (IntegersOut, *mut f32, *mut f32, *mut i32),
    q256: (IntegersOut, *mut f32, *mut i32, *mut SumsOf32, *mut SumsOf16),
}

// SAFETY: the pointers are written through only by the unsafe functions below, which ask for positions of one's own.
unsafe impl Sync for Writer<'_> {}

impl<'a> Writer<'a> {
    /// A writer into buffers that have room for the shape set in `to`, which `x` has.
    fn new(to: &mut Activations, x: &'a [f32]) -> Self {
        let (a, b) = (&mut to.q32, &mut to.q256);
        Self {
            x,
            positions: to.positions,
            k: to.k,
            f32s: to.f32s.as_mut_ptr(),
            q32: (IntegersOut::new(&mut a.integers), a.scale.as_mut_ptr(), a.sum.as_mut_ptr(), a.zero.as_mut_ptr()),
            q256: (
                IntegersOut::new(&mut b.integers),
                b.scale.as_mut_ptr(),
                b.zero.as_mut_ptr(),
                b.sums32.as_mut_ptr(),
                b.sums16.as_mut_ptr(),
            ),
        }
    }

    fn row(&self, position: usize) -> &'a [f32] {
        &self.x[position * self.k..(position + 1) * self.k]
    }

    /// # Safety
    /// No other thread may write this position; the buffer was made for it.
    unsafe fn copy(&self, position: usize) {
        // SAFETY: `position * k + k` elements were made room for.
        let to = unsafe { std::slice::from_raw_parts_mut(self.f32s.add(position * self.k), self.k) };
        to.copy_from_slice(self.row(position));
    }
}

/// Below this magnitude a block counts as zeros: the largest integer divided by it would not be finite enough.
const LEAST: f32 = 1e-30;

/// Rounds a block to integers in planes (one, or both); returns the scale.
#[inline(always)]
fn quantise<P: Planes, const N: usize>(x: &[f32; N], high: &mut [i8; N], low: &mut [i8; N]) -> f32 {
    let mut largest = [0.0_f32; 16];
    for c in x.as_chunks::<16>().0 {
        for i in 0..16 {
            let magnitude = c[i].abs();
            largest[i] = if magnitude > largest[i] { magnitude } else { largest[i] };
        }
    }
    let largest = largest.iter().fold(0.0_f32, |a, b| if *b > a { *b } else { a });
    let (scale, inverse) = if largest > LEAST { (largest / P::LARGEST, P::LARGEST / largest) } else { (0.0, 0.0) };
    // Adding 1.5 x 2^23 leaves the nearest integer (ties to even) in the low bits of the significand.
    const MAGIC: f32 = 12_582_912.0;
    for i in 0..N {
        let q = ((x[i] * inverse + MAGIC).to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
        if P::COUNT == 2 {
            let of_256 = (q + 128) >> 8;
            high[i] = of_256 as i8;
            low[i] = (q - (of_256 << 8)).max(-127) as i8;
        } else {
            high[i] = q as i8;
        }
    }
    scale
}

#[inline(always)]
fn sum<const N: usize>(q: &[i8; N]) -> i32 {
    q.iter().map(|q| i32::from(*q)).sum()
}

/// # Safety
/// As [`Writer::copy`].
#[inline(always)]
unsafe fn q32_blocks<P: Planes>(writer: &Writer<'_>, position: usize) {
    let (integers, scale, scaled_sum, zero) = writer.q32;
    for (block, x) in writer.row(position).as_chunks::<32>().0.iter().enumerate() {
        let at = block * writer.positions + position;
        // SAFETY: block `at` is this position's alone, and room was made for it.
        unsafe {
            let (mut high, mut low) = ([0; 32], [0; 32]);
            let d = quantise::<P, 32>(x, &mut high, &mut low);
            integers.write::<P, 32>(at, &high, &low);
            let s = P::join(sum(&high), sum(&low));
            *scale.add(at) = d;
            *scaled_sum.add(at) = d * s as f32;
            *zero.add(at) = -8 * s;
        }
    }
}

/// Puts the sums of each 16 elements of a plane, and of each 32, into the order in which they meet mins.
#[inline(always)]
fn order_sums(s: &[i16; 16], sums32: &mut [i16; 8], sums16: &mut [i16; 16]) {
    for four in 0..4 {
        let pair = |i: usize| s[8 * (four / 2) + 2 * i] + s[8 * (four / 2) + 2 * i + 1];
        sums32[2 * four] = pair(four % 2);
        sums32[2 * four + 1] = pair(four % 2 + 2);
        for i in 0..2 {
            sums16[4 * four + 2 * i] = s[4 * four + i];
            sums16[4 * four + 2 * i + 1] = s[4 * four + i + 2];
        }
    }
}

/// # Safety
/// As [`Writer::copy`].
#[inline(always)]
unsafe fn q256_blocks<P: Planes>(writer: &Writer<'_>, position: usize) {
    let (integers, scale, zero, sums32, sums16) = writer.q256;
    for (block, x) in writer.row(position).as_chunks::<256>().0.iter().enumerate() {
        let at = block * writer.positions + position;
        // SAFETY: block `at` is this position's alone, and room was made for it.
        unsafe {
            let (mut high, mut low) = ([0; 256], [0; 256]);
            *scale.add(at) = quantise::<P, 256>(x, &mut high, &mut low);
            integers.write::<P, 256>(at, &high, &low);
            let zero = &mut *zero.add(at * 16).cast::<[i32; 16]>();
            let mut s = [[0_i16; 16]; 2];
            for i in 0..16 {
                let (high, low) = (sum(&high.as_chunks::<16>().0[i]), sum(&low.as_chunks::<16>().0[i]));
                (s[0][i], s[1][i]) = (high as i16, low as i16);
                zero[i] = -4 * P::join(high, low);
            }
            let (sums32, sums16) = (&mut *sums32.add(at), &mut *sums16.add(at));
            for ((s, sums32), sums16) in s.iter().zip(sums32).zip(sums16) {
                order_sums(s, sums32, sums16);
            }
        }
    }
}

compiled_for_each_isa! {
    unsafe fn write_q32<P: Planes>(writer: &Writer<'_>, position: usize) = q32_blocks::<P>;
}
compiled_for_each_isa! {
    unsafe fn write_q256<P: Planes>(writer: &Writer<'_>, position: usize) = q256_blocks::<P>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Isa;

    #[test]
    fn elements_are_rounded_to_the_nearest_with_ties_to_even() {
        let mut x = [0.0_f32; 32];
        x[..8].copy_from_slice(&[32512.0, -32512.0, 0.5, 1.5, -2.5, 2.51, 300.0, -300.0]);
        let (mut high, mut low) = ([0; 32], [0; 32]);
        assert_eq!(quantise::<Two, 32>(&x, &mut high, &mut low), 1.0);
        assert_eq!(high[..8], [127, -127, 0, 0, 0, 0, 1, -1]);
        assert_eq!(low[..8], [0, 0, 0, 2, -2, 3, 44, -44]);
        x[..2].copy_from_slice(&[127.0, -127.0]);
        x[6..8].copy_from_slice(&[126.5, -125.5]);
        assert_eq!(quantise::<One, 32>(&x, &mut high, &mut low), 1.0);
        assert_eq!(high[..8], [127, -127, 0, 2, -2, 3, 126, -126]);
    }

    #[test]
    fn both_planes_stay_within_127_and_make_up_the_element() {
        for first in (-32512..32512).step_by(31) {
            let x: [f32; 32] =
                std::array::from_fn(|i| if i == 31 { 32512.0 } else { (first + i as i32).min(32512) as f32 });
            let (mut high, mut low) = ([0; 32], [0; 32]);
            quantise::<Two, 32>(&x, &mut high, &mut low);
            for i in 0..31 {
                let q = 256 * i32::from(high[i]) + i32::from(low[i]);
                assert!(high[i] != -128 && low[i] != -128, "{}", x[i]);
                assert!((q - x[i] as i32).abs() <= 1 && (q == x[i] as i32 || low[i] == -127), "{} is {q}", x[i]);
            }
        }
    }

    #[test]
    fn a_block_of_zeros_or_of_next_to_nothing_is_zero() {
        for x in [[0.0_f32; 32], [1e-38; 32]] {
            let (mut high, mut low) = ([1; 32], [1; 32]);
            assert_eq!(quantise::<Two, 32>(&x, &mut high, &mut low), 0.0);
            assert_eq!((high, low), ([0; 32], [0; 32]));
            high = [1; 32];
            assert_eq!(quantise::<One, 32>(&x, &mut high, &mut low), 0.0);
            assert_eq!(high, [0; 32]);
        }
    }

    /// All of them, whatever their form.
    fn integers(from: &Integers, words: bool) -> Vec<i32> {
        let [high, low] = from.planes(0, from.len());
        if !words {
            let low = low.iter().chain(std::iter::repeat(&0));
            return high.iter().zip(low).map(|(high, low)| i32::from(*high) * 256 + i32::from(*low)).collect();
        }
        // SAFETY: words have the room of both planes.
        let words = unsafe { std::slice::from_raw_parts(from.words(), from.len()) };
        words.as_chunks::<4>().0.iter().flat_map(|[a, c, b, d]| [a, b, c, d]).map(|word| i32::from(*word)).collect()
    }

    #[test]
    fn every_isa_and_number_of_threads_quantises_to_the_same_bits() {
        let (k, positions) = (1024, 5);
        let x: Vec<f32> = (0..k * positions).map(|i| ((i * 7919 % 2003) as f32 - 1001.0).powi(3) * 1e-7).collect();
        let types = [TensorType::F32, TensorType::Q4_0, TensorType::Q6_K];
        let quantised = |arithmetic, isa, threads| {
            let kernels = Kernels { isa, arithmetic };
            let mut acts = Activations::for_types(kernels, k, positions, &types);
            acts.prepare(&Pool::new(threads), &x, positions, k, &types);
            acts
        };
        for (arithmetic, isa) in [Arithmetic::Int8, Arithmetic::Fast]
            .into_iter()
            .flat_map(|a| Isa::supported().into_iter().map(move |isa| (a, isa)))
        {
            let scalar = quantised(arithmetic, Isa::Scalar, 1);
            assert_eq!(scalar.f32s, x);
            let acts = quantised(arithmetic, isa, 3);
            for (ours, theirs) in
                [(&acts.q32.integers, &scalar.q32.integers), (&acts.q256.integers, &scalar.q256.integers)]
            {
                assert!(integers(ours, acts.has_words()) == integers(theirs, false), "{}", isa.name());
            }
            assert!(acts.q32.scale == scalar.q32.scale && acts.q256.scale == scalar.q256.scale, "{}", isa.name());
            assert!(acts.q32.sum == scalar.q32.sum && acts.q32.zero == scalar.q32.zero, "{}", isa.name());
            assert!(acts.q256.zero == scalar.q256.zero, "{}", isa.name());
            assert!(acts.q256.sums32 == scalar.q256.sums32 && acts.q256.sums16 == scalar.q256.sums16, "{}", isa.name());
        }
    }

    #[test]
    fn room_is_made_and_priced_for_the_types_asked_for() {
        let kernels = Kernels::new(Arithmetic::Int8);
        let acts = Activations::for_types(kernels, 512, 2, &[TensorType::Q4_K]);
        assert_eq!(acts.bytes(), 4 * (512 + 4 + 64 + 32 + 64));
        assert_eq!(acts.bytes(), Activations::bytes_for_types(kernels, 512, 2, &[TensorType::Q4_K]));
        assert!(acts.f32s.is_empty() && acts.q32.integers.len() == 0);
        let fast = Kernels::new(Arithmetic::Fast);
        let one_plane = Activations::for_types(fast, 512, 2, &[TensorType::Q4_K]);
        assert_eq!(
            (one_plane.bytes(), one_plane.q256.integers.planes(0, 256)[1].len()),
            (4 * (256 + 4 + 64 + 32 + 64), 0)
        );
        let exact = Kernels::new(Arithmetic::Exact);
        assert_eq!(Activations::bytes_for(exact, 512, 2), 512 * 2 * 4);
    }
}
