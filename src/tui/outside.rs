//! Other programs that take the terminal for a while: the shell, `$EDITOR`, `$PAGER`.

use std::io::Write;
use std::process::{Command, Stdio};

/// Stops this program and those it was started with, as Ctrl-Z does, until the shell lets it go on.
pub fn suspend() {
    let _ = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
}

/// The text as the user left it in `$VISUAL`, `$EDITOR` or vi; `None` when the editor failed.
pub fn edit(text: &str) -> Option<String> {
    let path = std::env::temp_dir().join(format!("sipllm-{}.md", std::process::id()));
    // Another's file or link of that name is not written through.
    let _ = std::fs::remove_file(&path);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path).ok()?;
    file.write_all(text.as_bytes()).ok()?;
    drop(file);
    let editor = first_set(&["VISUAL", "EDITOR"]).unwrap_or_else(|| "vi".to_owned());
    let done = shell(&format!("{editor} \"$1\"")).arg(&path).status().is_ok_and(|s| s.success());
    let edited = if done { std::fs::read_to_string(&path).ok() } else { None };
    let _ = std::fs::remove_file(&path);
    edited
}

/// Shows the text in `$PAGER` or less.
pub fn page(text: &str) {
    let pager = first_set(&["PAGER"]).unwrap_or_else(|| "less".to_owned());
    let Ok(mut child) = shell(&pager).stdin(Stdio::piped()).spawn() else { return };
    if let Some(mut stdin) = child.stdin.take() {
        // A pager that is left early closes its end.
        let _ = stdin.write_all(text.as_bytes());
    }
    let _ = child.wait();
}

fn first_set(names: &[&str]) -> Option<String> {
    names.iter().filter_map(|n| std::env::var(n).ok()).find(|v| !v.trim().is_empty())
}

/// The variables may hold arguments: they are for a shell to read.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]);
    command
}
