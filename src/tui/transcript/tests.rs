#![allow(clippy::unwrap_used)]
use std::time::{Duration, Instant};

use super::*;
use crate::engine::protocol::Role;
use crate::session::ChatMessage;
use crate::tui::glyphs::UNICODE;

fn transcript() -> Transcript {
    Transcript::new(Arc::new(Theme::mono()), UNICODE)
}

fn said(transcript: &mut Transcript, role: Role, text: &str) {
    transcript.push(Entry::message(ChatMessage::new(role, text)));
}

fn top(transcript: &Transcript) -> String {
    transcript.window().next().map(ToString::to_string).unwrap_or_default()
}

/// Ten megabytes of questions and answers with lists and code.
fn long() -> Transcript {
    let mut transcript = transcript();
    let answer = "Some words of an answer that goes on.\n\n- one\n- two\n\n```rust\nfn main() {}\n```\n\n".repeat(26);
    for n in 0..5000 {
        said(&mut transcript, Role::User, &format!("question {n}"));
        said(&mut transcript, Role::Assistant, &answer);
    }
    transcript
}

#[test]
fn ten_megabytes_open_scroll_and_grow_without_being_laid_out_whole() {
    let mut transcript = long();
    transcript.prepare(100, 40);
    let bytes: usize = transcript.entries().iter().map(|e| e.text().len()).sum();
    assert!(bytes > 10_000_000, "{bytes}");
    let mut steps = Vec::new();
    for _ in 0..300 {
        let since = Instant::now();
        transcript.up(38);
        steps.push(since.elapsed());
    }
    transcript.follow();
    said(&mut transcript, Role::Assistant, "");
    let mut tokens = Vec::new();
    for n in 0..300 {
        let since = Instant::now();
        transcript.change_last(|e| {
            if let crate::tui::entry::Body::Message(m) = &mut e.body {
                m.content.push_str(if n % 20 == 0 { "\n\n" } else { "word " });
            }
        });
        transcript.prepare(100, 40);
        tokens.push(since.elapsed());
    }
    let of = |e: &Entry| (0..e.known_parts()).filter(|part| e.lines(*part).is_some()).count();
    let laid_out: usize = transcript.entries().iter().map(of).sum();
    assert!(laid_out < 400, "{laid_out} parts are laid out");
    // What is aimed at is a small part of this, and `benches/screen.rs` measures it, and how long opening takes: a test
    // machine may stand still for as long as it likes, but not in each of many steps.
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    assert!(median(&mut steps) < Duration::from_millis(100), "a step took {steps:?}");
    assert!(median(&mut tokens) < Duration::from_millis(100), "a token took {tokens:?}");
}

#[test]
fn another_width_keeps_the_same_part_at_the_top() {
    let mut transcript = transcript();
    for n in 0..100 {
        said(&mut transcript, Role::User, &format!("message {n} {}", "and more ".repeat(20)));
    }
    transcript.prepare(80, 20);
    transcript.up(150);
    let before = transcript.top.entry;
    for columns in [40, 120, 33, 80] {
        transcript.prepare(columns, 20);
        assert_eq!(transcript.top.entry, before, "{columns}");
    }
}

#[test]
fn lines_that_only_became_more_by_another_width_are_not_new() {
    let mut t = long();
    t.prepare(100, 20);
    t.up(30);
    t.prepare(40, 20);
    assert_eq!(t.new_lines(), 0);
    said(&mut t, Role::User, "this is new");
    t.prepare(40, 20);
    assert!(t.new_lines() >= 2, "{}", t.new_lines());
    let new = t.new_lines();
    t.prepare(100, 20);
    assert!((1..=new).contains(&t.new_lines()), "{}", t.new_lines());
}

#[test]
fn scrolling_down_to_the_end_follows_again() {
    let mut transcript = transcript();
    (0..50).for_each(|n| said(&mut transcript, Role::User, &format!("message {n}")));
    transcript.prepare(80, 20);
    transcript.up(30);
    assert!(!transcript.is_following());
    transcript.down(10);
    assert!(!transcript.is_following());
    transcript.down(20);
    assert!(transcript.is_following());
    transcript.show_start();
    assert_eq!(top(&transcript), "you");
    transcript.up(5);
    assert_eq!(transcript.top, Position::default());
}

#[test]
fn code_blocks_are_numbered_over_all_answers() {
    let mut transcript = transcript();
    for n in 0..3 {
        said(&mut transcript, Role::User, "```\nnot counted\n```");
        said(&mut transcript, Role::Assistant, &format!("```\nfirst of {n}\n```\n\n```\nsecond of {n}\n```"));
    }
    assert_eq!(transcript.code_block(1).as_deref(), Some("first of 0"));
    assert_eq!(transcript.code_block(4).as_deref(), Some("second of 1"));
    assert_eq!(transcript.code_block(7), None);
}

/// Lines laid out anew by `step`, by the bytes of the text in their parts.
fn laid_out_by(transcript: &mut Transcript, step: impl FnOnce(&mut Transcript)) -> usize {
    let laid_out = |t: &Transcript| -> Vec<(usize, usize)> {
        let parts = |(n, e): (usize, &Entry)| {
            (0..e.known_parts()).filter(|p| e.lines(*p).is_some()).map(move |p| (n, p)).collect::<Vec<_>>()
        };
        t.entries().iter().enumerate().flat_map(parts).collect()
    };
    let before = laid_out(transcript);
    step(transcript);
    let after = laid_out(transcript).into_iter().filter(|at| !before.contains(at));
    after.map(|(entry, part)| transcript.entries()[entry].text_of(part).len()).sum()
}

#[test]
fn a_step_lays_out_little_of_a_message_however_long_it_is() {
    let mut transcript = transcript();
    let code = "    let x = 1;\n".repeat(20_000);
    said(&mut transcript, Role::User, &"some words of a file\n".repeat(20_000));
    said(
        &mut transcript,
        Role::Assistant,
        &format!("```rust\n{code}```\n{}", "- one\n- two\n\nwords\n\n".repeat(10_000)),
    );
    transcript.prepare(100, 40);
    for _ in 0..200 {
        let bytes = laid_out_by(&mut transcript, |t| t.up(38));
        assert!(bytes < 50_000, "{bytes} bytes were laid out for one step");
    }
    transcript.show_start();
    assert_eq!(top(&transcript), "you");
    for _ in 0..50 {
        let bytes = laid_out_by(&mut transcript, |t| t.down(38));
        assert!(bytes < 50_000, "{bytes} bytes were laid out for one step");
    }
}

#[test]
fn what_is_written_piece_by_piece_looks_as_what_is_there_at_once() {
    let text = format!(
        "<think>\nfirst this\n</think>\n\nSo.\n\n```py\n{}```\n- a\n- b\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd.",
        "x = 1\n".repeat(5_000)
    );
    let shown = |t: &mut Transcript| {
        t.prepare(60, 12_000);
        t.window().map(ToString::to_string).collect::<Vec<_>>()
    };
    let mut whole = transcript();
    said(&mut whole, Role::Assistant, &text);
    let mut grown = transcript();
    said(&mut grown, Role::Assistant, "");
    for piece in text.as_bytes().chunks(97) {
        grown.change_last(|e| {
            if let Body::Message(m) = &mut e.body {
                m.content.push_str(std::str::from_utf8(piece).unwrap());
            }
        });
        grown.prepare(60, 40);
    }
    let (whole, grown) = (shown(&mut whole), shown(&mut grown));
    assert_eq!(whole.len(), grown.len());
    assert_eq!(whole, grown);
    assert!(whole.iter().any(|l| l.trim() == "▏ py [1]"), "{:?}", &whole[..8]);
}
