//! A pseudo terminal with a vt100 screen; it answers cursor queries as terminals do.

use std::io::{Read, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// Long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).unwrap()
}

struct Output {
    screen: vt100::Parser,
    bytes: Vec<u8>,
}

pub struct Terminal {
    output: Arc<Mutex<Output>>,
    keys: Arc<Mutex<Box<dyn Write + Send>>>,
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    /// The terminal's modes before the program began, in words.
    pub before: String,
    /// Configuration, chats and history of this run.
    pub home: tempfile::TempDir,
}

/// A golden model: real arithmetic, random words.
pub fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models/llama.gguf")
}

/// The program without arguments, with a home of its own.
pub fn sipllm(home: &tempfile::TempDir, variables: &[(&str, &str)]) -> CommandBuilder {
    // Another build of the program, to be measured by this one.
    let program = std::env::var("SIPLLM_PTY_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_sipllm").to_owned());
    let mut command = CommandBuilder::new(program);
    at_home(&mut command, home, variables);
    command
}

pub fn at_home(command: &mut CommandBuilder, home: &tempfile::TempDir, variables: &[(&str, &str)]) {
    command.env_clear();
    command.env("PATH", std::env::var("PATH").unwrap_or_default());
    command.env("TERM", "xterm-256color");
    command.env("HOME", home.path());
    for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
        command.env(name, home.path().join(name));
    }
    for (name, value) in variables {
        command.env(name, value);
    }
}

/// Where models and chats of such a home lie.
pub fn data_dir(home: &tempfile::TempDir) -> PathBuf {
    home.path().join("XDG_DATA_HOME/sipllm")
}

/// A saved chat in a home: who said what, in turn, the user first.
pub fn saved_chat(home: &tempfile::TempDir, id: &str, said: &[&str]) {
    let folder = data_dir(home).join("chats");
    std::fs::create_dir_all(&folder).unwrap();
    let mut lines =
        format!("{{\"type\":\"chat\",\"version\":1,\"id\":\"{id}\",\"created\":\"2026-01-01T00:00:00Z\"}}\n");
    for (i, text) in said.iter().enumerate() {
        let role = if i % 2 == 0 { "user" } else { "assistant" };
        let line = serde_json::json!({ "type": "message", "role": role, "content": text });
        lines.push_str(&format!("{line}\n"));
    }
    std::fs::write(folder.join(id).with_extension("jsonl"), lines).unwrap();
}

/// A program for `$EDITOR` or `$PAGER`.
pub fn script(home: &tempfile::TempDir, name: &str, body: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = home.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn answers(screen: &str) -> usize {
    let ends = ["first after", "had nothing to say", "stopped before"];
    ends.iter().map(|end| screen.matches(end).count()).sum()
}

impl Terminal {
    /// The program with a model, in a terminal of this size.
    pub fn chat(columns: u16, rows: u16, arguments: &[&str]) -> Terminal {
        let home = tempfile::tempdir().unwrap();
        Self::start(columns, rows, arguments, &[], home)
    }

    pub fn start(
        columns: u16,
        rows: u16,
        arguments: &[&str],
        variables: &[(&str, &str)],
        home: tempfile::TempDir,
    ) -> Terminal {
        let mut command = sipllm(&home, variables);
        command.arg("chat");
        if !arguments.contains(&"--threads") {
            command.args(["--threads", "1"]);
        }
        command.arg(std::env::var_os("SIPLLM_PTY_MODEL").map_or_else(model, PathBuf::from));
        command.args(arguments);
        Self::run(columns, rows, command, home)
    }

    /// Any command in a terminal of this size.
    pub fn run(columns: u16, rows: u16, command: CommandBuilder, home: tempfile::TempDir) -> Terminal {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let before = format!("{:?}", pair.master.get_termios().unwrap());
        let child = pair.slave.spawn_command(command).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let keys = Arc::new(Mutex::new(pair.master.take_writer().unwrap()));
        let output = Arc::new(Mutex::new(Output {
            screen: vt100::Parser::new(cells(rows), cells(columns), 0),
            bytes: Vec::new(),
        }));
        let (sink, answers) = (output.clone(), keys.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                let mut output = sink.lock().unwrap();
                output.screen.process(&buffer[..n]);
                output.bytes.extend_from_slice(&buffer[..n]);
                if buffer[..n].windows(4).any(|w| w == b"\x1b[6n") {
                    let (row, column) = output.screen.screen().cursor_position();
                    let _ = write!(answers.lock().unwrap(), "\x1b[{};{}R", row + 1, column + 1);
                }
            }
        });
        Terminal { output, keys, master: pair.master, child, before, home }
    }

    pub fn keys(&self, keys: &str) {
        let mut writer = self.keys.lock().unwrap();
        writer.write_all(keys.as_bytes()).unwrap();
        writer.flush().unwrap();
    }

    /// A line and Enter.
    pub fn line(&self, text: &str) {
        self.keys(text);
        self.keys("\r");
    }

    pub fn screen(&self) -> String {
        self.output.lock().unwrap().screen.screen().contents()
    }

    /// The screen with its colours.
    pub fn cells(&self) -> vt100::Screen {
        self.output.lock().unwrap().screen.screen().clone()
    }

    /// Everything written so far, as it was.
    pub fn bytes(&self) -> Vec<u8> {
        self.output.lock().unwrap().bytes.clone()
    }

    pub fn byte_count(&self) -> usize {
        self.output.lock().unwrap().bytes.len()
    }

    /// Waits until the screen shows this.
    pub fn wait_for(&self, what: &str) -> String {
        self.wait_until(what, |screen| screen.contains(what))
    }

    pub fn wait_until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let since = Instant::now();
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(since.elapsed() < PATIENCE, "waited in vain for {what:?}:\n{screen}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the screen no longer shows this.
    pub fn wait_gone(&self, what: &str) -> String {
        self.wait_until(&format!("no {what}"), |screen| !screen.contains(what))
    }

    /// So many answers have ended. A toy may have nothing to say; that is an answer too.
    pub fn wait_answers(&self, count: usize) -> String {
        self.wait_until(&format!("{count} answers"), |screen| answers(screen) == count)
    }

    /// Esc, and nothing else until what lay over the chat is gone: with a letter it would be an Alt key.
    pub fn escape(&self) {
        self.keys("\x1b");
        self.wait_for("ask something");
    }

    /// A model is loaded and the line waits for input.
    pub fn wait_ready(&self) -> String {
        self.wait_for("is ready")
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.output.lock().unwrap().screen.screen_mut().set_size(cells(rows), cells(columns));
        self.master.resize(PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }).unwrap();
    }

    /// The window says that it is of this size, and nobody looks at it.
    pub fn claim_size(&self, columns: u16, rows: u16) {
        self.master.resize(PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    pub fn signal(&self, name: &str) {
        let done = std::process::Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status();
        assert!(done.unwrap().success());
    }

    /// The terminal's modes, in words.
    pub fn modes(&self) -> String {
        format!("{:?}", self.master.get_termios().unwrap())
    }

    /// Waits for the end; the exit code, and the chat's folders for another run.
    pub fn wait_end(mut self) -> (u32, Vec<u8>, String, tempfile::TempDir) {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < PATIENCE, "it does not end:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(10));
        };
        // What was written last may still be on its way through the reader.
        std::thread::sleep(Duration::from_millis(200));
        let modes = self.modes();
        (status.exit_code(), self.bytes(), modes, self.home)
    }
}
