//! A template's source, made fit for the engine.
//!
//! Two things are rewritten. transformers marks what the model wrote with `{% generation %}..{% endgeneration %}`, which
//! renders as what is within. And `{% set ns.x = value %}` becomes `{% set ns.x = (value)|contained %}`, since this is
//! the one way to make a value that contains itself, which nothing could print or compare.

/// The filter that refuses values which may contain what they are assigned to.
pub(super) const CONTAINED: &str = "contained";

/// Words and signs in one tag; templates in use have up to 60. The compiler takes time by the square of them.
const LONGEST_TAG: usize = 1000;

/// Rewrites `source`; what is not understood is left as it is, for the compiler to refuse.
///
/// # Errors
/// A tag is too long to be compiled in good time.
pub(super) fn prepare(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len() + source.len() / 16);
    let mut rest = source;
    while let Some(open) = rest.find('{') {
        let (before, tag) = rest.split_at(open);
        out.push_str(before);
        let len = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map(|end| end + 2),
            Some(b'{') => tag_len(tag, "}}"),
            Some(b'%') if is_statement(&tag[2..], "raw") => raw_len(tag),
            Some(b'%') => tag_len(tag, "%}"),
            _ => Some(1),
        };
        let Some(len) = len else {
            out.push_str(tag);
            return check_tag(tag).map(|()| out);
        };
        check_tag(&tag[..len])?;
        match tag[..len].strip_prefix("{%") {
            Some(inner) => push_statement(&inner[..inner.len() - 2], &mut out),
            None => out.push_str(&tag[..len]),
        }
        rest = &tag[len..];
    }
    out.push_str(rest);
    Ok(out)
}

fn check_tag(tag: &str) -> Result<(), String> {
    let mut scan = Scan::default();
    let (mut count, mut in_word) = (0, false);
    if tag.starts_with("{{") || tag.starts_with("{%") {
        for byte in tag.bytes() {
            let word = byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
            if scan.step(byte) {
                count += usize::from(!(byte.is_ascii_whitespace() || (word && in_word)));
            }
            in_word = word;
        }
    }
    if count > LONGEST_TAG { Err(format!("a tag of {count} words and signs is too long")) } else { Ok(()) }
}

/// Writes the statement whose text between `{%` and `%}` is `inner`.
fn push_statement(inner: &str, out: &mut String) {
    let is_sign = |c: char| c == '-' || c == '+';
    let body = inner.strip_prefix(is_sign).unwrap_or(inner);
    let lead = &inner[..inner.len() - body.len()];
    let body = body.strip_suffix(is_sign).unwrap_or(body);
    let trail = &inner[lead.len() + body.len()..];
    out.push_str("{%");
    out.push_str(lead);
    match body.trim() {
        "generation" => out.push_str(" if true "),
        "endgeneration" => out.push_str(" endif "),
        _ => match attribute_assignment(body) {
            Some((target, value)) => {
                for part in [target, "=(", value, ")|", CONTAINED, " "] {
                    out.push_str(part);
                }
            }
            None => out.push_str(body),
        },
    }
    out.push_str(trail);
    out.push_str("%}");
}

/// `set` with its target, and the value, of a statement that assigns to an attribute.
fn attribute_assignment(body: &str) -> Option<(&str, &str)> {
    if !is_statement_word(body, "set") {
        return None;
    }
    let bytes = body.as_bytes();
    let mut scan = Scan::default();
    let assign = (0..bytes.len()).find(|&i| {
        let outside = scan.step(bytes[i]);
        let compares = bytes.get(i + 1) == Some(&b'=') || i.checked_sub(1).is_some_and(|b| b"=!<>".contains(&bytes[b]));
        outside && scan.depth == 0 && bytes[i] == b'=' && !compares
    })?;
    let (target, value) = (&body[..assign], &body[assign + 1..]);
    target.contains('.').then_some((target, value))
}

/// Whether the text after `{%` is the statement `word`.
fn is_statement(inner: &str, word: &str) -> bool {
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
    is_statement_word(inner, word)
}

fn is_statement_word(body: &str, word: &str) -> bool {
    let after = body.trim_start().strip_prefix(word);
    after.is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Where in strings and brackets one is, as the compiler counts.
#[derive(Default)]
struct Scan {
    quote: Option<u8>,
    escaped: bool,
    depth: usize,
}

impl Scan {
    /// Takes one byte; whether it stood outside of any string.
    fn step(&mut self, byte: u8) -> bool {
        if let Some(quote) = self.quote {
            if self.escaped {
                self.escaped = false;
            } else if byte == b'\\' {
                self.escaped = true;
            } else if byte == quote {
                self.quote = None;
            }
            return false;
        }
        match byte {
            b'\'' | b'"' => self.quote = Some(byte),
            b'(' | b'[' | b'{' => self.depth += 1,
            b')' | b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        true
    }
}

/// Length of the tag at the start of `text` that ends with `end`.
fn tag_len(text: &str, end: &str) -> Option<usize> {
    let mut scan = Scan::default();
    let bytes = text.as_bytes();
    for at in 2..bytes.len() {
        if scan.quote.is_none() && scan.depth == 0 && bytes[at..].starts_with(end.as_bytes()) {
            return Some(at + end.len());
        }
        scan.step(bytes[at]);
    }
    None
}

/// Length of `{% raw %}..{% endraw %}`.
fn raw_len(text: &str) -> Option<usize> {
    let mut at = 2;
    loop {
        at += text[at..].find("{%")? + 2;
        if is_statement(&text[at..], "endraw") {
            return Some(at + text[at..].find("%}")? + 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_to_attributes_are_contained_and_others_left() {
        for (source, prepared) in [
            ("{%- set ns.x = a ~ '%}' ~ {'b': 1}['b'] -%}", "{%- set ns.x =( a ~ '%}' ~ {'b': 1}['b'] )|contained -%}"),
            ("{% set ns.x = a == b %}", "{% set ns.x =( a == b )|contained %}"),
            ("{% set x = ns.y %}", "{% set x = ns.y %}"),
            ("{% set ns.x %}a{% endset %}", "{% set ns.x %}a{% endset %}"),
            ("{% set x | replace(a='b.c') %}{% endset %}", "{% set x | replace(a='b.c') %}{% endset %}"),
            ("{# {% set ns.x = 1 %} #}", "{# {% set ns.x = 1 %} #}"),
            ("{% raw %}{% set ns.x = 1 %}{%- endraw %}", "{% raw %}{% set ns.x = 1 %}{%- endraw %}"),
            ("{{ '{% set ns.x = 1 %}' }}", "{{ '{% set ns.x = 1 %}' }}"),
            ("{% if settings.x == 1 %}{ % }", "{% if settings.x == 1 %}{ % }"),
            ("{% setting.x = 1 %}", "{% setting.x = 1 %}"),
            ("{{ {'a': {}}}} {%set n.x='\\'%}'%}", "{{ {'a': {}}}} {%set n.x=('\\'%}')|contained %}"),
        ] {
            assert_eq!(prepare(source).as_deref(), Ok(prepared));
        }
    }

    #[test]
    fn generation_marks_become_what_they_enclose() {
        assert_eq!(
            prepare("{%- generation -%}a{% generation_x %}{% endgeneration -%}").as_deref(),
            Ok("{%- if true -%}a{% generation_x %}{% endif -%}")
        );
    }

    #[test]
    fn a_source_that_breaks_off_is_left_as_it_is() {
        for source in ["{", "a {% set ns.x = 1", "{{ 'a }}", "{# a", "{% raw %}{% set ns.x = 1 %}", "é{%é"] {
            assert_eq!(prepare(source).as_deref(), Ok(source));
        }
    }
}
