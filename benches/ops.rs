//! What is not a matrix: `cargo bench --bench ops`, with `-- --quick` in a minute.
//!
//! * `dispatch`: an empty job, to workers that spin and to workers that are parked.
//! * `attention`: one position against 1,000, in bytes of K and V a second (`plain read` is what the memory gives), and
//!   prompts, in multiply-adds a second.
//! * `rows`: norms, activation functions and RoPE, of one token's rows and of a prompt's.
//! * `sample`: one token of 151,936.

#![allow(clippy::expect_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sipllm::engine::protocol::Sampling;
use sipllm::kernels::ops::{AttentionScratch, AttentionSpec, KvElement, KvLayout, Pairing, RopeParams, RopeTable};
use sipllm::kernels::pool::default_threads;
use sipllm::kernels::{Cancel, Isa, Ops, Pool};
use sipllm::quant::Rng;
use sipllm::sampler::Sampler;

const CONTEXT: usize = 1000;

/// Numbers of a roughly normal distribution.
fn noise(len: usize) -> Vec<f32> {
    let mut rng = Rng::new(1);
    (0..len).map(|_| (0..4).map(|_| rng.next_f32() - 0.5).sum()).collect()
}

fn dispatch(c: &mut Criterion) {
    let pool = Pool::new(default_threads());
    let mut group = c.benchmark_group("dispatch");
    group.bench_function("spinning", |b| b.iter(|| pool.run(&|_| {})));
    group.bench_function("parked", |b| {
        b.iter_custom(|rounds| {
            let mut total = Duration::ZERO;
            for _ in 0..rounds {
                std::thread::sleep(Duration::from_millis(2));
                let began = Instant::now();
                pool.run(&|_| {});
                total += began.elapsed();
            }
            total
        });
    });
    group.finish();
}

/// Pages of as many layers as no cache holds.
struct Cache {
    layout: KvLayout,
    layers: Vec<Vec<Vec<u8>>>,
}

impl Cache {
    fn new(layout: KvLayout) -> Self {
        let pool = Pool::new(1);
        let rows = 32 * layout.kv_heads;
        let (k, v) = (noise(rows * layout.key_dim), noise(rows * layout.value_dim));
        let mut page = vec![0; layout.page_bytes()];
        Ops::new(Isa::detect(), &pool).kv_store(&layout, &mut page, 0, &k, &v);
        let pages = KvLayout::pages_for(CONTEXT);
        let layers = (256_usize << 20).div_ceil(pages * layout.page_bytes());
        Self { layout, layers: vec![vec![page; pages]; layers] }
    }

    fn bytes(&self) -> u64 {
        (self.layers.len() * self.layers[0].len() * self.layout.page_bytes()) as u64
    }
}

fn plain_read(pool: &Pool, memory: &[u8]) {
    pool.for_each_chunk(memory.len(), 1 << 20, &|_, range| {
        let mut lanes = [0_u64; 16];
        for line in memory[range].as_chunks::<128>().0 {
            for (lane, bytes) in lanes.iter_mut().zip(line.as_chunks::<8>().0) {
                *lane ^= u64::from_le_bytes(*bytes);
            }
        }
        black_box(lanes);
    });
}

fn attention(c: &mut Criterion) {
    let pool = Pool::new(default_threads());
    let ops = Ops::new(Isa::detect(), &pool);
    let cancel = Cancel::never();
    let mut group = c.benchmark_group("attention");
    group.sample_size(10);
    let memory = vec![1_u8; 256 << 20];
    group.throughput(Throughput::Bytes(memory.len() as u64));
    group.bench_function("plain read", |b| b.iter(|| plain_read(&pool, &memory)));
    drop(memory);
    // SmolLM2-135M, Qwen2.5-0.5B, Llama-3-8B, Gemma-3-270M, and one without groups.
    for (heads, kv_heads, dim) in [(9, 3, 64), (14, 2, 64), (32, 8, 128), (4, 1, 256), (32, 32, 96)] {
        for element in [KvElement::F16, KvElement::Q8_0, KvElement::F32] {
            let cache = Cache::new(KvLayout { kv_heads, key_dim: dim, value_dim: dim, element });
            let layout = cache.layout;
            let scale = 1.0 / (dim as f32).sqrt();
            let spec = AttentionSpec { layout, heads, scale, window: None, softcap: None, sinks: None };
            let mut scratch = AttentionScratch::new(pool.threads(), heads, &layout, CONTEXT);
            let row = heads * dim;
            let q = noise(CONTEXT * row);
            let mut out = vec![0.0; CONTEXT * row];
            let name = format!("{heads}/{kv_heads} x {dim} {element:?}");
            group.throughput(Throughput::Bytes(cache.bytes()));
            group.bench_function(BenchmarkId::new(&name, "decode"), |b| {
                let (q, out) = (&q[..row], &mut out[..row]);
                b.iter(|| {
                    for pages in &cache.layers {
                        ops.attention(&spec, q, CONTEXT - 1, &|i| &pages[i], &mut scratch, out, &cancel)
                            .expect("nobody cancels");
                    }
                });
            });
            for positions in [128, CONTEXT] {
                group.throughput(Throughput::Elements((heads * dim * positions * (positions + 1)) as u64));
                group.bench_function(BenchmarkId::new(&name, positions), |b| {
                    let pages = &cache.layers[0];
                    let (q, out) = (&q[..positions * row], &mut out[..positions * row]);
                    b.iter(|| {
                        ops.attention(&spec, q, 0, &|i| &pages[i], &mut scratch, out, &cancel).expect("nobody cancels");
                    });
                });
            }
        }
    }
    group.finish();
}

fn rows(c: &mut Criterion) {
    let pool = Pool::new(default_threads());
    let ops = Ops::new(Isa::detect(), &pool);
    let mut group = c.benchmark_group("rows");
    for positions in [1, 128] {
        let mut case = |name: &str, dim: usize, run: &mut dyn FnMut(&mut [f32], &[f32])| {
            let (mut x, y) = (noise(positions * dim), noise(positions * dim));
            group.throughput(Throughput::Elements((positions * dim) as u64));
            group.bench_function(BenchmarkId::new(name, positions), |b| b.iter(|| run(&mut x, &y)));
        };
        let weight = noise(2048);
        case("rms_norm 2048", 2048, &mut |out, x| ops.rms_norm(out, x, 2048, Some(&weight), 1e-5));
        case("add 2048", 2048, &mut |x, y| ops.add_scaled(x, y, 1e-9));
        case("silu_mul 8192", 8192, &mut |gate, up| {
            gate.copy_from_slice(up);
            ops.silu_mul(gate, up);
        });
        case("gelu_mul 8192", 8192, &mut |gate, up| {
            gate.copy_from_slice(up);
            ops.gelu_mul(gate, up);
        });
        for pairing in [Pairing::Halves, Pairing::Adjacent] {
            let mut table = RopeTable::new(&RopeParams::plain(64, pairing, 10_000.0));
            table.grow(256);
            case(&format!("rope 32 x 64 {pairing:?}"), 2048, &mut |x, _| ops.rope(&table, x, 32, 64, 100));
        }
    }
    group.finish();
}

fn sample(c: &mut Criterion) {
    let logits: Vec<f32> = noise(151_936).iter().map(|x| x * 8.0).collect();
    let plain = Sampling { top_k: 0, top_p: 1.0, min_p: 0.0, ..Sampling::default() };
    let cases = [
        ("greedy", Sampling { temperature: 0.0, ..plain.clone() }),
        ("default", Sampling::default()),
        ("top-p", Sampling { top_p: 0.95, ..plain.clone() }),
        ("min-p", Sampling { min_p: 0.05, ..plain.clone() }),
        ("all", plain),
    ];
    let mut group = c.benchmark_group("sample");
    for (name, sampling) in cases {
        let mut sampler = Sampler::new(&sampling, logits.len());
        group.bench_function(name, |b| {
            b.iter_batched_ref(|| logits.clone(), |logits| sampler.sample(logits, &[1, 2, 3]), BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = dispatch, attention, rows, sample
}
criterion_main!(benches);
