//! `sipllm rm`: removes a fetched model.

use std::io::{self, BufRead, IsTerminal, Write};

use super::{Outcome, UsageError};
use crate::catalog::{self, Library};
use crate::cli::RmArgs;
use crate::config::Settings;
use crate::size::format_size;
use crate::suggest::closest;

pub fn run(args: &RmArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    if args.name.trim().is_empty() {
        return Err(UsageError("rm needs the name of a model; `sipllm models` lists them".into()).into());
    }
    let library = Library::open(settings)?;
    let installed = library.installed()?;
    // Only what is in the library, since a path elsewhere is the user's own; and only by its whole name.
    let Some(model) = catalog::installed_as(&args.name, &installed) else {
        if args.name.contains('/') {
            anyhow::bail!("{} is not in {}; remove it yourself", args.name, library.folder().display());
        }
        let begun = installed.iter().find(|model| model.begins_with(&args.name.to_lowercase()));
        let near = begun.map(|model| model.name.as_str());
        match near.or_else(|| closest(&args.name, installed.iter().map(|model| model.name.as_str()))) {
            Some(near) => anyhow::bail!("no model here is called `{}`; rm takes a whole name: `{near}`?", args.name),
            None => anyhow::bail!("no model here is called `{}`; `sipllm models` lists them", args.name),
        }
    };
    if !args.yes {
        if !io::stdin().is_terminal() {
            return Err(UsageError("without a terminal to ask on, rm needs --yes".into()).into());
        }
        let mut stderr = io::stderr();
        write!(stderr, "Remove {}, {}? [y/N] ", model.name, format_size(model.bytes))?;
        stderr.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            writeln!(stderr, "nothing was removed")?;
            return Ok(Outcome::Done);
        }
    }
    for file in &model.files {
        std::fs::remove_file(file).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    }
    writeln!(io::stdout(), "removed {}, {}", model.name, format_size(model.bytes))?;
    Ok(Outcome::Done)
}
