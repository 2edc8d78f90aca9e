//! Tiny models of every family, with the parameters that set them apart (partial rotary, scalings, windows shorter than
//! the prompt, soft caps, shared experts, ...), give llama.cpp's logits, and the same bits whatever the memory and batch.
//!
//! tests/tools/family_models.py made the recipes and ran llama.cpp.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/model.rs"]
mod model;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use model::{bits, exact, run};
use serde_json::Value;
use sipllm::engine::protocol::{Budget, KernelKind, LoadRequest, SourceKind};
use sipllm::gguf::TensorType;
use sipllm::gguf::writer::Writer;
use sipllm::model::architecture::ARCHITECTURES;

#[derive(serde::Deserialize)]
struct Recipe {
    name: String,
    architecture: String,
    keys: Vec<(String, String, Value)>,
    /// Name, shape, offset and shift of the values.
    tensors: Vec<(String, Vec<u64>, f32, i32)>,
    prompt: Vec<u32>,
    greedy: Vec<u32>,
}

struct Fixture {
    archive: zip::ZipArchive<File>,
    tokenizer: Vec<(String, String, Value)>,
    recipes: Vec<Recipe>,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn open() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families.zip");
        let mut archive = zip::ZipArchive::new(File::open(path).unwrap()).unwrap();
        let tokenizer = serde_json::from_slice(&entry(&mut archive, "tokenizer.json")).unwrap();
        let lines = String::from_utf8(entry(&mut archive, "recipes.jsonl")).unwrap();
        let recipes = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { archive, tokenizer, recipes, folder: tempfile::tempdir().unwrap() }
    }

    fn logits(&mut self, recipe: usize) -> Vec<f32> {
        let bytes = entry(&mut self.archive, &format!("{}.f32", self.recipes[recipe].name));
        bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// Writes the model, its matrices as F32 or, where rows are whole blocks, as Q8_0.
    fn write(&self, recipe: &Recipe, quantised: bool) -> PathBuf {
        let mut writer = Writer::new();
        writer.set("general.architecture", recipe.architecture.as_str());
        for (key, kind, value) in recipe.keys.iter().chain(&self.tokenizer) {
            set(&mut writer, key, kind, value);
        }
        for (name, shape, ..) in &recipe.tensors {
            let is_matrix = shape.len() > 1 && name.ends_with(".weight") && !name.contains("conv.conv");
            let ty = if quantised && is_matrix && shape[0] % 32 == 0 { TensorType::Q8_0 } else { TensorType::F32 };
            writer.tensor(name, shape, ty).unwrap();
        }
        let path = self.folder.path().join(format!("{}.gguf", recipe.name));
        let mut tensors = recipe.tensors.iter();
        let file = BufWriter::new(File::create(&path).unwrap());
        writer
            .write(file, |info, out| {
                let (name, shape, offset, shift) = tensors.next().unwrap();
                let values = integers(name, shape.iter().product());
                out.write_all(&match info.ty {
                    TensorType::Q8_0 => q8_0(&values, *shift),
                    _ => values.iter().flat_map(|n| (offset + *n as f32 * 2f32.powi(-shift)).to_le_bytes()).collect(),
                })
            })
            .unwrap();
        path
    }
}

fn entry(archive: &mut zip::ZipArchive<File>, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    archive.by_name(name).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn set(writer: &mut Writer, key: &str, kind: &str, value: &Value) {
    let list = || value.as_array().unwrap().iter();
    match kind {
        "u32" => writer.set(key, value.as_u64().unwrap() as u32),
        "f32" => writer.set(key, value.as_f64().unwrap() as f32),
        "bool" => writer.set(key, value.as_bool().unwrap()),
        "str" => writer.set(key, value.as_str().unwrap()),
        "i32s" => writer.set(key, list().map(|v| v.as_i64().unwrap() as i32).collect::<Vec<_>>().as_slice()),
        "bools" => writer.set(key, list().map(|v| v.as_bool().unwrap()).collect::<Vec<_>>().as_slice()),
        "strs" => writer.set(key, list().map(|v| v.as_str().unwrap()).collect::<Vec<_>>().as_slice()),
        other => panic!("{key}: no value of type {other} is expected here"),
    }
}

/// The integers from -127 to 127 of a tensor: splitmix64 of the position, seeded by FNV-1a of the name.
fn integers(name: &str, count: u64) -> Vec<i8> {
    let seed = name.bytes().fold(0xCBF2_9CE4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3));
    let number = |i: u64| {
        let z = seed.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 32) % 255) as i16 - 127
    };
    (0..count).map(|i| number(i) as i8).collect()
}

/// Blocks of 32 with one scale, a power of two.
fn q8_0(values: &[i8], shift: i32) -> Vec<u8> {
    let scale = half::f16::from_f32(2f32.powi(-shift)).to_le_bytes();
    values.chunks_exact(32).flat_map(|block| scale.into_iter().chain(block.iter().map(|&n| n as u8))).collect()
}

#[test]
fn logits_and_greedy_ids_of_every_variant_equal_those_of_llama_cpp() {
    let mut fixture = Fixture::open();
    let mut wrong = Vec::new();
    for index in 0..fixture.recipes.len() {
        let expected = fixture.logits(index);
        let recipe = &fixture.recipes[index];
        for quantised in [false, true] {
            let path = fixture.write(recipe, quantised);
            let (logits, greedy, last) = run_on(exact(&path), recipe, recipe.prompt.len());
            // Logits of the last prompt positions, and those after the continuation.
            let shown = expected.len() - last.len();
            let got: Vec<f32> = logits[logits.len() - shown..].iter().chain(&last).copied().collect();
            let size = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let worst = got.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            if !(worst < 1e-3 * size.min(1.0) && greedy == recipe.greedy) {
                wrong.push(format!("{} (quantised {quantised}): off by {worst} of {size}", recipe.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Logits of the prompt, the continuation, and the logits after it.
fn run_on(request: LoadRequest, recipe: &Recipe, batch: usize) -> (Vec<f32>, Vec<u32>, Vec<f32>) {
    run(request, &recipe.prompt, batch, recipe.greedy.len())
}

#[test]
fn any_batch_budget_source_and_thread_count_gives_the_same_bits() {
    let fixture = Fixture::open();
    for recipe in &fixture.recipes {
        let path = fixture.write(recipe, true);
        for kernel in [KernelKind::Exact, KernelKind::Int8] {
            let request = || LoadRequest { kernel, ..exact(&path) };
            let expected = run_on(request(), recipe, recipe.prompt.len());
            for (source, budget, threads, batch) in [
                (SourceKind::Buffered, Budget::Least, 3, 1),
                (SourceKind::Direct, Budget::Least, 1, 5),
                (SourceKind::Mmap, Budget::Bytes(1 << 30), 2, 7),
            ] {
                let request = LoadRequest { source, budget, threads: Some(threads), ..request() };
                let got = run_on(request, recipe, batch);
                let what =
                    format!("{} {kernel:?} {source:?} {budget:?} {threads} threads, batches of {batch}", recipe.name);
                assert_eq!(bits(&expected.0), bits(&got.0), "{what}");
                assert_eq!(bits(&expected.2), bits(&got.2), "{what}");
                assert_eq!(expected.1, got.1, "{what}");
            }
        }
    }
}

#[test]
fn every_family_has_a_variant_here() {
    let fixture = Fixture::open();
    let here: BTreeSet<&str> = fixture.recipes.iter().map(|recipe| recipe.architecture.as_str()).collect();
    let known: BTreeSet<&str> = ARCHITECTURES.iter().map(|architecture| architecture.name).collect();
    assert_eq!(here, known);
}

#[test]
fn a_conversation_cut_back_goes_on_as_if_it_had_never_been_longer() {
    let fixture = Fixture::open();
    for recipe in fixture.recipes.iter().filter(|recipe| ["llama", "lfm2", "lfm2-windowed"].contains(&&*recipe.name)) {
        let path = fixture.write(recipe, true);
        let ids: Vec<u32> = (0..60).map(|i| (i * 29 + 11) % 96).collect();
        let mut straight = model::open(exact(&path), ids.len(), 7);
        let expected = model::forward(&mut straight, &ids, 7);
        for (longer, cut) in [(45, 33), (45, 32), (45, 31), (60, 59), (33, 0), (40, 40)] {
            let mut loaded = model::open(exact(&path), ids.len(), 7);
            // What is cut away differs from what comes in its place.
            let other: Vec<u32> = (0..longer).map(|i| if i < cut { ids[i] } else { 95 - ids[i] }).collect();
            model::forward(&mut loaded, &other, 7);
            let kept = loaded.model.cache_mut().rewind(cut);
            assert!(kept <= cut && kept + 32 > cut, "{}: {kept} of {cut} kept", recipe.name);
            let rest = model::forward(&mut loaded, &ids[kept..], 7);
            let (shorter, tail) = (expected.len() - rest.len(), rest.len());
            assert_eq!(bits(&expected[shorter..]), bits(&rest[..tail]), "{}: {longer} cut to {cut}", recipe.name);
        }
    }
}
