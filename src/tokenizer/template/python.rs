//! Methods of Python's strings and lists that templates call.

use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

/// Calls `method` of `value`: those here, and those that minijinja brings.
pub(super) fn method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str()
        && let Some(result) = of_string(state, text, method, args)?
    {
        return Ok(result);
    }
    if value.kind() == ValueKind::Seq && method == "index" {
        let (wanted,): (&Value,) = from_args(args)?;
        return value.try_iter()?.position(|item| item == *wanted).map(Value::from).ok_or_else(absent);
    }
    if value.kind() == ValueKind::Map && method == "copy" {
        let () = from_args(args)?;
        return Ok(value.clone());
    }
    pycompat::unknown_method_callback(state, value, method, args)
}

fn absent() -> Error {
    Error::new(ErrorKind::InvalidOperation, "what is looked for is not there")
}

fn of_string(state: &mut State, text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let characters = |at: Option<usize>| at.map(|at| Value::from(text[..at].chars().count())).ok_or_else(absent);
    Ok(Some(match method {
        "partition" | "rpartition" => {
            let (sep,): (&str,) = from_args(args)?;
            if sep.is_empty() {
                return Err(Error::new(ErrorKind::InvalidOperation, "the separator is empty"));
            }
            let (cut, missing) = match method {
                "partition" => (text.split_once(sep), [text, "", ""]),
                _ => (text.rsplit_once(sep), ["", "", text]),
            };
            Value::from(Tuple::from(
                cut.map_or(missing, |(before, after)| [before, sep, after]).map(Value::from).to_vec(),
            ))
        }
        "split" | "rsplit" => {
            let (sep, most, named): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
            let most = most.or(named.get("maxsplit")?).and_then(|most| usize::try_from(most).ok());
            named.assert_all_used()?;
            match sep.filter(|sep| !sep.is_empty()) {
                Some(sep) => Value::from_iter(parts(text, sep, most.map_or(usize::MAX, |n| n + 1), method == "rsplit")),
                None if most.is_none() => Value::from_iter(text.split_whitespace().map(str::to_owned)),
                None => return Ok(None),
            }
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            characters(if method == "index" { text.find(wanted) } else { text.rfind(wanted) })?
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            let missing = missing(state, text, width)?;
            // Where the blanks do not divide, Python puts one more before the text if the width is odd.
            let before = match method {
                "ljust" => 0,
                "rjust" => missing,
                _ => missing / 2 + (missing & width & 1),
            };
            let blanks = |count| std::iter::repeat_n(fill.unwrap_or(' '), count);
            Value::from(blanks(before).chain(text.chars()).chain(blanks(missing - before)).collect::<String>())
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let zeros = std::iter::repeat_n('0', missing(state, text, width)?);
            let digits = text.trim_start_matches(['+', '-']);
            let sign = if text.len() - digits.len() == 1 { &text[..1] } else { "" };
            Value::from(sign.chars().chain(zeros).chain(text[sign.len()..].chars()).collect::<String>())
        }
        _ => return Ok(None),
    }))
}

/// `text` cut at `sep` into at most so many parts, where from the end the first of them is the one left whole.
fn parts(text: &str, sep: &str, most: usize, from_end: bool) -> Vec<String> {
    if from_end {
        let mut parts: Vec<String> = text.rsplitn(most, sep).map(str::to_owned).collect();
        parts.reverse();
        parts
    } else {
        text.splitn(most, sep).map(str::to_owned).collect()
    }
}

/// How many characters `text` lacks of `width`, paid for with fuel before they are made.
fn missing(state: &mut State, text: &str, width: usize) -> Result<usize, Error> {
    let missing = width.saturating_sub(text.chars().count());
    state.consume_fuel(missing as u64 / 8)?;
    Ok(missing)
}
