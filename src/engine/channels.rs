//! Answers that come in channels (gpt-oss's harmony format), as text with what was thought between `<think>` marks, the
//! form in which front ends know it from other models.

const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const CONSTRAIN: &str = "<|constrain|>";

/// Marks of the format that stand in the text of an answer.
const MARKS: [&str; 5] = [CHANNEL, MESSAGE, CONSTRAIN, "<|start|>", "<|end|>"];

/// The channel that is meant for the user.
const FINAL: &str = "final";

const THINK: (&str, &str) = ("<think>", "</think>");

/// Where in the format the text is.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Before the first mark, or in a message.
    Text,
    /// Between `<|start|>` or `<|end|>` and the next mark: the role.
    Between,
    /// After `<|channel|>`: the channel's name so far.
    Name(String),
}

/// Translates one answer as it comes.
#[derive(Debug)]
pub struct Channels {
    place: Place,
    is_thinking: bool,
    /// Text that may be the beginning of a mark.
    held: String,
}

impl Default for Channels {
    fn default() -> Self {
        Self { place: Place::Text, is_thinking: false, held: String::new() }
    }
}

impl Channels {
    /// In the middle of an answer, perhaps of its thoughts.
    pub fn within(is_thinking: bool) -> Self {
        Self { is_thinking, ..Self::default() }
    }

    /// Takes more of the answer; what comes back is to be shown.
    pub fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        let mut out = String::new();
        while let Some((at, mark)) = first_mark(&self.held) {
            let rest = self.held.split_off(at + mark.len());
            let before = std::mem::replace(&mut self.held, rest);
            self.text(&before[..at], &mut out);
            self.mark(mark, &mut out);
        }
        let whole = self.held.len() - begun_mark(&self.held);
        let rest = self.held.split_off(whole);
        let ready = std::mem::replace(&mut self.held, rest);
        self.text(&ready, &mut out);
        out
    }

    /// The end of the answer.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        let rest = std::mem::take(&mut self.held);
        self.text(&rest, &mut out);
        out
    }

    fn text(&mut self, text: &str, out: &mut String) {
        match &mut self.place {
            Place::Text => out.push_str(text),
            Place::Between => {}
            Place::Name(name) => name.push_str(text),
        }
    }

    fn mark(&mut self, mark: &str, out: &mut String) {
        match (mark, std::mem::replace(&mut self.place, Place::Between)) {
            (CHANNEL, _) => self.place = Place::Name(String::new()),
            (MESSAGE, Place::Name(name)) => {
                self.place = Place::Text;
                let thinks = name.split_whitespace().next() != Some(FINAL);
                match (self.is_thinking, thinks) {
                    (false, true) => out.push_str(THINK.0),
                    (true, false) => out.push_str(THINK.1),
                    (true, true) => out.push_str("\n\n"),
                    (false, false) => {}
                }
                self.is_thinking = thinks;
            }
            (MESSAGE, _) => self.place = Place::Text,
            // What follows is still the channel's head.
            (CONSTRAIN, place) => self.place = place,
            // `<|start|>` or `<|end|>`: a role follows.
            _ => {}
        }
    }
}

/// The first mark in `text`.
fn first_mark(text: &str) -> Option<(usize, &'static str)> {
    MARKS.iter().filter_map(|mark| text.find(mark).map(|at| (at, *mark))).min()
}

/// Length of the end of `text` that a mark may begin with.
fn begun_mark(text: &str) -> usize {
    let Some(at) = text.rfind('<') else { return 0 };
    if MARKS.iter().any(|mark| mark.starts_with(&text[at..])) { text.len() - at } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "<|channel|>analysis<|message|>Two and two.<|end|><|start|>assistant<|channel|>commentary to=f \
                          <|constrain|>json<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>Four, a < b.";
    const SHOWN: &str = "<think>Two and two.\n\n{}</think>Four, a < b.";

    fn pushed<'a>(pieces: impl Iterator<Item = &'a str>) -> String {
        let mut channels = Channels::default();
        let mut out: String = pieces.map(|piece| channels.push(piece)).collect();
        out.push_str(&channels.finish());
        out
    }

    #[test]
    fn what_is_not_for_the_user_becomes_a_thought_however_the_text_is_cut() {
        assert_eq!(pushed([ANSWER].into_iter()), SHOWN);
        for size in 1..20 {
            let pieces = ANSWER.as_bytes().chunks(size).map(|piece| std::str::from_utf8(piece).unwrap_or_default());
            assert_eq!(pushed(pieces), SHOWN, "pieces of {size}");
        }
    }

    #[test]
    fn text_without_channels_passes_as_it_is() {
        for text in ["Plain < text <| here", "<|", "<|chan", ""] {
            assert_eq!(pushed([text].into_iter()), text);
        }
    }

    #[test]
    fn an_answer_that_goes_on_in_its_thoughts_closes_them() {
        let mut channels = Channels::within(true);
        assert_eq!(channels.push(" more.<|end|><|start|>assistant<|channel|>final<|message|>Yes"), " more.</think>Yes");
    }
}
