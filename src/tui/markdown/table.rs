//! Tables: columns as wide as they need, or squeezed in proportion with their cells wrapped.

use pulldown_cmark::Alignment;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::Look;
use crate::tui::wrap::{Break, Run, text_width, wrap};

pub(super) struct Table {
    alignment: Vec<Alignment>,
    /// Rows of cells of runs, the head first.
    rows: Vec<Vec<Vec<Run>>>,
    row: Vec<Vec<Run>>,
    cell: Vec<Run>,
}

impl Table {
    pub(super) fn new(alignment: Vec<Alignment>) -> Self {
        Self { alignment, rows: Vec::new(), row: Vec::new(), cell: Vec::new() }
    }

    pub(super) fn add(&mut self, run: Run) {
        self.cell.push(run);
    }

    pub(super) fn end_cell(&mut self) {
        self.row.push(std::mem::take(&mut self.cell));
    }

    pub(super) fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
    }

    /// Widths of the columns for a total of `columns`, separators not counted.
    fn widths(&self, columns: usize) -> Vec<usize> {
        let count = self.alignment.len().max(1);
        let cell_width = |cell: &[Run]| cell.iter().map(|r| text_width(&r.text)).sum::<usize>();
        let mut widths = vec![1; count];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell_width(cell));
            }
        }
        // The widest gives way until all fit.
        let room = columns.saturating_sub(3 * (count - 1)).max(count);
        while widths.iter().sum::<usize>() > room {
            let Some(widest) = widths.iter_mut().max() else { break };
            *widest -= 1;
        }
        widths
    }

    pub(super) fn draw(self, columns: usize, look: Look) -> Vec<Line<'static>> {
        let widths = self.widths(columns);
        let mut lines = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            let cells: Vec<Vec<Line>> = widths
                .iter()
                .enumerate()
                .map(|(i, width)| {
                    let mut runs = row.get(i).cloned().unwrap_or_default();
                    if number == 0 {
                        runs.iter_mut().for_each(|r| r.style = r.style.patch(look.theme.strong));
                    }
                    wrap(&runs, *width, &[], &[], Break::Words)
                })
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(0);
            for i in 0..height {
                let mut spans: Vec<Span<'static>> = Vec::new();
                for (column, (lines, width)) in cells.iter().zip(&widths).enumerate() {
                    if column > 0 {
                        spans.push(Span::styled(format!(" {} ", look.glyphs.vertical), look.theme.dim));
                    }
                    let line = lines.get(i).cloned().unwrap_or_default();
                    self.place(column, line, *width, &mut spans);
                }
                lines.push(Line::from(spans));
            }
            if number == 0 {
                let rules: Vec<String> = widths
                    .iter()
                    .enumerate()
                    .map(|(i, w)| {
                        look.glyphs.horizontal.repeat(w + usize::from(i > 0) + usize::from(i + 1 < widths.len()))
                    })
                    .collect();
                let cross = if look.glyphs.is_ascii() { "+" } else { "┼" };
                lines.push(Line::styled(rules.join(cross), look.theme.dim));
            }
        }
        lines
    }

    fn place(&self, column: usize, line: Line<'static>, width: usize, spans: &mut Vec<Span<'static>>) {
        let used: usize = line.spans.iter().map(|s| text_width(&s.content)).sum();
        let missing = width.saturating_sub(used);
        let before = match self.alignment.get(column) {
            Some(Alignment::Right) => missing,
            Some(Alignment::Center) => missing / 2,
            _ => 0,
        };
        spans.push(Span::styled(" ".repeat(before), Style::new()));
        spans.extend(line.spans);
        spans.push(Span::styled(" ".repeat(missing - before), Style::new()));
    }
}
