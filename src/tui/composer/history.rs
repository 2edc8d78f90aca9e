//! What was sent before, newest last, kept in a file across runs.

/// Most entries kept.
const KEPT: usize = 1000;

#[derive(Clone, Debug, Default)]
pub struct History {
    entries: Vec<String>,
    /// Which entry is shown, and what was being written when history was entered.
    shown: Option<(usize, String)>,
}

impl History {
    /// From the file's lines, each a JSON string; lines that are not are skipped.
    pub fn parse(text: &str) -> Self {
        let entries: Vec<String> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
        let skip = entries.len().saturating_sub(KEPT);
        Self { entries: entries.into_iter().skip(skip).collect(), shown: None }
    }

    /// Adds what was sent; returns the line to append to the file, or `None` for a repetition.
    pub fn add(&mut self, text: &str) -> Option<String> {
        self.shown = None;
        if text.trim().is_empty() || self.entries.last().is_some_and(|l| l == text) {
            return None;
        }
        self.entries.push(text.to_owned());
        serde_json::to_string(text).ok()
    }

    pub fn leave(&mut self) {
        self.shown = None;
    }

    pub fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    /// An entry further back; `current` is kept to return to.
    pub fn previous(&mut self, current: &str) -> Option<String> {
        let (at, draft) = match self.shown.take() {
            Some((at, draft)) => (at.saturating_sub(1), draft),
            None => (self.entries.len().checked_sub(1)?, current.to_owned()),
        };
        self.shown = Some((at, draft));
        self.entries.get(at).cloned()
    }

    /// An entry further on, at last what was being written.
    pub fn next(&mut self) -> Option<String> {
        let (at, draft) = self.shown.take()?;
        match self.entries.get(at + 1).cloned() {
            Some(entry) => {
                self.shown = Some((at + 1, draft));
                Some(entry)
            }
            None => Some(draft),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_goes_back_and_returns_to_the_draft() {
        let mut h = History::parse("\"one\"\n\"two\\nlines\"\nnot json\n");
        assert_eq!(h.previous("draft").as_deref(), Some("two\nlines"));
        assert_eq!(h.previous("").as_deref(), Some("one"));
        assert_eq!(h.previous("").as_deref(), Some("one"));
        assert_eq!(h.next().as_deref(), Some("two\nlines"));
        assert_eq!(h.next().as_deref(), Some("draft"));
        assert_eq!(h.next(), None);
    }

    #[test]
    fn repetitions_and_blanks_are_not_kept() {
        let mut h = History::default();
        assert_eq!(h.add("a").as_deref(), Some("\"a\""));
        assert_eq!(h.add("a"), None);
        assert_eq!(h.add("  "), None);
    }
}
