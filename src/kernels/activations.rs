//! Activations in the forms that matrix products take: f32, or 8-bit blocks of 32 or of 256 with a scale each.
//!
//! A block's scale is its largest magnitude / 127; elements are rounded to the nearest integer, ties to even, so that they
//! lie in -127..=127. Sums of the integers come along: a weight format with a zero point or a minimum needs them.

use super::multiversion::compiled_for_each_isa;
use super::{Arithmetic, Kernels, Pool};
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

/// 8-bit blocks of 32, block after block, each for all positions.
#[derive(Default)]
pub(super) struct Q32 {
    /// (blocks, positions, 32)
    pub q: Vec<i8>,
    /// (blocks, positions)
    pub scale: Vec<f32>,
    /// (blocks, positions): the scale times the sum of the integers
    pub sum: Vec<f32>,
    /// (blocks, positions): -8 times the sum of the integers
    pub zero: Vec<i32>,
}

/// 8-bit blocks of 256, block after block, each for all positions.
#[derive(Default)]
pub(super) struct Q256 {
    /// (blocks, positions, 256)
    pub q: Vec<i8>,
    /// (blocks, positions)
    pub scale: Vec<f32>,
    /// (blocks, positions, 16): -4 times the sum of each 16 integers
    pub zero: Vec<i32>,
    /// (blocks, positions, 4, 2): sums of each 32 integers, in the order 0 2, 1 3, 4 6, 5 7
    pub sums32: Vec<[i16; 8]>,
    /// (blocks, positions, 8, 2): sums of each 16 integers, in the order 0 2, 1 3, 4 6, 5 7, ...
    pub sums16: Vec<[i16; 16]>,
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
    /// The forms that `prepare` last wrote.
    forms: [bool; 3],
    /// (positions, k)
    pub(super) f32s: Vec<f32>,
    pub(super) q32: Q32,
    pub(super) q256: Q256,
}

impl Activations {
    /// Room for `max_positions` rows of up to `max_k` elements.
    pub fn new(kernels: Kernels, max_k: usize, max_positions: usize) -> Self {
        let elements = max_k * max_positions;
        let (n32, n256) = match kernels.arithmetic {
            Arithmetic::Exact => (0, 0),
            Arithmetic::Int8 => (elements.div_ceil(32), elements / 256),
        };
        Self {
            kernels,
            max_k,
            max_positions,
            k: 0,
            positions: 0,
            forms: [false; 3],
            f32s: vec![0.0; elements],
            q32: Q32 { q: vec![0; n32 * 32], scale: vec![0.0; n32], sum: vec![0.0; n32], zero: vec![0; n32] },
            q256: Q256 {
                q: vec![0; n256 * 256],
                scale: vec![0.0; n256],
                zero: vec![0; n256 * 16],
                sums32: vec![[0; 8]; n256],
                sums16: vec![[0; 16]; n256],
            },
        }
    }

    /// Bytes that `new` with the same arguments can come to touch.
    pub fn bytes_for(kernels: Kernels, max_k: usize, max_positions: usize) -> usize {
        let elements = max_k * max_positions;
        elements * 4
            + match kernels.arithmetic {
                Arithmetic::Exact => 0,
                Arithmetic::Int8 => elements.div_ceil(32) * (32 + 12) + elements / 256 * (256 + 4 + 64 + 16 + 32),
            }
    }

    /// Bytes that these buffers can come to touch.
    pub fn bytes(&self) -> usize {
        Self::bytes_for(self.kernels, self.max_k, self.max_positions)
    }

    /// Takes `x`, shape (positions, k), in the forms that products with weights of `types` need.
    ///
    /// # Panics
    /// On a processor without the kernels' instruction set; when `x` is not of that shape, exceeds what `new` made room for, or `k` is not whole blocks of a type.
    pub fn prepare(&mut self, pool: &Pool, x: &[f32], positions: usize, k: usize, types: &[TensorType]) {
        assert_eq!(x.len(), positions * k, "activations of shape ({positions}, {k})");
        assert!(k <= self.max_k && positions <= self.max_positions, "room for {} x {}", self.max_positions, self.max_k);
        assert!(types.iter().all(|ty| k.is_multiple_of(ty.block_len())), "rows of {k} are not whole blocks");
        assert!(self.kernels.isa.is_supported(), "this processor has no {}", self.kernels.isa.name());
        (self.positions, self.k) = (positions, k);
        let needs = |form| types.iter().any(|ty| Form::of(self.kernels.arithmetic, *ty) == form);
        let forms @ [f32s, q32, q256] = [Form::F32, Form::Q32, Form::Q256].map(needs);
        self.forms = forms;
        let isa = self.kernels.isa;
        let writer = Writer::new(self, x);
        // One position is quicker done than handed out.
        let threads = if positions == 1 { 1 } else { pool.threads() };
        let share = |thread: usize| {
            let mine = positions * thread / threads..positions * (thread + 1) / threads;
            for position in mine {
                // SAFETY: the shares are disjoint; each writes what belongs to its own positions only.
                unsafe {
                    if f32s {
                        writer.copy(position);
                    }
                    if q32 {
                        write_q32(isa, &writer, position);
                    }
                    if q256 {
                        write_q256(isa, &writer, position);
                    }
                }
            }
        };
        if threads == 1 { share(0) } else { pool.run(&share) }
    }

    /// Whether the activations are there in this form.
    pub(super) fn has(&self, form: Form) -> bool {
        self.forms[form as usize]
    }
}

/// Where the threads of one `prepare` write: each its own positions, which lie apart in every buffer.
struct Writer<'a> {
    x: &'a [f32],
    positions: usize,
    k: usize,
    f32s: *mut f32,
    q32: (*mut i8, *mut f32, *mut f32, *mut i32),
    q256: (*mut i8, *mut f32, *mut i32, *mut [i16; 8], *mut [i16; 16]),
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
            q32: (a.q.as_mut_ptr(), a.scale.as_mut_ptr(), a.sum.as_mut_ptr(), a.zero.as_mut_ptr()),
            q256: (
                b.q.as_mut_ptr(),
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

/// Below this magnitude a block counts as zeros: 127 divided by it would not be finite enough.
const LEAST: f32 = 1e-30;

/// Rounds a block to 8-bit integers; returns the scale.
#[inline(always)]
fn quantise<const N: usize>(x: &[f32; N], q: &mut [i8; N]) -> f32 {
    let mut largest = [0.0_f32; 16];
    for c in x.as_chunks::<16>().0 {
        for i in 0..16 {
            let magnitude = c[i].abs();
            largest[i] = if magnitude > largest[i] { magnitude } else { largest[i] };
        }
    }
    let largest = largest.iter().fold(0.0_f32, |a, b| if *b > a { *b } else { a });
    let (scale, inverse) = if largest > LEAST { (largest / 127.0, 127.0 / largest) } else { (0.0, 0.0) };
    // Adding 1.5 x 2^23 leaves the nearest integer (ties to even) in the low bits of the significand.
    const MAGIC: f32 = 12_582_912.0;
    for (q, x) in q.iter_mut().zip(x) {
        *q = ((x * inverse + MAGIC).to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32) as i8;
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
unsafe fn q32_blocks(writer: &Writer<'_>, position: usize) {
    let (q, scale, scaled_sum, zero) = writer.q32;
    for (block, x) in writer.row(position).as_chunks::<32>().0.iter().enumerate() {
        let at = block * writer.positions + position;
        // SAFETY: block `at` is this position's alone, and room was made for it.
        unsafe {
            let q = &mut *q.add(at * 32).cast::<[i8; 32]>();
            let d = quantise(x, q);
            let s = sum(q);
            *scale.add(at) = d;
            *scaled_sum.add(at) = d * s as f32;
            *zero.add(at) = -8 * s;
        }
    }
}

/// # Safety
/// As [`Writer::copy`].
#[inline(always)]
unsafe fn q256_blocks(writer: &Writer<'_>, position: usize) {
    let (q, scale, zero, sums32, sums16) = writer.q256;
    for (block, x) in writer.row(position).as_chunks::<256>().0.iter().enumerate() {
        let at = block * writer.positions + position;
        // SAFETY: block `at` is this position's alone, and room was made for it.
        unsafe {
            let q = &mut *q.add(at * 256).cast::<[i8; 256]>();
            *scale.add(at) = quantise(x, q);
            let zero = &mut *zero.add(at * 16).cast::<[i32; 16]>();
            let mut s = [0_i16; 16];
            for (i, q) in q.as_chunks::<16>().0.iter().enumerate() {
                s[i] = sum(q) as i16;
                zero[i] = -4 * i32::from(s[i]);
            }
            for four in 0..4 {
                let pair = |i: usize| s[8 * (four / 2) + 2 * i] + s[8 * (four / 2) + 2 * i + 1];
                (*sums32.add(at))[2 * four] = pair(four % 2);
                (*sums32.add(at))[2 * four + 1] = pair(four % 2 + 2);
                for i in 0..2 {
                    (*sums16.add(at))[4 * four + 2 * i] = s[4 * four + i];
                    (*sums16.add(at))[4 * four + 2 * i + 1] = s[4 * four + i + 2];
                }
            }
        }
    }
}

compiled_for_each_isa! {
    unsafe fn write_q32(writer: &Writer<'_>, position: usize) = q32_blocks;
}
compiled_for_each_isa! {
    unsafe fn write_q256(writer: &Writer<'_>, position: usize) = q256_blocks;
}
