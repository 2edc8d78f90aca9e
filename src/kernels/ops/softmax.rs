//! Softmax over rows.

use super::Ops;
use super::elementwise::padded;
use super::lanes::{LANES, Lanes, for_each_isa};
use super::math::exp_lanes;

impl Ops<'_> {
    /// `x = exp(x - max(x)) / sum(exp(x - max(x)))` for each row of `dim`; x (rows, dim).
    pub fn softmax(self, x: &mut [f32], dim: usize) {
        self.for_rows(x, dim, &|_, rows| rows.chunks_exact_mut(dim).for_each(|row| softmax_row(self.isa, row)));
    }
}

#[inline(always)]
fn softmax_row_lanes<S: Lanes>(s: S, x: &mut [f32]) {
    let (chunks, tail) = x.as_chunks_mut::<LANES>();
    let mut last = padded(tail, f32::NEG_INFINITY);
    let mut most = s.load(&last);
    for chunk in chunks.iter() {
        most = s.max(s.load(chunk), most);
    }
    let most = s.splat(s.largest(most));
    let mut sum = s.splat(0.0);
    for chunk in chunks.iter_mut().chain(std::iter::once(&mut last)) {
        let e = exp_lanes(s, s.sub(s.load(chunk), most));
        s.store(e, chunk);
        sum = s.add(sum, e);
    }
    let inverse = s.splat(1.0 / s.sum(sum));
    for chunk in chunks.iter_mut().chain(std::iter::once(&mut last)) {
        s.store(s.mul(s.load(chunk), inverse), chunk);
    }
    tail.copy_from_slice(&last[..tail.len()]);
}

for_each_isa! { pub(super) fn softmax_row(x: &mut [f32]) = softmax_row_lanes; }

#[cfg(test)]
mod tests {
    use super::super::testing::{Noise, assert_close, assert_same_bits, every_isa};
    use super::*;
    use crate::kernels::{Isa, Pool};

    #[test]
    fn softmax_is_accurate_and_the_same_on_every_isa() {
        let mut noise = Noise::new(5);
        for dim in [1, 4, 16, 33, 1000] {
            let x: Vec<f32> = noise.vec(3 * dim).iter().map(|v| v * 5.0 - 40.0).collect();
            let mut want = x.clone();
            Ops::new(Isa::Scalar, &Pool::new(1)).softmax(&mut want, dim);
            for (got, x) in want.chunks_exact(dim).zip(x.chunks_exact(dim)) {
                let sum: f64 = x.iter().map(|&v| f64::from(v).exp()).sum();
                let truth: Vec<f64> = x.iter().map(|&v| f64::from(v).exp() / sum).collect();
                assert_close(got, &truth, 1e-6, "softmax");
            }
            for isa in every_isa() {
                let mut got = x.clone();
                Ops::new(isa, &Pool::new(2)).softmax(&mut got, dim);
                assert_same_bits(&got, &want, isa.name());
            }
        }
    }
}
