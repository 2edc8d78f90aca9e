//! Plain Rust: the definition that the others are held to.

use super::{LANES, Lanes};

/// Any processor.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; LANES] {
    std::array::from_fn(f)
}

impl Scalar {
    #[inline(always)]
    fn tree(mut v: [f32; LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                v[i] = join(v[i], v[i + half]);
            }
        }
        v[0]
    }
}

impl Lanes for Scalar {
    type V = [f32; LANES];
    const WIDE: usize = 1;
    const ROWS: usize = 2;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        *from
    }
    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32; LANES]) {
        *to = v;
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        each(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn select_gt(self, a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V {
        each(|i| if a[i] > b[i] { x[i] } else { y[i] })
    }
    #[inline(always)]
    fn add_to_exponent(self, y: Self::V, n: Self::V) -> Self::V {
        each(|i| f32::from_bits(y[i].to_bits().wrapping_add(n[i].to_bits() << 23)))
    }
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        Self::tree(v, |a, b| a + b)
    }
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        Self::tree(v, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u8) -> Self::V {
        // SAFETY: the caller vouches for 32 readable bytes.
        let bits: [u16; LANES] = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        each(|i| half::f16::from_bits(bits[i]).to_f32_const())
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: Self::V, to: *mut u8) {
        let bits: [u16; LANES] = std::array::from_fn(|i| half::f16::from_f32_const(v[i]).to_bits());
        // SAFETY: the caller vouches for 32 writable bytes.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(bits) };
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const u8) -> Self::V {
        // SAFETY: the caller vouches for 16 readable bytes.
        let bytes: [i8; LANES] = unsafe { from.cast::<[i8; LANES]>().read_unaligned() };
        each(|i| f32::from(bytes[i]))
    }
}
