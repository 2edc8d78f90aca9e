//! The configuration file: found, parsed, and every key in it accounted for.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::Kind;
use super::{ConfigError, KEYS, Key, Origin, Settings};
use crate::places;
use crate::small_file;
use crate::suggest::closest;

/// No configuration is a thousandth as long.
const MOST_BYTES: u64 = 1 << 20;

/// Path and text of the file: the one named by the flag or `SIPLLM_CONFIG`, which must exist, or the usual one, if it does.
pub(super) fn find(flag: Option<&Path>) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let named = flag.map(PathBuf::from).or_else(places::config_file_from_environment);
    let must_exist = named.is_some();
    let Some(path) = named.or_else(places::config_file) else { return Ok(None) };
    match small_file::read_text(&path, MOST_BYTES) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if places::is_absent(&error) && !must_exist => Ok(None),
        Err(source) => Err(ConfigError::Unreadable { path, source }),
    }
}

/// Puts what the text says over what is set; nothing in it is passed over in silence.
pub(super) fn apply(settings: &mut Settings, path: &Path, text: &str) -> Result<(), ConfigError> {
    let file = File { path, text };
    let root = DeTable::parse(text).map_err(|error| {
        let message = error.message().replace(char::is_control, " ");
        file.error(error.span().unwrap_or_default(), message)
    })?;
    file.table(settings, "", root.get_ref())
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn line(&self, at: &Range<usize>) -> usize {
        self.text.as_bytes().iter().take(at.start).filter(|&&byte| byte == b'\n').count() + 1
    }

    fn error(&self, at: Range<usize>, message: String) -> ConfigError {
        ConfigError::File { path: self.path.into(), line: self.line(&at), message }
    }

    fn table(&self, settings: &mut Settings, prefix: &str, table: &DeTable) -> Result<(), ConfigError> {
        // In the order of the text, so that the first mistake is the one told.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let path = format!("{prefix}{}", name.get_ref());
            if let Some(key) = KEYS.iter().find(|key| key.path == path) {
                self.value(settings, key, value)?;
            } else if path == "keymap" {
                self.keymap(settings, value)?;
            } else if KEYS.iter().any(|key| key.path.strip_prefix(&path).is_some_and(|rest| rest.starts_with('.'))) {
                let inner = value.get_ref().as_table().ok_or_else(|| self.wrong_kind(&path, "a table", value))?;
                self.table(settings, &format!("{path}."), inner)?;
            } else {
                return Err(self.error(name.span(), unknown(&path)));
            }
        }
        Ok(())
    }

    fn value(&self, settings: &mut Settings, key: &Key, value: &Spanned<DeValue>) -> Result<(), ConfigError> {
        let texts: Vec<String> = match (key.kind, value.get_ref()) {
            (Kind::Text | Kind::Number | Kind::SwitchOrText, DeValue::String(text)) => vec![text.to_string()],
            (Kind::Number, DeValue::Integer(number)) if number.radix() == 10 => vec![number.to_string()],
            (Kind::Number, DeValue::Float(number)) => vec![number.to_string()],
            (Kind::Switch | Kind::SwitchOrText, DeValue::Boolean(on)) => vec![on.to_string()],
            (Kind::Texts, DeValue::Array(items)) => items
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::String(text) => Ok(text.to_string()),
                    _ => Err(self.wrong_kind(key.path, "strings in the array", item)),
                })
                .collect::<Result<_, _>>()?,
            (kind, _) => {
                let expected = match kind {
                    Kind::Text => "a string",
                    Kind::Number => "a number or a string",
                    Kind::Switch => "true or false",
                    Kind::SwitchOrText => "true, false or a string",
                    Kind::Texts => "an array of strings",
                };
                return Err(self.wrong_kind(key.path, expected, value));
            }
        };
        if key.kind == Kind::Texts {
            settings.stop.clear();
        }
        for text in &texts {
            (key.read)(settings, text)
                .map_err(|message| self.error(value.span(), format!("{}: {message}", key.path)))?;
        }
        settings.origins.insert(key.path, Origin::File { path: self.path.into(), line: self.line(&value.span()) });
        Ok(())
    }

    fn keymap(&self, settings: &mut Settings, value: &Spanned<DeValue>) -> Result<(), ConfigError> {
        let table = value.get_ref().as_table().ok_or_else(|| self.wrong_kind("keymap", "a table", value))?;
        for (action, keys) in table {
            let path = || format!("keymap.{}", shown(action.get_ref()));
            let text = keys.get_ref().as_str().ok_or_else(|| self.wrong_kind(&path(), "a string", keys))?;
            settings.keymap.insert(action.get_ref().to_string(), text.to_owned());
        }
        Ok(())
    }

    fn wrong_kind(&self, path: &str, expected: &str, value: &Spanned<DeValue>) -> ConfigError {
        let found = match value.get_ref().type_str() {
            kind @ ("integer" | "array") => format!("an {kind}"),
            kind => format!("a {kind}"),
        };
        self.error(value.span(), format!("{path}: expected {expected}, found {found}"))
    }
}

fn unknown(path: &str) -> String {
    let sections = ["sampling", "keymap"];
    let shown = shown(path);
    match closest(path, KEYS.iter().map(|key| key.path).chain(sections)) {
        Some(known) => format!("unknown key `{shown}`; did you mean `{known}`?"),
        None => format!("unknown key `{shown}`; `sipllm config` lists them all"),
    }
}

/// The beginning of a key as a message may hold it.
fn shown(key: &str) -> String {
    key.chars().take(60).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
