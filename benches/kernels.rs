//! Matrix products next to a plain read of the same memory: `cargo bench --bench kernels`, with `-- --quick` in a minute or two.
//!
//! * `gemv/PAGES`: one position against 640 MB of weights, far more than any cache, in bytes/s. `plain read` is what the memory gives.
//! * `gemm`: 128 positions, in multiply-adds a second of all threads together.
//!
//! `SIPLLM_ISA` chooses the instruction set; without it every one that the processor has is measured.

#![allow(clippy::expect_used)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use sipllm::gguf::TensorType;
use sipllm::kernels::pool::default_threads;
use sipllm::kernels::{
    Activations, Arithmetic, Cancel, Groups, Interleave, Isa, Kernels, MatrixOut, Pool, Task, matmul,
};
use sipllm::quant::{Rng, fill_random_row};

const K: usize = 2048;
const ROWS: usize = 4096;
const GEMV_BYTES: usize = 640 << 20;
const GEMM_BYTES: usize = 16 << 20;
const POSITIONS: usize = 128;

/// The types with an integer kernel, and one that is multiplied in f32.
const TYPES: [TensorType; 14] = [
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q8_0,
    TensorType::Q2_K,
    TensorType::Q3_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::IQ4_NL,
    TensorType::IQ4_XS,
    TensorType::MXFP4,
    TensorType::F16,
];

fn isas() -> Vec<Isa> {
    let chosen = std::env::var("SIPLLM_ISA").ok();
    Isa::supported()
        .into_iter()
        .filter(|isa| chosen.as_ref().map_or(*isa != Isa::Scalar, |name| isa.name() == name))
        .collect()
}

/// Memory for weights in pages of the usual size or in huge ones, as the slots of weights may have.
fn memory(bytes: usize, huge: bool) -> &'static mut [u8] {
    let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    let (flags, rights) = (MapFlags::PRIVATE, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a mapping of its own that is never unmapped.
    unsafe {
        let map = mmap_anonymous(std::ptr::null_mut(), bytes, rights, flags).expect("no memory for the weights");
        // Without huge pages in the kernel both are the same.
        let _ = madvise(map, bytes, advice);
        std::slice::from_raw_parts_mut(map.cast(), bytes)
    }
}

/// Bytes of the matrices that fit.
fn whole_bytes(memory: &[u8], ty: TensorType) -> usize {
    let matrix_bytes = ROWS * ty.row_bytes(K as u64).expect("whole blocks") as usize;
    memory.len() / matrix_bytes * matrix_bytes
}

/// Fills memory with rows of a type, some repeated over and over, in the order that the kernels take; returns the bytes of
/// whole matrices.
fn fill(memory: &mut [u8], kernels: Kernels, ty: TensorType) -> &[u8] {
    let row_bytes = ty.row_bytes(K as u64).expect("whole blocks") as usize;
    let mut pattern = vec![0; 32 * row_bytes];
    let mut rng = Rng::new(1);
    pattern.chunks_exact_mut(row_bytes).for_each(|row| fill_random_row(ty, &mut rng, 0.05, row));
    if let Some(interleave) = Interleave::of(kernels, ty) {
        interleave.rows(&mut pattern, row_bytes, &mut Groups::new());
    }
    let whole = whole_bytes(memory, ty);
    for piece in memory[..whole].chunks_mut(pattern.len()) {
        piece.copy_from_slice(&pattern[..piece.len()]);
    }
    &memory[..whole]
}

fn activations(positions: usize) -> Vec<f32> {
    let mut rng = Rng::new(2);
    (0..K * positions).map(|_| rng.next_f32() - 0.5).collect()
}

/// Multiplies all matrices, one dispatch each.
fn product(kernels: Kernels, pool: &Pool, acts: &Activations, out: &mut [f32], ty: TensorType, weights: &[u8]) {
    let matrix_bytes = ROWS * ty.row_bytes(K as u64).expect("whole blocks") as usize;
    for weights in weights.chunks_exact(matrix_bytes) {
        let outs = &mut [MatrixOut { data: out, row_stride: ROWS }];
        let interleaved = Interleave::of(kernels, ty).is_some();
        let task = Task { out: 0, first_row: 0, rows: ROWS, ty, weights, interleaved, positions: None };
        matmul(kernels, pool, acts, outs, &[task], &Cancel::never()).expect("nobody cancels");
    }
}

fn plain_read(pool: &Pool, memory: &[u8]) {
    let threads = pool.threads();
    pool.run(&|thread| {
        let share = memory.len() / threads;
        let mut lanes = [0_u64; 16];
        for line in memory[thread * share..(thread + 1) * share].as_chunks::<128>().0 {
            for (lane, bytes) in lanes.iter_mut().zip(line.as_chunks::<8>().0) {
                *lane ^= u64::from_le_bytes(*bytes);
            }
        }
        black_box(lanes);
    });
}

/// Measures a type on every instruction set: `product` of prepared activations with the weights.
fn measure(group: &mut BenchmarkGroup<'_, WallTime>, pool: &Pool, ty: TensorType, memory: &mut [u8], positions: usize) {
    let x = activations(positions);
    let mut out = vec![0.0; ROWS * positions];
    let both =
        isas().into_iter().flat_map(|isa| [Arithmetic::Int8, Arithmetic::Fast].map(|arithmetic| (isa, arithmetic)));
    for (isa, arithmetic) in both {
        let kernels = Kernels { isa, arithmetic };
        let weights = fill(memory, kernels, ty);
        let mut acts = Activations::new(kernels, K, positions);
        acts.prepare(pool, &x, positions, K, &[ty]);
        group.bench_function(format!("{ty}/{}/{arithmetic:?}", isa.name()), |b| {
            b.iter(|| product(kernels, pool, &acts, &mut out, ty, weights));
        });
    }
}

fn settings(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
}

fn gemv(criterion: &mut Criterion) {
    let pool = Pool::new(default_threads());
    for (name, huge) in [("gemv/huge pages", true), ("gemv/small pages", false)] {
        let memory = memory(GEMV_BYTES, huge);
        let mut group = criterion.benchmark_group(name);
        settings(&mut group);
        for ty in TYPES {
            let bytes = whole_bytes(memory, ty);
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(format!("{ty}/plain read"), |b| b.iter(|| plain_read(&pool, &memory[..bytes])));
            measure(&mut group, &pool, ty, memory, 1);
        }
    }
}

fn gemm(criterion: &mut Criterion) {
    let pool = Pool::new(default_threads());
    let memory = memory(GEMM_BYTES, true);
    let mut group = criterion.benchmark_group(format!("gemm/{} threads", pool.threads()));
    settings(&mut group);
    for ty in TYPES {
        let rows = whole_bytes(memory, ty) as u64 / ty.row_bytes(K as u64).expect("whole blocks");
        group.throughput(Throughput::Elements(rows * (K * POSITIONS) as u64));
        measure(&mut group, &pool, ty, memory, POSITIONS);
    }
}

criterion_group!(benches, gemv, gemm);
criterion_main!(benches);
