//! `sipllm tokenize`: text to token ids, one line of JSON.

use std::io::{Read, Write};

use crate::catalog;
use crate::cli::TokenizeArgs;
use crate::commands::{Outcome, told};
use crate::config::Settings;
use crate::gguf::Gguf;
use crate::tokenizer::Tokenizer;

/// Prints `{"ids": [...]}`, without BOS; warnings go to standard error.
pub fn run(args: &TokenizeArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let path = catalog::resolve(Some(&args.model_file), settings)?;
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&path)?)?;
    for warning in tokenizer.warnings() {
        writeln!(std::io::stderr(), "warning: {}", told(warning))?;
    }
    let text = match &args.text {
        Some(text) if !args.stdin => text.clone().into_bytes(),
        _ => {
            let mut text = Vec::new();
            std::io::stdin().lock().read_to_end(&mut text)?;
            text
        }
    };
    let ids = tokenizer.encode_bytes(&text, args.special);
    writeln!(std::io::stdout().lock(), "{}", serde_json::json!({ "ids": ids }))?;
    Ok(Outcome::Done)
}
