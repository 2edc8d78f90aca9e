//! What lies under a place on the screen, for the mouse: the layout of the views, read backwards.

use ratatui::layout::{Position, Rect};

use super::{areas, budget, composer, is_too_small, layer_page, layers, overlay_area, panel_parts, pickers};
use crate::engine::protocol::Budget;
use crate::tui::app::App;
use crate::tui::composer::rows;
use crate::tui::overlay::{Overlay, Panel, SortBy};

/// A thing that can be clicked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Hit {
    /// An offer above the composer.
    Offer(usize),
    /// A place in the message: row and column of the text as it is wrapped.
    Composer {
        row: usize,
        column: usize,
    },
    /// The line that says how far the end is.
    End,
    /// A row of the chat's window.
    Chat(usize),
    Panel(Panel),
    /// The model's name in the header.
    Model,
    /// A row of a list, as an index into its matches.
    Row(usize),
    Layer(usize),
    /// A heading of the layers' table.
    Sort(SortBy),
    /// A place on the budget's slider.
    Slider(Budget),
}

pub(crate) fn hit(app: &App, x: u16, y: u16) -> Option<Hit> {
    if is_too_small(app) {
        return None;
    }
    let at = Position { x, y };
    if let Some(overlay) = &app.overlay {
        return in_overlay(app, overlay, overlay_area(app), at);
    }
    let areas = areas(app);
    if let Some((offers, first)) = composer::popup_area(app, areas.composer).filter(|(area, _)| area.contains(at)) {
        return Some(Hit::Offer(first + usize::from(y - offers.y)));
    }
    if areas.composer.contains(at) {
        let columns = super::composer_columns(app);
        let (row, _) = app.composer.cursor_at(columns);
        let first = composer::first_row(row, rows(app.composer.text(), columns).len(), areas.composer.height.into());
        let column = usize::from(x.saturating_sub(areas.composer.x + super::PROMPT_COLUMNS));
        return Some(Hit::Composer { row: first + usize::from(y - areas.composer.y), column });
    }
    if let Some(panel) = areas.panel.filter(|p| p.contains(at)) {
        let part = panel_parts(app, panel).into_iter().find(|(_, part)| part.contains(at));
        return part.map(|(panel, _)| Hit::Panel(panel));
    }
    if areas.chat.contains(at) {
        return Some(Hit::Chat(usize::from(y - areas.chat.y)));
    }
    let edge = areas.rule.map(|r| r.y).or(areas.frame.map(|f| f.bottom() - 1));
    if Some(y) == edge {
        return Some(Hit::End);
    }
    if areas.figures.is_some_and(|f| f.contains(at)) {
        return Some(Hit::Panel(Panel::Memory));
    }
    (areas.header.contains(at) && x < areas.header.width / 2).then_some(Hit::Model)
}

fn in_overlay(app: &App, overlay: &Overlay, area: Rect, at: Position) -> Option<Hit> {
    let row = |picker: &crate::tui::overlay::Picker, height: u16| {
        let line = at.y.checked_sub(area.y + 1).filter(|line| *line < height)?;
        let index = pickers::first_row(picker, height) + usize::from(line);
        (index < picker.matches.len()).then_some(Hit::Row(index))
    };
    match overlay {
        Overlay::Models(picker) => row(picker, pickers::model_rows(app, area)),
        Overlay::Chats(picker) => row(picker, pickers::chat_rows(app, area)),
        Overlay::Budget(_) => budget::slider_budget(app, area, at).map(Hit::Slider),
        Overlay::Zoom { panel: Panel::Layers, layer, sort } => {
            let body = super::zoom::body(area);
            let all = &app.snapshot.layers;
            let tensors = app.info().and_then(|i| i.layer_tensors.get(*layer)).map_or(0, Vec::len);
            let parts = layer_page::parts(body, all.len(), tensors);
            if parts.map.contains(at) {
                let index = usize::from(at.y - parts.map.y) * usize::from(body.width) + usize::from(at.x - body.x);
                return (index < all.len()).then_some(Hit::Layer(index));
            }
            if !parts.table.contains(at) {
                return None;
            }
            if at.y == parts.table.y {
                return layer_page::column_at(at.x - parts.table.x).map(Hit::Sort);
            }
            let order = layers::sorted(all, *sort);
            let first = layer_page::first_row(&order, *layer, usize::from(parts.table.height) - 1);
            order.get(first + usize::from(at.y - parts.table.y) - 1).copied().map(Hit::Layer)
        }
        Overlay::Zoom { .. } | Overlay::Help { .. } => None,
    }
}
