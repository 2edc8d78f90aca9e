//! The engine through its handle, on a tiny model: answers, cancels, budgets in mid-answer, the KV cache kept
//! between turns, failures that leave the chat alive.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/engine.rs"]
mod support;

use std::path::{Path, PathBuf};

use sipllm::engine::protocol::{
    Budget, Command, Event, FailureKind, FinishReason, LoadRequest, Message, Prompt, Request, Role, Sampling,
};
use support::{End, Engine, finished, load, request};

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/models/{name}.gguf"))
}

fn tokens(n: u32) -> Prompt {
    Prompt::Tokens((0..n).map(|i| (i * 37 + 5) % 256).collect())
}

#[test]
fn an_answer_has_as_many_tokens_as_asked_for_and_says_so() {
    let (mut engine, info) = Engine::loaded(load(model("llama")));
    assert_eq!((info.architecture.as_str(), info.layers, info.vocabulary), ("llama", 3, 288));
    let (_, reason, stats) = finished(engine.answer(request(tokens(20), 12)));
    assert_eq!(reason, FinishReason::Length);
    assert_eq!((stats.prompt_tokens, stats.generated_tokens, stats.prefill_passes), (20, 12, 1));
}

#[test]
fn a_turn_reads_only_the_tokens_that_the_cache_does_not_hold() {
    let (mut engine, _) = Engine::loaded(load(model("llama")));
    let Prompt::Tokens(first) = tokens(20) else { unreachable!() };
    finished(engine.answer(request(Prompt::Tokens(first.clone()), 1)));
    let longer: Vec<u32> = first.iter().copied().chain(100..110).collect();
    let (text, _, stats) = finished(engine.answer(request(Prompt::Tokens(longer.clone()), 6)));
    assert_eq!((stats.prompt_tokens, stats.reused_tokens), (30, 20));
    engine.handle.send(Command::Reset);
    let (fresh, _, stats) = finished(engine.answer(request(Prompt::Tokens(longer), 6)));
    assert_eq!(stats.reused_tokens, 0);
    assert_eq!(text, fresh);
}

#[test]
fn budgets_changed_at_random_during_an_answer_change_no_byte_of_it() {
    for name in ["llama", "mixtral", "gemma3"] {
        let (mut engine, _) = Engine::loaded(load(model(name)));
        let (expected, ..) = finished(engine.answer(request(tokens(40), 60)));
        engine.handle.send(Command::Reset);
        let least = engine.handle.snapshots().borrow().memory.least_bytes;
        let mut state = 7u64;
        let mut changes = 0;
        let (text, ..) = finished(engine.answer_while(request(tokens(40), 60), |handle, event| {
            if matches!(event, Event::Text { .. } | Event::Started { .. } | Event::BudgetSet { .. }) && changes < 200 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let budget = if state >> 63 == 0 { Budget::Least } else { Budget::Bytes(least + ((state >> 40) << 2)) };
                handle.set_budget(budget);
                changes += 1;
            }
        }));
        assert!(changes > 20, "{name}: only {changes} changes");
        assert_eq!(text, expected, "{name}");
    }
}

#[test]
fn a_budget_under_the_least_is_refused_with_the_list_and_the_answer_goes_on() {
    let (mut engine, _) = Engine::loaded(load(model("llama")));
    let mut refused = None;
    let mut asked = false;
    let (_, reason, stats) = finished(engine.answer_while(request(tokens(10), 30), |handle, event| {
        if matches!(event, Event::Started { .. }) && !asked {
            handle.set_budget(Budget::Bytes(1 << 20));
            asked = true;
        }
        if let Event::Failed(failure) = event {
            refused = Some(failure.clone());
        }
    }));
    assert_eq!((reason, stats.generated_tokens), (FinishReason::Length, 30));
    let refused = refused.expect("an answer to the budget");
    assert_eq!(refused.kind, FailureKind::Budget);
    let shortfall = refused.shortfall.expect("the list");
    assert_eq!(shortfall.asked_bytes, 1 << 20);
    assert_eq!(shortfall.lines.iter().map(|line| line.bytes).sum::<u64>(), shortfall.least_bytes);
}

#[test]
fn a_cancel_keeps_the_text_and_the_next_answer_is_whole() {
    let (mut engine, _) = Engine::loaded(load(model("llama")));
    let (expected, ..) = finished(engine.answer(request(tokens(10), 100)));
    engine.handle.send(Command::Reset);
    let (text, reason, _) = finished(engine.answer_while(request(tokens(10), 100), |handle, event| {
        if matches!(event, Event::Text { .. }) {
            handle.cancel();
        }
    }));
    assert_eq!(reason, FinishReason::Cancelled);
    assert!(!text.is_empty() && expected.starts_with(&text), "{text:?} begins {expected:?}");
    let (whole, reason, _) = finished(engine.answer(request(tokens(10), 100)));
    assert_eq!((whole, reason), (expected, FinishReason::Length));
}

#[test]
fn a_cancelled_prompt_leaves_the_cache_as_it_was() {
    let (mut engine, _) = Engine::loaded(LoadRequest { prefill_batch: Some(1), ..load(model("llama")) });
    let (_, reason, _) = finished(engine.answer_while(request(tokens(120), 1), |handle, event| {
        if matches!(event, Event::Started { .. }) {
            handle.cancel();
        }
    }));
    assert!(matches!(reason, FinishReason::Cancelled | FinishReason::Length));
    let (text, ..) = finished(engine.answer(request(tokens(120), 5)));
    engine.handle.send(Command::Reset);
    let (fresh, ..) = finished(engine.answer(request(tokens(120), 5)));
    assert_eq!(text, fresh);
}

#[test]
fn what_a_conversation_gone_back_no_longer_needs_is_given_back() {
    let (mut engine, _) = Engine::loaded(load(model("llama")));
    finished(engine.answer(request(tokens(100), 20)));
    let long = engine.handle.snapshots().borrow().memory.kv_bytes;
    finished(engine.answer(request(tokens(10), 2)));
    let short = engine.handle.snapshots().borrow().memory.kv_bytes;
    assert_eq!(long, 4 * short, "120 positions took four pages, 12 take one");
}

#[test]
fn a_prompt_that_cannot_fit_is_refused_before_it_is_cut_into_tokens() {
    let (mut engine, _) = Engine::loaded(load(model("llama")));
    let before = engine.handle.snapshots().borrow().memory.base_bytes;
    for prompt in [
        Prompt::Raw("word ".repeat(4 << 20)),
        Prompt::Chat(vec![Message { role: Role::User, content: "word ".repeat(4 << 20) }]),
    ] {
        let End::Broken(failure) = engine.answer(request(prompt, 1)) else { panic!("20 MiB fit 128 tokens") };
        assert_eq!(failure.kind, FailureKind::ContextFull, "{}", failure.message);
        assert!(failure.message.starts_with("the prompt has at least "), "{}", failure.message);
    }
    finished(engine.answer(request(tokens(10), 2)));
    let after = engine.handle.snapshots().borrow().memory.base_bytes;
    assert!(after < before + (16 << 20), "{before} bytes held before, {after} after");
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_and_a_shorter_one_works() {
    let (mut engine, _) = Engine::loaded(load(model("llama")));
    let End::Broken(failure) = engine.answer(request(tokens(129), 1)) else { panic!("not refused") };
    assert_eq!(failure.kind, FailureKind::ContextFull);
    assert!(failure.message.contains("129") && failure.message.contains("128"), "{}", failure.message);
    finished(engine.answer(request(tokens(128), 1)));
}

#[test]
fn an_answer_ends_when_the_context_is_full_and_says_why() {
    let (mut engine, _) = Engine::loaded(load(model("llama")));
    let (_, reason, stats) = finished(engine.answer(request(tokens(120), 100)));
    // Eight positions are left; the token after the last one needs none.
    assert_eq!((reason, stats.generated_tokens), (FinishReason::ContextFull, 9));
}

#[test]
fn a_chat_is_rendered_with_the_models_template_and_stops_at_its_end() {
    let (mut engine, info) = Engine::loaded(load(model("llama")));
    assert!(info.has_chat_template);
    let messages = vec![Message { role: Role::User, content: "hi".to_owned() }];
    let request = Request { stop_at_end: true, ..request(Prompt::Chat(messages), 20) };
    let (text, _, stats) = finished(engine.answer(request));
    assert!(stats.prompt_tokens > 5, "the template adds tokens of its own: {}", stats.prompt_tokens);
    assert!(!text.contains("<|im_end|>"));
}

#[test]
fn a_file_that_does_not_load_leaves_the_engine_ready_for_the_next() {
    let mut engine = Engine::new();
    let failure = engine.load(load(model("no-such-file"))).expect_err("there is no such file");
    assert_eq!(failure.kind, FailureKind::Load);
    assert!(failure.message.contains("no-such-file") && !failure.message.contains('\n'), "{}", failure.message);
    let End::Broken(failure) = engine.answer(request(tokens(3), 1)) else { panic!("there is no model") };
    assert_eq!(failure.kind, FailureKind::Request);
    engine.load(load(model("qwen2"))).unwrap();
    finished(engine.answer(request(tokens(3), 1)));
}

#[test]
fn a_token_outside_the_vocabulary_is_refused_in_words() {
    let (mut engine, _) = Engine::loaded(load(model("llama")));
    let End::Broken(failure) = engine.answer(request(Prompt::Tokens(vec![1, 9999]), 1)) else { panic!("not refused") };
    assert!(failure.message.contains("9999"), "{}", failure.message);
}

#[test]
fn a_stop_text_ends_the_answer_before_itself() {
    let (mut engine, _) = Engine::loaded(load(model("llama")));
    let (text, ..) = finished(engine.answer(request(tokens(10), 60)));
    let characters: Vec<char> = text.chars().collect();
    let stop: String = characters[10..12].iter().collect();
    engine.handle.send(Command::Reset);
    let request = Request { stop: vec![stop.clone()], ..request(tokens(10), 60) };
    let (cut, reason, _) = finished(engine.answer(request));
    assert_eq!(reason, FinishReason::Stop);
    assert_eq!(cut, text[..text.find(&stop).unwrap()]);
}

#[test]
fn the_same_seed_gives_the_same_answer_and_another_seed_another() {
    let (mut engine, _) = Engine::loaded(load(model("llama")));
    let mut with_seed = |seed| {
        engine.handle.send(Command::Reset);
        let sampling =
            Sampling { temperature: 1.5, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(seed), ..Sampling::default() };
        finished(engine.answer(Request { sampling, ..request(tokens(10), 40) })).0
    };
    let first = with_seed(1);
    assert_eq!(with_seed(1), first);
    assert_ne!(with_seed(2), first);
}
