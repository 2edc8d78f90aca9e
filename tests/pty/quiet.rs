//! Silence while nothing happens, speed when a key is pressed.

use std::time::{Duration, Instant};

use crate::terminal::Terminal;

/// How often any thread of the process was put on a core or taken off it.
fn context_switches(pid: u32) -> u64 {
    let of_thread = |status: String| {
        status
            .lines()
            .filter(|l| l.contains("ctxt_switches"))
            .filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum::<u64>()
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.map(|t| std::fs::read_to_string(t.unwrap().path().join("status")).map_or(0, of_thread)).sum()
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_is_written_and_no_thread_wakes_while_idle() {
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
fn a_slow_answer_writes_little() {
    // A token in some seconds, with all panels in sight.
    let slow = ["--disk-limit", "30K", "--budget", "0", "--source", "buffered"];
    let terminal = Terminal::chat(120, 40, &slow);
    terminal.wait_ready();
    terminal.line("hi");
    terminal.wait_for("reading prompt");
    std::thread::sleep(Duration::from_secs(1));
    let (bytes, since) = (terminal.byte_count(), Instant::now());
    std::thread::sleep(Duration::from_secs(10));
    let rate = (terminal.byte_count() - bytes) as f64 / since.elapsed().as_secs_f64();
    assert!(rate <= 4000.0, "{rate:.0} bytes a second");
    terminal.keys("\x03");
    terminal.wait_for("ask something");
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
    assert!(times[times.len() / 2] < Duration::from_millis(500), "median {:?}", times[times.len() / 2]);
}
