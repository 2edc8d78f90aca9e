//! Rotary position embeddings (Su et al., arXiv 2104.09864), with the scalings that GGUF models name.

use super::Ops;
use super::elementwise::padded;
use super::lanes::{LANES, Lanes, for_each_isa};

/// Which two elements of a head are turned together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// `x[2 i]` and `x[2 i + 1]` (llama.cpp's "norm").
    Adjacent,
    /// `x[i]` and `x[i + dims / 2]` (llama.cpp's "neox").
    Halves,
}

/// YaRN (Peng et al., arXiv 2309.00071), as llama.cpp's `rope_yarn` has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// How much of the extrapolated angle fast dimensions keep: 1, or 0 for none.
    pub ext_factor: f64,
    pub beta_fast: f64,
    pub beta_slow: f64,
    /// Positions the model was trained on before its context was extended.
    pub original_context: u32,
}

/// What defines the angles.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeParams {
    /// Leading elements of each head that are turned; even.
    pub dims: usize,
    pub pairing: Pairing,
    pub base: f64,
    /// One over the scaling factor: 1 where positions are not scaled.
    pub scale: f64,
    pub yarn: Option<Yarn>,
    /// Divisors of the frequencies (dims / 2): `rope_freqs.weight`, or longrope's long or short factors.
    pub factors: Option<Vec<f32>>,
    /// What cosines and sines are multiplied with; YaRN multiplies by `1 + 0.1 ln(1 / scale)` besides.
    pub magnitude: f64,
}

impl RopeParams {
    pub fn plain(dims: usize, pairing: Pairing, base: f64) -> Self {
        Self { dims, pairing, base, scale: 1.0, yarn: None, factors: None, magnitude: 1.0 }
    }
}

/// Positions in a page of the table.
const PAGE: usize = 256;

/// Cosines and sines of every position so far and pair, computed in f64 with `libm`, so the same on every machine.
#[derive(Clone, Debug)]
pub struct RopeTable {
    pairing: Pairing,
    dims: usize,
    /// Angle of one position, by pair.
    frequencies: Vec<f64>,
    magnitude: f64,
    /// (PAGE, 2, dims / 2): cosines, then sines.
    pages: Vec<Box<[f32]>>,
}

impl RopeTable {
    pub fn new(params: &RopeParams) -> Self {
        let pairs = params.dims / 2;
        assert!(params.dims.is_multiple_of(2) && params.factors.as_ref().is_none_or(|f| f.len() >= pairs));
        let mut magnitude = params.magnitude;
        let mut ramp = None;
        if let Some(yarn) = params.yarn.filter(|yarn| yarn.ext_factor != 0.0) {
            magnitude *= 1.0 + 0.1 * libm::log(1.0 / params.scale);
            ramp = Some((yarn, yarn_range(&yarn, params.dims, params.base)));
        }
        let frequency = |pair: usize| {
            let factor = params.factors.as_ref().map_or(1.0, |f| f64::from(f[pair]));
            let extrapolated = libm::pow(params.base, -2.0 * pair as f64 / params.dims as f64) / factor;
            let interpolated = params.scale * extrapolated;
            let Some((yarn, (low, high))) = ramp else { return interpolated };
            let position = (pair as f64 - low) / (high - low).max(0.001);
            let mix = (1.0 - position.clamp(0.0, 1.0)) * yarn.ext_factor;
            interpolated * (1.0 - mix) + extrapolated * mix
        };
        Self {
            pairing: params.pairing,
            dims: params.dims,
            frequencies: (0..pairs).map(frequency).collect(),
            magnitude,
            pages: Vec::new(),
        }
    }

    /// Computes what is missing for positions `0..positions`.
    pub fn grow(&mut self, positions: usize) {
        let pairs = self.frequencies.len();
        while self.pages.len() * PAGE < positions {
            let first = self.pages.len() * PAGE;
            let mut page = vec![0.0; PAGE * self.dims];
            for (i, row) in page.chunks_exact_mut(self.dims.max(1)).enumerate() {
                for (pair, frequency) in self.frequencies.iter().enumerate() {
                    let angle = (first + i) as f64 * frequency;
                    row[pair] = (libm::cos(angle) * self.magnitude) as f32;
                    row[pairs + pair] = (libm::sin(angle) * self.magnitude) as f32;
                }
            }
            self.pages.push(page.into_boxed_slice());
        }
    }

    /// Bytes of the table so far.
    pub fn bytes(&self) -> usize {
        self.pages.len() * PAGE * self.dims * size_of::<f32>()
    }

    /// Bytes of a table that has grown to `positions`.
    pub fn bytes_for(dims: usize, positions: usize) -> usize {
        positions.div_ceil(PAGE) * PAGE * dims * size_of::<f32>()
    }

    /// Cosines and sines of one position. Panics where the table has not grown that far.
    fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let row = (position % PAGE) * self.dims;
        self.pages[position / PAGE][row..row + self.dims].split_at(self.dims / 2)
    }
}

/// The pairs between which YaRN goes over from extrapolation to interpolation.
fn yarn_range(yarn: &Yarn, dims: usize, base: f64) -> (f64, f64) {
    let pair_that_turns = |rotations: f64| {
        let turns = f64::from(yarn.original_context) / (rotations * 2.0 * std::f64::consts::PI);
        dims as f64 * libm::log(turns) / (2.0 * libm::log(base))
    };
    let (low, high) = (pair_that_turns(yarn.beta_fast).floor(), pair_that_turns(yarn.beta_slow).ceil());
    (low.max(0.0), high.min(dims as f64 - 1.0))
}

impl Ops<'_> {
    /// Turns the heads of consecutive positions, the first of which is `first`; x (positions, heads, head_dim). The table
    /// has grown over them; elements of a head past the table's `dims` stay as they are.
    pub fn rope(self, table: &RopeTable, x: &mut [f32], heads: usize, head_dim: usize, first: usize) {
        assert!(table.dims <= head_dim);
        let row_len = heads * head_dim;
        self.for_rows(x, row_len, &|skipped, rows| {
            for (i, row) in rows.chunks_exact_mut(row_len).enumerate() {
                let (cos, sin) = table.at(first + skipped + i);
                match table.pairing {
                    Pairing::Adjacent => turn_adjacent(self.isa, row, head_dim, cos, sin),
                    Pairing::Halves => turn_halves(self.isa, row, head_dim, cos, sin),
                }
            }
        });
    }
}

/// Turns 16 pairs. Not a closure: those are not always inlined, and what is not inlined loses its instruction set.
#[inline(always)]
fn turn<S: Lanes>(s: S, a: &mut [f32; LANES], b: &mut [f32; LANES], cos: &[f32; LANES], sin: &[f32; LANES]) {
    let (x, y, cos, sin) = (s.load(a), s.load(b), s.load(cos), s.load(sin));
    s.store(s.sub(s.mul(x, cos), s.mul(y, sin)), a);
    s.store(s.add(s.mul(x, sin), s.mul(y, cos)), b);
}

#[inline(always)]
fn turn_halves_lanes<S: Lanes>(s: S, x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
    let pairs = cos.len();
    let ((cos, cos_tail), (sin, sin_tail)) = (cos.as_chunks::<LANES>(), sin.as_chunks::<LANES>());
    for head in x.chunks_exact_mut(head_dim) {
        let (first, rest) = head.split_at_mut(pairs);
        let (first, first_tail) = first.as_chunks_mut::<LANES>();
        let (rest, rest_tail) = rest[..pairs].as_chunks_mut::<LANES>();
        for (((a, b), cos), sin) in first.iter_mut().zip(rest).zip(cos).zip(sin) {
            turn(s, a, b, cos, sin);
        }
        if !cos_tail.is_empty() {
            let (mut a, mut b) = (padded(first_tail, 0.0), padded(rest_tail, 0.0));
            turn(s, &mut a, &mut b, &padded(cos_tail, 0.0), &padded(sin_tail, 0.0));
            first_tail.copy_from_slice(&a[..first_tail.len()]);
            rest_tail.copy_from_slice(&b[..rest_tail.len()]);
        }
    }
}

#[inline(always)]
fn turn_adjacent_lanes<S: Lanes>(_: S, x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
    for head in x.chunks_exact_mut(head_dim) {
        let (pairs, _) = head[..2 * cos.len()].as_chunks_mut::<2>();
        for (pair, (c, d)) in pairs.iter_mut().zip(cos.iter().zip(sin)) {
            let [a, b] = *pair;
            *pair = [a * c - b * d, a * d + b * c];
        }
    }
}

for_each_isa! { fn turn_halves(x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) = turn_halves_lanes; }
for_each_isa! { fn turn_adjacent(x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) = turn_adjacent_lanes; }

#[cfg(test)]
mod tests {
    use super::super::testing::{Noise, assert_close, assert_same_bits, every_isa};
    use super::*;
    use crate::kernels::{Isa, Pool};

    /// The definition: one head at one position.
    fn truth(x: &[f32], pairing: Pairing, angles: &[f64], magnitude: f64) -> Vec<f64> {
        let mut y: Vec<f64> = x.iter().map(|&v| v.into()).collect();
        for (i, angle) in angles.iter().enumerate() {
            let (a, b) = match pairing {
                Pairing::Adjacent => (2 * i, 2 * i + 1),
                Pairing::Halves => (i, i + angles.len()),
            };
            let (cos, sin) = (angle.cos() * magnitude, angle.sin() * magnitude);
            (y[a], y[b]) =
                (f64::from(x[a]) * cos - f64::from(x[b]) * sin, f64::from(x[a]) * sin + f64::from(x[b]) * cos);
        }
        y
    }

    #[test]
    fn both_pairings_turn_part_or_all_of_a_head_the_same_on_every_isa_and_batching() {
        let mut noise = Noise::new(7);
        for (head_dim, dims) in [(64, 64), (128, 128), (80, 32), (40, 40), (8, 4), (96, 72)] {
            for pairing in [Pairing::Adjacent, Pairing::Halves] {
                let (heads, positions, first) = (3, 70, 240);
                let mut table = RopeTable::new(&RopeParams::plain(dims, pairing, 10_000.0));
                table.grow(first + positions);
                let x = noise.vec(positions * heads * head_dim);
                let mut want = x.clone();
                Ops::new(Isa::Scalar, &Pool::new(1)).rope(&table, &mut want, heads, head_dim, first);
                for (i, (got, x)) in want.chunks_exact(head_dim).zip(x.chunks_exact(head_dim)).enumerate() {
                    let position = (first + i / heads) as f64;
                    let angles: Vec<f64> =
                        (0..dims / 2).map(|p| position * 10_000_f64.powf(-2.0 * p as f64 / dims as f64)).collect();
                    assert_close(got, &truth(x, pairing, &angles, 1.0), 1e-6, "rope");
                }
                for isa in every_isa() {
                    let pool = Pool::new(2);
                    let ops = Ops::new(isa, &pool);
                    let mut whole = x.clone();
                    ops.rope(&table, &mut whole, heads, head_dim, first);
                    assert_same_bits(&whole, &want, isa.name());
                    let mut single = x.clone();
                    for (i, row) in single.chunks_exact_mut(heads * head_dim).enumerate() {
                        ops.rope(&table, row, heads, head_dim, first + i);
                    }
                    assert_same_bits(&single, &want, "one at a time");
                }
            }
        }
    }

    #[test]
    fn linear_scaling_and_factors_divide_the_angle() {
        let params = RopeParams {
            scale: 0.25,
            factors: Some(vec![1.0, 2.0, 8.0]),
            magnitude: 1.5,
            ..RopeParams::plain(6, Pairing::Halves, 500.0)
        };
        let mut table = RopeTable::new(&params);
        table.grow(300);
        let x = [0.3, -0.2, 0.9, 1.1, 0.4, -0.7];
        let mut got = x;
        Ops::new(Isa::Scalar, &Pool::new(1)).rope(&table, &mut got, 1, 6, 299);
        let angles: Vec<f64> = [1.0, 2.0, 8.0]
            .iter()
            .enumerate()
            .map(|(i, f)| 299.0 * 0.25 * 500_f64.powf(-(i as f64) / 3.0) / f)
            .collect();
        assert_close(&got, &truth(&x, Pairing::Halves, &angles, 1.5), 1e-6, "scaled");
    }

    /// Numbers computed from the paper's definition, section 3.2 and equation 22: base 10000, 128 dims, factor 4 of 4096.
    #[test]
    fn yarn_keeps_fast_dimensions_and_interpolates_slow_ones() {
        let yarn = Yarn { ext_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0, original_context: 4096 };
        let params = RopeParams { scale: 0.25, yarn: Some(yarn), ..RopeParams::plain(128, Pairing::Halves, 10_000.0) };
        let table = RopeTable::new(&params);
        let plain = |pair: usize| 10_000_f64.powf(-2.0 * pair as f64 / 128.0);
        // The range: 128 ln(4096 / (2 pi r)) / (2 ln 10000) is 20.9 for r = 32 and 45.0 for r = 1.
        for (pair, share) in [(0, 1.0), (20, 1.0), (33, 0.5), (46, 0.0), (63, 0.0)] {
            let want = plain(pair) * (share + (1.0 - share) * 0.25);
            let got = table.frequencies[pair];
            assert!((got / want - 1.0).abs() < 1e-9, "pair {pair}: {got}, not {want}");
        }
        assert!((table.magnitude - 1.138_629_436_111_989).abs() < 1e-12);
    }

    #[test]
    fn the_table_grows_by_pages_and_counts_its_bytes() {
        let mut table = RopeTable::new(&RopeParams::plain(64, Pairing::Halves, 10_000.0));
        assert_eq!(table.bytes(), 0);
        table.grow(1);
        assert_eq!((table.bytes(), RopeTable::bytes_for(64, 1)), (65536, 65536));
        table.grow(257);
        assert_eq!((table.bytes(), RopeTable::bytes_for(64, 257)), (131_072, 131_072));
    }
}
