//! Operations on each element by itself.

use super::Ops;
use super::lanes::{LANES, Lanes, for_each_isa};
use super::math::{divide_by_one_plus_exp, gelu_lanes, silu_lanes, tanh_lanes};

impl Ops<'_> {
    /// `x += y`.
    pub fn add(self, x: &mut [f32], y: &[f32]) {
        self.zip(AddScaled(1.0), x, y);
    }

    /// `x += y * factor`, rounded once.
    pub fn add_scaled(self, x: &mut [f32], y: &[f32], factor: f32) {
        self.zip(AddScaled(factor), x, y);
    }

    /// Adds `bias` to every row of `x` (rows, bias.len()).
    pub fn add_bias(self, x: &mut [f32], bias: &[f32]) {
        self.for_rows(x, bias.len(), &|_, rows| {
            rows.chunks_exact_mut(bias.len()).for_each(|row| zip(self.isa, AddScaled(1.0), row, bias));
        });
    }

    /// `x *= factor`.
    pub fn scale(self, x: &mut [f32], factor: f32) {
        self.map(Scale(factor), x);
    }

    /// `gate = silu(gate) * up`, silu(x) = x / (1 + exp(-x)).
    pub fn silu_mul(self, gate: &mut [f32], up: &[f32]) {
        self.zip(SiluMul, gate, up);
    }

    /// `gate = gelu(gate) * up`, GELU by its tanh form.
    pub fn gelu_mul(self, gate: &mut [f32], up: &[f32]) {
        self.zip(GeluMul, gate, up);
    }

    /// gpt-oss: `gate = g / (1 + exp(-alpha g)) * (u + 1)` with g = min(gate, limit) and u = up clamped to +-limit.
    pub fn swiglu_clamped_mul(self, gate: &mut [f32], up: &[f32], alpha: f32, limit: f32) {
        self.zip(SwigluClamped { alpha, limit }, gate, up);
    }

    /// `x = gelu(x)`, the tanh form.
    pub fn gelu(self, x: &mut [f32]) {
        self.map(Gelu, x);
    }

    /// `x = max(x, 0)^2`.
    pub fn relu_squared(self, x: &mut [f32]) {
        self.map(ReluSquared, x);
    }

    /// `x = 1 / (1 + exp(-x))`.
    pub fn sigmoid(self, x: &mut [f32]) {
        self.map(Sigmoid, x);
    }

    /// `x *= y`.
    pub fn mul(self, x: &mut [f32], y: &[f32]) {
        self.zip(Mul, x, y);
    }

    /// `x = x / (1 + exp(-x))`.
    pub fn silu(self, x: &mut [f32]) {
        self.map(Silu, x);
    }

    /// `x = cap * tanh(x / cap)`.
    pub fn softcap(self, x: &mut [f32], cap: f32) {
        self.map(Softcap { cap, inverse: 1.0 / cap }, x);
    }

    fn zip<F: Binary>(self, f: F, x: &mut [f32], y: &[f32]) {
        assert_eq!(x.len(), y.len());
        self.for_parts(x, &|start, part| zip(self.isa, f, part, &y[start..start + part.len()]));
    }

    fn map<F: Unary>(self, f: F, x: &mut [f32]) {
        self.for_parts(x, &|_, part| map(self.isa, f, part));
    }
}

/// A function of one number, lane by lane.
pub(super) trait Unary: Copy + Sync {
    fn at<S: Lanes>(self, s: S, x: S::V) -> S::V;
}

/// A function of two numbers, lane by lane.
pub(super) trait Binary: Copy + Sync {
    fn at<S: Lanes>(self, s: S, x: S::V, y: S::V) -> S::V;
}

#[inline(always)]
fn map_lanes<S: Lanes, F: Unary>(s: S, f: F, x: &mut [f32]) {
    let (chunks, tail) = x.as_chunks_mut::<LANES>();
    for chunk in chunks {
        s.store(f.at(s, s.load(chunk)), chunk);
    }
    if !tail.is_empty() {
        let mut last = padded(tail, 0.0);
        s.store(f.at(s, s.load(&last)), &mut last);
        tail.copy_from_slice(&last[..tail.len()]);
    }
}

#[inline(always)]
fn zip_lanes<S: Lanes, F: Binary>(s: S, f: F, x: &mut [f32], y: &[f32]) {
    let ((chunks, tail), (y_chunks, y_tail)) = (x.as_chunks_mut::<LANES>(), y.as_chunks::<LANES>());
    for (chunk, y) in chunks.iter_mut().zip(y_chunks) {
        s.store(f.at(s, s.load(chunk), s.load(y)), chunk);
    }
    if !tail.is_empty() {
        let mut last = padded(tail, 0.0);
        s.store(f.at(s, s.load(&last), s.load(&padded(y_tail, 0.0))), &mut last);
        tail.copy_from_slice(&last[..tail.len()]);
    }
}

for_each_isa! {
    /// `x = f(x)`.
    pub(super) fn map<F: Unary>(f: F, x: &mut [f32]) = map_lanes;
}
for_each_isa! {
    /// `x = f(x, y)`.
    pub(super) fn zip<F: Binary>(f: F, x: &mut [f32], y: &[f32]) = zip_lanes;
}

/// The first lanes are `tail`, the rest `fill`.
#[inline(always)]
pub(super) fn padded(tail: &[f32], fill: f32) -> [f32; LANES] {
    let mut lanes = [fill; LANES];
    lanes[..tail.len()].copy_from_slice(tail);
    lanes
}

macro_rules! function {
    ($kind:ident, $name:pat, $self:ty, |$s:ident, $($arg:ident),*| $value:expr) => {
        impl $kind for $self {
            #[inline(always)]
            fn at<S: Lanes>(self, $s: S, $($arg: S::V),*) -> S::V {
                let $name = self;
                $value
            }
        }
    };
}

#[derive(Clone, Copy)]
pub(super) struct Scale(pub(super) f32);
function!(Unary, Scale(factor), Scale, |s, x| s.mul(x, s.splat(factor)));

#[derive(Clone, Copy)]
struct AddScaled(f32);
function!(Binary, AddScaled(factor), AddScaled, |s, x, y| s.fma(y, s.splat(factor), x));

#[derive(Clone, Copy)]
struct SiluMul;
function!(Binary, SiluMul, SiluMul, |s, gate, up| s.mul(silu_lanes(s, gate), up));

#[derive(Clone, Copy)]
struct GeluMul;
function!(Binary, GeluMul, GeluMul, |s, gate, up| s.mul(gelu_lanes(s, gate), up));

#[derive(Clone, Copy)]
struct Gelu;
function!(Unary, Gelu, Gelu, |s, x| gelu_lanes(s, x));

#[derive(Clone, Copy)]
struct ReluSquared;
function!(Unary, ReluSquared, ReluSquared, |s, x| {
    let x = s.max(s.splat(0.0), x);
    s.mul(x, x)
});

#[derive(Clone, Copy)]
struct Sigmoid;
function!(Unary, Sigmoid, Sigmoid, |s, x| divide_by_one_plus_exp(s, s.splat(1.0), s.mul(x, s.splat(-1.0))));

#[derive(Clone, Copy)]
struct Mul;
function!(Binary, Mul, Mul, |s, x, y| s.mul(x, y));

#[derive(Clone, Copy)]
struct Silu;
function!(Unary, Silu, Silu, |s, x| silu_lanes(s, x));

#[derive(Clone, Copy)]
struct Softcap {
    cap: f32,
    inverse: f32,
}
function!(Unary, Softcap { cap, inverse }, Softcap, |s, x| {
    s.mul(tanh_lanes(s, s.mul(x, s.splat(inverse))), s.splat(cap))
});

#[derive(Clone, Copy)]
struct SwigluClamped {
    alpha: f32,
    limit: f32,
}
function!(Binary, SwigluClamped { alpha, limit }, SwigluClamped, |s, gate, up| {
    let limit_v = s.splat(limit);
    let gate = s.min(limit_v, gate);
    let up = s.max(s.splat(-limit), s.min(limit_v, up));
    let swish = divide_by_one_plus_exp(s, gate, s.mul(gate, s.splat(-alpha)));
    s.mul(swish, s.add(up, s.splat(1.0)))
});

#[cfg(test)]
mod tests {
    use super::super::testing::{Noise, assert_close, assert_same_bits, every_isa};
    use super::*;
    use crate::kernels::{Isa, Pool};

    type Run = fn(Ops<'_>, &mut [f32], &[f32]);
    type Truth = fn(f64, f64) -> f64;

    fn gelu(x: f64) -> f64 {
        x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
    }

    const CASES: [(&str, Run, Truth); 12] = [
        ("add", |ops, x, y| ops.add(x, y), |x, y| x + y),
        ("add_scaled", |ops, x, y| ops.add_scaled(x, y, 0.3), |x, y| x + 0.3_f32 as f64 * y),
        ("scale", |ops, x, _| ops.scale(x, 1.7), |x, _| x * 1.7_f32 as f64),
        ("silu", |ops, x, _| ops.silu(x), |x, _| x / (1.0 + (-x).exp())),
        ("silu_mul", |ops, x, y| ops.silu_mul(x, y), |x, y| x / (1.0 + (-x).exp()) * y),
        ("gelu", |ops, x, _| ops.gelu(x), |x, _| gelu(x)),
        ("gelu_mul", |ops, x, y| ops.gelu_mul(x, y), |x, y| gelu(x) * y),
        ("relu_squared", |ops, x, _| ops.relu_squared(x), |x, _| x.max(0.0) * x.max(0.0)),
        ("sigmoid", |ops, x, _| ops.sigmoid(x), |x, _| 1.0 / (1.0 + (-x).exp())),
        ("mul", |ops, x, y| ops.mul(x, y), |x, y| x * y),
        ("softcap", |ops, x, _| ops.softcap(x, 2.5), |x, _| 2.5 * (x / 2.5).tanh()),
        (
            "swiglu_clamped_mul",
            |ops, x, y| ops.swiglu_clamped_mul(x, y, 1.702, 1.5),
            |x, y| {
                let (g, u) = (x.min(1.5), y.clamp(-1.5, 1.5));
                g / (1.0 + (-1.702 * g).exp()) * (u + 1.0)
            },
        ),
    ];

    #[test]
    fn elementwise_operations_are_accurate_and_the_same_on_every_isa_and_any_threads() {
        let mut noise = Noise::new(1);
        for len in [1, 15, 16, 17, 48, 100, 3 * super::super::SHARE + 5] {
            let (x, y) = (noise.vec(len), noise.vec(len));
            for (name, run, truth) in CASES {
                let mut want = x.clone();
                run(Ops::new(Isa::Scalar, &Pool::new(1)), &mut want, &y);
                let exact: Vec<f64> = x.iter().zip(&y).map(|(&x, &y)| truth(x.into(), y.into())).collect();
                assert_close(&want, &exact, 2e-6, name);
                for isa in every_isa() {
                    for threads in [1, 3] {
                        let mut got = x.clone();
                        run(Ops::new(isa, &Pool::new(threads)), &mut got, &y);
                        assert_same_bits(&got, &want, name);
                    }
                }
            }
        }
    }

    #[test]
    fn a_bias_is_added_to_every_row() {
        let pool = Pool::new(1);
        let mut x = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        Ops::new(Isa::detect(), &pool).add_bias(&mut x, &[10.0, 20.0, 30.0]);
        assert_eq!(x, [11.0, 22.0, 33.0, 14.0, 25.0, 36.0]);
    }
}
