//! `sipllm completions SHELL` and `sipllm man`: written from the definitions of the command line.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::commands::Outcome;

pub fn completions(args: &CompletionsArgs) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sipllm", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(Outcome::Done)
}

pub fn man(args: &ManArgs) -> anyhow::Result<Outcome> {
    match &args.out {
        None => io::stdout().lock().write_all(&main_page()?)?,
        Some(folder) => write_pages(folder).with_context(|| format!("{}", folder.display()))?,
    }
    Ok(Outcome::Done)
}

fn main_page() -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    page.extend_from_slice(FILES_AND_ENVIRONMENT.as_bytes());
    Ok(page)
}

fn write_pages(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)?;
    std::fs::write(folder.join("sipllm.1"), main_page()?)
}

const FILES_AND_ENVIRONMENT: &str = r#".SH "EXIT STATUS"
.TP
0
Done.
.TP
1
Failed; one line on standard error says why.
.TP
2
Wrong usage.
.TP
130
Interrupted.
.SH ENVIRONMENT
.TP
SIPLLM_BUDGET, SIPLLM_TEMP ...
Every key of the configuration file, its last part in capitals.
.TP
SIPLLM_CONFIG
The configuration file to read.
.TP
SIPLLM_DATA_DIR
The folder of models and chats.
.TP
SIPLLM_ISA
The instruction set of the kernels: scalar, avx2, avx\-vnni, avx512\-vnni, neon, dotprod or i8mm.
.TP
SIPLLM_LOG
What is logged, such as debug or sipllm=trace; into a file in the state folder.
.SH FILES
.TP
~/.config/sipllm/config.toml
The configuration; \fBsipllm config \-\-path\fR names the place on this machine.
.TP
~/.local/share/sipllm
Models and chats.
"#;
