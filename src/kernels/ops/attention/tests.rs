use super::super::testing::{Noise, assert_close, assert_same_bits, every_isa};
use super::*;
use crate::kernels::{CancelHandle, Isa, Pool};

/// A cache of one layer filled with noise, and queries for every position.
struct Case {
    layout: KvLayout,
    heads: usize,
    positions: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    pages: Vec<Vec<u8>>,
}

impl Case {
    fn new(seed: u64, heads: usize, layout: KvLayout, positions: usize) -> Self {
        let mut noise = Noise::new(seed);
        let q = noise.vec(positions * heads * layout.key_dim);
        let k = noise.vec(positions * layout.kv_heads * layout.key_dim);
        let v = noise.vec(positions * layout.kv_heads * layout.value_dim);
        // What was never stored must not matter: NaN in every type.
        let pages = vec![vec![0xff; layout.page_bytes()]; KvLayout::pages_for(positions)];
        let mut case = Self { layout, heads, positions, q, k, v, pages };
        case.store(Isa::detect());
        case
    }

    fn store(&mut self, isa: Isa) {
        let pool = Pool::new(1);
        let (key_row, value_row) =
            (self.layout.kv_heads * self.layout.key_dim, self.layout.kv_heads * self.layout.value_dim);
        // In pieces, across page boundaries.
        let mut first = 0;
        for piece in [1, 5, 40, 1, usize::MAX] {
            let count = piece.min(self.positions - first);
            for (page, offset, rows) in KvLayout::spans(first, count) {
                let (start, end) = (first + rows.start, first + rows.end);
                Ops::new(isa, &pool).kv_store(
                    &self.layout,
                    &mut self.pages[page],
                    offset,
                    &self.k[start * key_row..end * key_row],
                    &self.v[start * value_row..end * value_row],
                );
            }
            first += count;
        }
    }

    fn spec(&self) -> AttentionSpec<'static> {
        let scale = 1.0 / (self.layout.key_dim as f32).sqrt();
        AttentionSpec { layout: self.layout, heads: self.heads, scale, window: None, softcap: None, sinks: None }
    }

    /// Positions `first..first + count` in one call.
    fn run(&self, spec: &AttentionSpec<'_>, isa: Isa, pool: &Pool, first: usize, count: usize) -> Vec<f32> {
        let query_row = self.heads * self.layout.key_dim;
        let mut out = vec![f32::NAN; count * self.heads * self.layout.value_dim];
        let mut scratch = AttentionScratch::default();
        Ops::new(isa, pool)
            .attention(
                spec,
                &self.q[first * query_row..(first + count) * query_row],
                first,
                &|page| &self.pages[page],
                &mut scratch,
                &mut out,
                &Cancel::never(),
            )
            .unwrap();
        out
    }

    /// The definition, in f64, from the unrounded K and V.
    fn truth(&self, spec: &AttentionSpec<'_>) -> Vec<f64> {
        let (dim, value_dim, kv_heads) = (self.layout.key_dim, self.layout.value_dim, self.layout.kv_heads);
        let mut out = Vec::new();
        for i in 0..self.positions {
            for h in 0..self.heads {
                let kv_head = h / (self.heads / kv_heads);
                let q = &self.q[(i * self.heads + h) * dim..][..dim];
                let seen: Vec<usize> = (0..=i).filter(|j| spec.window.is_none_or(|w| i - j < w)).collect();
                let score = |j: usize| {
                    let k = &self.k[(j * kv_heads + kv_head) * dim..][..dim];
                    let dot: f64 = q.iter().zip(k).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                    let score = dot * f64::from(spec.scale);
                    spec.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                };
                let weights: Vec<f64> = seen.iter().map(|&j| score(j).exp()).collect();
                let sum = weights.iter().sum::<f64>() + spec.sinks.map_or(0.0, |sinks| f64::from(sinks[h]).exp());
                for d in 0..value_dim {
                    let value = |j: usize| f64::from(self.v[(j * kv_heads + kv_head) * value_dim + d]);
                    out.push(seen.iter().zip(&weights).map(|(&j, w)| w / sum * value(j)).sum());
                }
            }
        }
        out
    }
}

fn layout(kv_heads: usize, key_dim: usize, value_dim: usize, element: KvElement) -> KvLayout {
    KvLayout { kv_heads, key_dim, value_dim, element }
}

/// How far the rounding of the cache may move a result.
fn tolerance(element: KvElement) -> f64 {
    match element {
        KvElement::F32 => 3e-6,
        KvElement::F16 => 2e-3,
        KvElement::Q8_0 => 3e-2,
    }
}

const ELEMENTS: [KvElement; 3] = [KvElement::F32, KvElement::F16, KvElement::Q8_0];

fn shapes() -> Vec<(usize, usize, usize, usize, usize)> {
    // heads, kv heads, key dim, value dim, positions
    vec![
        (9, 3, 64, 64, 140),
        (4, 4, 16, 16, 33),
        (7, 1, 64, 64, 70),
        (4, 1, 256, 256, 40),
        (5, 1, 40, 24, 100),
        (8, 2, 96, 80, 65),
        (3, 1, 8, 8, 300),
        (80, 1, 32, 32, 35),
        (2, 1, 512, 512, 20),
    ]
}

fn variants<'a>(spec: AttentionSpec<'static>, sinks: &'a [f32]) -> Vec<AttentionSpec<'a>> {
    vec![
        spec,
        AttentionSpec { window: Some(20), ..spec },
        AttentionSpec { softcap: Some(0.8), ..spec },
        AttentionSpec { sinks: Some(sinks), window: Some(128), ..spec },
    ]
}

#[test]
fn attention_is_accurate_in_every_shape_and_variant() {
    let pool = Pool::new(2);
    for (seed, (heads, kv_heads, key_dim, value_dim, positions)) in shapes().into_iter().enumerate() {
        for element in ELEMENTS {
            let case = Case::new(seed as u64, heads, layout(kv_heads, key_dim, value_dim, element), positions);
            let sinks = Noise::new(9).vec(heads);
            for spec in variants(case.spec(), &sinks) {
                let got = case.run(&spec, Isa::detect(), &pool, 0, positions);
                assert_close(&got, &case.truth(&spec), tolerance(element), &format!("{spec:?}"));
            }
        }
    }
}

#[test]
fn attention_is_the_same_to_the_bit_for_any_batching_threads_and_isa() {
    for (seed, (heads, kv_heads, key_dim, value_dim, positions)) in shapes().into_iter().enumerate() {
        for element in ELEMENTS {
            let case = Case::new(seed as u64, heads, layout(kv_heads, key_dim, value_dim, element), positions);
            let sinks = Noise::new(9).vec(heads);
            let row = heads * value_dim;
            for spec in variants(case.spec(), &sinks) {
                let want = case.run(&spec, Isa::Scalar, &Pool::new(1), 0, positions);
                for (isa, threads) in every_isa().zip([1, 2, 3, 7].into_iter().cycle()) {
                    let pool = Pool::new(threads);
                    assert_same_bits(&case.run(&spec, isa, &pool, 0, positions), &want, isa.name());
                    for (piece, every) in [(1, 13), (3, 21), (32, 32)] {
                        for first in (0..positions).step_by(every) {
                            let count = piece.min(positions - first);
                            let got = case.run(&spec, isa, &pool, first, count);
                            assert_same_bits(&got, &want[first * row..(first + count) * row], isa.name());
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn one_position_is_the_same_for_any_threads_over_many_segments() {
    let case = Case::new(3, 6, layout(2, 32, 32, KvElement::F16), 1000);
    for spec in [case.spec(), AttentionSpec { window: Some(300), ..case.spec() }] {
        let want = case.run(&spec, Isa::Scalar, &Pool::new(1), 0, 1000);
        for threads in [1, 2, 3, 7] {
            let pool = Pool::new(threads);
            for position in [127, 128, 500, 767, 999] {
                let got = case.run(&spec, Isa::detect(), &pool, position, 1);
                assert_same_bits(&got, &want[position * 192..(position + 1) * 192], "one position");
            }
        }
    }
}

#[test]
fn pages_are_the_same_on_every_isa() {
    for element in ELEMENTS {
        let mut case = Case::new(4, 3, layout(3, 72, 40, element), 50);
        // Beyond half precision, tiny, zero and negative zero.
        for (i, x) in [1e6, -1e6, 65504.0, 1e-7, -1e-9, 0.0, -0.0, 6.1e-5].into_iter().enumerate() {
            case.k[i] = x;
            case.v[i + 3] = x;
        }
        case.store(Isa::Scalar);
        let want = case.pages.clone();
        for isa in every_isa() {
            case.pages.iter_mut().for_each(|page| page.fill(0xff));
            case.store(isa);
            assert_eq!(case.pages, want, "{}", isa.name());
        }
    }
}

#[test]
fn a_number_out_of_half_precision_saturates() {
    let layout = layout(1, 8, 8, KvElement::F16);
    let mut page = vec![0; layout.page_bytes()];
    let x = [1e9, -1e9, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    Ops::new(Isa::detect(), &Pool::new(1)).kv_store(&layout, &mut page, 0, &x, &x);
    let spec = AttentionSpec { layout, heads: 1, scale: 0.0, window: None, softcap: None, sinks: None };
    let mut out = [0.0; 8];
    let (mut scratch, cancel, pool) = (AttentionScratch::default(), Cancel::never(), Pool::new(1));
    Ops::new(Isa::detect(), &pool).attention(&spec, &x, 0, &|_| &page, &mut scratch, &mut out, &cancel).unwrap();
    assert_eq!(out, [65504.0, -65504.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

#[test]
fn a_cancelled_call_says_so() {
    let case = Case::new(5, 2, layout(1, 16, 16, KvElement::F16), 64);
    let handle = CancelHandle::new();
    let cancel = handle.token();
    handle.cancel();
    let (pool, mut scratch) = (Pool::new(2), AttentionScratch::default());
    for count in [1, 64] {
        let mut out = vec![0.0; count * 32];
        let run = Ops::new(Isa::detect(), &pool).attention(
            &case.spec(),
            &case.q[..count * 32],
            0,
            &|page| &case.pages[page],
            &mut scratch,
            &mut out,
            &cancel,
        );
        assert_eq!(run, Err(Cancelled));
    }
}

#[test]
fn scratch_made_for_a_context_does_not_grow_within_it() {
    let case = Case::new(6, 9, layout(3, 64, 64, KvElement::F16), 300);
    let pool = Pool::new(2);
    let mut scratch = AttentionScratch::new(2, 9, &case.layout, 300);
    let bytes = scratch.bytes();
    assert_eq!(bytes, AttentionScratch::bytes_for(2, 9, &case.layout, 300));
    let mut out = vec![0.0; 300 * 9 * 64];
    let ops = Ops::new(Isa::detect(), &pool);
    let cancel = Cancel::never();
    ops.attention(&case.spec(), &case.q, 0, &|page| &case.pages[page], &mut scratch, &mut out, &cancel).unwrap();
    let (q, one) = (&case.q[299 * 576..], &mut out[..576]);
    ops.attention(&case.spec(), q, 299, &|page| &case.pages[page], &mut scratch, one, &cancel).unwrap();
    assert_eq!(scratch.bytes(), bytes);
}
