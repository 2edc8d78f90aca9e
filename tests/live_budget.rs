//! A budget changed while an answer is made: the answer stays the same to the byte, the kernel sees less memory within
//! a second, and a larger budget is full after one pass. One test at a time: a process has one resident set.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/engine.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sipllm::engine::EngineHandle;
use sipllm::engine::protocol::{
    Budget, Command, Event, FailureKind, FinishReason, KvType, LoadRequest, Prompt, Request, SourceKind,
};
use sipllm::weights::memory;
use support::{End, Engine, finished, load, request};

static ALONE: Mutex<()> = Mutex::new(());
const MIB: u64 = 1 << 20;

fn toy(folder: &Path, shape: &[&str]) -> PathBuf {
    let path = folder.join("toy.gguf");
    let toy = std::process::Command::new(env!("CARGO_BIN_EXE_sipllm")).arg("toy").arg(&path).args(shape).output();
    let toy = toy.unwrap();
    assert!(toy.status.success(), "{}", String::from_utf8_lossy(&toy.stderr));
    path
}

fn tokens(n: u32) -> Prompt {
    Prompt::Tokens((0..n).map(|i| (i * 37 + 5) % 256).collect())
}

fn request_of(path: &Path, source: SourceKind) -> LoadRequest {
    LoadRequest { source, budget: Budget::Share(1.0), context: Some(128), threads: Some(1), ..load(path.to_owned()) }
}

#[test]
fn two_hundred_changes_between_the_least_and_all_change_no_byte_of_an_answer() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = toy(folder.path(), &["--layers", "8", "--width", "256", "--type", "q4_k"]);
    for source in [SourceKind::Direct, SourceKind::Buffered, SourceKind::Mmap] {
        let (mut engine, _) = Engine::loaded(request_of(&path, source));
        let (expected, ..) = finished(engine.answer(request(tokens(30), 60)));
        engine.handle.send(Command::Reset);
        let figures = engine.handle.snapshots();
        let (least, full) = (figures.borrow().memory.least_bytes, figures.borrow().memory.full_bytes);
        let (mut state, mut taken) = (7u64, 0);
        let mut streamed_and_not = [false; 2];
        let (text, ..) = finished(engine.answer_while(request(tokens(30), 60), |handle, event| {
            if matches!(event, Event::BudgetSet { .. }) {
                taken += 1;
            }
            if matches!(event, Event::Text { .. } | Event::Started { .. } | Event::BudgetSet { .. }) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let share = (state >> 40) as f64 / f64::from(1u32 << 24);
                let bytes = least + ((full + MIB - least) as f64 * share) as u64;
                handle.set_budget(if share < 0.05 { Budget::Least } else { Budget::Bytes(bytes) });
                streamed_and_not[usize::from(figures.borrow().speed.streamed_bytes_per_token > 0)] = true;
            }
        }));
        assert!(taken >= 200, "{source:?}: only {taken} changes");
        assert_eq!(streamed_and_not, [true; 2], "{source:?}: budgets above and below all of it");
        assert!(text == expected, "{source:?}: the text differs");
    }
}

#[test]
fn a_long_prompt_takes_the_memory_of_pins_only_as_its_kv_cache_grows() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let shape =
        ["--layers", "32", "--width", "256", "--heads", "4", "--ffn", "256", "--vocab", "2048", "--type", "q8_0"];
    let path = toy(folder.path(), &shape);
    let whole = LoadRequest { kv: KvType::F32, ..request_of(&path, SourceKind::Direct) };
    let (mut engine, info) = Engine::loaded(whole);
    let figures = engine.handle.snapshots();
    finished(engine.answer(request(tokens(8), 8)));
    let (touched, page) = (info.touched_bytes_per_token, figures.borrow().memory.kv_bytes);
    assert!(page > MIB && touched > 5 * page, "{page} bytes of KV for 32 positions, {touched} of weights");

    // All but a few extents are pinned while the context is short.
    let memory = figures.borrow().memory.clone();
    engine.handle.set_budget(Budget::Bytes(memory.full_bytes - 3 * page - 2 * MIB));
    finished(engine.answer(request(tokens(9), 8)));
    finished(engine.answer(request(tokens(8), 8)));
    let pinned = figures.borrow().memory.pinned_bytes;
    assert!(pinned > 3 * page && pinned < touched, "{pinned} pinned of {touched}");
    let long: Vec<u32> = (0..90).map(|i| (i * 31 + 7) % 256).collect();
    let (.., stats) = finished(engine.answer(request(Prompt::Tokens(long), 1)));
    assert_eq!((stats.prefill_passes, stats.reused_tokens), (1, 0));
    // Two more pages are needed, and the buffers of a longer prompt at once.
    let streamed = stats.prefill_streamed_bytes;
    assert!(streamed < touched - pinned + page + page / 2, "{streamed} streamed, {pinned} of {touched} pinned, {page}");
    let after = figures.borrow().memory.clone();
    assert!(after.pinned_bytes + page < pinned && after.kv_bytes == 3 * page, "{after:?}");
}

/// A model whose KV cache takes 2 MiB for 32 positions, with a context as large as the budget has room for.
fn conversation(folder: &Path) -> LoadRequest {
    let shape =
        ["--layers", "32", "--width", "256", "--heads", "4", "--ffn", "256", "--vocab", "2048", "--type", "q8_0"];
    let path = toy(folder, &shape);
    LoadRequest { kv: KvType::F32, context: None, least_context: 32, ..request_of(&path, SourceKind::Buffered) }
}

#[test]
fn what_was_asked_for_as_the_least_stays_the_least_as_the_conversation_grows() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, info) = Engine::loaded(conversation(folder.path()));
    let unbounded = |prompt| Request { max_tokens: None, stop: Vec::new(), ..request(prompt, 0) };
    let until = |tokens: usize| {
        let mut pieces = 0;
        move |handle: &EngineHandle, event: &Event| {
            pieces += usize::from(matches!(event, Event::Text { .. }));
            if pieces == 3 {
                handle.set_budget(Budget::Least);
            }
            if pieces == tokens {
                handle.cancel();
            }
        }
    };
    let (_, reason, _) = finished(engine.answer_while(unbounded(tokens(110)), until(30)));
    assert_eq!(reason, FinishReason::Cancelled, "not for want of context");
    let figures = engine.handle.snapshots();
    let after = figures.borrow().clone();
    assert_eq!((after.memory.budget, after.context), (Budget::Least, info.context_most));
    let used = after.context_used;
    assert!(used > 128, "{used}");
    assert_eq!(after.memory.budget_bytes, after.memory.least_cost.bytes(used));
    // A question of many more tokens.
    finished(engine.answer(request(tokens(220), 2)));
    let later = figures.borrow().clone();
    let page = later.memory.least_cost.kv.page_bytes;
    assert!(later.memory.budget_bytes >= after.memory.budget_bytes + 2 * page - MIB, "{later:?}");
    assert_eq!(later.memory.least_bytes, later.memory.budget_bytes);
}

#[test]
fn a_question_that_a_cut_budget_has_no_room_for_is_one_for_the_context_and_a_shorter_one_is_answered() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, _) = Engine::loaded(conversation(folder.path()));
    finished(engine.answer(request(tokens(120), 8)));
    let figures = engine.handle.snapshots();
    let cost = figures.borrow().memory.least_cost;
    engine.handle.set_budget(Budget::Bytes(cost.bytes(128)));
    let set = loop {
        match engine.events.blocking_recv().unwrap() {
            Event::BudgetSet { bytes, .. } => break bytes,
            Event::Failed(failure) => panic!("{failure:?}"),
            _ => {}
        }
    };
    assert_eq!(set, cost.bytes(128));
    // All that is known, and more: what the budget has room for is what the front end hears of.
    let End::Broken(failure) = engine.answer(request(tokens(200), 2)) else { panic!("200 tokens in 128") };
    assert_eq!(failure.kind, FailureKind::ContextFull, "{}", failure.message);
    let context = figures.borrow().context;
    assert!((32..=160).contains(&context), "{context}");
    assert!(failure.message.contains(&format!("200 tokens and the context holds {context}")), "{}", failure.message);
    finished(engine.answer(request(tokens(20), 2)));
}

#[test]
fn a_cut_in_a_long_prompt_that_leaves_room_for_a_shorter_pass_begins_again_with_one() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, _) = Engine::loaded(conversation(folder.path()));
    let cost = engine.handle.snapshots().borrow().memory.least_cost;
    // All but room for the activations of 600 positions.
    let asked = cost.bytes(600) + 64 * cost.position_bytes + MIB + MIB / 2;
    let mut set = Vec::new();
    let (.., stats) = finished(engine.answer_while(request(tokens(600), 1), |handle, event| match event {
        Event::Started { .. } => handle.set_budget(Budget::Bytes(asked)),
        Event::BudgetSet { bytes, .. } => set.push(*bytes),
        Event::Failed(failure) => panic!("{failure:?}"),
        _ => {}
    }));
    assert_eq!(set, [asked]);
    assert!((2..=5).contains(&stats.prefill_passes), "{} passes", stats.prefill_passes);
    let missing = (600 - 128 - 64) * cost.position_bytes;
    assert!(missing > 2 * MIB, "{missing} bytes more fit the headroom");
}

/// Looks at the resident set every 5 ms; says how long after `since` it was last seen above the limit.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Duration>,
}

impl Watch {
    fn below(limit: u64, since: Instant) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut last_above = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                if memory::process().rss_bytes > limit {
                    last_above = since.elapsed();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            last_above
        });
        Self { stop, thread }
    }

    fn last_above(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn a_cut_is_seen_by_the_kernel_within_a_second_and_a_raise_is_filled_in_one_pass() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    memory::keep_heap_small();
    let folder = tempfile::tempdir().unwrap();
    let path = toy(folder.path(), &["--layers", "24", "--width", "512", "--ffn", "1536", "--type", "q8_0"]);
    for source in [SourceKind::Direct, SourceKind::Buffered] {
        let (mut engine, _) = Engine::loaded(request_of(&path, source));
        let mut figures = engine.handle.snapshots();
        let full = figures.borrow().memory.full_bytes;
        let cut = full * 3 / 10;
        let mut texts = 0;
        let mut watch = None;
        let mut tokens_when_raised = None;
        let mut streamed = Vec::new();
        finished(engine.answer_while(request(tokens(8), 30), |handle, event| {
            if let Event::Text { .. } = event {
                texts += 1;
                if texts == 8 {
                    // Well in mid-answer, everything kept.
                    handle.set_budget(Budget::Bytes(cut));
                    watch = Some(Watch::below(cut + MIB, Instant::now()));
                }
                if texts == 16 {
                    let last_above = watch.take().unwrap().last_above();
                    assert!(last_above < Duration::from_secs(1), "{source:?}: above the cut after {last_above:?}");
                    handle.set_budget(Budget::Share(1.0));
                }
            }
            if matches!(event, Event::BudgetSet { budget: Budget::Share(_), .. }) {
                tokens_when_raised = Some(figures.borrow_and_update().speed.generated_tokens);
            }
            if let Some(raised) = tokens_when_raised
                && figures.has_changed().unwrap()
            {
                let speed = figures.borrow_and_update().speed.clone();
                streamed.push((speed.generated_tokens.saturating_sub(raised), speed.streamed_bytes_per_token));
            }
        }));
        let last = figures.borrow_and_update().clone();
        assert_eq!(last.speed.streamed_bytes_per_token, 0, "{source:?}: all is kept again");
        // The pass in which the raise came may be half over, the next one keeps the rest, the one after needs no disk.
        let late: Vec<_> = streamed.iter().filter(|(tokens, bytes)| *tokens > 4 && *bytes > 0).collect();
        assert!(late.is_empty(), "{source:?}: {streamed:?}");
    }
}

#[test]
fn the_program_is_measured_anew_when_a_conversation_ends_and_its_memory_goes_to_the_weights_again() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    memory::keep_heap_small();
    let folder = tempfile::tempdir().unwrap();
    let path = toy(folder.path(), &["--layers", "4", "--width", "256", "--type", "q8_0"]);
    let (mut engine, _) = Engine::loaded(request_of(&path, SourceKind::Buffered));
    let base_after = |engine: &mut Engine, n| {
        finished(engine.answer(request(tokens(n), 2)));
        engine.handle.snapshots().borrow().memory.base_bytes
    };
    let before = base_after(&mut engine, 8);
    // What a long text on the screen would take.
    let text = vec![1u8; 32 * MIB as usize];
    let with_text = base_after(&mut engine, 16);
    assert!(with_text >= before + 30 * MIB, "{before} bytes before, {with_text} with the text");
    drop(text);
    let conversation = base_after(&mut engine, 24);
    assert_eq!(conversation, with_text, "in the same conversation it may come back at any time");
    engine.handle.send(Command::Reset);
    let anew = base_after(&mut engine, 8);
    assert!(anew < before + 8 * MIB, "{before} bytes before, {anew} in the next conversation");
}
