//! Vocabulary files for tests, unpacked from tests/data/tokens (see tests/tools/pack_vocab.py for the format).

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sipllm::gguf::Gguf;
use sipllm::gguf::writer::Writer;
use sipllm::tokenizer::Tokenizer;

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokens").join(name)
}

/// A vocabulary as a GGUF file, deleted when dropped.
pub struct VocabFile {
    pub gguf: Gguf,
    _folder: tempfile::TempDir,
}

impl VocabFile {
    pub fn tokenizer(&self) -> Tokenizer {
        Tokenizer::from_gguf(&self.gguf).unwrap()
    }
}

/// Unpacks the vocabulary `name`.
pub fn unpack(name: &str) -> VocabFile {
    unpack_with(name, &[])
}

/// Unpacks the vocabulary `name` with some of its metadata replaced.
pub fn unpack_with(name: &str, replaced: &[(&str, &str)]) -> VocabFile {
    let mut archive = zip::ZipArchive::new(File::open(data(&format!("{name}.zip"))).unwrap()).unwrap();
    let mut entries = HashMap::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        entries.insert(entry.name().unwrap().into_owned(), bytes);
    }
    let mut writer = Writer::new();
    let metadata: Vec<(String, String, Value)> = serde_json::from_slice(&entries["metadata.json"]).unwrap();
    for (key, ty, value) in &metadata {
        if replaced.iter().any(|(replaced, _)| replaced == key) {
            continue;
        }
        match ty.as_str() {
            "string" => writer.set(key, value.as_str().unwrap()),
            "bool" => writer.set(key, value.as_bool().unwrap()),
            "uint32" => writer.set(key, value.as_u64().unwrap() as u32),
            other => panic!("{key}: no value of type {other} is expected here"),
        }
    }
    for (key, value) in replaced {
        writer.set(key, *value);
    }
    let tokens = strings(&entries["tokens"]);
    writer.set("tokenizer.ggml.tokens", tokens.as_slice());
    if let Some(types) = entries.get("types") {
        let types: Vec<i32> = types.iter().map(|&t| t.into()).collect();
        writer.set("tokenizer.ggml.token_type", types.as_slice());
    }
    if let Some(scores) = entries.get("scores") {
        let scores: Vec<f32> = scores.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        writer.set("tokenizer.ggml.scores", scores.as_slice());
    }
    if let Some(steps) = entries.get("merge_tokens") {
        let mut token = 0;
        let merges: Vec<String> = std::iter::zip(steps.as_chunks::<2>().0, &entries["merge_lefts"])
            .map(|(step, &left)| {
                token += i64::from(i16::from_le_bytes(*step));
                let (left, right) = tokens[token as usize].split_at(left.into());
                format!("{left} {right}")
            })
            .collect();
        writer.set("tokenizer.ggml.merges", merges.as_slice());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{name}.gguf"));
    writer.write(BufWriter::new(File::create(&path).unwrap()), |_, _| Ok(())).unwrap();
    VocabFile { gguf: Gguf::open(&path).unwrap(), _folder: folder }
}

fn strings(packed: &[u8]) -> Vec<String> {
    let mut strings = Vec::new();
    let mut rest = packed;
    while let [len, after @ ..] = rest {
        let (len, after) = match (len, after) {
            (255, [a, b, after @ ..]) => (usize::from(u16::from_le_bytes([*a, *b])), after),
            _ => (usize::from(*len), after),
        };
        let (text, after) = after.split_at(len);
        strings.push(String::from_utf8(text.to_vec()).unwrap());
        rest = after;
    }
    strings
}
