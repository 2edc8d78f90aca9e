//! What models think before they answer, in the text of an answer: `<think>` .. `</think>` at its beginning.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// What was thought, and the answer after it.
pub(super) fn split(text: &str) -> Option<(&str, &str)> {
    let (thought, answer) = text.trim_start().strip_prefix(OPEN)?.split_once(CLOSE)?;
    Some((thought.trim(), answer.trim_start()))
}

/// Whether an unfinished answer stands within its thoughts.
pub fn is_thinking(text: &str) -> bool {
    text.trim_start().starts_with(OPEN) && !text.contains(CLOSE)
}

/// The end of a prompt that opens the model's thoughts.
pub(super) fn opening(prompt: &str) -> Option<&str> {
    let tail = &prompt[prompt.rfind(OPEN)?..];
    tail[OPEN.len()..].trim().is_empty().then_some(tail)
}

/// The answer begun, without the opening that the prompt has already.
pub(super) fn after_opening<'a>(prompt: &str, begun: &'a str) -> &'a str {
    let Some(opening) = opening(prompt) else { return begun };
    begun.strip_prefix(opening).or_else(|| begun.strip_prefix(opening.trim_end())).unwrap_or(begun)
}

/// An answer begun, as gpt-oss would have written it after `<|start|>assistant`.
pub(super) fn in_channels(begun: &str) -> String {
    let last = "<|channel|>final<|message|>";
    match split(begun) {
        Some((thought, answer)) => {
            format!("<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant{last}{answer}")
        }
        None if is_thinking(begun) => {
            format!("<|channel|>analysis<|message|>{}", begun.trim_start().trim_start_matches(OPEN))
        }
        None if begun.is_empty() => String::new(),
        None => format!("{last}{begun}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_prompt_that_ends_in_an_open_thought_opens_one() {
        assert_eq!(opening("<|im_start|>assistant\n<think>\n"), Some("<think>\n"));
        assert_eq!(opening("<|im_start|>assistant\n<think>\n\n</think>\n\n"), None);
        assert_eq!(opening("<|im_start|>assistant\n"), None);
    }

    #[test]
    fn an_answer_goes_on_after_the_opening_that_the_prompt_has() {
        assert_eq!(after_opening("x<think>\n", "<think>\nWell"), "Well");
        assert_eq!(after_opening("x<think>\n", "Well"), "Well");
        assert_eq!(after_opening("x", "<think>\nWell"), "<think>\nWell");
    }

    #[test]
    fn an_answer_begun_goes_into_the_channel_it_was_in() {
        assert_eq!(in_channels("<think>Hm"), "<|channel|>analysis<|message|>Hm");
        let both = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Yes";
        assert_eq!(in_channels("<think>Hm</think>Yes"), both);
        assert_eq!(in_channels("Yes"), "<|channel|>final<|message|>Yes");
    }
}
