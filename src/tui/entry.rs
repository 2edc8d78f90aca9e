//! One entry of the transcript: a message or a note of the program, and its lines once laid out.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::glyphs::Glyphs;
use super::markdown::{self, Block, Look};
use super::theme::Theme;
use super::wrap::{Break, Run, text_width, wrap};
use crate::engine::protocol::{FinishReason, GenerationStats, Role};
use crate::session::ChatMessage;
use crate::size::format_size;

/// What the program itself says in the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    Notice,
    Error,
    /// Kept as it is: lists and tables made by the program.
    Listing,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Message(ChatMessage),
    Note(NoteKind, String),
}

/// Lines of an entry, as far as they are up to date.
#[derive(Clone, Debug)]
struct LaidOut {
    columns: u16,
    lines: Vec<Line<'static>>,
    /// Lines made from the first `stable_bytes` of the text, which no addition changes; code blocks among them.
    stable_lines: usize,
    stable_bytes: usize,
    stable_code: usize,
    /// Where the answer begins after what the model thought.
    answer_at: usize,
    fresh: bool,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub body: Body,
    /// Code blocks in all entries before this one.
    pub code_before: usize,
    /// The answer is still being written.
    pub live: bool,
    layout: Option<LaidOut>,
}

/// Opening and closing marks of what a model thinks before it answers.
const THINK: (&str, &str) = ("<think>", "</think>");

/// Splits an answer into what was thought (with whether that is over) and where the answer begins.
fn thinking(text: &str) -> Option<(&str, bool, usize)> {
    let start = text.len() - text.trim_start().len();
    let inner = start + THINK.0.len();
    if !text[start..].starts_with(THINK.0) {
        return None;
    }
    match text[inner..].find(THINK.1) {
        Some(length) => Some((&text[inner..inner + length], true, inner + length + THINK.1.len())),
        None => Some((&text[inner..], false, text.len())),
    }
}

/// The answer without what was thought before it.
pub fn answer_only(text: &str) -> &str {
    match thinking(text) {
        Some((_, _, at)) => text[at..].trim_start(),
        None => text,
    }
}

impl Entry {
    pub fn message(message: ChatMessage) -> Self {
        Self { body: Body::Message(message), code_before: 0, live: false, layout: None }
    }

    pub fn note(kind: NoteKind, text: impl Into<String>) -> Self {
        Self { body: Body::Note(kind, text.into()), code_before: 0, live: false, layout: None }
    }

    pub fn text(&self) -> &str {
        match &self.body {
            Body::Message(message) => &message.content,
            Body::Note(_, text) => text,
        }
    }

    pub fn as_message(&self) -> Option<&ChatMessage> {
        match &self.body {
            Body::Message(message) => Some(message),
            Body::Note(..) => None,
        }
    }

    fn is_answer(&self) -> bool {
        self.as_message().is_some_and(|m| m.role == Role::Assistant)
    }

    pub fn code_blocks(&self) -> usize {
        if self.is_answer() { markdown::count_code(answer_only(self.text())) } else { 0 }
    }

    /// Code block `number` of this answer, from 1.
    pub fn code_block(&self, number: usize) -> Option<String> {
        if !self.is_answer() {
            return None;
        }
        markdown::code_blocks(answer_only(self.text())).nth(number.checked_sub(1)?)
    }

    /// Whether a line is the fold of what was thought.
    pub fn is_fold(&self, line: usize) -> bool {
        line == 1 && self.is_answer() && thinking(self.text()).is_some_and(|(t, over, _)| !over || !t.trim().is_empty())
    }

    /// The number in the tag of a code block, if that is what the line is.
    pub fn code_tag(&self, line: usize, glyphs: &Glyphs) -> Option<usize> {
        let text = self.lines()?.get(line)?.to_string();
        let tag = text.trim().strip_prefix(glyphs.code_bar)?.trim().strip_suffix(']')?;
        let (language, number) = tag.rsplit_once('[')?;
        let number = number.parse().ok()?;
        let ours = self.code_before + 1..=self.code_before + self.code_blocks();
        (!language.trim().contains(' ') && ours.contains(&number)).then_some(number)
    }

    /// The text grew, or its state changed.
    pub fn touch(&mut self) {
        if let Some(layout) = &mut self.layout {
            layout.fresh = false;
        }
    }

    pub fn forget_layout(&mut self) {
        self.layout = None;
    }

    /// Lines as they were last laid out.
    pub fn lines(&self) -> Option<&[Line<'static>]> {
        self.layout.as_ref().map(|l| l.lines.as_slice())
    }

    /// Brings the lines up to date and returns how many there are.
    pub fn lay_out(&mut self, columns: u16, theme: &Theme, glyphs: &Glyphs, unfold: bool) -> usize {
        let look = Look { theme, glyphs };
        let previous = self.layout.take().filter(|l| l.columns == columns);
        let layout = match previous {
            Some(layout) if layout.fresh => layout,
            previous => match &self.body {
                Body::Note(kind, text) => fixed(columns, note(*kind, text, columns, look)),
                Body::Message(m) if m.role == Role::Assistant => self.answer(m, previous, columns, unfold, look),
                Body::Message(m) => fixed(columns, said(m, columns, look)),
            },
        };
        let count = layout.lines.len();
        self.layout = Some(layout);
        count
    }

    fn answer(
        &self,
        message: &ChatMessage,
        previous: Option<LaidOut>,
        columns: u16,
        unfold: bool,
        look: Look,
    ) -> LaidOut {
        let text = message.content.as_str();
        let thought = thinking(text);
        let answer_at = thought.map_or(0, |t| t.2);
        let wide = usize::from(columns).saturating_sub(INDENT.len()).max(1);
        let mut layout = match previous.filter(|l| l.answer_at == answer_at && thought.is_none_or(|t| t.1)) {
            Some(mut layout) => {
                layout.lines.truncate(layout.stable_lines);
                layout
            }
            None => {
                let mut lines = vec![head("assistant", look.theme.assistant)];
                if let Some((thought, over, _)) = thought {
                    lines.extend(thought_lines(thought, over, unfold, wide, look));
                }
                LaidOut {
                    columns,
                    stable_lines: lines.len(),
                    lines,
                    stable_bytes: answer_at,
                    stable_code: 0,
                    answer_at,
                    fresh: true,
                }
            }
        };
        let first = layout.stable_lines;
        let base = layout.stable_bytes;
        let mut code = layout.stable_code;
        for piece in markdown::blocks(&text[base..]) {
            let is_code = matches!(piece.block, Block::Code { .. });
            let drawn = markdown::draw(&piece.block, self.code_before + code + 1, wide, look);
            code += usize::from(is_code);
            let blank = matches!(piece.block, Block::Prose(text) if text.trim().is_empty());
            if !blank {
                if layout.lines.len() > 1 && (layout.lines.len() > first || base > answer_at) {
                    layout.lines.push(Line::default());
                }
                layout.lines.extend(drawn.into_iter().map(indented));
            }
            if piece.closed {
                layout.stable_lines = layout.lines.len();
                layout.stable_bytes = base + piece.end;
                layout.stable_code = code;
            }
        }
        layout.lines.extend(footer(message, self.live, wide, look).into_iter().map(indented));
        layout.lines.push(Line::default());
        layout.fresh = true;
        layout
    }
}

const INDENT: &str = "  ";

fn fixed(columns: u16, lines: Vec<Line<'static>>) -> LaidOut {
    LaidOut { columns, lines, stable_lines: 0, stable_bytes: 0, stable_code: 0, answer_at: 0, fresh: true }
}

fn head(who: &str, style: Style) -> Line<'static> {
    Line::styled(who.to_owned(), style)
}

fn indented(mut line: Line<'static>) -> Line<'static> {
    line.spans.insert(0, Span::raw(INDENT));
    line
}

fn said(message: &ChatMessage, columns: u16, look: Look) -> Vec<Line<'static>> {
    let (who, style) = match message.role {
        Role::System => ("system", look.theme.notice),
        _ => ("you", look.theme.user),
    };
    let mut lines = vec![head(who, style)];
    lines.extend(markdown::plain(&message.content, look.theme.text, usize::from(columns), INDENT));
    lines.push(Line::default());
    lines
}

fn note(kind: NoteKind, text: &str, columns: u16, look: Look) -> Vec<Line<'static>> {
    let columns = usize::from(columns);
    let (mark, style) = match kind {
        NoteKind::Notice => (look.glyphs.dot, look.theme.notice),
        NoteKind::Error => ("!", look.theme.error),
        NoteKind::Listing => (" ", look.theme.text),
    };
    let (first, rest) = ([Run::new(format!("{mark} "), style)], [Run::new(INDENT, style)]);
    let mut lines = if kind == NoteKind::Listing {
        // Columns stay where they are; only what does not fit is laid out as words.
        let fits = |line: &str| text_width(line) + INDENT.len() <= columns;
        let at = |line: &str| if fits(line) { Break::Anywhere } else { Break::Words };
        text.split('\n').flat_map(|line| wrap(&[Run::new(line, style)], columns, &rest, &rest, at(line))).collect()
    } else {
        wrap(&[Run::new(text, style)], columns, &first, &rest, Break::Words)
    };
    lines.push(Line::default());
    lines
}

fn thought_lines(text: &str, over: bool, unfold: bool, columns: usize, look: Look) -> Vec<Line<'static>> {
    let words = text.split_whitespace().count();
    if words == 0 && over {
        return Vec::new();
    }
    let mark = if unfold { look.glyphs.unfolded } else { look.glyphs.folded };
    let title = match (over, unfold) {
        (false, _) => format!("{mark} thinking, {words} words so far"),
        (true, true) => format!("{mark} thought, {words} words"),
        (true, false) => format!("{mark} thought, {words} words (/think unfolds)"),
    };
    let mut lines = vec![indented(Line::styled(title, look.theme.dim))];
    if unfold {
        let bar = format!("{} ", look.glyphs.code_bar);
        lines.extend(markdown::plain(text.trim(), look.theme.dim, columns, &bar).into_iter().map(indented));
    }
    lines
}

/// `42 tokens · 14.2 tok/s · first after 0.8 s · 12.1 MiB read`
pub fn summary(stats: &GenerationStats, dot: &str) -> String {
    let read = stats.prefill_streamed_bytes + stats.decode_streamed_bytes;
    format!(
        "{} tokens {dot} {} tok/s {dot} first after {:.1} s {dot} {} read",
        stats.generated_tokens,
        super::figures::rate(stats.decode_tok_s as f32),
        stats.ttft_s,
        format_size(read),
    )
}

fn footer(message: &ChatMessage, live: bool, columns: usize, look: Look) -> Vec<Line<'static>> {
    if live {
        return Vec::new();
    }
    let mut parts = Vec::new();
    match message.reason {
        Some(FinishReason::Cancelled) => parts.push("stopped".to_owned()),
        Some(FinishReason::Length) => parts.push("length limit reached, /continue goes on".to_owned()),
        Some(FinishReason::ContextFull) => parts.push("context full".to_owned()),
        Some(FinishReason::Stop) | None => {}
    }
    if let Some(stats) = &message.stats {
        parts.push(summary(stats, look.glyphs.dot));
    }
    if parts.is_empty() {
        return Vec::new();
    }
    let text = parts.join(&format!(" {} ", look.glyphs.dot));
    wrap(&[Run::new(text, look.theme.dim)], columns, &[], &[], Break::Words)
}
