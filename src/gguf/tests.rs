#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::writer::Writer;
use super::*;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models").join(name)
}

/// Opens `bytes` as a file of its own.
fn open_bytes(bytes: &[u8]) -> Result<Gguf, GgufError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    Gguf::open(&path)
}

/// Why `bytes` are refused: one line that names the file.
fn refusal(bytes: &[u8]) -> String {
    let message = open_bytes(bytes).map(|_| ()).unwrap_err().to_string();
    assert!(!message.contains('\n') && message.contains("model.gguf: "), "{message}");
    message
}

fn find(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).position(|window| window == needle).unwrap()
}

fn put(bytes: &[u8], at: usize, value: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[at..at + value.len()].copy_from_slice(value);
    changed
}

fn llama() -> Vec<u8> {
    fs::read(golden("llama.gguf")).unwrap()
}

#[test]
fn a_model_written_by_the_reference_package_is_read_as_written() {
    let model = Gguf::open(&golden("llama.gguf")).unwrap();
    assert_eq!(model.version(), 3);
    assert_eq!(model.architecture().unwrap(), "llama");
    let metadata = model.metadata();
    assert_eq!(metadata.u64("llama.embedding_length"), Some(64));
    assert_eq!(metadata.i64("llama.attention.head_count_kv"), Some(2));
    assert_eq!(metadata.f64("llama.rope.freq_base"), Some(10000.0));
    assert_eq!(metadata.str("llama.embedding_length"), None);
    let tokens = model.strings("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!(tokens.len(), 288);
    assert_eq!(tokens.iter().count(), 288);
    assert_eq!(tokens.get(288), b"");
    assert_eq!(model.i32s("tokenizer.ggml.token_type").unwrap().unwrap().len(), 288);
    assert!(model.strings("no.such.key").unwrap().is_none());
    assert!(model.strings("tokenizer.ggml.token_type").is_err());
    assert!(model.f32s("tokenizer.ggml.tokens").is_err());

    let q = model.tensor("blk.0.attn_q.weight").unwrap();
    assert_eq!((q.shape.as_slice(), q.ty), ([64, 64].as_slice(), TensorType::Q8_0));
    assert_eq!((q.rows(), q.row_len(), q.row_bytes(), q.elements()), (64, 64, 68, 4096));
    let bytes = llama();
    assert_eq!(model.read_tensor(q).unwrap(), bytes[q.offset as usize..(q.offset + q.bytes) as usize]);
    assert!(model.tensor("blk.0.attn_z.weight").is_none());
}

#[test]
fn what_the_writer_writes_is_read_back() {
    let mut writer = Writer::with_alignment(64);
    writer.set("general.architecture", "toy");
    writer.set("bytes", &[1u8, 2, 255][..]);
    writer.set("signed", &[-1i16, 7][..]);
    writer.set("flags", &[true, false][..]);
    writer.set("doubles", &[0.5f64, -2.0][..]);
    writer.set("words", &["", "two", "drei"][..]);
    writer.set("alone", 7u16);
    writer.set("wide", u64::MAX);
    writer.tensor("a", &[32, 3], TensorType::Q4_0).unwrap();
    writer.tensor("b", &[5], TensorType::F32).unwrap();
    assert!(writer.tensor("odd", &[33], TensorType::Q4_0).is_err());
    let mut bytes = Vec::new();
    writer
        .write(&mut bytes, |tensor, out| {
            use std::io::Write;
            out.write_all(&vec![tensor.name.as_bytes()[0]; tensor.bytes as usize])
        })
        .unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toy.gguf");
    fs::write(&path, &bytes).unwrap();
    let model = Gguf::open(&path).unwrap();
    assert_eq!(model.u32s("bytes").unwrap().unwrap(), [1, 2, 255]);
    assert_eq!(model.i32s("signed").unwrap().unwrap(), [-1, 7]);
    assert!(model.u32s("signed").is_err());
    assert_eq!(model.u32s("flags").unwrap().unwrap(), [1, 0]);
    assert_eq!(model.f32s("doubles").unwrap().unwrap(), [0.5, -2.0]);
    assert_eq!(model.f32s("signed").unwrap().unwrap(), [-1.0, 7.0]);
    assert_eq!(model.strings("words").unwrap().unwrap().iter().collect::<Vec<_>>(), [&b""[..], b"two", b"drei"]);
    assert_eq!(model.u64s("alone").unwrap().unwrap(), [7]);
    assert_eq!(model.u64s("wide").unwrap().unwrap(), [u64::MAX]);
    assert_eq!(model.metadata().i64("wide"), None);
    assert!(model.tensors().iter().all(|tensor| tensor.offset.is_multiple_of(64)));
    assert_eq!(model.read_tensor(&model.tensors()[1]).unwrap(), [b'b'; 20]);
}

#[test]
fn a_file_of_another_kind_is_named_as_such() {
    assert!(refusal(b"").contains("is empty"));
    assert!(refusal(b"GG").contains("not a GGUF file"));
    assert!(refusal(&b"hello world\n".repeat(50)).contains("begins with \"hell\""));
    assert!(refusal(&b"\x1b[2J\n".repeat(50)).contains("begins with \"\\x1b[2J\""));
    assert!(refusal(&put(&llama(), 0, b"GGML")).contains("old GGML format"));
    let version = |version: u32| refusal(&put(&llama(), 4, &version.to_le_bytes()));
    assert!(version(0).contains("version 0"));
    assert!(version(1).contains("obsolete"));
    assert!(version(99).contains("version 99"));
    assert!(version(3u32.swap_bytes()).contains("big-endian"));
    assert!(Gguf::open(Path::new("/no/such/file.gguf")).unwrap_err().to_string().contains("No such file"));
    assert!(Gguf::open(Path::new("/dev/null")).unwrap_err().to_string().contains("not a regular file"));
}

#[test]
fn absurd_counts_and_lengths_are_refused() {
    let raw = llama();
    for count in [1u64 << 60, 1 << 32, u64::MAX, raw.len() as u64] {
        assert!(refusal(&put(&raw, 8, &count.to_le_bytes())).contains("tensors, more than fit"));
        assert!(refusal(&put(&raw, 16, &count.to_le_bytes())).contains("pairs, more than fit"));
        assert!(refusal(&put(&raw, 24, &count.to_le_bytes())).contains("a metadata key needs"));
    }
    let tokens = find(&raw, b"tokenizer.ggml.tokens") + "tokenizer.ggml.tokens".len();
    for count in [1u64 << 61, 1 << 40, 1 << 20] {
        assert!(refusal(&put(&raw, tokens + 8, &count.to_le_bytes())).contains("strings does not fit"));
    }
    let types = find(&raw, b"tokenizer.ggml.token_type") + "tokenizer.ggml.token_type".len();
    assert!(refusal(&put(&raw, types + 8, &(1u64 << 62).to_le_bytes())).contains("larger than any file"));
    assert!(refusal(&put(&raw, types + 8, &(1u64 << 40).to_le_bytes())).contains("an array needs"));
    assert!(refusal(&put(&raw, types, &99u32.to_le_bytes())).contains("unknown type 99"));
    assert!(refusal(&put(&raw, types + 4, &9u32.to_le_bytes())).contains("elements of type 9"));
}

/// Where the directory's entry of `blk.0.attn_q.weight` has its fields.
struct Entry {
    dims: usize,
    shape: usize,
    ty: usize,
    offset: usize,
}

fn attn_q(raw: &[u8]) -> Entry {
    let name = b"blk.0.attn_q.weight";
    let dims = find(raw, name) + name.len();
    Entry { dims, shape: dims + 4, ty: dims + 20, offset: dims + 24 }
}

#[test]
fn a_tensor_that_cannot_be_is_refused_by_name() {
    let raw = llama();
    let at = attn_q(&raw);
    let refused = |position: usize, value: &[u8], expected: &str| {
        let message = refusal(&put(&raw, position, value));
        assert!(message.contains("tensor blk.0.attn_q.weight: ") && message.contains(expected), "{message}");
    };
    for dims in [0u32, 5, 1 << 31] {
        refused(at.dims, &dims.to_le_bytes(), "dimensions");
    }
    refused(at.shape, &0u64.to_le_bytes(), "has a zero");
    refused(at.shape, &63u64.to_le_bytes(), "whole Q8_0 blocks of 32");
    refused(at.shape, &(1u64 << 62).to_le_bytes(), "larger than any file");
    refused(at.shape + 8, &(1u64 << 50).to_le_bytes(), "past the end");
    refused(at.ty, &9u32.to_le_bytes(), "Q8_1 is a type for activations");
    refused(at.ty, &15u32.to_le_bytes(), "Q8_K is a type for activations");
    refused(at.ty, &255u32.to_le_bytes(), "type number 255 is not known");
    refused(at.ty, &31u32.to_le_bytes(), "type number 31 is not known");
    refused(at.offset, &(u64::MAX - 31).to_le_bytes(), "past the end");
    refused(at.offset, &(raw.len() as u64).next_multiple_of(32).to_le_bytes(), "past the end");
    let offset = u64::from_le_bytes(raw[at.offset..at.offset + 8].try_into().unwrap());
    refused(at.offset, &(offset + 1).to_le_bytes(), "not a multiple of the alignment 32");
    // More rows than there are reach into the next tensor.
    assert!(refusal(&put(&raw, at.shape + 8, &640u64.to_le_bytes())).contains("overlaps blk.0.attn_q.weight"));
}

#[test]
fn names_that_occur_twice_are_refused() {
    let raw = llama();
    let twice = put(&raw, find(&raw, b"blk.0.attn_k.weight"), b"blk.0.attn_q.weight");
    assert!(refusal(&twice).contains("tensor blk.0.attn_q.weight: occurs twice"));
    let mut writer = Writer::new();
    writer.set("a", 1u32);
    writer.set("a", 2u32);
    let mut bytes = Vec::new();
    writer.write(&mut bytes, |_, _| Ok(())).unwrap();
    assert!(refusal(&bytes).contains("metadata a: occurs twice"));
}

#[test]
fn an_alignment_that_is_no_power_of_two_is_refused() {
    for alignment in [0u32, 3, 48] {
        let mut writer = Writer::new();
        writer.set("general.alignment", alignment);
        let mut bytes = Vec::new();
        writer.write(&mut bytes, |_, _| Ok(())).unwrap();
        assert!(refusal(&bytes).contains("general.alignment: is not a power of two"));
    }
}

#[test]
fn escape_codes_in_names_do_not_reach_the_message() {
    let raw = llama();
    let at = attn_q(&raw);
    let named = put(&raw, at.dims - 19, b"\x1b]0;pwned\x07attn_q.we");
    assert!(refusal(&put(&named, at.ty, &9u32.to_le_bytes())).contains("tensor \\u{1b}]0;pwned\\u{7}attn_q.we: "));
}

#[test]
fn a_file_cut_short_anywhere_is_refused() {
    let raw = llama();
    let model = Gguf::open(&golden("llama.gguf")).unwrap();
    let data = model.tensors().iter().map(|tensor| tensor.offset).min().unwrap() as usize;
    let end = model.tensors().iter().map(|tensor| tensor.offset + tensor.bytes).max().unwrap() as usize;
    let cuts = (0..50).map(|i| raw.len() * i / 50).chain([4, 8, 20, 24, 30, data - 1, data, data + 1, end - 1]);
    for cut in cuts {
        refusal(&raw[..cut]);
    }
    assert!(open_bytes(&raw[..end]).is_ok(), "the padding after the last tensor may be missing");
}

/// A model in two parts, as `gguf-split` names and marks them.
fn write_split(folder: &Path, count: u16, numbers: [u16; 2]) -> [PathBuf; 2] {
    [0, 1].map(|index: usize| {
        let mut writer = Writer::new();
        writer.set("split.no", numbers[index]);
        writer.set("split.count", count);
        writer.set("split.tensors.count", 3i32);
        let names: &[&str] = if index == 0 {
            writer.set("general.architecture", "toy");
            &["a", "b"]
        } else {
            &["c"]
        };
        for name in names {
            writer.tensor(*name, &[8], TensorType::F32).unwrap();
        }
        let path = folder.join(format!("toy-{:05}-of-{count:05}.gguf", index + 1));
        let file = fs::File::create(&path).unwrap();
        writer
            .write(file, |tensor, out| {
                use std::io::Write;
                out.write_all(&[tensor.name.as_bytes()[0]; 32])
            })
            .unwrap();
        path
    })
}

#[test]
fn any_part_of_a_split_model_finds_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    for path in write_split(folder.path(), 2, [0, 1]) {
        let model = Gguf::open(&path).unwrap();
        assert_eq!(model.architecture().unwrap(), "toy");
        assert_eq!(model.parts().len(), 2);
        assert_eq!(
            model.tensors().iter().map(|t| (t.name.as_str(), t.part)).collect::<Vec<_>>(),
            [("a", 0), ("b", 0), ("c", 1)]
        );
        assert_eq!(model.read_tensor(model.tensor("c").unwrap()).unwrap(), [b'c'; 32]);
    }
}

#[test]
fn a_split_model_that_is_not_whole_is_refused() {
    let message = |path: &Path| Gguf::open(path).unwrap_err().to_string();
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = write_split(folder.path(), 2, [0, 1]);
    fs::remove_file(&first).unwrap();
    assert!(message(&second).contains("part 1 of 2 is missing; put toy-00001-of-00002.gguf"));
    let renamed = folder.path().join("other.gguf");
    fs::rename(&second, &renamed).unwrap();
    assert!(message(&renamed).contains("its name must end in -00002-of-00002.gguf"));

    let [first, _] = write_split(folder.path(), 2, [0, 0]);
    assert!(message(&first).contains("is not part 2 of 2"));
    let [first, _] = write_split(folder.path(), 3, [0, 1]);
    assert!(message(&first).contains("part 3 of 3 is missing"));
    let [first, _] = write_split(folder.path(), 10_000, [0, 1]);
    assert!(message(&first).contains("9999 are possible"));
}

proptest! {
    #[test]
    fn no_change_of_bytes_makes_the_reader_panic(changes in prop::collection::vec((0..14_000usize, any::<u8>()), 1..8)) {
        let mut bytes = llama();
        for (at, value) in changes {
            bytes[at] = value;
        }
        if let Ok(model) = open_bytes(&bytes) {
            for tensor in model.tensors() {
                prop_assert!(tensor.offset + tensor.bytes <= bytes.len() as u64);
            }
            for (key, value) in model.metadata().iter() {
                if value.as_array().is_some() {
                    let _ = (model.strings(key), model.f32s(key), model.u32s(key));
                }
            }
        }
    }

    #[test]
    fn no_header_of_random_numbers_makes_the_reader_panic(words in prop::collection::vec(0u64..300, 0..400)) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let _ = open_bytes(&bytes);
    }
}
