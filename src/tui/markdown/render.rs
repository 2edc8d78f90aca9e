//! Prose blocks: headings, lists, quotes, rules, links and emphasis.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::Look;
use super::table::Table;
use crate::tui::wrap::{Break, Run, wrap};

/// Deeper than this, lists and quotes are drawn no further in.
const MAX_DEPTH: usize = 12;

pub(super) fn prose(text: &str, columns: usize, look: Look) -> Vec<Line<'static>> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut prose = Prose::new(columns, look);
    for event in Parser::new_ext(text, options) {
        prose.event(event);
    }
    prose.flush();
    prose.lines
}

struct Prose<'a> {
    columns: usize,
    look: Look<'a>,
    lines: Vec<Line<'static>>,
    runs: Vec<Run>,
    style: Vec<Style>,
    /// What each line begins with, one entry a level of quote or list.
    indent: Vec<Run>,
    /// What stands in place of the innermost indent on the next line: a bullet or number.
    marker: Option<Run>,
    lists: Vec<Option<u64>>,
    link: Option<(String, String)>,
    table: Option<Table>,
    /// A blank line is due before the next paragraph.
    gap: bool,
}

impl<'a> Prose<'a> {
    fn new(columns: usize, look: Look<'a>) -> Self {
        Self {
            columns,
            look,
            lines: Vec::new(),
            runs: Vec::new(),
            style: vec![look.theme.text],
            indent: Vec::new(),
            marker: None,
            lists: Vec::new(),
            link: None,
            table: None,
            gap: false,
        }
    }

    fn current(&self) -> Style {
        self.style.last().copied().unwrap_or_default()
    }

    fn nest(&mut self, style: Style) {
        let nested = self.current().patch(style);
        self.style.push(nested);
    }

    fn unnest(&mut self) {
        if self.style.len() > 1 {
            self.style.pop();
        }
    }

    fn add(&mut self, text: &str, style: Style) {
        // Entities such as `&#27;` have only now become what they stand for.
        let text = &*crate::sanitize::sanitize(text);
        if let Some((_, shown)) = &mut self.link {
            shown.push_str(text);
        }
        match &mut self.table {
            Some(table) => table.add(Run::new(text, style)),
            None => self.runs.push(Run::new(text, style)),
        }
    }

    /// Lays out what has been gathered.
    fn flush(&mut self) {
        if self.runs.is_empty() && self.marker.is_none() {
            return;
        }
        if std::mem::take(&mut self.gap) && !self.lines.is_empty() {
            let bars: Vec<Run> = self.indent.iter().filter(|r| !r.text.trim().is_empty()).cloned().collect();
            self.lines.extend(wrap(&[], self.columns, &bars, &[], Break::Words));
        }
        let rest: Vec<Run> = self.indent.iter().take(MAX_DEPTH).cloned().collect();
        let mut first = rest.clone();
        if let Some(marker) = self.marker.take()
            && let Some(last) = first.last_mut()
        {
            *last = marker;
        }
        let runs = std::mem::take(&mut self.runs);
        self.lines.extend(wrap(&runs, self.columns, &first, &rest, Break::Words));
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                let style = self.current();
                self.add(text.trim_end_matches('\n'), style);
            }
            Event::Code(text) => self.add(&text, self.look.theme.code),
            Event::SoftBreak => self.add(" ", self.current()),
            Event::HardBreak => self.add("\n", self.current()),
            Event::Rule => {
                self.flush();
                let rule = self.look.glyphs.horizontal.repeat(self.columns);
                self.lines.push(Line::styled(rule, self.look.theme.dim));
            }
            Event::TaskListMarker(done) => self.add(if done { "[x] " } else { "[ ] " }, self.current()),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.add(&text, self.look.theme.code),
            Event::FootnoteReference(text) => self.add(&format!("[{text}]"), self.look.theme.dim),
        }
    }

    fn start(&mut self, tag: Tag) {
        let (theme, glyphs) = (self.look.theme, self.look.glyphs);
        match tag {
            Tag::Paragraph => {}
            Tag::Heading { .. } => {
                self.flush();
                self.nest(theme.heading);
            }
            Tag::BlockQuote(_) => {
                self.flush();
                self.indent.push(Run::new(format!("{} ", glyphs.quote), theme.quote));
                self.nest(theme.quote);
            }
            Tag::List(start) => {
                self.flush();
                self.gap = false;
                self.lists.push(start);
            }
            Tag::Item => {
                self.flush();
                self.gap = false;
                let marker = match self.lists.last_mut() {
                    Some(Some(n)) => {
                        let text = format!("{n}. ");
                        *n += 1;
                        text
                    }
                    _ => format!("{} ", glyphs.bullet),
                };
                self.indent.push(Run::new(" ".repeat(marker.chars().count()), theme.text));
                self.marker = Some(Run::new(marker, theme.key));
            }
            Tag::Emphasis => self.nest(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.nest(theme.strong),
            Tag::Strikethrough => self.nest(Style::new().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.nest(theme.link);
                self.link = Some((dest_url.to_string(), String::new()));
            }
            Tag::CodeBlock(_) => {
                self.flush();
                self.nest(theme.code);
            }
            Tag::Table(alignment) => {
                self.flush();
                self.table = Some(Table::new(alignment));
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.flush();
                self.gap = true;
            }
            TagEnd::Heading(_) => {
                self.flush();
                self.unnest();
                self.gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.indent.pop();
                self.unnest();
                self.gap = true;
            }
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
                self.gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                self.indent.pop();
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => self.unnest(),
            TagEnd::Link | TagEnd::Image => {
                self.unnest();
                if let Some((url, shown)) = self.link.take()
                    && !url.is_empty()
                    && url.trim_start_matches("mailto:") != shown
                {
                    self.add(&format!(" ({url})"), self.look.theme.dim);
                }
            }
            TagEnd::CodeBlock => {
                self.flush();
                self.unnest();
                self.gap = true;
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    self.lines.extend(table.draw(self.columns, self.look));
                }
                self.gap = true;
            }
            TagEnd::TableCell => {
                if let Some(table) = &mut self.table {
                    table.end_cell();
                }
            }
            TagEnd::TableRow | TagEnd::TableHead => {
                if let Some(table) = &mut self.table {
                    table.end_row();
                }
            }
            _ => {}
        }
    }
}
