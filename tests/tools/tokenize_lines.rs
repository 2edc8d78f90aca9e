//! Tokenises many strings with one load of the vocabulary, for compare_tokens.py.
//!
//! Usage: tokenize_lines MODEL.gguf. Reads lines of `{"hex": BYTES, "special": BOOL}` and writes for each the ids as a
//! JSON array, without BOS.

#![allow(clippy::print_stdout)]

use std::io::{BufRead, Write};
use std::path::Path;

use sipllm::gguf::Gguf;
use sipllm::tokenizer::Tokenizer;

#[derive(serde::Deserialize)]
struct Line {
    hex: String,
    special: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: tokenize_lines MODEL.gguf")?;
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(Path::new(&path))?)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let line: Line = serde_json::from_str(&line?)?;
        let bytes = (0..line.hex.len() / 2)
            .map(|i| u8::from_str_radix(&line.hex[2 * i..2 * i + 2], 16))
            .collect::<Result<Vec<u8>, _>>()?;
        // As llama.cpp does: what is no UTF-8 is tokenised byte by byte.
        let ids = tokenizer.encode_bytes(&bytes, line.special);
        writeln!(out, "{}", serde_json::to_string(&ids)?)?;
    }
    out.flush()?;
    Ok(())
}
