//! The layer map on the whole screen: a cursor to walk it, the tensors of the layer under it, and what every layer costs.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::zoom::held;
use super::{layers, put_lines};
use crate::engine::protocol::{LayerFigures, LayerState, LayerTensor};
use crate::size::format_size;
use crate::tui::app::App;
use crate::tui::figures::micros;
use crate::tui::overlay::SortBy;
use crate::tui::wrap::{text_width, truncate};

/// Columns of the times table, its headings and the width of each.
const TABLE: [(SortBy, &str, usize); 8] = [
    (SortBy::Layer, "#", 5),
    (SortBy::Kept, "kept", 6),
    (SortBy::Read, "read", 8),
    (SortBy::Wait, "wait", 8),
    (SortBy::Compute, "compute", 9),
    (SortBy::MeanRead, "mean read", 11),
    (SortBy::MeanWait, "wait", 8),
    (SortBy::MeanCompute, "compute", 9),
];
/// Columns of the table, and from where on the tensors stand beside it.
const TABLE_COLUMNS: u16 = 64;
const TENSOR_COLUMNS: u16 = 40;
/// Rows above the tensors: title, what is selected, headings and a few rows of the table.
const LEAST_TABLE_ROWS: u16 = 4;
const LEAST_TENSOR_ROWS: u16 = 3;

/// Where the parts of the page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub map: Rect,
    selected: Rect,
    tensors: Rect,
    /// The headings, then the rows.
    pub table: Rect,
}

/// The page's parts in `body` for so many layers, the selected one with so many tensors.
pub(crate) fn parts(body: Rect, layers: usize, tensors: usize) -> Parts {
    let part = |y: u16, height: u16| Rect { y, height: height.min(body.bottom().saturating_sub(y)), ..body };
    let map_rows = layers.div_ceil(usize::from(body.width.max(1))) as u16;
    let map = part(body.y + 1, map_rows);
    let roomy = body.height > map_rows + 12;
    let selected = part(map.bottom() + u16::from(roomy), 2);
    let beside = body.width >= TABLE_COLUMNS + TENSOR_COLUMNS;
    let top = selected.bottom() + u16::from(roomy);
    let left = body.bottom().saturating_sub(top);
    if beside {
        let table = Rect { width: TABLE_COLUMNS, ..part(top, left) };
        let tensors = Rect { x: body.x + TABLE_COLUMNS + 2, width: body.width - TABLE_COLUMNS - 2, ..table };
        return Parts { map, selected, tensors, table };
    }
    let across = (body.width / TENSOR_COLUMNS).max(1);
    let wanted = (tensors as u16).div_ceil(across);
    let room = left.saturating_sub(LEAST_TABLE_ROWS + 1);
    // A few of many tell nothing.
    let rows = if wanted <= room || room >= LEAST_TENSOR_ROWS { wanted.min(room) } else { 0 };
    let tensors = part(top, rows);
    let gap = u16::from(rows > 0);
    let table = part(top + rows + gap, left.saturating_sub(rows + gap));
    Parts { map, selected, tensors, table }
}

/// The first row that the table shows, so that the selected one is in sight.
pub(crate) fn first_row(order: &[usize], layer: usize, rows: usize) -> usize {
    let at = order.iter().position(|i| *i == layer).unwrap_or(0);
    (at + 1).saturating_sub(rows.max(1))
}

/// The column of the table at `x`, counted from its left edge.
pub(crate) fn column_at(x: u16) -> Option<SortBy> {
    let mut end = 0;
    TABLE
        .iter()
        .find(|(_, _, columns)| {
            end += columns;
            usize::from(x) < end
        })
        .map(|(sort, _, _)| *sort)
}

pub(super) fn draw(frame: &mut Frame, app: &App, body: Rect, layer: usize, sort: SortBy) {
    let t = &app.theme;
    let all = &app.snapshot.layers;
    let none = Vec::new();
    let tensors = app.info().and_then(|i| i.layer_tensors.get(layer)).unwrap_or(&none);
    let parts = parts(body, all.len(), tensors.len());
    let sum = |f: fn(&LayerFigures) -> u32| micros(all.iter().map(f).fold(0, u32::saturating_add));
    let mut title = vec![
        Span::styled("LAYERS", t.heading),
        Span::raw(format!("  {} resident{}", layers::resident(app), held(app))),
    ];
    if !all.is_empty() {
        let last = format!(
            "   last pass: {} read, {} waited, {} computed",
            sum(|l| l.read_us),
            sum(|l| l.wait_us),
            sum(|l| l.compute_us)
        );
        title.push(Span::styled(last, t.dim));
    }
    put_lines(frame, Rect { height: 1, ..body }, [Line::from(title)]);
    put_lines(frame, parts.map, layers::map(app, body.width, Some(layer)));
    if let Some(figures) = all.get(layer) {
        put_lines(frame, parts.selected, selected(app, layer, figures, body.width));
    }
    put_lines(frame, parts.tensors, tensor_lines(app, tensors, parts.tensors));
    put_lines(frame, parts.table, table(app, layer, sort, parts.table.height));
    let columns = usize::from(body.width.max(1));
    let cursor = (parts.map.x + (layer % columns) as u16, parts.map.y + (layer / columns) as u16);
    if cursor.1 < body.bottom() {
        frame.set_cursor_position(cursor);
    }
}

/// What is known of the layer under the cursor, in two lines.
fn selected(app: &App, layer: usize, l: &LayerFigures, columns: u16) -> Vec<Line<'static>> {
    let doing = match l.state {
        LayerState::Cold => "at rest",
        LayerState::Loading => "being read",
        LayerState::Computing => "under the kernels",
    };
    let name = match layers::name(app, layer).as_str() {
        "head" => "head".to_owned(),
        number => format!("layer {number}"),
    };
    let kept = format_size(l.pinned_bytes.min(l.bytes));
    let times =
        |read, wait, compute| format!("read {}, wait {}, compute {}", micros(read), micros(wait), micros(compute));
    let last = times(l.read_us, l.wait_us, l.compute_us);
    let mean = times(l.mean_read_us, l.mean_wait_us, l.mean_compute_us);
    let size = format_size(l.bytes);
    // The first wording that fits.
    let fitting = |wordings: [String; 3]| {
        let fits = |text: &String| text_width(text) <= usize::from(columns);
        let last = wordings[2].clone();
        wordings.into_iter().find(fits).unwrap_or(last)
    };
    let sizes = fitting([
        format!("{name}: {size}, {kept} kept in memory, {doing}"),
        format!("{name}: {size}, {kept} kept, {doing}"),
        format!("{name}: {kept} of {size} kept"),
    ]);
    let rest = sizes.strip_prefix(name.as_str()).unwrap_or_default().to_owned();
    let figures = fitting([
        format!("last {last}; mean {mean}"),
        format!("last {last}; mean {}", mean.replace("read ", "").replace(" wait ", " ").replace(" compute ", " ")),
        last,
    ]);
    vec![Line::from(vec![Span::styled(name, app.theme.title), Span::raw(rest)]), Line::styled(figures, app.theme.dim)]
}

/// The tensors, one below the other, in as many columns as there is room for.
fn tensor_lines(app: &App, tensors: &[LayerTensor], area: Rect) -> Vec<Line<'static>> {
    let rows = usize::from(area.height);
    if rows == 0 || tensors.is_empty() {
        return Vec::new();
    }
    let columns = usize::from(TENSOR_COLUMNS);
    let shapes = usize::from(area.width) >= columns + 16 && tensors.len() <= rows;
    let name_columns = 21;
    let row = |t: &LayerTensor| {
        let name = truncate(&t.name, name_columns - 1, app.glyphs.ellipsis);
        let mut text = format!("{name:name_columns$}{:7}{:>10}", t.ty, format_size(t.bytes));
        if shapes {
            let shape: Vec<String> = t.shape.iter().map(u64::to_string).collect();
            text.push_str(&format!("  {}", shape.join(" x ")));
        } else {
            text.push_str("  ");
        }
        text
    };
    let across = (usize::from(area.width) / columns).max(1);
    let shown = rows * across;
    let mut lines: Vec<String> = vec![String::new(); rows.min(tensors.len())];
    for (i, tensor) in tensors.iter().take(shown).enumerate() {
        lines[i % rows].push_str(&row(tensor));
    }
    if tensors.len() > shown
        && let Some(last) = lines.last_mut()
    {
        *last = format!("and {} more", tensors.len() + 1 - shown);
    }
    lines.into_iter().map(|l| Line::styled(l, app.theme.text)).collect()
}

fn table(app: &App, layer: usize, sort: SortBy, height: u16) -> Vec<Line<'static>> {
    let t = &app.theme;
    let heading = TABLE.iter().map(|(by, text, columns)| {
        let sorted = sort == *by && *by != SortBy::Layer;
        let text = if sorted { format!("{}{text}", app.glyphs.down) } else { (*text).to_owned() };
        Span::styled(format!("{text:>columns$}"), if sorted { t.title } else { t.dim })
    });
    let mut lines = vec![Line::from(heading.collect::<Vec<_>>())];
    let rows = usize::from(height).saturating_sub(1);
    let order = layers::sorted(&app.snapshot.layers, sort);
    let first = first_row(&order, layer, rows);
    for i in order.into_iter().skip(first).take(rows) {
        let l = &app.snapshot.layers[i];
        let kept = (l.pinned_bytes.min(l.bytes) * 100).checked_div(l.bytes).unwrap_or(0);
        let cells = [
            layers::name(app, i),
            format!("{kept}%"),
            micros(l.read_us),
            micros(l.wait_us),
            micros(l.compute_us),
            micros(l.mean_read_us),
            micros(l.mean_wait_us),
            micros(l.mean_compute_us),
        ];
        let text: String = TABLE.iter().zip(cells).map(|((_, _, columns), cell)| format!("{cell:>columns$}")).collect();
        let style = match l.state {
            _ if i == layer => t.selection,
            LayerState::Computing => t.computing,
            _ => t.text,
        };
        lines.push(Line::styled(text, style));
    }
    lines
}
