//! The table of settings: the name of each in file and environment, how it is read and shown.

use std::str::FromStr;

use clap::ValueEnum;

use super::Settings;
use crate::cli::{parse_penalty, parse_share, parse_temperature, parse_thinking};
use crate::engine::protocol::{Budget, Thinking};
use crate::sanitize::line;
use crate::size::{parse_budget, parse_size};

/// Characters of a wrong value that its message quotes.
pub(crate) const MOST_QUOTED: usize = 60;

/// What the file must hold for a key. The text of strings and numbers alike goes through [`Key::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// Also as a string, as sizes need.
    Number,
    Switch,
    /// One of the two, or a word.
    SwitchOrText,
    /// An array of strings; in the environment, one.
    Texts,
}

/// One setting.
pub struct Key {
    /// Name in the file, such as `sampling.temp`.
    pub path: &'static str,
    pub kind: Kind,
    /// Sets it from text; the error says what is wrong with the text.
    pub read: fn(&mut Settings, &str) -> Result<(), String>,
    /// Its value as the file would write it; `None` where it is not set and has no default.
    pub show: fn(&Settings) -> Option<String>,
    /// What happens where it is not set.
    pub unset: &'static str,
}

impl Key {
    /// The environment variable: the last part of the path in capitals.
    pub fn environment(&self) -> String {
        let name = self.path.rsplit('.').next().unwrap_or(self.path);
        format!("SIPLLM_{}", name.to_ascii_uppercase())
    }
}

/// Every setting, in the order in which they are shown.
pub const KEYS: &[Key] = &[
    Key {
        path: "model",
        kind: Kind::Text,
        read: |s, text| put(&mut s.model, Ok(Some(text.into()))),
        show: |s| s.model.as_deref().map(quoted),
        unset: "the one fetched last",
    },
    Key {
        path: "budget",
        kind: Kind::Number,
        read: |s, text| put(&mut s.budget, parse_budget(text).map_err(|error| error.to_string())),
        show: |s| Some(quoted(&budget_text(s.budget))),
        unset: "",
    },
    Key {
        path: "threads",
        kind: Kind::Number,
        read: |s, text| put(&mut s.threads, number(text, "a number of threads from 1 to 1024", 1, 1024)),
        show: |s| s.threads.map(|n| n.to_string()),
        unset: "one a physical core",
    },
    Key {
        path: "ctx",
        kind: Kind::Number,
        read: |s, text| put(&mut s.context, number(text, "a number of tokens above 0", 1, u32::MAX)),
        show: |s| s.context.map(|n| n.to_string()),
        unset: "what fits, up to 4096",
    },
    Key {
        path: "kernel",
        kind: Kind::Text,
        read: |s, text| put(&mut s.kernel, one_of(text)),
        show: |s| Some(name_of(&s.kernel)),
        unset: "",
    },
    Key {
        path: "residency",
        kind: Kind::Text,
        read: |s, text| put(&mut s.residency, one_of(text)),
        show: |s| Some(name_of(&s.residency)),
        unset: "",
    },
    Key {
        path: "source",
        kind: Kind::Text,
        read: |s, text| put(&mut s.source, one_of(text)),
        show: |s| Some(name_of(&s.source)),
        unset: "",
    },
    Key {
        path: "kv",
        kind: Kind::Text,
        read: |s, text| put(&mut s.kv, one_of(text)),
        show: |s| Some(name_of(&s.kv)),
        unset: "",
    },
    Key {
        path: "prefill_batch",
        kind: Kind::Number,
        read: |s, text| put(&mut s.prefill_batch, number(text, "a number of positions above 0", 1, u32::MAX)),
        show: |s| s.prefill_batch.map(|n| n.to_string()),
        unset: "as many as fit",
    },
    Key {
        path: "disk_limit",
        kind: Kind::Number,
        read: |s, text| {
            let limit = parse_size(text).map_err(|error| error.to_string());
            put(&mut s.disk_limit, limit.map(|bytes| Some(bytes).filter(|&bytes| bytes > 0)))
        },
        show: |s| s.disk_limit.map(|bytes| quoted(&exact_size(bytes))),
        unset: "as fast as the disk goes",
    },
    Key {
        path: "system",
        kind: Kind::Text,
        read: |s, text| put(&mut s.system, Ok(Some(text.into()))),
        show: |s| s.system.as_deref().map(quoted),
        unset: "none, or what the model's template says",
    },
    Key {
        path: "stop",
        kind: Kind::Texts,
        read: |s, text| {
            s.stop.push(text.into());
            Ok(())
        },
        show: |s| Some(format!("[{}]", s.stop.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "))),
        unset: "",
    },
    Key {
        path: "max_tokens",
        kind: Kind::Number,
        read: |s, text| put(&mut s.max_tokens, number(text, "a number of tokens above 0", 1, u32::MAX)),
        show: |s| s.max_tokens.map(|n| n.to_string()),
        unset: "to the end of the answer or the context",
    },
    Key {
        path: "think",
        kind: Kind::SwitchOrText,
        read: |s, text| put(&mut s.think, thinking(text).map(Some)),
        show: |s| s.think.map(|thinking| quoted(thinking.name())),
        unset: "as the model's template does",
    },
    Key {
        path: "data_dir",
        kind: Kind::Text,
        read: |s, text| put(&mut s.data_dir, Ok(Some(text.into()))),
        show: |s| s.data_dir.as_ref().map(|path| quoted(&path.to_string_lossy())),
        unset: "the platform's place",
    },
    Key {
        path: "ascii",
        kind: Kind::Switch,
        read: |s, text| put(&mut s.ascii, switch(text)),
        show: |s| Some(s.ascii.to_string()),
        unset: "",
    },
    Key {
        path: "theme",
        kind: Kind::Text,
        read: |s, text| put(&mut s.theme, Ok(text.into())),
        show: |s| Some(quoted(&s.theme)),
        unset: "",
    },
    Key {
        path: "mouse",
        kind: Kind::Switch,
        read: |s, text| put(&mut s.mouse, switch(text)),
        show: |s| Some(s.mouse.to_string()),
        unset: "",
    },
    Key {
        path: "sampling.temp",
        kind: Kind::Number,
        read: |s, text| put(&mut s.sampling.temperature, parse_temperature(text)),
        show: |s| Some(s.sampling.temperature.to_string()),
        unset: "",
    },
    Key {
        path: "sampling.top_k",
        kind: Kind::Number,
        read: |s, text| {
            let count = number(text, "a number of tokens, or 0 for all", 0, u32::MAX);
            put(&mut s.sampling.top_k, count.map(Option::unwrap_or_default))
        },
        show: |s| Some(s.sampling.top_k.to_string()),
        unset: "",
    },
    Key {
        path: "sampling.top_p",
        kind: Kind::Number,
        read: |s, text| put(&mut s.sampling.top_p, parse_share(text)),
        show: |s| Some(s.sampling.top_p.to_string()),
        unset: "",
    },
    Key {
        path: "sampling.min_p",
        kind: Kind::Number,
        read: |s, text| put(&mut s.sampling.min_p, parse_share(text)),
        show: |s| Some(s.sampling.min_p.to_string()),
        unset: "",
    },
    Key {
        path: "sampling.repeat_penalty",
        kind: Kind::Number,
        read: |s, text| put(&mut s.sampling.repeat_penalty, parse_penalty(text)),
        show: |s| Some(s.sampling.repeat_penalty.to_string()),
        unset: "",
    },
    Key {
        path: "sampling.seed",
        kind: Kind::Number,
        read: |s, text| put(&mut s.sampling.seed, number(text, "a whole number of 0 or more", 0, u64::MAX)),
        show: |s| s.sampling.seed.map(|n| n.to_string()),
        unset: "a fresh one for each answer",
    },
];

fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn number<T: FromStr + PartialOrd>(text: &str, what: &str, least: T, most: T) -> Result<Option<T>, String> {
    let value: Option<T> = text.trim().parse().ok().filter(|n| (least..=most).contains(n));
    value.map(Some).ok_or_else(|| format!("`{}` is not {what}", line(text, MOST_QUOTED)))
}

fn one_of<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text.trim(), true).map_err(|_| {
        let names: Vec<String> = T::value_variants().iter().map(plain_name).collect();
        format!("`{}` is not one of {}", line(text, MOST_QUOTED), names.join(", "))
    })
}

fn plain_name<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn name_of<T: ValueEnum>(value: &T) -> String {
    quoted(&plain_name(value))
}

fn switch(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "on" | "1" | "yes" => Ok(true),
        "false" | "off" | "0" | "no" => Ok(false),
        _ => Err(format!("`{}` is neither true nor false", line(text, MOST_QUOTED))),
    }
}

fn thinking(text: &str) -> Result<Thinking, String> {
    match switch(text) {
        Ok(true) => Ok(Thinking::On),
        Ok(false) => Ok(Thinking::Off),
        Err(_) => parse_thinking(&text.trim().to_ascii_lowercase()),
    }
}

/// The text as TOML writes a string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}

/// A budget as the file would hold it, to the byte.
fn budget_text(budget: Budget) -> String {
    match budget {
        Budget::Auto => "auto".into(),
        Budget::Least => "0".into(),
        Budget::Share(share) => format!("{}%", (share * 1e6).round() / 1e4),
        Budget::Bytes(bytes) => exact_size(bytes),
    }
}

/// The size in the largest unit that holds it whole.
fn exact_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}
