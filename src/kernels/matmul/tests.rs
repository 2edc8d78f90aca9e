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
        let task = Task {
            out: 0,
            first_row: 0,
            rows: self.rows,
            ty: self.ty,
            weights: &self.weights,
            interleaved: false,
            positions: None,
        };
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
        let norm = |v: &mut dyn Iterator<Item = f32>| v.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        for (arithmetic, largest) in [(Arithmetic::Int8, 32512.0), (Arithmetic::Fast, 127.0)] {
            let int8 = product.compute(Kernels::new(arithmetic), 1);
            let error = norm(&mut exact.iter().zip(&int8).map(|(a, b)| a - b)) / norm(&mut exact.iter().copied());
            // Rounding to 1/largest of the largest in a block errs by 1/largest/sqrt(12) of that; the largest of 32 or
            // 256 such products of uniform numbers is at most 4 to 6 times their standard deviation.
            assert!(error < 6.0 / largest / 12.0_f64.sqrt(), "{ty}, {arithmetic:?}: {error}");
            assert!(error > 0.03 / largest, "{ty}, {arithmetic:?}: {error} is too good to be rounded");
        }
    }
}

/// Memory whose end is followed by a page that cannot be read, and whose start is preceded by one.
struct Fenced {
    map: *mut u8,
    mapped: usize,
    len: usize,
}

impl Fenced {
    const PAGE: usize = 1 << 16;

    fn new(contents: &[u8]) -> Self {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
        let mapped = contents.len().next_multiple_of(Self::PAGE) + 2 * Self::PAGE;
        // SAFETY: a new mapping, of which only the part that stays accessible is written.
        unsafe {
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            let map = mmap_anonymous(std::ptr::null_mut(), mapped, rights, MapFlags::PRIVATE).unwrap();
            // The fences are taken away, not the inside given: emulators know no other order.
            for fence in [0, mapped - Self::PAGE] {
                mprotect(map.cast::<u8>().add(fence).cast(), Self::PAGE, MprotectFlags::empty()).unwrap();
            }
            let this = Self { map: map.cast(), mapped, len: contents.len() };
            std::ptr::copy_nonoverlapping(contents.as_ptr(), this.start(), contents.len());
            this
        }
    }

    fn start(&self) -> *mut u8 {
        self.map.wrapping_add(self.mapped - Self::PAGE - self.len)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: these bytes are accessible and were written in `new`.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new`, and nothing borrows it any more.
        unsafe { rustix::mm::munmap(self.map.cast(), self.mapped).unwrap() };
    }
}

/// What the kernels of one instruction set make of a product cut in two tasks, for all or some positions. The rows come
/// as they are, or interleaved where that is what these kernels take.
fn compute_in_parts(
    product: &Product,
    kernels: Kernels,
    threads: usize,
    cut: usize,
    positions: Option<Positions>,
    interleaved: bool,
) -> Vec<f32> {
    let pool = Pool::new(threads);
    let mut acts = Activations::new(kernels, product.k, product.positions);
    acts.prepare(&pool, &product.x, product.positions, product.k, &[product.ty]);
    let stride = product.rows + 3;
    let mut data = vec![0.0; product.positions * stride];
    let row_bytes = product.weights.len() / product.rows;
    let mut weights = product.weights.clone();
    let (first, second) = weights.split_at_mut(cut * row_bytes);
    let interleave = Interleave::of(kernels, product.ty).filter(|_| interleaved);
    let fences = [first, second].map(|part| {
        if let Some(interleave) = interleave {
            interleave.rows(part, row_bytes, &mut Groups::new());
        }
        Fenced::new(part)
    });
    let mut outs = [MatrixOut { data: &mut data, row_stride: stride }];
    let tasks = [(0, cut), (cut, product.rows - cut)];
    let tasks: Vec<Task> = std::iter::zip(tasks, &fences)
        .map(|((first_row, rows), weights)| Task {
            out: 0,
            first_row: first_row + 1,
            rows,
            ty: product.ty,
            weights: weights.bytes(),
            interleaved: interleave.is_some(),
            positions,
        })
        .collect();
    matmul(kernels, &pool, &acts, &mut outs, &tasks, &Cancel::never()).unwrap();
    data
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn every_isa_order_of_rows_number_of_threads_and_cut_gives_the_bits_of_the_scalar_kernel(
            ty in proptest::sample::select(SUPPORTED),
            arithmetic in prop_oneof![
                1 => Just(Arithmetic::Exact), 3 => Just(Arithmetic::Int8), 2 => Just(Arithmetic::Fast)
            ],
            blocks in 1_usize..6,
            rows in 1_usize..100,
            positions in prop_oneof![1_usize..4, 1_usize..140],
            threads in prop_oneof![Just(1_usize), Just(2), Just(3), Just(7)],
            cut in 0.0..1.0_f64,
            some in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let product = Product::random(ty, blocks * ty.block_len().max(32), rows, positions, seed);
            let cut = (cut * (rows + 1) as f64) as usize;
            let (first, step) = ((seed % 5) as usize, (seed / 5 % 4) as usize + 1);
            let some = some.then_some(Positions { first, step, count: positions.saturating_sub(first).div_ceil(step) });
            let scalar = compute_in_parts(&product, Kernels { isa: Isa::Scalar, arithmetic }, 1, rows, some, false);
            for (isa, interleaved) in Isa::supported().into_iter().flat_map(|isa| [(isa, false), (isa, true)]) {
                let got = compute_in_parts(&product, Kernels { isa, arithmetic }, threads, cut, some, interleaved);
                prop_assert_eq!(
                    bits(&got), bits(&scalar), "{} {:?} on {}, interleaved: {}", ty, arithmetic, isa.name(), interleaved
                );
            }
        }
    }
}

/// A product of 64 rows and 4 positions with `tasks` as they come out of `cut`.
fn run_tasks(cut: impl Fn(&Product) -> Vec<Task<'_>>, cancel: &Cancel) -> Result<(), Cancelled> {
    let product = Product::random(TensorType::Q4_0, 256, 64, 4, 3);
    let (kernels, pool) = (Kernels::new(Arithmetic::Int8), Pool::new(2));
    let mut acts = Activations::new(kernels, 256, 4);
    acts.prepare(&pool, &product.x, 4, 256, &[product.ty]);
    let mut data = vec![0.0; 4 * 64];
    let mut outs = [MatrixOut { data: &mut data, row_stride: 64 }];
    matmul(kernels, &pool, &acts, &mut outs, &cut(&product), cancel)
}

fn whole(product: &Product, positions: Option<Positions>) -> Task<'_> {
    Task { out: 0, first_row: 0, rows: 64, ty: product.ty, weights: &product.weights, interleaved: false, positions }
}

fn every(first: usize, step: usize, count: usize) -> Positions {
    Positions { first, step, count }
}

#[test]
fn a_cancelled_product_says_so() {
    let handle = super::super::CancelHandle::new();
    let token = handle.token();
    assert_eq!(run_tasks(|product| vec![whole(product, None)], &token), Ok(()));
    handle.cancel();
    assert_eq!(run_tasks(|product| vec![whole(product, None)], &token), Err(Cancelled));
}

#[test]
fn heads_may_share_an_output_for_positions_of_their_own() {
    for some in [[every(0, 2, 2), every(1, 2, 2)], [every(0, 1, 3), every(3, 1, 1)], [every(0, 3, 2), every(1, 1, 0)]] {
        let outcome = run_tasks(|product| some.map(|some| whole(product, Some(some))).into(), &Cancel::never());
        assert_eq!(outcome, Ok(()));
    }
}

#[test]
#[should_panic(expected = "tasks share outputs")]
fn tasks_that_write_the_same_place_are_refused() {
    let _ = run_tasks(
        |product| vec![whole(product, Some(every(0, 3, 2))), whole(product, Some(every(3, 1, 1)))],
        &Cancel::never(),
    );
}

#[test]
#[should_panic(expected = "not prepared for")]
fn activations_in_another_form_than_the_weights_ask_are_refused() {
    let _ = run_tasks(
        |product| vec![Task { ty: TensorType::F32, weights: &[0; 1024], rows: 1, ..whole(product, None) }],
        &Cancel::never(),
    );
}
