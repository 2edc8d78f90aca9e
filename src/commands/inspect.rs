//! `sipllm inspect`: what a model file holds: metadata, tensors, and where its bytes go.
//!
//! Every text of the file is shown with its control characters escaped.

mod verdict;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use serde_json::{Map, json};

use crate::catalog;
use crate::cli::InspectArgs;
use crate::commands::Outcome;
use crate::commands::json::json_line;
use crate::config::{CHAT_CONTEXT, Settings};
use crate::gguf::{Gguf, GgufError, TensorInfo, TensorType, Value};
use crate::quant::is_supported;
use crate::size::format_size;
use verdict::Verdict;

/// Elements of an array that are shown.
const ARRAY_HEAD: u64 = 6;

/// Characters of a text that are shown, outside JSON.
const TEXT_HEAD: usize = 100;

pub fn run(args: &InspectArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let path = catalog::resolve(args.model.as_deref(), settings)?;
    let model = Gguf::open(&path)?;
    let verdict = Verdict::of(&model, settings.load_request(path, CHAT_CONTEXT));
    let text = if args.json { json_line(&to_json(&model, &verdict)?) } else { to_text(&model, &verdict)? };
    io::stdout().write_all(text.as_bytes())?;
    Ok(Outcome::Done)
}

/// Where the bytes go.
struct Totals {
    bytes: u64,
    parameters: u64,
    /// Tensors and bytes of each type.
    by_type: BTreeMap<TensorType, (u64, u64)>,
    /// Bytes of each block.
    by_layer: BTreeMap<u32, u64>,
    /// Bytes outside the blocks: embedding, head, norms.
    outside: u64,
}

impl Totals {
    fn of(tensors: &[TensorInfo]) -> Self {
        let mut totals =
            Self { bytes: 0, parameters: 0, by_type: BTreeMap::new(), by_layer: BTreeMap::new(), outside: 0 };
        for tensor in tensors {
            totals.bytes += tensor.bytes;
            totals.parameters += tensor.elements();
            let (count, bytes) = totals.by_type.entry(tensor.ty).or_default();
            *count += 1;
            *bytes += tensor.bytes;
            match layer(&tensor.name) {
                Some(layer) => *totals.by_layer.entry(layer).or_default() += tensor.bytes,
                None => totals.outside += tensor.bytes,
            }
        }
        totals
    }

    fn bits_per_weight(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.parameters.max(1) as f64
    }

    /// Layers of the same size, one after the other, as one line each: first, last, bytes.
    fn layer_runs(&self) -> Vec<(u32, u32, u64)> {
        let mut runs: Vec<(u32, u32, u64)> = Vec::new();
        for (&layer, &bytes) in &self.by_layer {
            match runs.last_mut() {
                Some((_, last, size)) if *size == bytes && layer.checked_sub(1) == Some(*last) => *last = layer,
                _ => runs.push((layer, layer, bytes)),
            }
        }
        runs
    }
}

/// The number of the block that a tensor belongs to.
fn layer(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

fn file_bytes(model: &Gguf) -> u64 {
    model.parts().iter().map(|part| part.bytes).sum()
}

fn to_text(model: &Gguf, verdict: &Verdict) -> Result<String, anyhow::Error> {
    let totals = Totals::of(model.tensors());
    let mut out = String::new();
    for part in model.parts() {
        writeln!(out, "{}  {}", escaped(&part.path.to_string_lossy()), format_size(part.bytes))?;
    }
    writeln!(
        out,
        "GGUF {}, {}, {} parameters, {:.2} bits each",
        model.version(),
        model.metadata().str("general.architecture").map_or_else(|| "no architecture".to_owned(), shown),
        parameters(totals.parameters),
        totals.bits_per_weight()
    )?;

    write!(out, "\n{}", verdict.text())?;

    writeln!(out, "\nmetadata")?;
    let width = model.metadata().iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0).min(48);
    for (key, value) in model.metadata().iter() {
        writeln!(out, "  {:width$}  {}", shown(key), value_text(model, value)?)?;
    }

    writeln!(out, "\ntensors")?;
    let width = model.tensors().iter().map(|tensor| tensor.name.chars().count()).max().unwrap_or(0).min(48);
    for tensor in model.tensors() {
        let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
        writeln!(
            out,
            "  {:width$}  {:7}  {:>20}  {:>10}",
            shown(&tensor.name),
            tensor.ty,
            shape.join(" x "),
            format_size(tensor.bytes)
        )?;
    }

    writeln!(out, "\nby type")?;
    for (ty, (count, bytes)) in &totals.by_type {
        let note = if is_supported(*ty) { "" } else { "  not supported as weights" };
        let tensors = if *count == 1 { "tensor " } else { "tensors" };
        writeln!(out, "  {ty:7}  {count:5} {tensors}  {:>10}{note}", format_size(*bytes))?;
    }
    writeln!(out, "\nby layer")?;
    for (first, last, bytes) in totals.layer_runs() {
        let (name, each) = if first == last { (first.to_string(), "") } else { (format!("{first}-{last}"), " each") };
        writeln!(out, "  {name:>9}  {:>10}{each}", format_size(bytes))?;
    }
    writeln!(out, "  {:>9}  {:>10}", "the rest", format_size(totals.outside))?;
    writeln!(out, "  {:>9}  {:>10}", "all", format_size(totals.bytes))?;
    Ok(out)
}

fn to_json(model: &Gguf, verdict: &Verdict) -> Result<serde_json::Value, GgufError> {
    let totals = Totals::of(model.tensors());
    let mut metadata = Map::new();
    for (key, value) in model.metadata().iter() {
        metadata.insert(key.to_owned(), value_json(model, value)?);
    }
    let tensors: Vec<serde_json::Value> = model
        .tensors()
        .iter()
        .map(|tensor| {
            json!({
                "name": tensor.name, "type": tensor.ty.name(), "shape": tensor.shape,
                "bytes": tensor.bytes, "part": tensor.part, "offset": tensor.offset,
            })
        })
        .collect();
    let parts: Vec<serde_json::Value> =
        model.parts().iter().map(|part| json!({ "path": part.path.to_string_lossy(), "bytes": part.bytes })).collect();
    let by_type: Map<String, serde_json::Value> = totals
        .by_type
        .iter()
        .map(|(ty, (count, bytes))| (ty.name().to_owned(), json!({ "tensors": count, "bytes": bytes })))
        .collect();
    let by_layer: Vec<u64> = totals.by_layer.values().copied().collect();
    Ok(json!({
        "architecture": model.metadata().str("general.architecture"),
        "verdict": verdict.json(),
        "version": model.version(),
        "file_bytes": file_bytes(model),
        "parts": parts,
        "parameters": totals.parameters,
        "bits_per_weight": totals.bits_per_weight(),
        "tensor_bytes": totals.bytes,
        "bytes_by_type": by_type,
        "bytes_by_layer": by_layer,
        "bytes_outside_layers": totals.outside,
        "metadata": metadata,
        "tensors": tensors,
    }))
}

/// Text of the file with control characters escaped, cut to [`TEXT_HEAD`].
fn shown(text: &str) -> String {
    let head = text.char_indices().nth(TEXT_HEAD).map_or(text, |(at, _)| &text[..at]);
    let mut out = escaped(head);
    if let Some(more) = text.chars().count().checked_sub(TEXT_HEAD + 1) {
        // Writing to a string cannot fail.
        let _ = write!(out, "… ({} more)", more + 1);
    }
    out
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if matches!(c, '\'' | '"') {
            out.push(c);
        } else {
            out.extend(c.escape_debug());
        }
    }
    out
}

fn value_text(model: &Gguf, value: &Value) -> Result<String, GgufError> {
    Ok(match value {
        Value::String(text) => format!("\"{}\"", shown(text)),
        Value::Array(info) => {
            let mut elements = Vec::new();
            for element in model.array_head(info, ARRAY_HEAD)? {
                elements.push(value_text(model, &element)?);
            }
            let more = if info.len > ARRAY_HEAD { ", …" } else { "" };
            format!("{} x {} [{}{more}]", info.len, info.element.name(), elements.join(", "))
        }
        Value::Bool(value) => value.to_string(),
        Value::F32(value) => value.to_string(),
        Value::F64(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        integer => integer.as_i64().map_or_else(String::new, |value| value.to_string()),
    })
}

/// Numbers that JSON has no form for (NaN, infinities) become null.
fn value_json(model: &Gguf, value: &Value) -> Result<serde_json::Value, GgufError> {
    Ok(match value {
        Value::String(text) => json!(text),
        Value::Array(info) => {
            let mut head = Vec::new();
            for element in model.array_head(info, ARRAY_HEAD)? {
                head.push(value_json(model, &element)?);
            }
            json!({ "array_of": info.element.name(), "len": info.len, "head": head })
        }
        Value::Bool(value) => json!(value),
        Value::F32(value) => json!(value),
        Value::F64(value) => json!(value),
        Value::U64(value) => json!(value),
        integer => json!(integer.as_i64()),
    })
}

/// A count as people say it: `134.5 M`.
fn parameters(count: u64) -> String {
    match count {
        1_000_000_000.. => format!("{:.2} B", count as f64 / 1e9),
        1_000_000.. => format!("{:.1} M", count as f64 / 1e6),
        _ => format!("{:.1} K", count as f64 / 1e3),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::gguf::writer::Writer;

    fn golden(name: &str) -> Gguf {
        Gguf::open(format!("{}/tests/data/models/{name}.gguf", env!("CARGO_MANIFEST_DIR")).as_ref()).unwrap()
    }

    fn verdict(model: &Gguf) -> Verdict {
        Verdict::of(model, Settings::default().load_request(model.parts()[0].path.clone(), CHAT_CONTEXT))
    }

    fn text_of(model: &Gguf) -> String {
        to_text(model, &verdict(model)).unwrap()
    }

    fn json_of(model: &Gguf) -> serde_json::Value {
        to_json(model, &verdict(model)).unwrap()
    }

    #[test]
    fn the_verdict_says_what_the_model_is_and_in_how_much_memory_it_runs() {
        let text = text_of(&golden("gemma3"));
        for expected in [
            "family    gemma3: Gemma 3\n",
            "shape     7 layers of width 64, 4 heads on 1 key/value head of 32, 6 of the layers see 8 tokens back\n",
            "runs      yes, in ",
            "chat      has a template\n",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        assert!(text_of(&golden("qwen3moe")).contains("3 of 8 experts for a token"));
    }

    #[test]
    fn an_architecture_that_is_not_known_is_refused_by_name_with_those_that_are() {
        let mut writer = Writer::new();
        writer.set("general.architecture", "mamba9");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("odd.gguf");
        writer.write(std::fs::File::create(&path).unwrap(), |_, _| Ok(())).unwrap();
        let model = Gguf::open(&path).unwrap();
        let text = text_of(&model);
        assert!(text.contains("runs      no: architecture \"mamba9\" is not supported; these are: llama, "), "{text}");
        assert_eq!(json_of(&model)["verdict"]["supported"], false);
    }

    #[test]
    fn the_text_says_what_is_in_the_file_and_where_its_bytes_go() {
        let text = text_of(&golden("llama"));
        for expected in [
            "GGUF 3, llama, 129.5 K parameters, 8.58 bits each",
            "\"tiny-llama-q8_0\"",
            "288 x string [\"Ā\", \"ā\", ",
            "22 x string [\"t h\", ",
            "blk.2.attn_output.weight  Q8_0",
            "96 x 64",
            "0-2    ",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
    }

    #[test]
    fn the_json_is_one_line_whose_sums_agree() {
        let model = golden("mixtral");
        let text = json_line(&json_of(&model));
        assert_eq!(text.find('\n'), Some(text.len() - 1));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let sum: u64 = model.tensors().iter().map(|tensor| tensor.bytes).sum();
        let layers = json["bytes_by_layer"].as_array().unwrap();
        let by_layer: u64 = layers.iter().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(layers.len(), 3);
        assert_eq!(json["tensor_bytes"], sum);
        assert_eq!(by_layer + json["bytes_outside_layers"].as_u64().unwrap(), sum);
        assert_eq!(json["metadata"]["llama.expert_count"], 4);
        assert_eq!(json["metadata"]["tokenizer.ggml.tokens"]["len"], 288);
        assert_eq!(json["tensors"].as_array().unwrap().len(), model.tensors().len());
    }

    #[test]
    fn escape_codes_of_the_file_do_not_reach_the_terminal() {
        let mut writer = Writer::new();
        writer.set("general.name", "a\u{1b}[2Jb\u{202e}c\nd\u{7f}");
        writer.set("evil\u{9b}31mkey", &["\u{7}"][..]);
        writer.tensor("\u{1b}]0;x\u{7}", &[1], TensorType::F32).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("\u{1b}[31mevil\u{202e}.gguf");
        writer.write(std::fs::File::create(&path).unwrap(), |_, out| out.write_all(&[0; 4])).unwrap();
        let model = Gguf::open(&path).unwrap();
        let object = json_of(&model);
        for text in [text_of(&model), json_line(&object)] {
            assert!(!text.contains(['\u{1b}', '\u{7}', '\u{7f}', '\u{9b}', '\u{202e}']), "{text:?}");
        }
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json_line(&object)).unwrap(), object);
        assert!(text_of(&model).contains("a\\u{1b}[2Jb\\u{202e}c\\nd\\u{7f}"));
    }
}
