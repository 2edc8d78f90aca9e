//! Budgets and the contexts they leave room for, through [`update`].

#![allow(clippy::unwrap_used, clippy::panic)]

use super::tests::{ready, texts, turns};
use super::*;
use crate::engine::protocol::*;
use crate::tui::app::Model;
use crate::tui::overlay::Overlay;
use crate::tui::picker;
use crate::tui::samples::{answer, engine, enter, press, request};

#[test]
fn the_budget_is_changed_in_mid_answer_by_command_and_by_key() {
    let mut app = ready();
    enter(&mut app, "tell a story");
    assert_eq!(enter(&mut app, "/budget 70M"), [Effect::SetBudget(Budget::Bytes(70 << 20))]);
    assert_eq!(
        press(&mut app, "alt-minus"),
        [Effect::SetBudget(Budget::Bytes(63 << 20))],
        "a step from what was asked"
    );
    engine(&mut app, Event::BudgetSet { budget: Budget::Bytes(63 << 20), bytes: 63 << 20 });
    assert!(app.said().unwrap().contains("63.0 MiB"));
    assert_eq!(enter(&mut app, "/budget 60%"), [Effect::SetBudget(Budget::Share(0.6))]);
    assert!(app.answer.is_some());
}

#[test]
fn budget_keys_stop_at_the_least_and_at_full_residency() {
    let mut app = ready();
    let asked: Vec<_> = (0..40).flat_map(|_| press(&mut app, "alt-minus")).collect();
    assert_eq!(asked.last(), Some(&Effect::SetBudget(Budget::Least)), "which is still the least as the chat grows");
    assert_eq!(app.budget_asked, Some(42 << 20));
    assert_eq!(press(&mut app, "alt-minus"), []);
    for _ in 0..40 {
        press(&mut app, "alt-=");
    }
    assert_eq!(app.budget_asked, Some(140 << 20));
}

#[test]
fn a_refused_budget_is_itemised_in_the_chat_and_the_answer_goes_on() {
    let mut app = ready();
    enter(&mut app, "tell a story");
    let shortfall = Shortfall {
        asked_bytes: 20 << 20,
        least_bytes: 42 << 20,
        lines: vec![LedgerLine { what: "base", bytes: 30 << 20 }, LedgerLine { what: "ring", bytes: 12 << 20 }],
    };
    let failure = Failure { kind: FailureKind::Budget, message: "too little".into(), shortfall: Some(shortfall) };
    engine(&mut app, Event::Failed(failure));
    assert!(
        texts(&app)[2].contains("base") && texts(&app)[2].contains("30.0 MiB") && texts(&app)[2].contains("42.0 MiB")
    );
    let effects = answer(&mut app, "Once.", FinishReason::Stop);
    assert!(!effects.is_empty());
    assert_eq!(texts(&app).last(), Some(&"Once."));
}

#[test]
fn the_budget_editor_slides_types_and_refuses() {
    let mut app = ready();
    enter(&mut app, "/budget");
    press(&mut app, "home");
    assert_eq!(press(&mut app, "enter"), [Effect::SetBudget(Budget::Least)]);
    enter(&mut app, "/budget");
    assert_eq!(enter(&mut app, "80M"), [Effect::SetBudget(Budget::Bytes(80 << 20))]);
    enter(&mut app, "/budget");
    assert_eq!(enter(&mut app, "lots"), []);
    assert!(matches!(&app.overlay, Some(Overlay::Budget(e)) if e.error.is_some()));
}

#[test]
fn a_budget_typed_under_the_least_is_left_by_a_step_up_only() {
    let mut app = ready();
    let mut figures = (*app.snapshot).clone();
    figures.memory.budget = Budget::Bytes(38 << 20);
    figures.memory.budget_bytes = 38 << 20;
    update(&mut app, Msg::Figures(figures.into()));
    assert_eq!(press(&mut app, "alt-minus"), []);
    assert_eq!(app.status.as_deref(), Some("budget 38.0 MiB: the least for a chat"));
    assert_eq!(press(&mut app, "alt-="), [Effect::SetBudget(Budget::Least)]);
}

#[test]
fn the_least_in_the_editor_is_the_least_of_now() {
    let mut app = ready();
    enter(&mut app, "/budget");
    press(&mut app, "home");
    let mut figures = (*app.snapshot).clone();
    figures.memory.least_bytes += 3 << 20;
    update(&mut app, Msg::Figures(figures.into()));
    let Some(Overlay::Budget(editor)) = &app.overlay else { panic!("the editor is open") };
    assert_eq!(edited_bytes(&app, editor), 45 << 20);
}

fn shown(app: &mut App) -> String {
    app.transcript.prepare(100, 100);
    app.transcript.window().map(|line| format!("{line}\n")).collect()
}

/// A snapshot of the same figures with another context.
fn holding(app: &App, context: u32) -> Msg {
    Msg::Figures(Snapshot { context, ..(*app.snapshot).clone() }.into())
}

#[test]
fn a_budget_that_changes_the_context_says_so() {
    let mut app = ready();
    enter(&mut app, "/budget 60M");
    engine(&mut app, Event::BudgetSet { budget: Budget::Bytes(60 << 20), bytes: 60 << 20 });
    assert_eq!(app.said().as_deref(), Some("budget 60.0 MiB"));
    let figures = holding(&app, 1696);
    update(&mut app, figures);
    let said = "budget 60.0 MiB; the context holds 1696 tokens now, before 4096";
    assert_eq!(app.said().as_deref(), Some(said));
    // It is the header's figure, whatever comes.
    let figures = holding(&app, 1664);
    update(&mut app, figures);
    let said = "budget 60.0 MiB; the context holds 1664 tokens now, before 4096";
    assert_eq!((app.said().as_deref(), app.context()), (Some(said), 1664));
    // Once a key has taken it away, later figures say nothing more.
    press(&mut app, "left");
    let figures = holding(&app, 1700);
    update(&mut app, figures);
    assert_eq!(app.said(), None);
}

#[test]
fn where_the_budget_limits_the_context_the_words_and_the_footer_name_it() {
    let mut app = ready();
    enter(&mut app, "one");
    answer(&mut app, "an answer", FinishReason::ContextFull);
    let note = |app: &App| texts(app).last().map(|t| (*t).to_owned()).unwrap_or_default();
    assert!(note(&app).starts_with("The context of 4096 tokens is full."), "{}", note(&app));
    assert!(shown(&mut app).contains("context full \u{b7} 7 tokens"), "{}", shown(&mut app));
    enter(&mut app, "two");
    let id = app.answer.as_ref().unwrap().id;
    engine(&mut app, Event::Text { id, text: "short".into() });
    let stats = Box::new(GenerationStats { context_by_budget: 192, generated_tokens: 1, ..GenerationStats::default() });
    engine(&mut app, Event::Finished { id, reason: FinishReason::ContextFull, stats });
    let said = "The context of 192 tokens, which is what the budget leaves room for, is full.";
    assert!(note(&app).starts_with(said), "{}", note(&app));
    let footer = "context full: the budget leaves room for 192 tokens \u{b7} 1 token \u{b7}";
    assert!(shown(&mut app).contains(footer), "{}", shown(&mut app));
}

#[test]
fn a_context_that_was_small_from_the_start_is_the_budgets_too() {
    let mut app = ready();
    if let Model::Ready(info) = &mut app.model {
        info.context = 928;
    }
    let figures = holding(&app, 928);
    update(&mut app, figures);
    assert!(app.context_bound().contains("the budget leaves room for"));
}

#[test]
fn steps_from_an_automatic_budget_begin_where_they_are_felt() {
    let mut app = ready();
    let mut figures = (*app.snapshot).clone();
    figures.memory.budget = Budget::Auto;
    figures.memory.budget_bytes = 20 << 30;
    update(&mut app, Msg::Figures(figures.into()));
    app.load.budget = Budget::Auto;
    // All is in memory from 140 MiB on: a tenth less is of that, and more than all is refused in words.
    assert_eq!(press(&mut app, "alt-="), []);
    assert_eq!(app.status.as_deref(), Some("budget 140.0 MiB: everything is in memory"));
    assert_eq!(press(&mut app, "alt-minus"), [Effect::SetBudget(Budget::Bytes(126 << 20))]);
    assert_eq!(press(&mut app, "alt-="), [Effect::SetBudget(Budget::Bytes(139 << 20))]);
}

#[test]
fn a_refused_budget_is_said_with_the_least_and_the_one_in_force_stays() {
    let mut app = ready();
    enter(&mut app, "one");
    enter(&mut app, "/budget 30M");
    let shortfall = Shortfall { asked_bytes: 30 << 20, least_bytes: 42 << 20, lines: Vec::new() };
    let message = "a budget of 30.0 MiB is under the 42.0 MiB that this model needs".into();
    engine(&mut app, Event::Failed(Failure { kind: FailureKind::Budget, message, shortfall: Some(shortfall) }));
    assert_eq!(app.status.as_deref(), Some("budget 30.0 MiB refused: the least that runs now is 42.0 MiB"));
    assert!(texts(&app).iter().any(|text| text.contains("/budget 43M")), "{:?}", texts(&app));
    assert_eq!((app.load.budget, app.budget_bytes()), (Budget::Bytes(96 << 20), 96 << 20));
}

#[test]
fn an_answer_that_filled_a_smaller_context_goes_on_where_there_is_room_again() {
    let mut app = ready();
    let figures = holding(&app, 512);
    update(&mut app, figures);
    enter(&mut app, "one");
    answer(&mut app, "so far", FinishReason::ContextFull);
    let full = Snapshot { context: 4096, context_used: 512, ..(*app.snapshot).clone() };
    update(&mut app, Msg::Figures(full.clone().into()));
    let effects = enter(&mut app, "/continue");
    assert_eq!(turns(request(&effects).unwrap()), [(Role::User, "one"), (Role::Assistant, "so far")]);
    assert!(!texts(&app).iter().any(|t| t.contains("no longer sent")), "{:?}", texts(&app));
    answer(&mut app, " and on", FinishReason::ContextFull);
    update(&mut app, Msg::Figures(Snapshot { context_used: 4096, ..full }.into()));
    enter(&mut app, "/continue");
    assert!(texts(&app).iter().any(|t| t.contains("nothing left to drop")), "{:?}", texts(&app));
}

#[test]
fn whether_a_model_fits_is_judged_by_the_budget_in_force() {
    let mut app = ready();
    let mut entry = crate::tui::samples::catalog().swap_remove(0);
    app.load.budget = Budget::Auto;
    assert_eq!(picker::fits(&app, &entry), Some(true));
    for small in [Budget::Bytes(40 << 20), Budget::Share(0.5), Budget::Least] {
        app.load.budget = small;
        assert_eq!((picker::fits(&app, &entry), picker::too_small_budget(&app, &entry)), (Some(false), true));
    }
    app.load.budget = Budget::Bytes(1 << 30);
    assert_eq!(picker::fits(&app, &entry), Some(true));
    entry.bytes = 100 << 30;
    app.load.budget = Budget::Auto;
    assert_eq!((picker::fits(&app, &entry), picker::too_small_budget(&app, &entry)), (Some(false), false));
}
