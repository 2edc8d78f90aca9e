//! `exp`, `tanh`, `sigmoid`, GELU and SiLU in f32, the same bits on every machine.
//!
//! Polynomials and their coefficients are those of the Cephes library's `expf` and `tanhf` (S. Moshier), evaluated with
//! fused multiply-adds.

use super::super::Isa;
use super::elementwise::{Unary, map};
use super::lanes::{Lanes, Scalar};

/// Above this the exponential stays what it is here, 2.4e38, rather than overflow.
const EXP_MOST: f32 = 88.37;
/// Below this the exponential is 0; the last normal result is 1.2e-38.
const EXP_LEAST: f32 = -87.0;

/// e to the power of `x`, within 2 units in the last place; see [`EXP_MOST`], [`EXP_LEAST`]. `exp(0)` is 1.
#[inline(always)]
pub(crate) fn exp_lanes<S: Lanes>(s: S, x: S::V) -> S::V {
    let clamped = s.max(s.splat(EXP_LEAST), s.min(s.splat(EXP_MOST), x));
    exp_within(s, [x], [clamped])[0]
}

/// The same bits for vectors of numbers of at most 0; all vectors at a time, so that steps do not wait for each other.
#[inline(always)]
pub(crate) fn exp_to_zero<S: Lanes, const N: usize>(s: S, x: [S::V; N]) -> [S::V; N] {
    exp_within(s, x, x)
}

/// Exponentials of `x`, where `clamped` is each or the nearest number to it that has one, or of 0 at most.
#[inline(always)]
fn exp_within<S: Lanes, const N: usize>(s: S, x: [S::V; N], clamped: [S::V; N]) -> [S::V; N] {
    // Adding 1.5 * 2^23 rounds to an integer, which then sits in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let (mut shifted, mut r, mut y) = (clamped, clamped, clamped);
    for i in 0..N {
        shifted[i] = s.fma(clamped[i], s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    }
    for i in 0..N {
        y[i] = s.sub(shifted[i], s.splat(ROUND));
    }
    // ln 2 in two parts, the first with few enough bits for an exact product.
    for part in [-0.693_359_4, 2.121_944_4e-4] {
        for i in 0..N {
            r[i] = s.fma(y[i], s.splat(part), r[i]);
        }
    }
    y = [s.splat(1.987_569_1e-4); N];
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        for i in 0..N {
            y[i] = s.fma(y[i], r[i], s.splat(coefficient));
        }
    }
    for i in 0..N {
        y[i] = s.fma(y[i], s.mul(r[i], r[i]), r[i]);
    }
    for i in 0..N {
        let power = s.add_to_exponent(s.add(y[i], s.splat(1.0)), shifted[i]);
        y[i] = s.select_gt(s.splat(EXP_LEAST), x[i], s.splat(0.0), power);
    }
    y
}

/// `1 / (1 + exp(-x))`.
#[inline(always)]
pub(crate) fn sigmoid_lanes<S: Lanes>(s: S, x: S::V) -> S::V {
    divide_by_one_plus_exp(s, s.splat(1.0), s.sub(s.splat(0.0), x))
}

/// `x / (1 + exp(-x))`.
#[inline(always)]
pub(crate) fn silu_lanes<S: Lanes>(s: S, x: S::V) -> S::V {
    divide_by_one_plus_exp(s, x, s.sub(s.splat(0.0), x))
}

/// GELU by its tanh form, `x / 2 * (1 + tanh(u))` with `u = sqrt(2 / pi) * (x + 0.044715 x^3)`, as `x / (1 + exp(-2 u))`,
/// which loses nothing where tanh is near -1.
#[inline(always)]
pub(crate) fn gelu_lanes<S: Lanes>(s: S, x: S::V) -> S::V {
    let slope = s.fma(s.mul(x, x), s.splat(0.044_715), s.splat(1.0));
    let minus_2u = s.mul(s.mul(x, s.splat(-1.595_769)), slope);
    divide_by_one_plus_exp(s, x, minus_2u)
}

#[inline(always)]
pub(crate) fn divide_by_one_plus_exp<S: Lanes>(s: S, x: S::V, y: S::V) -> S::V {
    s.div(x, s.add(s.splat(1.0), exp_lanes(s, y)))
}

#[inline(always)]
pub(crate) fn tanh_lanes<S: Lanes>(s: S, x: S::V) -> S::V {
    let zero = s.splat(0.0);
    let negative = s.sub(zero, x);
    let magnitude = s.max(negative, x);
    let z = s.mul(x, x);
    let mut p = s.splat(-5.704_988_7e-3);
    for coefficient in [2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1] {
        p = s.fma(p, z, s.splat(coefficient));
    }
    let near = s.fma(s.mul(p, z), x, x);
    let far = s.sub(s.splat(1.0), divide_by_one_plus_exp(s, s.splat(2.0), s.add(magnitude, magnitude)));
    let far = s.select_gt(zero, x, s.sub(zero, far), far);
    s.select_gt(magnitude, s.splat(0.625), far, near)
}

/// e to the power of `x`: one lane of what the vector operations compute.
pub fn exp(x: f32) -> f32 {
    exp_lanes(Scalar, [x; 16])[0]
}

/// `1 / (1 + exp(-x))`, likewise.
pub fn sigmoid(x: f32) -> f32 {
    sigmoid_lanes(Scalar, [x; 16])[0]
}

/// `x = exp((x - most) * factor)`.
pub fn exp_scaled(isa: Isa, x: &mut [f32], most: f32, factor: f32) {
    map(isa, ExpScaled { most, factor }, x);
}

#[derive(Clone, Copy)]
struct ExpScaled {
    most: f32,
    factor: f32,
}

impl Unary for ExpScaled {
    #[inline(always)]
    fn at<S: Lanes>(self, s: S, x: S::V) -> S::V {
        exp_lanes(s, s.mul(s.sub(x, s.splat(self.most)), s.splat(self.factor)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::for_each_isa;
    use super::super::testing::{assert_same_bits, every_isa};
    use super::*;

    #[inline(always)]
    fn all_lanes<S: Lanes>(s: S, x: &[f32; 16], out: &mut [[f32; 16]; 5]) {
        let v = s.load(x);
        s.store(exp_lanes(s, v), &mut out[0]);
        s.store(tanh_lanes(s, v), &mut out[1]);
        s.store(sigmoid_lanes(s, v), &mut out[2]);
        s.store(silu_lanes(s, v), &mut out[3]);
        s.store(gelu_lanes(s, v), &mut out[4]);
    }
    for_each_isa! { fn all(x: &[f32; 16], out: &mut [[f32; 16]; 5]) = all_lanes; }

    /// The true functions.
    fn truth(x: f64) -> [f64; 5] {
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
        let sigmoid = 1.0 / (1.0 + (-x).exp());
        [x.exp(), x.tanh(), sigmoid, x * sigmoid, x / (1.0 + (-2.0 * u).exp())]
    }

    fn numbers() -> impl Iterator<Item = f32> {
        let grid = (-400_000..400_000).map(|i| i as f32 * 2.2e-4);
        let tiny = (0..2000).map(|i| 10_f32.powf(-i as f32 / 60.0));
        grid.chain(tiny.clone()).chain(tiny.map(|x| -x))
    }

    #[test]
    fn functions_are_accurate() {
        // Relative error, and from which size of the argument on an absolute one is all that can be asked: the exponent's
        // argument is itself rounded to an f32.
        for x in numbers() {
            let mut out = [[0.0; 16]; 5];
            all_lanes(Scalar, &[x; 16], &mut out);
            for (i, (got, want)) in out.iter().zip(truth(f64::from(x))).enumerate() {
                let got = f64::from(got[0]);
                let relative = match i {
                    0 | 1 => 2.5e-7,
                    _ => 3e-7 + 4e-7 * want.abs().max(1e-300).ln().abs(),
                };
                let tolerance = relative * want.abs() + 1e-36;
                assert!((got - want).abs() <= tolerance, "function {i} of {x}: {got:e}, not {want:e}");
            }
        }
    }

    #[test]
    fn functions_are_the_same_on_every_isa_special_numbers_too() {
        let special =
            [0.0, -0.0, 1e-40, -1e-40, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 88.5, -87.5, -87.0];
        let numbers: Vec<f32> = special.into_iter().chain(numbers().step_by(7)).collect();
        for x in numbers.as_chunks::<16>().0 {
            let mut want = [[0.0; 16]; 5];
            all(crate::kernels::Isa::Scalar, x, &mut want);
            for isa in every_isa() {
                let mut got = [[0.0; 16]; 5];
                all(isa, x, &mut got);
                let to_zero = x.map(|x| exp_to_zero(Scalar, [[x.min(0.0); 16]])[0][0]);
                assert_same_bits(&to_zero, &x.map(|x| exp(x.min(0.0))), "up to zero");
                assert_same_bits(got.as_flattened(), want.as_flattened(), isa.name());
            }
        }
    }

    #[test]
    fn limits_are_what_they_should_be() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::INFINITY) > 2e38);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(sigmoid(f32::NEG_INFINITY), 1.0 / (1.0 + exp(f32::INFINITY)));
        assert_eq!(sigmoid(f32::INFINITY), 1.0);
    }
}
