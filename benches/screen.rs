//! How fast the screen is, measured from outside, through a pseudo terminal, while the engine has all cores:
//! `SIPLLM_PTY_MODEL=MODEL.gguf cargo bench --bench screen`, with a real model (SmolLM2 135M). Without one it measures
//! nothing: a toy leaves the cores idle.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, dead_code)]

#[path = "../tests/pty/terminal.rs"]
mod terminal;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use terminal::{Terminal, saved_chat};

const KEYS: usize = 500;

fn main() {
    if std::env::var_os("SIPLLM_PTY_MODEL").is_none() {
        println!("set SIPLLM_PTY_MODEL to a real model");
        return;
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let all: [(&str, fn()); 5] = [("echo", echo), ("slow", slow), ("idle", idle), ("long", long), ("stop", stop)];
    for (name, measure) in all {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            measure();
        }
    }
}

/// With the cores that a user of the program gives it: all.
fn chat(arguments: &[&str]) -> Terminal {
    let threads = std::thread::available_parallelism().unwrap().to_string();
    let mut all = vec!["--threads", threads.as_str()];
    all.extend(arguments);
    let terminal = Terminal::chat(120, 40, &all);
    terminal.wait_ready();
    terminal
}

fn report(what: &str, mut times: Vec<Duration>, limit: &str) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "{what:44} median {:7.2} ms   p99 {:7.2} ms   worst {:7.2} ms   (limit {limit})",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// Waits for the screen, without the patience of the tests' own waits.
fn until(terminal: &Terminal, holds: impl Fn(&str) -> bool) {
    let since = Instant::now();
    while !holds(&terminal.screen()) {
        assert!(since.elapsed() < Duration::from_secs(60), "{}", terminal.screen());
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Has an answer made, again and again until one is long enough to be seen.
fn begin(terminal: &Terminal) {
    static ASKED: AtomicUsize = AtomicUsize::new(100);
    loop {
        let n = ASKED.fetch_add(1, Ordering::Relaxed);
        terminal.line("/clear");
        terminal.line(&format!("Write a very long story about a lighthouse keeper and {n} ships."));
        // A short answer may be over before it is seen.
        let asked = format!("{n} ships");
        until(terminal, |s| s.contains("answering") || (s.contains(&asked) && s.contains("first after")));
        if terminal.screen().contains("answering") {
            return;
        }
    }
}

/// From a key to the bytes that show it.
fn echo() {
    let terminal = chat(&["--temp", "1", "--seed", "1"]);
    begin(&terminal);
    let mut times = Vec::new();
    let mut typed = String::new();
    for n in 0..KEYS {
        if !terminal.screen().contains("answering") {
            typed.clear();
            terminal.keys("\x15");
            begin(&terminal);
        }
        if typed.len() == 60 {
            typed.clear();
            terminal.keys("\x15");
            until(&terminal, |s| s.contains("next message waits"));
        }
        let key = char::from(b'a' + (n % 26) as u8);
        typed.push(key);
        let line = format!("\u{203a} {typed}");
        std::thread::sleep(Duration::from_millis(15 + (n % 7) as u64));
        let since = Instant::now();
        terminal.keys(&key.to_string());
        until(&terminal, |s| s.contains(&line));
        times.push(since.elapsed());
    }
    report("a key's echo while all cores answer", times, "p99 16 ms");
}

/// Bytes that a slow answer writes.
fn slow() {
    let terminal = chat(&["--disk-limit", "18M", "--budget", "0"]);
    terminal.line("hi");
    terminal.wait_for("answering");
    let (bytes, since) = (terminal.byte_count(), Instant::now());
    std::thread::sleep(Duration::from_secs(20));
    let rate = (terminal.byte_count() - bytes) as f64 / since.elapsed().as_secs_f64();
    println!("{:44} {rate:.0} bytes a second   (limit 4000)", "an answer of 0.2 tok/s writes");
}

fn schedstat(pid: u32, thread: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

fn switches(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let statuses = threads.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("status")).ok());
    let count = |status: String| {
        let lines = status.lines().filter(|l| l.contains("ctxt_switches")).map(str::to_owned).collect::<Vec<_>>();
        lines.iter().filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>()
    };
    statuses.map(count).sum()
}

fn idle() {
    let terminal = chat(&["--temp", "0"]);
    terminal.line("What is the capital of France?");
    terminal.wait_for("first after");
    std::thread::sleep(Duration::from_secs(2));
    let (bytes, before) = (terminal.byte_count(), switches(terminal.pid()));
    std::thread::sleep(Duration::from_secs(10));
    println!(
        "{:44} {} bytes, {} wakeups of any thread   (limit 0, 0)",
        "ten idle seconds",
        terminal.byte_count() - bytes,
        switches(terminal.pid()) - before
    );
}

/// A chat of ten megabytes: opened, scrolled, grown.
fn long() {
    let home = tempfile::tempdir().unwrap();
    let part = "Some words of an answer that goes on.\n\n- one\n- two\n\n```rust\nfn main() {}\n```\n\n".repeat(130);
    let said: Vec<String> =
        (0..2000).map(|n| if n % 2 == 0 { format!("question {n}") } else { part.clone() }).collect();
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    saved_chat(&home, "20260101-000000", &said);
    let terminal = Terminal::start(120, 40, &["--temp", "0"], &[("SIPLLM_MAX_TOKENS", "400")], home);
    terminal.wait_ready();
    let since = Instant::now();
    terminal.line("/resume 20260101-000000");
    until(&terminal, |s| s.contains("fn main()"));
    println!("{:44} {:.0} ms   (limit 300)", "opening a chat of 10 MB", since.elapsed().as_secs_f64() * 1e3);
    let mut steps = Vec::new();
    for n in 0..300 {
        let bytes = terminal.byte_count();
        let since = Instant::now();
        terminal.keys(if n < 200 { "\x1b[5~" } else { "\x1b[1;3A" });
        while terminal.byte_count() == bytes && since.elapsed() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
        steps.push(since.elapsed());
    }
    report("a step of scrolling in it", steps, "5 ms");
    terminal.keys("\x1b[F");
    // The context cannot hold it: what is told counts, and the answer after it.
    terminal.line("/clear");
    terminal.wait_gone("fn main()");
    terminal.line("/resume 20260101-000000");
    until(&terminal, |s| s.contains("fn main()"));
    let cpu = || schedstat(terminal.pid(), terminal.pid()).unwrap();
    terminal.line("Write a long story.");
    let since = Instant::now();
    while !terminal.screen().contains("answering") && since.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let tokens =
        |s: &str| -> Option<u64> { s.split("answering \u{b7} ").nth(1)?.split_whitespace().next()?.parse().ok() };
    let (first, before) = (tokens(&terminal.screen()).unwrap_or(0), cpu());
    std::thread::sleep(Duration::from_secs(2));
    let (last, after) = (tokens(&terminal.screen()).unwrap_or(first), cpu());
    let count = (last - first).max(1);
    println!(
        "{:44} {:.2} ms of the screen's thread, over {count} tokens   (limit 2)",
        "a token more in it",
        (after - before).as_secs_f64() * 1e3 / count as f64
    );
}

/// From Ctrl-C to a line that can be typed in.
fn stop() {
    let long: String = "the keeper of the light looks out over the sea and waits for ships ".repeat(140);
    for (what, arguments, prompt, state) in [
        ("Ctrl-C while a prompt of 2,000 tokens is read", &[][..], long.as_str(), "reading prompt"),
        ("Ctrl-C while an answer is made", &[][..], "", "answering"),
        ("the same, with --disk-limit 20M", &["--disk-limit", "20M", "--budget", "0"][..], "", "answering"),
        (
            "a prompt, with --disk-limit 20M",
            &["--disk-limit", "20M", "--budget", "0"][..],
            long.as_str(),
            "reading prompt",
        ),
    ] {
        let terminal = chat(arguments);
        let mut times = Vec::new();
        for n in 0..8 {
            if state == "answering" {
                begin(&terminal);
            } else {
                // Nothing of it is known already.
                terminal.line("/clear");
                terminal.keys(&format!("\x1b[200~{n} {prompt}\x1b[201~\r"));
                terminal.wait_for(state);
            }
            std::thread::sleep(Duration::from_millis(60 + 20 * n));
            if !terminal.screen().contains(state) {
                continue;
            }
            let since = Instant::now();
            terminal.keys("\x03");
            until(&terminal, |s| s.contains("ask something"));
            times.push(since.elapsed());
        }
        if times.is_empty() {
            println!("{what:44} was over before it could be stopped");
        } else {
            report(what, times, "100 ms");
        }
    }
}
