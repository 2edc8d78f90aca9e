//! The model picker: what is here, what fits, switching in mid-chat.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use crate::terminal::{Terminal, data_dir, model, sipllm};

fn install(home: &tempfile::TempDir, from: &str, name: &str) {
    let folder = data_dir(home).join("models");
    std::fs::create_dir_all(&folder).unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models").join(from);
    std::fs::copy(from, folder.join(name)).unwrap();
}

#[test]
fn a_model_is_switched_within_a_chat() {
    let home = tempfile::tempdir().unwrap();
    install(&home, "qwen3.gguf", "other-one.gguf");
    let terminal = Terminal::start(100, 40, &["--temp", "0"], &[("SIPLLM_MAX_TOKENS", "4")], home);
    terminal.wait_ready();
    terminal.line("hello");
    terminal.wait_for("first after");
    terminal.line("/model");
    let screen = terminal.wait_for("other-one");
    for word in ["smollm2-135m", "Apache-2.0", "fits", "to fetch", "installed"] {
        assert!(screen.contains(word), "{word} is missing:\n{screen}");
    }
    terminal.keys("other-one");
    terminal.wait_gone("smollm2-135m");
    terminal.wait_for("all in memory from");
    terminal.keys("\r");
    terminal.wait_for("answers from here on");
    terminal.line("again");
    terminal.wait_answers(2);
    assert!(terminal.screen().contains("hello"));
}

#[test]
fn the_first_screen_loads_the_only_model_by_itself() {
    let home = tempfile::tempdir().unwrap();
    install(&home, "llama.gguf", "only.gguf");
    let terminal = Terminal::run(100, 30, sipllm(&home, &[]), home);
    terminal.wait_ready();
    terminal.line("/quit");
    terminal.wait_end();
}

#[test]
fn without_a_model_the_first_screen_offers_one_and_says_why_it_does_not_come() {
    let home = tempfile::tempdir().unwrap();
    // Nothing listens there, and there is no Python.
    let empty = home.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let variables = [("HF_ENDPOINT", "http://127.0.0.1:9"), ("PATH", empty.to_str().unwrap())];
    let terminal = Terminal::run(100, 30, sipllm(&home, &variables), home);
    terminal.wait_for("Enter fetches smollm2-135m");
    terminal.keys("\r");
    terminal.wait_for("cannot fetch");
    terminal.line(&format!("/model {}", model().display()));
    terminal.wait_ready();
}

/// A hub that sends the first MiB of whatever is asked of it and then falls silent; the address.
fn slow_hub() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                let read = stream.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..read]).to_lowercase();
                let start: u64 =
                    head.split("range: bytes=").nth(1).and_then(|r| r.split('-').next()?.parse().ok()).unwrap_or(0);
                let (status, total) = if start > 0 { ("206 Partial Content", BYTES) } else { ("200 OK", BYTES) };
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{}/{total}\r\nETag: \"v1\"\r\n\r\n",
                    total - start,
                    total - 1
                );
                let mut body = b"GGUF".to_vec();
                body.resize(1 << 20, 0);
                let _ = stream.write_all(&body);
                // Until the other side has had enough.
                let _ = stream.read(&mut [0; 1]);
            });
        }
    });
    address
}

/// Of the default model in the catalog.
const BYTES: u64 = 98_362_432;

#[test]
fn a_fetch_is_stopped_gone_on_with_and_given_up() {
    let home = tempfile::tempdir().unwrap();
    install(&home, "llama.gguf", "only.gguf");
    let hub = slow_hub();
    let terminal = Terminal::run(100, 30, sipllm(&home, &[("HF_ENDPOINT", hub.as_str())]), home);
    terminal.wait_ready();
    terminal.line("/model");
    terminal.wait_for("to fetch");
    terminal.keys("smollm2-135m");
    terminal.wait_for("Enter fetches");
    terminal.keys("\r");
    terminal.wait_until("some of it", |s| s.contains("fetching") && s.contains("1%"));
    terminal.keys("\x03");
    terminal.wait_for("what has come is kept");
    for round in 0..2 {
        terminal.line("/model");
        terminal.wait_for("to fetch");
        terminal.keys("smollm2-135m");
        terminal.wait_until("what is left of it", |s| s.contains("stopped at ") && s.contains("Enter goes on from"));
        if round == 0 {
            terminal.keys("\r");
            terminal.wait_until("more of it", |s| s.contains("fetching") && s.contains("%"));
            terminal.keys("\x03");
            terminal.wait_for("what has come is kept");
        }
    }
    terminal.keys("\x1b[3~");
    terminal.wait_for("to fetch");
    terminal.wait_for("Enter fetches");
    let left = std::fs::read_dir(data_dir(&terminal.home).join("models")).unwrap().count();
    assert_eq!(left, 1, "only the model that was there before");
}
