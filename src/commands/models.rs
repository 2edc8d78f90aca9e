//! `sipllm models`: what is installed, what can be fetched, and which architectures run.

use std::io::{self, Write};

use serde_json::json;

use super::Outcome;
use super::json::json_line;
use crate::catalog::{self, Entry, Installed, Library};
use crate::cli::ModelsArgs;
use crate::config::Settings;
use crate::model::architecture::ARCHITECTURES;
use crate::sanitize::line;
use crate::size::format_size;

pub fn run(args: &ModelsArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    if args.architectures {
        return architectures(args.json);
    }
    let library = Library::open(settings)?;
    let installed = library.installed().map_err(|error| anyhow::anyhow!("{}: {error}", library.folder().display()))?;
    let fetchable: Vec<&Entry> = catalog::entries()
        .iter()
        .filter(|entry| !installed.iter().any(|model| model.entry.is_some_and(|e| e.name == entry.name)))
        .collect();
    let mut out = io::stdout().lock();
    if args.json {
        let object = json!({
            "folder": library.folder(),
            "installed": installed.iter().map(installed_json).collect::<Vec<_>>(),
            "catalog": fetchable.iter().map(|entry| entry_json(entry)).collect::<Vec<_>>(),
        });
        write!(out, "{}", json_line(&object))?;
        return Ok(Outcome::Done);
    }
    let folder = line(&library.folder().to_string_lossy(), usize::MAX);
    if installed.is_empty() {
        writeln!(out, "No model is installed in {folder}.")?;
    } else {
        writeln!(out, "Installed in {folder}:")?;
        for model in &installed {
            let quantization = model.entry.map_or("", |entry| &entry.quantization);
            let title = model.entry.map_or("", |entry| &entry.title);
            row(&mut out, &model.name, &format_size(model.bytes), quantization, title, "")?;
        }
    }
    if !fetchable.is_empty() {
        writeln!(out, "\nTo be fetched with `sipllm pull NAME`:")?;
        for entry in fetchable {
            let package = if entry.package.is_empty() { "" } else { "; also in a Python package" };
            let suits = format!("{}; {}{package}", entry.licence, entry.suits);
            // What nobody has checked is only known about.
            let about = if entry.sha256.is_some() { "" } else { "~" };
            let size = format!("{about}{}", format_size(entry.bytes));
            row(&mut out, &entry.name, &size, &entry.quantization, &entry.title, &suits)?;
        }
        writeln!(out, "\nAny other GGUF file: `sipllm pull URL`, `sipllm pull hf:ORG/REPO/FILE`, or its path.")?;
    }
    Ok(Outcome::Done)
}

fn architectures(as_json: bool) -> anyhow::Result<Outcome> {
    let names: Vec<&str> = ARCHITECTURES.iter().map(|architecture| architecture.name).collect();
    let mut out = io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json!({ "architectures": names }))?;
    } else {
        writeln!(out, "{}", names.join("\n"))?;
    }
    Ok(Outcome::Done)
}

fn row(out: &mut impl Write, name: &str, size: &str, quantization: &str, title: &str, more: &str) -> io::Result<()> {
    let line = format!("  {name:<22} {size:>10}  {quantization:<7} {title:<28} {more}");
    writeln!(out, "{}", line.trim_end())
}

fn installed_json(model: &Installed) -> serde_json::Value {
    json!({
        "name": model.name,
        "path": model.path,
        "bytes": model.bytes,
        "title": model.entry.map(|entry| &entry.title),
        "quantization": model.entry.map(|entry| &entry.quantization),
        "licence": model.entry.map(|entry| &entry.licence),
    })
}

fn entry_json(entry: &Entry) -> serde_json::Value {
    json!({
        "name": entry.name,
        "title": entry.title,
        "file": entry.file,
        "bytes": entry.bytes,
        "sha256": entry.sha256,
        "quantization": entry.quantization,
        "licence": entry.licence,
        "suits": entry.suits,
        "packages": entry.package.iter().map(|part| &part.requirement).collect::<Vec<_>>(),
    })
}
