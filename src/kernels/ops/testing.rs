//! What the tests of the operations share.

use super::super::Isa;

/// Instruction sets of this processor that differ in their floating-point vectors.
pub(crate) fn every_isa() -> impl Iterator<Item = Isa> {
    [Isa::Scalar, Isa::Avx2, Isa::Avx512Vnni, Isa::Neon].into_iter().filter(|isa| isa.is_supported())
}

#[track_caller]
pub(crate) fn assert_same_bits(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        // Processors disagree on the payload of a NaN.
        assert!(g.to_bits() == w.to_bits() || g.is_nan() && w.is_nan(), "{what}: element {i} is {g:e}, not {w:e}");
    }
}

#[track_caller]
pub(crate) fn assert_close(got: &[f32], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(g) - w).abs() <= tolerance, "{what}: element {i} is {g}, not {w}");
    }
}

/// Reproducible numbers, roughly normal, of standard deviation 1.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn normal(&mut self) -> f32 {
        let sum: f32 = (0..12).map(|_| (self.bits() >> 40) as f32 / (1 << 24) as f32).sum();
        sum - 6.0
    }

    pub(crate) fn vec(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.normal()).collect()
    }
}
