//! A model file whose every text is an attack: nothing of it reaches the terminal as it is, and nothing hangs.

use std::path::PathBuf;

use sipllm::gguf::writer::Writer;
use sipllm::gguf::{Gguf, TensorType};

use crate::terminal::{Terminal, sipllm};

/// What a terminal must never get: a title, a clipboard, an alternate screen, a query, in both spellings of ESC.
const ATTACK: &str = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[?1049l\x1b[6n\u{9b}31m\u{202e}\u{2066}\0\x08\r";

/// The golden model with an attack in every text: names, template, vocabulary; perhaps in a tensor's name too, for
/// which it is refused.
fn hostile_model(folder: &std::path::Path, tensor: bool) -> PathBuf {
    let golden = Gguf::open(&crate::terminal::model()).unwrap();
    let mut writer = Writer::new();
    let line = "x".repeat(100_000);
    let flood = "\u{200b}\u{301}".repeat(10_000);
    writer.set("general.architecture", "llama");
    writer.set("general.name", format!("{ATTACK}Evil{line}{flood}").as_str());
    writer.set(&format!("evil.{ATTACK}"), ATTACK);
    for (key, value) in [
        ("context_length", 256u32),
        ("embedding_length", 64),
        ("block_count", 3),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("feed_forward_length", 96),
        ("rope.dimension_count", 16),
        ("vocab_size", 288),
    ] {
        writer.set(&format!("llama.{key}"), value);
    }
    writer.set("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    writer.set("llama.rope.freq_base", 10_000f32);
    writer.set("tokenizer.ggml.model", "gpt2");
    writer.set("tokenizer.ggml.pre", "smollm");
    let strings = |key: &str| -> Vec<String> {
        let all = golden.strings(key).unwrap().unwrap();
        (0..all.len()).map(|i| String::from_utf8(all.get(i).to_vec()).unwrap()).collect()
    };
    let mut tokens = strings("tokenizer.ggml.tokens");
    // Tokens of several bytes, half of them attacks as the vocabulary spells bytes: ESC is U+011B.
    for (i, token) in tokens.iter_mut().enumerate().take(278).skip(256) {
        *token = match i % 4 {
            0 => format!("\u{11b}]0;owned{i}\u{107}"),
            1 => format!("\u{11b}[2J{i}"),
            2 => format!("\u{c2}\u{17b}31m{i}"),
            _ => token.clone(),
        };
    }
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    writer.set("tokenizer.ggml.tokens", tokens.as_slice());
    let types: Vec<i32> = (0..288).map(|i| if (278..281).contains(&i) { 3 } else { 1 }).collect();
    writer.set("tokenizer.ggml.token_type", types.as_slice());
    writer.set("tokenizer.ggml.merges", ["t h"].as_slice());
    writer.set("tokenizer.ggml.bos_token_id", 278u32);
    writer.set("tokenizer.ggml.eos_token_id", 280u32);
    let template = format!(
        "{{% for message in messages %}}{{{{ message['content'] }}}}{{% endfor %}}{ATTACK}\
         {{% if messages[0]['content'] == 'fail' %}}{{{{ raise_exception('{ATTACK}no') }}}}{{% endif %}}"
    );
    writer.set("tokenizer.chat_template", template.as_str());
    for tensor in golden.tensors() {
        writer.tensor(tensor.name.clone(), &tensor.shape, tensor.ty).unwrap();
    }
    if tensor {
        writer.tensor(format!("blk.1.{ATTACK}"), &[64], TensorType::F32).unwrap();
    }
    let path = folder.join(if tensor { "refused.gguf" } else { "hostile.gguf" });
    let file = std::fs::File::create(&path).unwrap();
    writer
        .write(file, |tensor, out| {
            let bytes = match golden.tensor(&tensor.name) {
                Some(known) => golden.read_tensor(known).map_err(std::io::Error::other)?,
                None => vec![0; tensor.bytes as usize],
            };
            std::io::Write::write_all(out, &bytes)
        })
        .unwrap();
    path
}

/// No attack came through whole: what a terminal would have obeyed.
fn is_safe(bytes: &[u8], how: &str) {
    let text = String::from_utf8_lossy(bytes);
    for attack in ["\x1b]0;owned", "\x1b]52;c;b3duZWQ", "\x1b[6n", "\u{9b}", "\u{202e}", "\u{2066}", "\0", "\x08"] {
        assert!(!text.contains(attack), "{how}: {attack:?} came through");
    }
}

/// Of a path that writes no escape codes at all.
fn is_plain(bytes: &[u8], how: &str) {
    is_safe(bytes, how);
    assert!(!bytes.contains(&0x1b), "{how}: {:?}", String::from_utf8_lossy(bytes));
}

#[test]
fn the_screen_shows_a_hostile_model_without_obeying_it() {
    let home = tempfile::tempdir().unwrap();
    let path = hostile_model(home.path(), false);
    let refused = hostile_model(home.path(), true);
    let mut command = sipllm(&home, &[("SIPLLM_MAX_TOKENS", "60")]);
    command.arg("chat");
    command.arg(&path);
    command.args(["--threads", "1"]);
    let terminal = Terminal::run(120, 40, command, home);
    terminal.wait_for("ready: ");
    terminal.line("fail");
    terminal.wait_for("refuses this conversation");
    terminal.line("/clear");
    terminal.line("hello");
    terminal.wait_answers(1);
    for view in ["/layers", "/memory", "/model", "/sessions", "/help"] {
        terminal.line(view);
        terminal.keys("\x1b[C");
        terminal.wait_gone("ask something");
        terminal.escape();
    }
    terminal.line("/stats");
    terminal.line(&format!("/model {}", refused.display()));
    terminal.wait_for("! ");
    terminal.line(&format!("/model {}", path.display()));
    terminal.wait_for("answers from here on");
    let out = terminal.home.path().join("chat");
    for ending in ["md", "json", "txt"] {
        terminal.line(&format!("/export {}.{ending}", out.display()));
        // What was typed names the file too.
        let ending_of = |s: &str| s.lines().any(|l| l.contains("written to") && l.contains(&format!("chat.{ending}")));
        terminal.wait_until("the file", ending_of);
        let written = std::fs::read(out.with_extension(ending)).unwrap();
        is_plain(&written, ending);
    }
    terminal.line("/copy all");
    terminal.wait_for("copied.txt");
    terminal.line("/quit");
    let (_, bytes, _, home) = terminal.wait_end();
    is_safe(&bytes, "the screen");
    // What went to the clipboard is base64 of clean text; the program's own file shows it.
    let copied = std::fs::read(crate::terminal::data_dir(&home).join("chats/copied.txt")).unwrap();
    is_plain(&copied, "the clipboard");
}

#[test]
fn no_command_writes_what_a_hostile_model_says_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let path = hostile_model(home.path(), false);
    let path = path.to_str().unwrap();
    let refused = hostile_model(home.path(), true);
    let refused = refused.to_str().unwrap();
    for arguments in [
        &["run", path, "hello", "-n", "40"][..],
        &["run", path, "fail"],
        &["run", path, "hello", "-n", "4", "--json"],
        &["inspect", path],
        &["inspect", path, "--json"],
        &["doctor", path],
        &["tokenize", path, "hello"],
        &["bench", path, "-p", "4", "-n", "2", "-r", "1"],
        &["logits", path, "--ids", "1,2,3", "--greedy", "3"],
        &["chat", "--plain", path],
        &["run", refused, "hello"],
        &["inspect", refused],
        &["doctor", refused],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = sipllm(&folder, &[]);
        command.args(arguments);
        let terminal = Terminal::run(100, 40, command, folder);
        if arguments[0] == "chat" {
            terminal.wait_for("/help lists the commands");
            for line in ["/set max-tokens 30", "hello", "/stats", "/model", "fail", "/quit"] {
                terminal.line(line);
            }
        }
        let (_, bytes, _, _) = terminal.wait_end();
        is_plain(&bytes, &arguments.join(" "));
    }
}
