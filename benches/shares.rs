//! How much of the memory's bandwidth the products and attention of one position reach: `cargo bench --bench shares`.
//!
//! A plain read and the kernel take turns over the same 320 MB, far more than any cache, and the medians are compared: so
//! a machine that others use too, whose memory is now quicker, now slower, does not change the shares much. Numbers
//! after `--` choose the elements of a row (2048 unless said) and the turns (11), `fast` the kernels with activations of 8 bits,
//! names of types (`Q4_K`) those only. `SIPLLM_ISA` chooses an instruction set.
//!
//! Paths after `--` are models: then the plain read takes turns with whole decoding, everything resident, four tokens a turn.

#![allow(clippy::expect_used, clippy::print_stdout)]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use sipllm::gguf::{Gguf, TensorType};
use sipllm::kernels::ops::{AttentionScratch, AttentionSpec, KvElement, KvLayout};
use sipllm::kernels::pool::default_threads;
use sipllm::kernels::{
    Activations, Arithmetic, Cancel, Groups, Interleave, Kernels, MatrixOut, Ops, Pool, Task, matmul,
};
use sipllm::model::{Model, ModelOptions, NoHooks, Want};
use sipllm::quant::{Rng, fill_random_row};
use sipllm::weights::{Placement, StoreOptions};

const ROWS: usize = 4096;
const BYTES: usize = 320 << 20;
const CONTEXT: usize = 1000;

/// Memory as the slots of weights have it: in huge pages where there are any.
fn memory() -> &'static mut [u8] {
    // SAFETY: a mapping of its own that is never unmapped.
    unsafe {
        let (flags, rights) = (MapFlags::PRIVATE, ProtFlags::READ | ProtFlags::WRITE);
        let map = mmap_anonymous(std::ptr::null_mut(), BYTES, rights, flags).expect("no memory for the weights");
        // Without huge pages in the kernel they are of the usual size.
        let _ = madvise(map, BYTES, Advice::LinuxHugepage);
        std::slice::from_raw_parts_mut(map.cast(), BYTES)
    }
}

fn noise(len: usize) -> Vec<f32> {
    let mut rng = Rng::new(1);
    (0..len).map(|_| rng.next_f32() - 0.5).collect()
}

/// Reads everything once, each thread its share.
fn plain_read(pool: &Pool, memory: &[u8]) {
    let share = memory.len() / pool.threads();
    pool.run(&|thread| {
        let mut lanes = [0_u64; 16];
        for line in memory[thread * share..(thread + 1) * share].as_chunks::<128>().0 {
            for (lane, bytes) in lanes.iter_mut().zip(line.as_chunks::<8>().0) {
                *lane ^= u64::from_le_bytes(*bytes);
            }
        }
        black_box(lanes);
    });
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Lets a plain read of `memory` and `work`, which reads `bytes`, take turns, and prints what both reach.
fn compare(pool: &Pool, turns: usize, name: &str, memory: &[u8], bytes: u64, mut work: impl FnMut()) {
    let (mut plain, mut own) = (Vec::new(), Vec::new());
    work();
    for _ in 0..turns {
        // A pool that has just worked spins for a while, which must not disturb another pool's turn.
        std::thread::sleep(Duration::from_millis(5));
        let begun = Instant::now();
        plain_read(pool, memory);
        plain.push(begun.elapsed().as_secs_f64());
        std::thread::sleep(Duration::from_millis(5));
        let begun = Instant::now();
        work();
        own.push(begun.elapsed().as_secs_f64());
    }
    let (plain, own) = (memory.len() as f64 / median(plain) / 1e9, bytes as f64 / median(own) / 1e9);
    println!("{name:24} {plain:6.1} GB/s {own:6.1} GB/s {:4.0} %", own / plain * 100.0);
}

/// Tokens of a model one after the other, in a short context.
fn decode(kernels: Kernels, pool: &Pool, turns: usize, path: &str, memory: &[u8]) {
    let gguf = Gguf::open(Path::new(path)).expect("a model");
    let options = ModelOptions {
        kernels,
        threads: pool.threads(),
        kv: KvElement::F16,
        context: 8 * (turns + 1),
        store: StoreOptions::default(),
    };
    let mut model = Model::open(&gguf, options).expect("a model that is supported");
    let (pins, order) = (model.store().table().len(), model.store().table().pin_order());
    let all =
        Placement { pins, pinned_bytes: order.bytes_of(pins), ring_slots: 8, whole: true, ..Placement::default() };
    model.store_mut().apply(&all);
    let touched = 4 * model.touched_bytes_per_token();
    let mut tokens = || {
        for id in 1..5 {
            model.forward(&[id], Want::Last, &mut NoHooks, &Cancel::never()).expect("nobody cancels");
        }
    };
    tokens();
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    compare(pool, turns, &name, memory, touched, tokens);
}

/// Matrices of a type against one position, a dispatch each.
fn gemv(kernels: Kernels, pool: &Pool, turns: usize, ty: TensorType, k: usize, memory: &mut [u8]) {
    let row_bytes = ty.row_bytes(k as u64).expect("whole blocks") as usize;
    let mut pattern = vec![0; 32 * row_bytes];
    let mut rng = Rng::new(1);
    pattern.chunks_exact_mut(row_bytes).for_each(|row| fill_random_row(ty, &mut rng, 0.05, row));
    let interleave = Interleave::of(kernels, ty);
    if let Some(interleave) = interleave {
        interleave.rows(&mut pattern, row_bytes, &mut Groups::new());
    }
    let whole = memory.len() / (ROWS * row_bytes) * (ROWS * row_bytes);
    memory[..whole].chunks_mut(pattern.len()).for_each(|piece| piece.copy_from_slice(&pattern[..piece.len()]));
    let weights = &memory[..whole];
    let mut acts = Activations::new(kernels, k, 1);
    acts.prepare(pool, &noise(k), 1, k, &[ty]);
    let mut out = vec![0.0; ROWS];
    compare(pool, turns, &ty.to_string(), weights, weights.len() as u64, || {
        for weights in weights.chunks_exact(ROWS * row_bytes) {
            let outs = &mut [MatrixOut { data: &mut out, row_stride: ROWS }];
            let interleaved = interleave.is_some();
            let task = Task { out: 0, first_row: 0, rows: ROWS, ty, weights, interleaved, positions: None };
            matmul(kernels, pool, &acts, outs, &[task], &Cancel::never()).expect("nobody cancels");
        }
    });
}

/// One position's attention to 1,000 in each of as many layers as the memory holds.
fn attention(ops: &Ops, pool: &Pool, turns: usize, heads: usize, layout: KvLayout, memory: &mut [u8]) {
    let page = layout.page_bytes();
    let (rows, row) = (32 * layout.kv_heads, heads * layout.key_dim);
    let (k, v) = (noise(rows * layout.key_dim), noise(rows * layout.value_dim));
    let (first, rest) = memory.split_at_mut(page);
    ops.kv_store(&layout, first, 0, &k, &v);
    rest.chunks_exact_mut(page).for_each(|page| page.copy_from_slice(first));
    let layer = KvLayout::pages_for(CONTEXT) * page;
    let cache = &memory[..memory.len() / layer * layer];
    let scale = 1.0 / (layout.key_dim as f32).sqrt();
    let spec = AttentionSpec { layout, heads, scale, window: None, softcap: None, sinks: None };
    let mut scratch = AttentionScratch::new(pool.threads(), heads, &layout, CONTEXT);
    let (q, mut out) = (noise(row), vec![0.0; row]);
    let name = format!("attention {heads}/{} x {} {:?}", layout.kv_heads, layout.key_dim, layout.element);
    compare(pool, turns, &name, cache, cache.len() as u64, || {
        for layer in cache.chunks_exact(layer) {
            let pages = |i: usize| &layer[i * page..(i + 1) * page];
            ops.attention(&spec, &q, CONTEXT - 1, &pages, &mut scratch, &mut out, &Cancel::never())
                .expect("nobody cancels");
        }
    });
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let (k, turns) = (numbers.first().copied().unwrap_or(2048), numbers.get(1).copied().unwrap_or(11));
    let pool = Pool::new(default_threads());
    let fast = std::env::args().skip(1).any(|arg| arg == "fast");
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| arg.starts_with(char::is_uppercase)).collect();
    let kernels = Kernels::new(if fast { Arithmetic::Fast } else { Arithmetic::Int8 });
    println!(
        "{} threads, {}, {:?}, rows of {k}: plain read, kernel, share",
        pool.threads(),
        kernels.isa.name(),
        kernels.arithmetic
    );
    let memory = memory();
    let models: Vec<String> = std::env::args().skip(1).filter(|arg| arg.ends_with(".gguf")).collect();
    if !models.is_empty() {
        // Memory that was never written is one page of zeros.
        memory.fill(1);
        models.iter().for_each(|path| decode(kernels, &pool, turns, path, memory));
        return;
    }
    for ty in [
        TensorType::Q4_0,
        TensorType::Q4_1,
        TensorType::Q8_0,
        TensorType::Q4_K,
        TensorType::Q5_0,
        TensorType::Q5_1,
        TensorType::Q5_K,
        TensorType::Q6_K,
        TensorType::Q2_K,
        TensorType::Q3_K,
        TensorType::IQ4_NL,
        TensorType::IQ4_XS,
        TensorType::MXFP4,
        TensorType::F16,
    ] {
        if named.is_empty() || named.contains(&ty.to_string()) {
            gemv(kernels, &pool, turns, ty, k, memory);
        }
    }
    if !named.is_empty() {
        return;
    }
    let ops = Ops::new(kernels.isa, &pool);
    // SmolLM2-135M, Qwen2.5-0.5B, Llama-3-8B, Gemma-3-270M, and one without groups.
    for (heads, kv_heads, dim) in [(9, 3, 64), (14, 2, 64), (32, 8, 128), (4, 1, 256), (32, 32, 96)] {
        for element in [KvElement::F16, KvElement::Q8_0] {
            let layout = KvLayout { kv_heads, key_dim: dim, value_dim: dim, element };
            attention(&ops, &pool, turns, heads, layout, memory);
        }
    }
}
