//! Any text as a chat template, and any as what is said: it is refused or renders, in bounded time and memory, and what
//! it complains of is one line without control characters.
//!
//! `cargo +nightly fuzz run template fuzz/corpus/template tests/data/templates`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sipllm::tokenizer::{ChatTemplate, RenderOptions, TemplateMessage, Thinking};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    // The template, and after a NUL what is said.
    let (source, said) = text.split_once('\0').unwrap_or((&text, "hello"));
    let template = match ChatTemplate::from_source(source.to_owned(), "<s>", "</s>") {
        Ok(template) => template,
        Err(reason) => {
            assert!(!reason.contains(char::is_control), "{reason:?}");
            return;
        }
    };
    let message = |role, content| TemplateMessage { role, content };
    let messages =
        [message("system", "brief"), message("user", said), message("assistant", said), message("user", "go on")];
    for (count, continue_last, thinking) in [(4, false, None), (2, false, Some(Thinking::High)), (3, true, Some(Thinking::Off))] {
        let options = RenderOptions { add_generation_prompt: true, continue_last, thinking };
        if let Err(error) = template.render(&messages[..count], &options) {
            assert!(!error.to_string().contains(char::is_control));
        }
    }
    let _ = template.opening(None);
});
