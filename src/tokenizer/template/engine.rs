//! Jinja as transformers runs it for chat templates, bounded in work, memory and depth: templates come with model files
//! and are not to be trusted.

use std::sync::Arc;

use jiff::ZonedDateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};

use super::{TemplateError, python, source};
use crate::sanitize::line;

/// No template in use is half as long.
pub(super) const LONGEST_SOURCE: usize = 64 << 10;
const STACK: usize = 64 << 20;
/// Macros and includes within one another; templates in use need less than ten.
const DEEPEST: usize = 60;
/// Fuel for any template, and more for each message and each byte of the conversation. A unit is one instruction or 64
/// bytes made, so this also bounds the memory (about 6 MB and 64 bytes a byte).
const FUEL: u64 = 100_000;
const FUEL_A_MESSAGE: u64 = 5_000;

/// Characters of an error or a refusal that are told: they are the template's own words.
const MOST_TOLD: usize = 300;

const NAME: &str = "chat";

/// A compiled template.
#[derive(Debug)]
pub(super) struct Engine {
    environment: Environment<'static>,
}

/// When templates are told it is.
pub(super) type Clock = Arc<dyn Fn() -> ZonedDateTime + Send + Sync>;

impl Engine {
    /// Compiles `source`.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub(super) fn new(source: &str, clock: Clock) -> Result<Self, String> {
        if source.len() > LONGEST_SOURCE {
            return Err(format!("{} bytes are longer than any chat template", source.len()));
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| one_line(&error))?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_recursion_limit(DEEPEST);
        environment.set_debug(false);
        environment.set_unknown_method_callback(python::method);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", move |format: &str| strftime(&clock(), format));
        environment.add_test("iterable", is_iterable);
        environment.add_test("sequence", is_iterable);
        environment.add_filter(source::CONTAINED, contained);
        let source = source::prepare(source)?;
        on_deep_stack(move || {
            environment.add_template_owned(NAME, source).map_err(|error| one_line(&error))?;
            Ok(Self { environment })
        })?
    }

    /// Renders with the variables of `context`, for a conversation of so many messages and bytes.
    pub(super) fn render(&self, context: Value, messages: usize, bytes: usize) -> Result<String, TemplateError> {
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL + FUEL_A_MESSAGE * messages as u64 + bytes as u64));
        on_deep_stack(move || {
            let rendered = environment.get_template(NAME).and_then(|template| template.render(context));
            rendered.map_err(|error| {
                let source = std::error::Error::source(&error);
                match source.and_then(|source| source.downcast_ref::<Refusal>()) {
                    Some(Refusal(message)) => TemplateError::Refused(message.clone()),
                    None => TemplateError::Failed(one_line(&error)),
                }
            })
        })
        .map_err(TemplateError::Failed)?
    }
}

/// Runs `work` on a stack so large that no expression the source has room for, and no value that fuel pays for, is nested
/// too deep to be compiled, printed or dropped. Only what is used of it takes memory.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| format!("no thread to render it on: {error}"))?;
        thread.join().map_err(|_| "it made the template engine panic".to_owned())
    })
}

fn one_line(error: &Error) -> String {
    line(&error.to_string(), MOST_TOLD)
}

/// What a template said when it refused a conversation.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

fn raise_exception(message: &str) -> Result<Value, Error> {
    let message = line(message, MOST_TOLD);
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refusal(message)))
}

/// Python's None is no iterable, its text and mappings count as sequences.
fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable | ValueKind::Undefined
    )
}

fn strftime(now: &ZonedDateTime, format: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(format, now)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")))
}

/// `json.dumps(value, ensure_ascii=False, indent=indent)` of Python: nothing is escaped for HTML.
fn to_json(state: &State, value: &Value, args: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = args.get("indent")?;
    // What else transformers takes makes no difference to what templates write.
    for ignored in ["ensure_ascii", "separators", "sort_keys"] {
        let _: Option<Value> = args.get(ignored)?;
    }
    args.assert_all_used()?;
    let mut out = String::new();
    write_json(state, value, indent, 0, &mut out)?;
    Ok(Value::from(out))
}

fn write_json(
    state: &State,
    value: &Value,
    indent: Option<usize>,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    let before = out.len();
    let newline = |depth: usize, out: &mut String| {
        if let Some(width) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width.min(16) * depth));
        }
    };
    let item = |first: bool, out: &mut String| {
        if !first {
            out.push_str(if indent.is_some() { "," } else { ", " });
        }
        newline(depth + 1, out);
    };
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&value.to_string()),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut first = true;
            for element in value.try_iter()? {
                item(first, out);
                first = false;
                write_json(state, &element, indent, depth + 1, out)?;
            }
            if !first {
                newline(depth, out);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            let mut first = true;
            for key in value.try_iter()? {
                item(first, out);
                first = false;
                write_json_string(&key.to_string(), out);
                out.push_str(": ");
                write_json(state, &value.get_item(&key)?, indent, depth + 1, out)?;
            }
            if !first {
                newline(depth, out);
            }
            out.push('}');
        }
        _ => write_json_string(&value.to_string(), out),
    }
    // Writing is slower than copying, and what is within was paid for already: so deep data costs more.
    state.consume_fuel(1 + (out.len() - before) as u64 / 8)
}

fn write_json_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// Refuses a value that is or holds a namespace, or is nested deeper than data of a template ever is.
fn contained(state: &State, value: Value) -> Result<Value, Error> {
    fn check(state: &State, value: &Value, depth: usize) -> Result<(), Error> {
        let Some(object) = value.as_object() else { return Ok(()) };
        let refuse = |what| Err(Error::new(ErrorKind::InvalidOperation, what));
        if object.type_name().ends_with("::Namespace") {
            return refuse("a namespace cannot hold a namespace");
        }
        if depth == 0 {
            return refuse("a namespace cannot hold data nested so deep");
        }
        let pairs = object.try_iter_pairs().filter(|_| value.kind() == ValueKind::Map).into_iter().flatten();
        let items = object.try_iter().filter(|_| value.kind() != ValueKind::Map).into_iter().flatten();
        for item in pairs.map(|(_, item)| item).chain(items) {
            state.consume_fuel(1)?;
            check(state, &item, depth - 1)?;
        }
        Ok(())
    }
    check(state, &value, 32)?;
    Ok(value)
}
