#![allow(clippy::unwrap_used)]

use super::super::{Arithmetic, Isa};
use super::*;
use crate::quant::{Rng, SUPPORTED, decode_row, fill_random_row};

/// Random weights and activations of one product.
struct Product {
    ty: TensorType,
    k: usize,
    rows: usize,
    positions: usize,
    weights: Vec<u8>,
    x: Vec<f32>,
}

impl Product {
    fn random(ty: TensorType, k: usize, rows: usize, positions: usize, seed: u64) -> Self {
        let rng = &mut Rng::new(seed);
        let row_bytes = ty.row_bytes(k as u64).unwrap() as usize;
        let mut weights = vec![0; row_bytes * rows];
        for row in weights.chunks_exact_mut(row_bytes) {
            fill_random_row(ty, rng, 0.05, row);
        }
        // The product of two uniform numbers: outliers as activations have them.
        let x = (0..k * positions).map(|_| (rng.next_f32() - 0.5) * (rng.next_f32() - 0.5) * 8.0).collect();
        Self { ty, k, rows, positions, weights, x }
    }

    fn row(&self, row: usize) -> &[u8] {
        let row_bytes = self.weights.len() / self.rows;
        &self.weights[row * row_bytes..(row + 1) * row_bytes]
    }

    /// (positions, rows), by [`matmul`]
    fn compute(&self, kernels: Kernels, threads: usize) -> Vec<f32> {
        let pool = Pool::new(threads);
        let mut acts = Activations::new(kernels, self.k, self.positions);
        acts.prepare(&pool, &self.x, self.positions, self.k, &[self.ty]);
        let mut data = vec![f32::NAN; self.positions * self.rows];
        let mut outs = [MatrixOut { data: &mut data, row_stride: self.rows }];
        let task = Task { out: 0, first_row: 0, rows: self.rows, ty: self.ty, weights: &self.weights, positions: None };
        matmul(kernels, &pool, &acts, &mut outs, &[task], &Cancel::never()).unwrap();
        data
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// The types that are multiplied in integers.
fn integers() -> impl Iterator<Item = TensorType> {
    SUPPORTED.iter().copied().filter(|ty| Form::of(Arithmetic::Int8, *ty) != Form::F32)
}

/// The dot product as design and [`float`] define it, written as plainly as can be.
fn plain_dot(w: &[f32], x: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    for (k, (w, x)) in w.iter().zip(x).enumerate() {
        let product = w * x;
        sums[k % 16] += product;
    }
    let eight: [f32; 8] = std::array::from_fn(|i| sums[i] + sums[i + 8]);
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

#[test]
fn exact_is_the_decoded_row_dotted_plainly_on_every_isa() {
    for &ty in SUPPORTED {
        let k = if ty.block_len() == 1 { 333 } else { 768 };
        let product = Product::random(ty, k, 21, 3, 7);
        let mut expected = Vec::new();
        for x in product.x.chunks_exact(k) {
            for row in 0..product.rows {
                let mut decoded = vec![0.0; k];
                decode_row(ty, product.row(row), &mut decoded);
                expected.push(plain_dot(&decoded, x));
            }
        }
        for isa in Isa::supported() {
            let got = product.compute(Kernels { isa, arithmetic: Arithmetic::Exact }, 2);
            assert_eq!(bits(&got), bits(&expected), "{ty} on {}", isa.name());
        }
    }
}

#[test]
fn int8_is_within_rounding_of_the_activations_of_exact() {
    for ty in integers() {
        let product = Product::random(ty, 1024, 64, 4, 11);
        let exact = product.compute(Kernels::new(Arithmetic::Exact), 1);
        let int8 = product.compute(Kernels::new(Arithmetic::Int8), 1);
        let norm = |v: &mut dyn Iterator<Item = f32>| v.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        let error = norm(&mut exact.iter().zip(&int8).map(|(a, b)| a - b)) / norm(&mut exact.iter().copied());
        // Rounding to 1/127 of the largest in a block errs by 1/127/sqrt(12) of that; the largest of 32 or 256 such
        // products of uniform numbers is at most 4 to 6 times their standard deviation.
        assert!(error < 6.0 / 127.0 / 12.0_f64.sqrt(), "{ty}: {error}");
        assert!(error > 1e-4, "{ty}: {error} is too good to be int8");
    }
}
