//! The layer map, a sign a layer, and what the layers cost.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{put_lines, titled};
use crate::engine::protocol::{LayerFigures, LayerState};
use crate::tui::app::App;
use crate::tui::figures::micros;
use crate::tui::overlay::SortBy;

/// Sign and style of a layer: what it does, else how much of it stays in memory.
pub(super) fn sign(app: &App, layer: &LayerFigures) -> (&'static str, Style) {
    let (g, t) = (&app.glyphs, &app.theme);
    let whole = layer.bytes > 0 && layer.pinned_bytes >= layer.bytes;
    match layer.state {
        LayerState::Computing => (g.layer_computing, t.computing),
        _ if whole => (g.layer_full, t.pinned),
        LayerState::Loading => (g.layer_loading, t.ring),
        LayerState::Cold if layer.pinned_bytes > 0 => (g.layer_part, t.pinned),
        LayerState::Cold => (g.layer_cold, t.cold),
    }
}

/// Share of the weights that stays in memory, such as `61%`.
pub(super) fn resident(app: &App) -> String {
    let sum = |f: fn(&LayerFigures) -> u64| app.snapshot.layers.iter().map(f).sum::<u64>();
    match sum(|l| l.bytes) {
        0 => "-".to_owned(),
        all => format!("{:.0}%", sum(|l| l.pinned_bytes.min(l.bytes)) as f64 / all as f64 * 100.0),
    }
}

/// The map over lines of `columns`, the layer walked to marked.
pub(super) fn map(app: &App, columns: u16, cursor: Option<usize>) -> Vec<Line<'static>> {
    let columns = usize::from(columns).max(1);
    let layers = &app.snapshot.layers;
    let signs: Vec<Span<'static>> = layers
        .iter()
        .enumerate()
        .map(|(i, layer)| {
            let (sign, style) = sign(app, layer);
            Span::styled(sign, if cursor == Some(i) { style.patch(app.theme.selection) } else { style })
        })
        .collect();
    signs.chunks(columns).map(|row| Line::from(row.to_vec())).collect()
}

/// Layers in the order of the table: the dearest first, or as they lie.
pub(crate) fn sorted(layers: &[LayerFigures], sort: SortBy) -> Vec<usize> {
    let mut order: Vec<usize> = (0..layers.len()).collect();
    let cost = |l: &LayerFigures| match sort {
        SortBy::Layer => 0,
        SortBy::Kept => l.pinned_bytes,
        SortBy::Read => l.read_us.into(),
        SortBy::Wait => l.wait_us.into(),
        SortBy::Compute => l.compute_us.into(),
        SortBy::MeanRead => l.mean_read_us.into(),
        SortBy::MeanWait => l.mean_wait_us.into(),
        SortBy::MeanCompute => l.mean_compute_us.into(),
    };
    order.sort_by_key(|&i| (std::cmp::Reverse(cost(&layers[i])), i));
    order
}

/// A layer's number; the entry after the last block is the head.
pub(super) fn name(app: &App, layer: usize) -> String {
    if layer + 1 == app.snapshot.layers.len() && layer > 0 { "head".to_owned() } else { layer.to_string() }
}

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect) {
    let right = format!("{} resident", resident(app));
    let mut lines = vec![titled("LAYERS", app.theme.title, vec![Span::raw(right)], area.width)];
    lines.extend(map(app, area.width, None));
    let rows = usize::from(area.height).saturating_sub(lines.len() + 1);
    let measured = app.snapshot.layers.iter().any(|l| l.compute_us > 0);
    if !measured && !app.snapshot.layers.is_empty() {
        lines.push(Line::styled("times come with an answer", app.theme.dim));
    } else if measured && rows > 0 {
        lines.push(Line::styled(format!("{:>4} {:>6} {:>6} {:>7}", "#", "read", "wait", "compute"), app.theme.dim));
        for i in window(app, rows) {
            let l = &app.snapshot.layers[i];
            let text = format!(
                "{:>4} {:>6} {:>6} {:>7}",
                name(app, i),
                micros(l.read_us),
                micros(l.wait_us),
                micros(l.compute_us)
            );
            let style = if l.state == LayerState::Computing { app.theme.computing } else { app.theme.text };
            lines.push(Line::styled(text, style));
        }
    }
    put_lines(frame, area, lines);
}

/// The layers that the table has room for: all, or the page with the layer under the kernels.
fn window(app: &App, rows: usize) -> std::ops::Range<usize> {
    let count = app.snapshot.layers.len();
    let computing = app.snapshot.layers.iter().position(|l| l.state == LayerState::Computing).unwrap_or(0);
    // Pages, not a window sliding with each layer: the table must be readable while it works.
    let first = (computing / rows * rows).min(count.saturating_sub(rows));
    first..count.min(first + rows)
}
