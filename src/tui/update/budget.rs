//! Changing the budget: by keys, by typing, in the editor.

use super::Effects;
use crate::engine::protocol::{Budget, MemoryFigures};
use crate::size::{BudgetChange, format_budget, format_size, parse_budget_change};
use crate::tui::app::App;
use crate::tui::message::Effect;
use crate::tui::overlay::{BudgetEditor, Overlay};

/// A share more or less than the budget in force, kept between the least that runs and full residency.
pub(super) fn step(app: &mut App, share: f64) -> Effects {
    if let Some(Overlay::Budget(mut editor)) = app.overlay.take() {
        editor.chosen = within(stepped(edited_bytes(app, &editor), share), &app.snapshot.memory);
        editor.typed.clear();
        app.overlay = Some(Overlay::Budget(editor));
        return Vec::new();
    }
    let memory = &app.snapshot.memory;
    // What is beyond full residency is of no use: a step counts from where it begins to be felt.
    let current = match memory.full_bytes {
        0 => app.budget_bytes(),
        full => app.budget_bytes().min(full),
    };
    if current == 0 {
        app.status = Some("no model is loaded: there is nothing to keep in memory yet".to_owned());
        return Vec::new();
    }
    let target = within(stepped(current, share), memory);
    let to = match target {
        Budget::Bytes(bytes) => bytes,
        _ => memory.least_bytes,
    };
    // A budget that was typed may be under the least already.
    if (share < 0.0 && to >= current) || (share > 0.0 && to <= current) {
        let why = if share < 0.0 { "the least for a chat" } else { "everything is in memory" };
        app.status = Some(format!("budget {}: {why}", format_size(current)));
        return Vec::new();
    }
    set(app, target)
}

fn stepped(bytes: u64, share: f64) -> u64 {
    // Whole MiB, so that a step back undoes a step on in sight.
    let mebibytes = (bytes as f64 * (1.0 + share) / f64::from(1 << 20)).round().max(1.0);
    (mebibytes as u64) << 20
}

/// The budget at a place between the least and full residency.
pub(crate) fn within(bytes: u64, memory: &MemoryFigures) -> Budget {
    if bytes <= memory.least_bytes {
        return Budget::Least;
    }
    Budget::Bytes(if memory.full_bytes > 0 { bytes.min(memory.full_bytes) } else { bytes })
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
    app.context_before = Some(app.context());
    app.budget_asked = match budget {
        Budget::Bytes(bytes) => Some(bytes),
        Budget::Least => Some(app.snapshot.memory.least_bytes),
        Budget::Auto | Budget::Share(_) => app.budget_asked,
    };
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
    let chosen = match app.load.budget {
        Budget::Least => Budget::Least,
        _ => Budget::Bytes(app.budget_bytes()),
    };
    app.overlay = Some(Overlay::Budget(BudgetEditor { chosen, typed: String::new(), error: None }));
    Vec::new()
}

/// The budget that the editor shows: of what is typed where that is one.
pub(crate) fn edited(app: &App, editor: &BudgetEditor) -> Budget {
    parse_budget_change(&editor.typed).map_or(editor.chosen, |change| absolute(app.budget_bytes(), change))
}

/// The bytes that it means.
pub(crate) fn edited_bytes(app: &App, editor: &BudgetEditor) -> u64 {
    let memory = &app.snapshot.memory;
    match edited(app, editor) {
        Budget::Bytes(bytes) => bytes,
        Budget::Share(share) => (memory.full_bytes as f64 * share) as u64,
        Budget::Least => memory.least_bytes,
        Budget::Auto => memory.available_bytes.saturating_add(memory.rss_bytes).min(memory.full_bytes),
    }
}

/// Applies the editor's value.
pub(super) fn apply_editor(app: &mut App, editor: BudgetEditor) -> Effects {
    match parse_budget_change(&editor.typed) {
        Err(e) if !editor.typed.is_empty() => {
            app.overlay = Some(Overlay::Budget(BudgetEditor { error: Some(e.to_string()), ..editor }));
            Vec::new()
        }
        _ => {
            let budget = edited(app, &editor);
            set(app, budget)
        }
    }
}
