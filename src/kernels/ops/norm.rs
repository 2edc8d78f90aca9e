//! RMSNorm and LayerNorm over rows.

use super::Ops;
use super::elementwise::{Binary, Scale, map, padded, zip};
use super::lanes::{LANES, Lanes, for_each_isa};

impl Ops<'_> {
    /// `out = x / sqrt(mean(x^2) + eps) * weight` for each row of `dim`; x, out (rows, dim), weight (dim).
    ///
    /// Gemma's `1 + weight` is already in the weights of GGUF files.
    pub fn rms_norm(self, out: &mut [f32], x: &[f32], dim: usize, weight: Option<&[f32]>, eps: f32) {
        self.norm_rows(out, x, dim, &|out, x| rms_row(self.isa, out, x, weight, eps));
    }

    /// The same in place, for the heads of q and k: x (rows, dim).
    pub fn rms_norm_in_place(self, x: &mut [f32], dim: usize, weight: Option<&[f32]>, eps: f32) {
        self.for_rows(x, dim, &|_, rows| {
            for row in rows.chunks_exact_mut(dim) {
                let inverse = inverse_rms(self.isa, row, eps);
                match weight {
                    Some(weight) => zip(self.isa, ScaleMul(inverse), row, weight),
                    None => map(self.isa, Scale(inverse), row),
                }
            }
        });
    }

    /// `out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias` for each row of `dim`; x, out (rows, dim).
    pub fn layer_norm(
        self,
        out: &mut [f32],
        x: &[f32],
        dim: usize,
        weight: Option<&[f32]>,
        bias: Option<&[f32]>,
        eps: f32,
    ) {
        self.norm_rows(out, x, dim, &|out, x| layer_row(self.isa, out, x, weight, bias, eps));
    }

    fn norm_rows(self, out: &mut [f32], x: &[f32], dim: usize, row: &(dyn Fn(&mut [f32], &[f32]) + Sync)) {
        assert_eq!(out.len(), x.len());
        self.for_rows(out, dim, &|first, rows| {
            let x = &x[first * dim..];
            rows.chunks_exact_mut(dim).zip(x.chunks_exact(dim)).for_each(|(out, x)| row(out, x));
        });
    }
}

#[derive(Clone, Copy)]
struct ScaleMul(f32);

impl Binary for ScaleMul {
    #[inline(always)]
    fn at<S: Lanes>(self, s: S, x: S::V, y: S::V) -> S::V {
        s.mul(s.mul(x, s.splat(self.0)), y)
    }
}

#[inline(always)]
fn inverse_rms_lanes<S: Lanes>(s: S, x: &[f32], eps: f32) -> f32 {
    let (chunks, tail) = x.as_chunks::<LANES>();
    let mut sum = s.splat(0.0);
    for chunk in chunks {
        let v = s.load(chunk);
        sum = s.fma(v, v, sum);
    }
    let v = s.load(&padded(tail, 0.0));
    let sum = s.sum(s.fma(v, v, sum));
    1.0 / (sum / x.len() as f32 + eps).sqrt()
}

#[inline(always)]
fn rms_row_lanes<S: Lanes>(s: S, out: &mut [f32], x: &[f32], weight: Option<&[f32]>, eps: f32) {
    affine_row(s, out, x, 0.0, inverse_rms_lanes(s, x, eps), weight, None);
}

#[inline(always)]
fn layer_row_lanes<S: Lanes>(s: S, out: &mut [f32], x: &[f32], weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32) {
    let (chunks, tail) = x.as_chunks::<LANES>();
    let len = x.len() as f32;
    let mut sum = s.splat(0.0);
    for chunk in chunks {
        sum = s.add(sum, s.load(chunk));
    }
    let mean = s.sum(s.add(sum, s.load(&padded(tail, 0.0)))) / len;
    let mut squares = s.splat(0.0);
    for chunk in chunks {
        let v = s.sub(s.load(chunk), s.splat(mean));
        squares = s.fma(v, v, squares);
    }
    let v = s.sub(s.load(&padded(tail, mean)), s.splat(mean));
    let variance = s.sum(s.fma(v, v, squares)) / len;
    affine_row(s, out, x, mean, 1.0 / (variance + eps).sqrt(), weight, bias);
}

/// `(x - mean) * factor * weight + bias`, what is absent left out.
#[inline(always)]
fn affine<S: Lanes>(
    s: S,
    x: &[f32; LANES],
    mean: f32,
    factor: f32,
    weight: Option<&[f32; LANES]>,
    bias: Option<&[f32; LANES]>,
) -> S::V {
    let mut v = s.mul(s.sub(s.load(x), s.splat(mean)), s.splat(factor));
    if let Some(weight) = weight {
        v = s.mul(v, s.load(weight));
    }
    if let Some(bias) = bias {
        v = s.add(v, s.load(bias));
    }
    v
}

/// The same for a row.
#[inline(always)]
fn affine_row<S: Lanes>(
    s: S,
    out: &mut [f32],
    x: &[f32],
    mean: f32,
    factor: f32,
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
) {
    let len = x.len();
    assert!(out.len() == len && weight.is_none_or(|w| w.len() == len) && bias.is_none_or(|b| b.len() == len));
    let ((chunks, tail), (out_chunks, out_tail)) = (x.as_chunks::<LANES>(), out.as_chunks_mut::<LANES>());
    let (weight_chunks, weight_tail) = weight.unwrap_or_default().as_chunks::<LANES>();
    let (bias_chunks, bias_tail) = bias.unwrap_or_default().as_chunks::<LANES>();
    for (i, (out, x)) in out_chunks.iter_mut().zip(chunks).enumerate() {
        s.store(affine(s, x, mean, factor, weight_chunks.get(i), bias_chunks.get(i)), out);
    }
    if !tail.is_empty() {
        let [weight_tail, bias_tail] = [weight_tail, bias_tail].map(|tail| padded(tail, 0.0));
        let mut last = [0.0; LANES];
        let x = padded(tail, 0.0);
        let v = affine(s, &x, mean, factor, weight.map(|_| &weight_tail), bias.map(|_| &bias_tail));
        s.store(v, &mut last);
        out_tail.copy_from_slice(&last[..out_tail.len()]);
    }
}

for_each_isa! { fn inverse_rms(x: &[f32], eps: f32) -> f32 = inverse_rms_lanes; }
for_each_isa! { fn rms_row(out: &mut [f32], x: &[f32], weight: Option<&[f32]>, eps: f32) = rms_row_lanes; }
for_each_isa! {
    fn layer_row(out: &mut [f32], x: &[f32], weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32) = layer_row_lanes;
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Noise, assert_close, assert_same_bits, every_isa};
    use super::*;
    use crate::kernels::{Isa, Pool};

    const SHAPES: [(usize, usize); 7] = [(1, 1), (3, 8), (2, 40), (5, 64), (1, 576), (7, 640), (40, 1100)];

    fn mean(x: &[f64]) -> f64 {
        x.iter().sum::<f64>() / x.len() as f64
    }

    type Run<'a> = dyn Fn(Ops<'_>, &mut [f32], &[f32], usize) + 'a;

    /// Runs a norm on every instruction set with 1 and 3 threads; all must equal the first, and that the truth by row.
    fn check(run: &Run<'_>, x: &[f32], dim: usize, truth: &dyn Fn(&[f64]) -> Vec<f64>) {
        let mut want = vec![0.0; x.len()];
        run(Ops::new(Isa::Scalar, &Pool::new(1)), &mut want, x, dim);
        for (got, x) in want.chunks_exact(dim).zip(x.chunks_exact(dim)) {
            let x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
            assert_close(got, &truth(&x), 1e-5, "norm");
        }
        for isa in every_isa() {
            for threads in [1, 3] {
                let mut got = vec![0.0; x.len()];
                run(Ops::new(isa, &Pool::new(threads)), &mut got, x, dim);
                assert_same_bits(&got, &want, isa.name());
            }
        }
    }

    #[test]
    fn norms_are_accurate_and_the_same_on_every_isa_and_any_threads() {
        let mut noise = Noise::new(2);
        for (rows, dim) in SHAPES {
            let x: Vec<f32> = noise.vec(rows * dim).iter().map(|v| v * 3.0 + 1.0).collect();
            let (weight, bias) = (noise.vec(dim), noise.vec(dim));
            let (w, b, eps) = (&weight, &bias, 1e-5_f32);
            let rms = |x: &[f64]| 1.0 / (mean(&x.iter().map(|v| v * v).collect::<Vec<_>>()) + f64::from(eps)).sqrt();
            let plain = |x: &[f64]| x.iter().map(|v| v * rms(x)).collect();
            let weighted = |x: &[f64]| x.iter().zip(w).map(|(v, &w)| v * rms(x) * f64::from(w)).collect();
            let layer = |x: &[f64]| {
                let m = mean(x);
                let variance = mean(&x.iter().map(|v| (v - m) * (v - m)).collect::<Vec<_>>());
                let factor = 1.0 / (variance + f64::from(eps)).sqrt();
                x.iter().zip(w).zip(b).map(|((v, &w), &b)| (v - m) * factor * f64::from(w) + f64::from(b)).collect()
            };
            check(&|ops, out, x, dim| ops.rms_norm(out, x, dim, None, eps), &x, dim, &plain);
            check(&|ops, out, x, dim| ops.rms_norm(out, x, dim, Some(w), eps), &x, dim, &weighted);
            check(&|ops, out, x, dim| ops.layer_norm(out, x, dim, Some(w), Some(b), eps), &x, dim, &layer);
            for weight in [None, Some(w.as_slice())] {
                let in_place = |ops: Ops<'_>, out: &mut [f32], x: &[f32], dim: usize| {
                    out.copy_from_slice(x);
                    ops.rms_norm_in_place(out, dim, weight, eps);
                };
                check(&in_place, &x, dim, if weight.is_some() { &weighted } else { &plain });
            }
        }
    }

    #[test]
    fn in_place_and_out_of_place_agree_to_the_bit() {
        let (x, w, pool) = (Noise::new(3).vec(640), Noise::new(4).vec(64), Pool::new(1));
        let ops = Ops::new(Isa::detect(), &pool);
        let (mut out, mut in_place) = (vec![0.0; x.len()], x.clone());
        ops.rms_norm(&mut out, &x, 64, Some(&w), 1e-6);
        ops.rms_norm_in_place(&mut in_place, 64, Some(&w), 1e-6);
        assert_same_bits(&in_place, &out, "in place");
    }
}
