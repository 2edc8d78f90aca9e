//! The search through what has been said.

use super::{Position, Transcript};

impl Transcript {
    /// Brings the next line with the text looked for into the window, from its top on (or before it). `false` when
    /// there is none.
    pub fn find_next(&mut self, forward: bool) -> bool {
        let Some(wanted) = self.find.clone().filter(|w| !w.is_empty()) else { return false };
        let third = self.rows / 3;
        let count = self.entries.len();
        let from = self.found_line();
        for step in 0..=count {
            let entry = if forward { from.entry + step } else { from.entry + count - step } % count.max(1);
            if !self.entries.get(entry).is_some_and(|e| contains(e.text(), &wanted)) {
                continue;
            }
            let found = match (step, forward) {
                (0, true) => self.matching(entry, &wanted, forward, |at| at > from),
                (0, false) => self.matching(entry, &wanted, forward, |at| at < from),
                _ => self.matching(entry, &wanted, forward, |_| true),
            };
            if let Some(at) = found {
                self.around = self.found.is_some_and(|before| if forward { at <= before } else { at >= before });
                self.found = Some(at);
                self.top = at;
                self.up(third);
                return true;
            }
        }
        false
    }

    /// The first line of an entry, or the last, with the text looked for and at a place that may be.
    fn matching(
        &mut self,
        entry: usize,
        wanted: &str,
        forward: bool,
        may_be: impl Fn(Position) -> bool,
    ) -> Option<Position> {
        let parts = self.parts(entry);
        for step in 0..parts {
            let part = if forward { step } else { parts - 1 - step };
            let at = Position { entry, part, line: 0 };
            if !contains(self.entries[entry].text_of(part), wanted) {
                continue;
            }
            self.lines(at);
            let lines = self.entries[entry].lines(part).unwrap_or_default().iter().enumerate();
            let mut matching = lines
                .filter(|(line, text)| may_be(Position { line: *line, ..at }) && contains(&text.to_string(), wanted))
                .map(|(line, _)| Position { line, ..at });
            let found = if forward { matching.next() } else { matching.next_back() };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// How often the text looked for was said.
    pub fn hits(&self) -> usize {
        let wanted = self.find.as_deref().unwrap_or_default();
        self.entries.iter().map(|entry| count_in(entry.text(), wanted)).sum()
    }

    /// Whether the last step of the search went around the end.
    pub fn found_around(&self) -> bool {
        self.around
    }

    /// The next search begins at the end.
    pub fn forget_found(&mut self) {
        self.found = None;
    }

    fn found_line(&self) -> Position {
        self.found.unwrap_or(Position {
            entry: self.entries.len().saturating_sub(1),
            part: usize::MAX,
            line: usize::MAX,
        })
    }
}

/// Whether `text` contains `wanted`, letters' case aside.
fn contains(text: &str, wanted: &str) -> bool {
    find_in(text, wanted).is_some()
}

/// How often `wanted` stands in `text`, ASCII letters' case aside.
fn count_in(mut text: &str, wanted: &str) -> usize {
    let mut count = 0;
    while let Some(at) = find_in(text, wanted) {
        count += 1;
        text = &text[at + wanted.len()..];
    }
    count
}

/// Where `wanted` begins in `text`, ASCII letters' case aside.
pub fn find_in(text: &str, wanted: &str) -> Option<usize> {
    let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
    if wanted.is_empty() || wanted.len() > text.len() {
        return None;
    }
    text.windows(wanted.len()).position(|w| w.eq_ignore_ascii_case(wanted))
}
