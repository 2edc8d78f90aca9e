//! `sipllm rm`: removes a fetched model.

use std::io::{self, BufRead, IsTerminal, Write};

use super::{Outcome, UsageError};
use crate::catalog::{Library, resolve};
use crate::cli::RmArgs;
use crate::config::Settings;
use crate::size::format_size;

pub fn run(args: &RmArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let library = Library::open(settings)?;
    let installed = library.installed()?;
    // Only what is in the library: a path elsewhere is the user's own.
    let path = match installed.iter().find(|model| model.path == std::path::Path::new(&args.name)) {
        Some(model) => model.path.clone(),
        None if args.name.contains('/') => {
            anyhow::bail!("{} is not in {}; remove it yourself", args.name, library.folder().display())
        }
        None => resolve(Some(&args.name), settings)?,
    };
    let Some(model) = installed.iter().find(|model| model.path == path) else {
        anyhow::bail!("{} is not in {}; remove it yourself", args.name, library.folder().display())
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
