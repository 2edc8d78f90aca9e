//! The lines of an entry's parts.

use ratatui::text::{Line, Span};

use super::parts::Part;
use super::{Body, Entry, NoteKind};
use crate::engine::protocol::{FinishReason, GenerationStats, Role};
use crate::session::ChatMessage;
use crate::size::format_size;
use crate::tui::markdown::{self, Block, Look};
use crate::tui::wrap::{Break, Run, text_width, truncate, wrap};
use crate::words::counted;

const INDENT: &str = "  ";

/// What lines are laid out for.
#[derive(Clone, Copy)]
pub struct Page<'a> {
    pub columns: u16,
    pub look: Look<'a>,
    /// What was thought is shown, not only its title.
    pub unfold: bool,
}

/// Lays out one part.
pub(super) fn lay_out(entry: &Entry, part: &Part, page: Page) -> Vec<Line<'static>> {
    let Page { columns, look, unfold } = page;
    let message = match &entry.body {
        Body::Message(message) => message,
        Body::Note(kind, text) => return note(*kind, text, usize::from(columns), look),
    };
    let text = message.content.as_str();
    let inner = usize::from(columns).saturating_sub(INDENT.len()).max(1);
    let plain = |range: &std::ops::Range<usize>| {
        let text = &text[range.clone()];
        text.strip_suffix('\n').unwrap_or(text)
    };
    match part {
        Part::Head => head(entry, message, inner, page),
        Part::Plain(range) => markdown::plain(plain(range), look.theme.text, usize::from(columns), INDENT),
        Part::Thought(_) if !unfold => Vec::new(),
        Part::Thought(range) => {
            let bar = format!("{} ", look.glyphs.code_bar);
            indented(markdown::plain(plain(range), look.theme.dim, inner, &bar))
        }
        Part::Blocks { range, code, first } => {
            blocks(&text[range.clone()], entry.code_before + code, *first, inner, look)
        }
        Part::Code { lines, language, indent, code, begins, first } => {
            let mut out = Vec::new();
            if *begins {
                out.extend((!first).then(Line::default));
                out.push(markdown::code_tag(&text[language.clone()], entry.code_before + code + 1, inner, look));
            }
            out.extend(markdown::code(&text[lines.clone()], *indent, inner, look));
            indented(out)
        }
        Part::Note => Vec::new(),
        Part::Foot => {
            let mut lines = indented(footer(message, entry.live, inner, look));
            lines.push(Line::default());
            lines
        }
    }
}

/// Blocks with a blank line between each two, and before them where they are not the `first`.
fn blocks(text: &str, mut code: usize, mut first: bool, columns: usize, look: Look) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for piece in markdown::blocks(text) {
        if matches!(piece.block, Block::Prose(prose) if prose.trim().is_empty()) {
            continue;
        }
        lines.extend((!std::mem::take(&mut first)).then(Line::default));
        lines.extend(indented(markdown::draw(&piece.block, code + 1, columns, look)));
        code += usize::from(matches!(piece.block, Block::Code { .. }));
    }
    lines
}

fn indented(mut lines: Vec<Line<'static>>) -> Vec<Line<'static>> {
    lines.iter_mut().filter(|line| !line.spans.is_empty()).for_each(|line| line.spans.insert(0, Span::raw(INDENT)));
    lines
}

fn head(entry: &Entry, message: &ChatMessage, columns: usize, page: Page) -> Vec<Line<'static>> {
    let look = page.look;
    let (who, style) = match message.role {
        Role::System => ("system", look.theme.notice),
        Role::Assistant => ("assistant", look.theme.assistant),
        _ => ("you", look.theme.user),
    };
    let mut lines = vec![Line::styled(who.to_owned(), style)];
    if let Some((thought, over)) = entry.thought() {
        lines.extend(indented(title(thought, over, columns, page).into_iter().collect()));
    }
    lines
}

/// The line that stands for what was thought.
fn title(thought: &str, over: bool, columns: usize, page: Page) -> Option<Line<'static>> {
    let words = thought.split_whitespace().count();
    if words == 0 && over {
        return None;
    }
    let words = counted(words, "word");
    let glyphs = page.look.glyphs;
    let mark = if page.unfold { glyphs.unfolded } else { glyphs.folded };
    let title = match (over, page.unfold) {
        (false, _) => format!("{mark} thinking, {words} so far"),
        (true, true) => format!("{mark} thought, {words}"),
        (true, false) => format!("{mark} thought, {words} (/think unfolds)"),
    };
    Some(Line::styled(truncate(&title, columns, glyphs.ellipsis), page.look.theme.dim))
}

fn note(kind: NoteKind, text: &str, columns: usize, look: Look) -> Vec<Line<'static>> {
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

/// `42 tokens · 14.2 tok/s · first after 0.8 s · 12.1 MiB read`
pub fn summary(stats: &GenerationStats, dot: &str) -> String {
    let read = stats.prefill_streamed_bytes + stats.decode_streamed_bytes;
    format!(
        "{} {dot} {} tok/s {dot} first after {:.1} s {dot} {} read",
        counted(stats.generated_tokens, "token"),
        crate::tui::figures::rate(stats.decode_tok_s as f32),
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
        Some(FinishReason::ContextFull) => {
            parts.push(match message.stats.as_ref().map_or(0, |s| s.context_by_budget) {
                0 => "context full".to_owned(),
                tokens => format!("context full: the budget leaves room for {}", counted(tokens, "token")),
            })
        }
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
