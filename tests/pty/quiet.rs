//! Silence while nothing happens, speed when a key is pressed.

use std::time::{Duration, Instant};

use crate::terminal::Terminal;

fn context_switches(pid: u32) -> u64 {
    let sum = |status: String| {
        status
            .lines()
            .filter(|l| l.contains("ctxt_switches"))
            .filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum::<u64>()
    };
    // The thread that draws is the first one; the others are not the screen's.
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/status")).map(sum).unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_is_written_and_nothing_wakes_while_idle() {
    let terminal = Terminal::chat(120, 40, &["--temp", "0"]);
    terminal.wait_ready();
    terminal.line("hello");
    terminal.wait_for("first after");
    std::thread::sleep(Duration::from_secs(2));
    let (bytes, switches) = (terminal.byte_count(), context_switches(terminal.pid()));
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!(terminal.byte_count() - bytes, 0, "bytes written while idle");
    let woken = context_switches(terminal.pid()) - switches;
    assert!(woken <= 1, "woken {woken} times in 10 s");
}

#[test]
fn a_key_is_echoed_after_silence() {
    let terminal = Terminal::chat(80, 24, &["--temp", "0"]);
    terminal.wait_ready();
    terminal.line("hello");
    terminal.wait_for("first after");
    let mut typed = String::new();
    for key in ["a", "b", "c", "d"] {
        std::thread::sleep(Duration::from_millis(700));
        typed.push_str(key);
        let since = Instant::now();
        terminal.keys(key);
        terminal.wait_for(&format!("\u{203a} {typed}"));
        assert!(since.elapsed() < Duration::from_secs(2), "{key} after {:?}", since.elapsed());
    }
}

/// Worth a run with a real model, all cores busy: `SIPLLM_PTY_MODEL=... cargo test --release --test pty echoed`.
#[test]
fn a_key_is_echoed_at_once_while_an_answer_is_made() {
    let terminal = Terminal::chat(120, 40, &["--disk-limit", "2M", "--budget", "0", "--source", "buffered"]);
    terminal.wait_ready();
    terminal.line("hello");
    terminal.wait_for("assistant");
    let mut times = Vec::new();
    let mut typed = String::new();
    for n in 0..100u8 {
        let key = char::from(b'a' + n % 26);
        typed.push(key);
        let line = format!("\u{203a} {typed}");
        let since = Instant::now();
        terminal.keys(&key.to_string());
        while !terminal.screen().contains(&line) {
            assert!(since.elapsed() < Duration::from_secs(10), "{}", terminal.screen());
            std::thread::sleep(Duration::from_micros(500));
        }
        times.push(since.elapsed());
    }
    times.sort();
    // The machine of a test run is shared; what is proved here is that no key waits for the engine.
    assert!(times[times.len() / 2] < Duration::from_millis(50), "median {:?}", times[times.len() / 2]);
}
