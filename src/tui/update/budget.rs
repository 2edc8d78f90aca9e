//! Changing the budget: by keys, by typing, in the editor.

use super::Effects;
use crate::engine::protocol::{Budget, MemoryFigures};
use crate::size::{BudgetChange, format_budget, format_size, parse_budget_change};
use crate::tui::app::App;
use crate::tui::message::Effect;
use crate::tui::overlay::{BudgetEditor, Overlay};

/// A share more or less than the budget in force, kept between the least that runs and full residency.
pub(super) fn step(app: &mut App, share: f64) -> Effects {
    if let Some(Overlay::Budget(editor)) = &mut app.overlay {
        editor.typed.clear();
        editor.bytes = within(stepped(editor.bytes, share), &app.snapshot.memory);
        return Vec::new();
    }
    // What is beyond full residency is of no use: a step counts from where it begins to be felt.
    let current = match app.snapshot.memory.full_bytes {
        0 => app.budget_bytes(),
        full => app.budget_bytes().min(full),
    };
    if current == 0 {
        app.status = Some("no model is loaded: there is nothing to keep in memory yet".to_owned());
        return Vec::new();
    }
    let target = within(stepped(current, share), &app.snapshot.memory);
    if target == current {
        let (at, least) = (format_size(current), share < 0.0);
        app.status =
            Some(format!("budget {at}: {}", if least { "less does not run" } else { "everything is in memory" }));
        return Vec::new();
    }
    set(app, Budget::Bytes(target))
}

/// Says so where a new budget changed what the context holds.
pub(super) fn tell_context(app: &mut App) {
    let now = app.context();
    let Some(before) = app.context_before.take().filter(|before| *before != now) else { return };
    let text = format!("the context holds {now} tokens now, before {before}");
    app.status = Some(match app.status.take() {
        Some(said) if said.starts_with("budget ") => format!("{said}; {text}"),
        Some(other) => other,
        None => text,
    });
}

fn stepped(bytes: u64, share: f64) -> u64 {
    // Whole MiB, so that a step back undoes a step on in sight.
    let mebibytes = (bytes as f64 * (1.0 + share) / f64::from(1 << 20)).round().max(1.0);
    (mebibytes as u64) << 20
}

fn within(bytes: u64, memory: &MemoryFigures) -> u64 {
    let most = if memory.full_bytes > 0 { memory.full_bytes } else { u64::MAX };
    bytes.min(most).max(memory.least_bytes)
}

/// Asks the engine; without a model, for the next one loaded.
pub(super) fn set(app: &mut App, budget: Budget) -> Effects {
    app.load.budget = budget;
    // They were made for another one.
    app.forecasts.clear();
    if app.refused {
        return super::engine::load(app, app.load.path.clone());
    }
    if app.info().is_none() {
        app.status = Some(format!("budget {} for the next model", format_budget(budget)));
        return Vec::new();
    }
    if let Budget::Bytes(bytes) = budget {
        app.budget_asked = Some(bytes);
    }
    app.status = Some(format!("budget {} asked for", format_budget(budget)));
    vec![Effect::SetBudget(budget)]
}

/// `/budget` with what follows it.
pub(super) fn command(app: &mut App, argument: &str) -> Effects {
    if argument.is_empty() {
        return open_editor(app);
    }
    match parse_budget_change(argument) {
        Ok(change) => {
            let budget = absolute(app.budget_bytes(), change);
            set(app, budget)
        }
        Err(e) => {
            app.status = Some(e.to_string());
            Vec::new()
        }
    }
}

fn absolute(current: u64, change: BudgetChange) -> Budget {
    match change {
        BudgetChange::To(budget) => budget,
        BudgetChange::ByBytes(by) => Budget::Bytes(current.saturating_add_signed(by).max(1)),
        BudgetChange::ByShare(share) => Budget::Bytes(((current as f64) * (1.0 + share)).max(1.0) as u64),
    }
}

pub(super) fn open_editor(app: &mut App) -> Effects {
    if app.info().is_none() {
        app.status = Some("load a model first: the forecast is made for it (/budget 80M sets it unseen)".to_owned());
        return Vec::new();
    }
    app.overlay = Some(Overlay::Budget(BudgetEditor { bytes: app.budget_bytes(), typed: String::new(), error: None }));
    Vec::new()
}

/// The bytes that the editor shows: of what is typed where that is a size or share.
pub(crate) fn edited_bytes(app: &App, editor: &BudgetEditor) -> u64 {
    let typed = parse_budget_change(&editor.typed).ok().map(|c| absolute(app.budget_bytes(), c));
    let memory = &app.snapshot.memory;
    match typed {
        Some(Budget::Bytes(bytes)) => bytes,
        Some(Budget::Share(share)) => (memory.full_bytes as f64 * share) as u64,
        Some(Budget::Least) => memory.least_bytes,
        Some(Budget::Auto) => memory.available_bytes.saturating_add(memory.rss_bytes).min(memory.full_bytes),
        None => editor.bytes,
    }
}

/// Applies the editor's value.
pub(super) fn apply_editor(app: &mut App, editor: BudgetEditor) -> Effects {
    if editor.typed.is_empty() {
        return set(app, Budget::Bytes(editor.bytes));
    }
    match parse_budget_change(&editor.typed) {
        Ok(change) => {
            let budget = absolute(app.budget_bytes(), change);
            set(app, budget)
        }
        Err(e) => {
            app.overlay = Some(Overlay::Budget(BudgetEditor { error: Some(e.to_string()), ..editor }));
            Vec::new()
        }
    }
}
