//! `sipllm config`: the settings in force and where each comes from.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::cli::ConfigArgs;
use crate::commands::Outcome;
use crate::commands::json::json_line;
use crate::config::{KEYS, Settings};
use crate::places;
use crate::sanitize::sanitize;

pub fn run(args: &ConfigArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let mut out = io::stdout().lock();
    if args.json {
        let entries: Map<String, Value> = KEYS
            .iter()
            .map(|key| {
                let entry = json!({ "value": (key.show)(settings), "from": settings.origin(key).to_string() });
                (key.path.to_owned(), entry)
            })
            .collect();
        write!(out, "{}", json_line(&Value::Object(entries)))?;
        return Ok(Outcome::Done);
    }
    for key in KEYS {
        match (key.show)(settings) {
            Some(value) => {
                let setting = format!("{} = {value}", key.path);
                writeln!(out, "{setting:<40} # {}", sanitize(&settings.origin(key).to_string()))?;
            }
            None => {
                let setting = format!("# {}", key.path);
                writeln!(out, "{setting:<40} # not set: {}", key.unset)?;
            }
        }
    }
    if !settings.keymap.is_empty() {
        let keymap = toml::to_string(&settings.keymap)?;
        writeln!(out, "\n[keymap]\n{}", keymap.trim_end())?;
    }
    Ok(Outcome::Done)
}

/// `sipllm config --path`: needs no readable file, since one asks before writing it or after breaking it.
pub fn print_path(flag: Option<&std::path::Path>) -> anyhow::Result<Outcome> {
    let named = flag.map(Into::into).or_else(places::config_file_from_environment).or_else(places::config_file);
    let path = named.ok_or_else(|| anyhow::anyhow!("no home folder is known for this user; set SIPLLM_CONFIG"))?;
    writeln!(io::stdout().lock(), "{}", path.display())?;
    Ok(Outcome::Done)
}
