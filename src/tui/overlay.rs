//! What can lie over the chat, taking the keys: help, zoomed panels, pickers, the budget editor.

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};

use crate::engine::protocol::Budget;

/// A panel on the whole screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panel {
    Memory,
    Layers,
    Speed,
}

impl Panel {
    pub const ALL: [Panel; 3] = [Panel::Memory, Panel::Layers, Panel::Speed];

    pub fn by_name(name: &str) -> Option<Panel> {
        match name {
            "memory" => Some(Panel::Memory),
            "layers" => Some(Panel::Layers),
            "speed" => Some(Panel::Speed),
            _ => None,
        }
    }

    /// The one that follows; `None` after the last.
    pub fn next(self) -> Option<Panel> {
        match self {
            Panel::Memory => Some(Panel::Layers),
            Panel::Layers => Some(Panel::Speed),
            Panel::Speed => None,
        }
    }
}

/// A column by which the layers' table is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SortBy {
    #[default]
    Layer,
    Kept,
    Read,
    Wait,
    Compute,
    MeanRead,
    MeanWait,
    MeanCompute,
}

impl SortBy {
    /// The columns from left to right.
    pub const ALL: [SortBy; 8] = [
        SortBy::Layer,
        SortBy::Kept,
        SortBy::Read,
        SortBy::Wait,
        SortBy::Compute,
        SortBy::MeanRead,
        SortBy::MeanWait,
        SortBy::MeanCompute,
    ];

    /// So many columns to the right, around the end.
    pub fn stepped(self, step: isize) -> SortBy {
        let at = Self::ALL.iter().position(|s| *s == self).unwrap_or(0) as isize;
        Self::ALL[(at + step).rem_euclid(Self::ALL.len() as isize) as usize]
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Overlay {
    Help {
        scroll: u16,
    },
    Zoom {
        panel: Panel,
        /// The layer walked to.
        layer: usize,
        sort: SortBy,
    },
    Budget(BudgetEditor),
    Models(Picker),
    Chats(Picker),
}

/// A budget being chosen, before it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetEditor {
    /// Where the slider stands.
    pub chosen: Budget,
    /// What is being typed, if anything; it wins over the slider.
    pub typed: String,
    pub error: Option<String>,
}

/// A list with a filter.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Picker {
    pub filter: String,
    /// Indices of the items that match, best first.
    pub matches: Vec<usize>,
    pub selected: usize,
}

impl Picker {
    pub fn new(items: &[String]) -> Self {
        let mut picker = Self::default();
        picker.refilter(items);
        picker
    }

    /// Matches again after the filter or the items changed.
    pub fn refilter(&mut self, items: &[String]) {
        if self.filter.is_empty() {
            self.matches = (0..items.len()).collect();
        } else {
            let mut matcher = Matcher::new(Config::DEFAULT);
            let pattern = Pattern::parse(&self.filter, CaseMatching::Ignore, Normalization::Smart);
            let mut buffer = Vec::new();
            let mut scored: Vec<(u32, usize)> = items
                .iter()
                .enumerate()
                .filter_map(|(i, item)| {
                    let haystack = nucleo_matcher::Utf32Str::new(item, &mut buffer);
                    pattern.score(haystack, &mut matcher).map(|score| (score, i))
                })
                .collect();
            scored.sort_by_key(|(score, i)| (std::cmp::Reverse(*score), *i));
            self.matches = scored.into_iter().map(|(_, i)| i).collect();
        }
        self.selected = self.selected.min(self.matches.len().saturating_sub(1));
    }

    pub fn move_by(&mut self, step: isize) {
        let last = self.matches.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(step).min(last);
    }

    /// Index of the item under the cursor.
    pub fn chosen(&self) -> Option<usize> {
        self.matches.get(self.selected).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picker_filters_fuzzily_and_keeps_its_cursor_in_range() {
        let items = ["SmolLM2-135M", "Qwen2.5-0.5B", "Gemma 3 270M"].map(str::to_owned);
        let mut picker = Picker::new(&items);
        picker.move_by(2);
        picker.filter = "qw5".to_owned();
        picker.refilter(&items);
        assert_eq!(picker.chosen(), Some(1));
        picker.filter = "zzz".to_owned();
        picker.refilter(&items);
        assert_eq!(picker.chosen(), None);
    }
}
