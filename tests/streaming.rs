//! What streaming promises, measured on the whole program with toy models: memory flat in depth, a prompt read
//! once, and no byte more than what is not pinned.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn sipllm(args: &[&str]) -> Vec<u8> {
    // The speeds of devices go there, not into the user's own cache.
    let cache = ("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let output = Command::new(env!("CARGO_BIN_EXE_sipllm")).args(args).envs([cache]).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn toy(folder: &Path, layers: u32, more: &[&str]) -> PathBuf {
    let path = folder.join(format!("toy{layers}.gguf"));
    let layers = layers.to_string();
    let mut args = vec!["toy", path.to_str().unwrap(), "--layers", &layers, "--width", "256"];
    args.extend(more);
    sipllm(&args);
    path
}

fn bench(model: &Path, more: &[&str]) -> Value {
    let mut args = vec!["bench", model.to_str().unwrap(), "-r", "1", "--json"];
    args.extend(more);
    serde_json::from_slice(&sipllm(&args)).unwrap()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

#[test]
fn resident_weights_are_flat_in_depth() {
    let folder = tempfile::tempdir().unwrap();
    let resident: Vec<f64> = [4, 16, 32, 64]
        .map(|layers| {
            let model = toy(folder.path(), layers, &["--type", "q4_0"]);
            number(&bench(&model, &["--budget", "0", "-p", "8", "-n", "4"]), "resident_weight_bytes")
        })
        .to_vec();
    let (least, most) = resident.iter().fold((f64::MAX, 0.0f64), |(a, b), &x| (a.min(x), b.max(x)));
    assert!(least > 0.0 && most / least < 1.02, "{resident:?}");
}

#[test]
fn a_prompt_streams_the_weights_once_and_one_position_at_a_time_once_each() {
    let folder = tempfile::tempdir().unwrap();
    let model = toy(folder.path(), 8, &["--type", "q4_0"]);
    let whole = bench(&model, &["--budget", "0", "-p", "122", "-n", "2"]);
    let touched = number(&whole, "touched_bytes_per_token");
    assert_eq!(number(&whole, "prefill_passes"), 1.0);
    let streamed = number(&whole, "prefill_streamed_bytes");
    assert!(streamed > 0.5 * touched && streamed <= touched + f64::from(1 << 20), "{streamed} of {touched}");

    let single = bench(&model, &["--budget", "0", "-p", "122", "-n", "2", "--prefill-batch", "1"]);
    assert_eq!(number(&single, "prefill_passes"), 122.0);
    let ratio = number(&single, "prefill_streamed_bytes") / streamed;
    // The head is read for the last position alone either way.
    assert!(ratio > 100.0 && ratio <= 123.0, "{ratio} times the bytes");
}

#[test]
fn a_token_streams_what_is_touched_less_what_is_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let model = toy(folder.path(), 24, &["--type", "q8_0", "--ffn", "1024", "--vocab", "4096"]);
    for budget in ["0", "24M", "30M", "36M"] {
        let figures = bench(&model, &["--budget", budget, "-p", "4", "-n", "16", "--ctx", "64"]);
        let (touched, pinned) = (number(&figures, "touched_bytes_per_token"), number(&figures, "pinned_bytes"));
        let streamed = number(&figures, "decode_streamed_bytes_per_token");
        let expected = (touched - pinned).max(0.0);
        // Alignment of slots and reads is the only slack.
        assert!(
            (streamed - expected).abs() <= 0.03 * touched,
            "at {budget}: {streamed} streamed, {touched} touched, {pinned} pinned"
        );
    }
}
