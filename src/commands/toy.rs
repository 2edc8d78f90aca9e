//! `sipllm toy`: a random model of a given shape, to measure with and to test against.
//!
//! The file is streamed to disk in constant memory and is a whole model: it loads, tokenizes and runs, here and in llama.cpp.

mod recipe;
mod vocabulary;

pub use recipe::{ARCHITECTURES, Architecture, Recipe};

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use super::interrupt::Interrupt;
use crate::cli::ToyArgs;
use crate::commands::{Outcome, UsageError};
use crate::config::Settings;
use crate::gguf::{TensorInfo, TensorType};
use crate::quant::{Rng, SUPPORTED, fill_random_row, is_supported};
use crate::size::format_size;
use crate::words::counted;
use recipe::Values;

/// Rows are drawn and written in pieces of about this size.
const PIECE_BYTES: u64 = 1 << 20;

/// Writes the toy that the arguments describe, and says so.
pub fn run(args: &ToyArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let recipe = recipe_of(args, settings.context).map_err(UsageError)?;
    let interrupt = Interrupt::watch().ok();
    let never = AtomicBool::new(false);
    let stop = interrupt.as_ref().map_or(&never, Interrupt::flag);
    let Some(bytes) = write_unless(&recipe, &args.out, stop)? else { return Ok(Outcome::Interrupted) };
    writeln!(
        io::stdout(),
        "{}: {} of {} {}, width {}, vocabulary {}, {}",
        args.out.display(),
        counted(recipe.layers, "layer"),
        recipe.architecture.name,
        recipe.ty,
        recipe.width,
        recipe.vocab,
        format_size(bytes)
    )?;
    Ok(Outcome::Done)
}

fn recipe_of(args: &ToyArgs, context: Option<u32>) -> Result<Recipe, String> {
    let architecture = ARCHITECTURES.into_iter().find(|known| known.name == args.arch).ok_or_else(|| {
        let known = ARCHITECTURES.map(|known| known.name).join(", ");
        format!("--arch {}: toys come as {known}", args.arch)
    })?;
    let ty = parse_type(&args.ty)?;
    let mut recipe = Recipe::new(architecture, args.layers, args.width, ty);
    if let Some(heads) = args.heads {
        (recipe.heads, recipe.kv_heads) = (heads, heads);
    }
    recipe.kv_heads = args.kv_heads.unwrap_or(recipe.kv_heads);
    recipe.ffn = args.ffn.unwrap_or(recipe.ffn);
    recipe.vocab = args.vocab.unwrap_or(recipe.vocab);
    recipe.tied |= args.tied;
    recipe.context = context.unwrap_or(recipe.context);
    recipe.seed = args.seed;
    if let Some(head_ty) = &args.head_type {
        recipe.head_ty = parse_type(head_ty)?;
    }
    let (experts, used) = recipe.experts.unzip();
    recipe.experts = match (args.experts.or(experts), args.experts_used.or(used)) {
        (None | Some(0), None) => None,
        (Some(experts), used) => Some((experts, used.unwrap_or(2).min(experts))),
        (None, Some(_)) => return Err("--experts-used needs --experts".into()),
    };
    recipe.check()?;
    Ok(recipe)
}

fn parse_type(name: &str) -> Result<TensorType, String> {
    let named = TensorType::ALL.iter().find(|ty| ty.name().eq_ignore_ascii_case(name));
    named.copied().filter(|&ty| is_supported(ty)).ok_or_else(|| {
        let known: Vec<&str> = SUPPORTED.iter().map(|ty| ty.name()).collect();
        format!("{name} is not a type of weights; {} are", known.join(", "))
    })
}

/// Writes the toy to `path`, by way of a file beside it that is renamed when it is whole; returns its size.
///
/// # Errors
/// The recipe is impossible or the file cannot be written.
pub fn write(recipe: &Recipe, path: &Path) -> anyhow::Result<u64> {
    write_unless(recipe, path, &AtomicBool::new(false)).map(Option::unwrap_or_default)
}

/// As [`write()`], until `stop` is raised: then nothing is left, and there is no size.
fn write_unless(recipe: &Recipe, path: &Path, stop: &AtomicBool) -> anyhow::Result<Option<u64>> {
    recipe.check().map_err(anyhow::Error::msg)?;
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = write_file(recipe, &partial, stop).and_then(|bytes| {
        std::fs::rename(&partial, path)?;
        Ok(bytes)
    });
    if written.is_err() {
        // Best effort: the first error is the one to report.
        let _ = std::fs::remove_file(&partial);
    }
    if stop.load(Ordering::Relaxed) && written.is_err() {
        return Ok(None);
    }
    written.map(Some).with_context(|| format!("{}: cannot be written", path.display()))
}

fn write_file(recipe: &Recipe, path: &Path, stop: &AtomicBool) -> io::Result<u64> {
    let (writer, values) = recipe.layout()?;
    let file = File::create(path)?;
    let mut piece = Vec::new();
    let mut index = 0;
    writer.write(&file, |tensor, out| {
        // Each tensor has a stream of its own, so that its values do not depend on the sizes of those before it.
        let mut rng = Rng::new(recipe.seed ^ (index as u64) << 40);
        let drawn = draw(tensor, values[index], &mut rng, &mut piece, stop, out);
        index += 1;
        drawn
    })?;
    file.sync_data()?;
    Ok(file.metadata()?.len())
}

fn draw(
    tensor: &TensorInfo,
    values: Values,
    rng: &mut Rng,
    piece: &mut Vec<u8>,
    stop: &AtomicBool,
    out: &mut impl Write,
) -> io::Result<()> {
    let rows_a_piece = (PIECE_BYTES / tensor.row_bytes()).max(1);
    let mut left = tensor.rows();
    while left > 0 {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let rows = rows_a_piece.min(left);
        piece.resize((rows * tensor.row_bytes()) as usize, 0);
        match values {
            Values::Weights(scale) => fill_random_row(tensor.ty, rng, scale, piece),
            Values::Norm => {
                for bytes in piece.as_chunks_mut::<4>().0 {
                    *bytes = (0.8 + 0.4 * rng.next_f32()).to_le_bytes();
                }
            }
        }
        out.write_all(piece)?;
        left -= rows;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::gguf::Gguf;
    use crate::quant::decode_row;

    fn toy(recipe: &Recipe) -> Gguf {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toy.gguf");
        write(recipe, &path).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the toy");
        Gguf::open(&path).unwrap()
    }

    #[test]
    fn a_toy_has_the_keys_and_tensors_of_the_reference_model_of_its_architecture() {
        for (reference, name, experts) in [
            ("llama", "llama", None),
            ("mixtral", "llama", Some((4, 2))),
            ("qwen2", "qwen2", None),
            ("qwen3", "qwen3", None),
            ("qwen3moe", "qwen3moe", Some((8, 3))),
            ("gemma2", "gemma2", None),
            ("gemma3", "gemma3", None),
            ("phi3", "phi3", None),
        ] {
            let path = format!("{}/tests/data/models/{reference}.gguf", env!("CARGO_MANIFEST_DIR"));
            let reference = Gguf::open(path.as_ref()).unwrap();
            let architecture = ARCHITECTURES.into_iter().find(|known| known.name == name).unwrap();
            let key = |suffix: &str| reference.metadata().u64(&format!("{name}.{suffix}"));
            let mut recipe = Recipe::new(architecture, key("block_count").unwrap() as u32, 64, TensorType::Q8_0);
            recipe.heads = key("attention.key_length").map_or(4, |dim| 64 / dim as u32);
            recipe.kv_heads = 1;
            recipe.ffn = 96;
            recipe.experts = experts;
            recipe.tied = reference.tensor("output.weight").is_none();
            let model = toy(&recipe);

            for (key, value) in reference.metadata().iter() {
                let ours = model.metadata().get(key);
                assert_eq!(ours.map(|v| v.value_type()), Some(value.value_type()), "{name}: {key}");
            }
            // Sizes of heads differ, and with them the lengths of rows; names and numbers of dimensions do not.
            let shapes = |model: &Gguf| {
                let mut shapes: Vec<_> = model.tensors().iter().map(|t| (t.name.clone(), t.shape.len())).collect();
                shapes.sort();
                shapes
            };
            assert_eq!(shapes(&model), shapes(&reference), "{name}");
        }
    }

    #[test]
    fn rows_differ_and_have_the_size_that_keeps_logits_sensible() {
        let mut recipe = Recipe::new(ARCHITECTURES[0], 2, 256, TensorType::Q4_K);
        recipe.vocab = 1000;
        let model = toy(&recipe);
        let head = model.tensor("output.weight").unwrap();
        let bytes = model.read_tensor(head).unwrap();
        let rows: Vec<&[u8]> = bytes.chunks_exact(head.row_bytes() as usize).collect();
        let distinct: std::collections::HashSet<_> = rows.iter().collect();
        assert_eq!(distinct.len(), 1000);
        let mut values = vec![0.0; head.elements() as usize];
        decode_row(head.ty, &bytes, &mut values);
        let norm: f64 = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / 1000.0;
        assert!((norm.sqrt() - 3.0).abs() < 0.3, "a normed vector makes logits of {}", norm.sqrt());
    }

    #[test]
    fn every_supported_type_makes_a_toy_and_the_seed_decides_its_bytes() {
        for &ty in SUPPORTED {
            let recipe = Recipe { ffn: 256, ..Recipe::new(ARCHITECTURES[0], 1, 256, ty) };
            let down = |recipe: &Recipe| {
                let model = toy(recipe);
                model.read_tensor(model.tensor("blk.0.ffn_down.weight").unwrap()).unwrap()
            };
            let first = down(&recipe);
            assert_eq!(first, down(&recipe), "{ty}");
            assert_ne!(first, down(&Recipe { seed: 2, ..recipe }), "{ty}");
        }
    }

    #[test]
    fn a_toy_that_is_stopped_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let recipe = Recipe::new(ARCHITECTURES[0], 1, 256, TensorType::Q4_K);
        let written = write_unless(&recipe, &folder.path().join("toy.gguf"), &AtomicBool::new(true));
        assert_eq!(written.unwrap(), None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_impossible_toy_is_refused_with_what_to_change() {
        let good = Recipe::new(ARCHITECTURES[0], 2, 256, TensorType::Q4_K);
        let refused = |recipe: Recipe| recipe.check().unwrap_err();
        assert_eq!(good.check(), Ok(()));
        assert!(refused(Recipe { ffn: 700, ..good.clone() }).contains("--ffn 700 is not; try 768"));
        assert!(refused(Recipe { ffn: u32::MAX, ..good.clone() }).contains("try 4294967040"));
        assert!(refused(Recipe { width: 96, heads: 1, kv_heads: 1, ..good.clone() }).contains("try 256"));
        assert!(refused(Recipe { heads: 3, ..good.clone() }).contains("change --heads"));
        assert!(refused(Recipe { kv_heads: 3, ..good.clone() }).contains("change --kv-heads"));
        assert!(refused(Recipe { vocab: 287, ..good.clone() }).contains("vocabulary of 287"));
        assert!(refused(Recipe { experts: Some((4, 5)), ..good.clone() }).contains("change --experts-used"));
        assert!(refused(Recipe { layers: 0, ..good.clone() }).contains("at least 1"));
        assert!(
            refused(Recipe { experts: Some((4, 2)), architecture: ARCHITECTURES[1], ..good }).contains("no experts")
        );
        assert!(parse_type("q8_k").unwrap_err().contains("not a type of weights"));
        assert_eq!(parse_type("q4_k"), Ok(TensorType::Q4_K));
    }
}
