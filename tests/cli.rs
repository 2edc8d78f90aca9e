//! The command line keeps its word: exit codes, one-line errors, no escape codes in pipes, sound JSON.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use common::sipllm_at;
use serde_json::Value;
use sipllm::gguf::writer::Writer;
use tempfile::TempDir;

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Runs the program in a home of its own, with nothing on standard input.
fn run(home: &Path, args: &[&str]) -> Output {
    sipllm_at(home).args(args).write_stdin("").timeout(Duration::from_secs(60)).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The one line that a failure prints, its exit code checked; nothing on standard output.
fn failure(output: &Output, code: i32) -> String {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(text(&output.stdout), "");
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(!stderr.trim_end().contains(char::is_control), "{stderr:?}");
    lines[0].strip_prefix("sipllm: ").unwrap_or_else(|| panic!("{stderr}")).to_owned()
}

fn success(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn json(output: &Output) -> Value {
    let stdout = success(output);
    assert_eq!(stdout.lines().count(), 1, "JSON is one line");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_is_wrong() {
    let home = home();
    for (args, complaint) in [
        (&["--nonsense"][..], "unexpected argument '--nonsense'"),
        (&["run"], "required arguments were not provided"),
        (&["bench", "--budget", "plenty"], "is not a budget"),
        (&["bench", "--threads", "0"], "0 is not in 1..=1024"),
        (&["bench", "--ctx", "0"], "0 is not in 1.."),
        (&["bench", "--kernel", "quick"], "[possible values: int8, fast, exact]"),
        (&["run", "hi", "--temp=-1"], "is not a temperature"),
        (&["run", "hi", "--top-p", "1.5"], "is not a share"),
        (&["run", "hi", "--repeat-penalty", "0"], "is not a penalty"),
        (&["bench", "--disk-limit", "0"], "would read nothing"),
        (&["tokenize", "m"], "required arguments were not provided"),
        (&["tokenize", "m", "text", "--stdin"], "cannot be used with"),
        (&["logits", "m", "--ids", "1,x"], "invalid digit"),
        (&["pull", "x", "--sha256", "abc"], "64 hexadecimal digits"),
        (&["completions", "tcsh"], "[possible values:"),
        (&["--temp", "0", "run", "hi"], "stand after the command"),
        (&["bench", "a", "-m", "b"], "named twice"),
        (&["tokenize", "a", "hi", "-m", "b"], "named twice"),
        (&["logits", "a", "--ids", "1", "-m", "b"], "named twice"),
        (&["models", "-m", "b"], "takes no --model"),
        (&["/nonexistent.gguf", "run", "hi"], "`/nonexistent.gguf` stands before the command"),
        (&["run", "hi", "--seed", "-1"], "invalid value '-1' for '--seed <S>'"),
        (&["run", "hi", "-n", "-1"], "invalid value '-1' for '--max-tokens <N>'"),
        (&["run", "hi", "--temp", "-1"], "is not a temperature"),
        (&["rm", "", "--yes"], "needs the name of a model"),
        (&["rm", "x.gguf", "--resume"], "unexpected argument"),
    ] {
        let output = run(home.path(), args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(complaint), "{args:?}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        assert!(!stderr.contains('\u{1b}'), "no colours in a pipe: {stderr:?}");
    }
}

#[test]
fn help_and_version_are_on_standard_output() {
    let home = home();
    assert_eq!(success(&run(home.path(), &["--version"])), format!("sipllm {}\n", env!("CARGO_PKG_VERSION")));
    for command in ["chat", "run", "bench", "doctor", "inspect", "pull", "models", "rm", "tokenize", "logits", "toy"] {
        let help = success(&run(home.path(), &[command, "--help"]));
        assert!(help.contains("--budget") && !help.contains('\u{1b}'), "{command}");
    }
}

#[test]
fn the_help_is_this() {
    insta::assert_snapshot!(success(&run(home().path(), &["--help"])));
}

#[test]
fn the_manual_page_is_this() {
    insta::assert_snapshot!(success(&run(home().path(), &["man"])));
}

#[test]
fn man_writes_a_page_for_each_command() {
    let home = home();
    let folder = home.path().join("pages");
    assert_eq!(success(&run(home.path(), &["man", "--out", folder.to_str().unwrap()])), "");
    for page in ["sipllm.1", "sipllm-run.1", "sipllm-chat.1", "sipllm-pull.1"] {
        assert!(std::fs::read_to_string(folder.join(page)).unwrap().contains(".TH"), "{page}");
    }
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(failure(&run(home.path(), &["man", "--out", file.to_str().unwrap()]), 1).contains("file: "));
}

#[test]
fn completions_know_every_command_in_every_shell() {
    let home = home();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = success(&run(home.path(), &["completions", shell]));
        for word in ["chat", "run", "bench", "doctor", "inspect", "pull", "models", "tokenize", "logits", "budget"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let script = home.path().join("sipllm.bash");
    std::fs::write(&script, success(&run(home.path(), &["completions", "bash"]))).unwrap();
    let check = std::process::Command::new("bash").arg("-n").arg(&script).status();
    // Where there is no bash there is nothing to check its script with.
    assert!(check.map_or(true, |status| status.success()));
}

#[test]
fn a_missing_model_is_one_line() {
    let home = home();
    let folder = home.path().to_str().unwrap();
    for (model, complaint) in [
        ("/no/such/file.gguf", "/no/such/file.gguf: no such file"),
        ("nosuch.gguf", "nosuch.gguf: no such file"),
        (folder, "is a folder; name a .gguf file"),
        ("smollm2-136m", "no model is called `smollm2-136m`; did you mean `smollm2-135m`?"),
        ("qwen3-0.6b", "qwen3-0.6b is not here yet; `sipllm pull qwen3-0.6b` fetches it"),
        ("xyzzy", "no model is called `xyzzy`; `sipllm models` lists them, and `sipllm help` the commands"),
    ] {
        for args in [&["bench", model][..], &["run", model, "hi"], &["inspect", model], &["chat", "--plain", model]] {
            assert!(failure(&run(home.path(), args), 1).ends_with(complaint), "{args:?}");
        }
    }
}

#[test]
fn control_characters_in_a_name_do_not_reach_the_terminal() {
    let home = home();
    let complaint = failure(&run(home.path(), &["bench", "evil\u{1b}[2J\u{7}\nname"]), 1);
    assert!(complaint.contains("evil"), "{complaint}");
    failure(&run(home.path(), &["pull", "evil\u{1b}]0;x\u{7}"]), 1);
}

#[test]
fn a_file_that_is_no_model_is_one_line() {
    let home = home();
    for (name, bytes) in [("empty.gguf", &b""[..]), ("text.gguf", b"hello world\n"), ("cut.gguf", b"GGUF\x03\0\0\0")] {
        let path = home.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        for command in ["bench", "inspect"] {
            let complaint = failure(&run(home.path(), &[command, path.to_str().unwrap()]), 1);
            assert!(complaint.contains(name), "{command}: {complaint}");
        }
        let complaint = failure(&run(home.path(), &["run", path.to_str().unwrap(), "hi"]), 1);
        assert!(complaint.contains(name), "run: {complaint}");
    }
}

#[test]
fn a_data_folder_that_cannot_be_written_is_one_line() {
    let home = home();
    for args in [&["pull", "smollm2-135m"][..], &["pull", "hf:a/b/c.gguf"]] {
        let output = sipllm_at(home.path()).args(args).env("SIPLLM_DATA_DIR", "/dev/null/x").output().unwrap();
        let complaint = failure(&output, 1);
        assert!(complaint.starts_with("cannot write to /dev/null/x/models: "), "{complaint}");
        assert!(complaint.contains("SIPLLM_DATA_DIR"), "{complaint}");
    }
    let mut command = sipllm_at(home.path());
    command.env_remove("SIPLLM_DATA_DIR").env("XDG_DATA_HOME", "/dev/null/x");
    if cfg!(target_os = "linux") {
        let complaint = failure(&command.args(["pull", "smollm2-135m"]).output().unwrap(), 1);
        assert!(complaint.starts_with("cannot write to /dev/null/x/sipllm/models: "), "{complaint}");
    }
}

#[test]
fn mistakes_in_the_configuration_name_file_line_and_key() {
    let home = home();
    let file = home.path().join("my.toml");
    let path = file.to_str().unwrap();
    for (text, complaint) in [
        ("budget = '1G'\nctxx = 4\n", ":2: unknown key `ctxx`; did you mean `ctx`?"),
        ("[sampling]\ntemp = 'hot'\n", ":2: sampling.temp: `hot` is not a temperature; write 0 or more, such as 0.7"),
        ("[sampling\n", ":1: "),
    ] {
        std::fs::write(&file, text).unwrap();
        let told = failure(&run(home.path(), &["--config", path, "models"]), 1);
        assert!(told.contains(&format!("{path}{complaint}")), "{told}");
    }
    let told = failure(&run(home.path(), &["--config", "/no/such.toml", "models"]), 1);
    assert!(told.starts_with("/no/such.toml: "), "{told}");
    let output = sipllm_at(home.path()).arg("models").env("SIPLLM_CTX", "many").output().unwrap();
    assert_eq!(failure(&output, 1), "environment variable SIPLLM_CTX: `many` is not a number of tokens above 0");
    let output = sipllm_at(home.path()).arg("models").env("SIPLLM_CTX", "9".repeat(100_000)).output().unwrap();
    assert!(failure(&output, 1).len() < 200);
    let output = sipllm_at(home.path()).arg("models").env("SIPLLM_ISA", "foo").output().unwrap();
    let told = failure(&output, 1);
    assert!(told.starts_with("environment variable SIPLLM_ISA: `foo` is no instruction set"), "{told}");
    // No file is waited for without end.
    assert_eq!(failure(&run(home.path(), &["--config", "/dev/zero", "models"]), 1), "/dev/zero: not a file");
    // Completions, the manual and the place of the file do not depend on what is in it.
    std::fs::write(&file, "x").unwrap();
    for args in [&["completions", "bash"][..], &["man"], &["config", "--path"]] {
        success(&sipllm_at(home.path()).args(args).env("SIPLLM_CONFIG", path).output().unwrap());
    }
}

#[test]
fn config_shows_what_is_in_force_and_where_it_comes_from() {
    let home = home();
    let file = home.path().join("my.toml");
    std::fs::write(&file, "budget = '96M'\n[keymap]\nquit = 'ctrl-d'\n").unwrap();
    let mut command = sipllm_at(home.path());
    command.args(["config", "--kv", "f32"]).env("SIPLLM_CONFIG", &file).env("SIPLLM_TEMP", "0.25");
    let shown = success(&command.output().unwrap());
    let line = |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{shown}"));
    let words = |start| line(start).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words("budget"), format!("budget = \"96M\" # {}:1", file.display()));
    assert_eq!(words("sampling.temp"), "sampling.temp = 0.25 # SIPLLM_TEMP");
    assert_eq!(words("kv"), "kv = \"f32\" # --kv");
    assert_eq!(words("kernel"), "kernel = \"int8\" # default");
    assert_eq!(words("# threads"), "# threads # not set: one a physical core");
    // What it prints is itself a configuration.
    std::fs::write(&file, &shown).unwrap();
    let again = success(&sipllm_at(home.path()).arg("config").env("SIPLLM_CONFIG", &file).output().unwrap());
    assert!(again.contains("budget = \"96M\"") && again.contains("quit = \"ctrl-d\""), "{again}");
    let object = json(&run(home.path(), &["config", "--json", "--budget", "60%"]));
    assert_eq!(object["budget"], serde_json::json!({ "value": "\"60%\"", "from": "--budget" }));
}

#[test]
fn models_lists_what_is_here_and_what_can_be_fetched() {
    let home = home();
    let folder = home.path().join("data/models");
    let listed = success(&run(home.path(), &["models"]));
    assert!(listed.starts_with("No model is installed in ") && listed.contains("smollm2-135m"), "{listed}");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("SmolLM2-135M-Instruct.Q4_1.gguf"), "GGUF").unwrap();
    std::fs::write(folder.join("evil\u{1b}[31m.gguf"), "GGUF").unwrap();
    let carried = |name: &str| listed.lines().any(|l| l.contains(name) && l.ends_with("; also in a Python package"));
    assert!(carried("smollm2-135m") && !carried("qwen3-0.6b"), "{listed}");
    assert!(!success(&run(home.path(), &["models"])).contains('\u{1b}'));
    let object = json(&run(home.path(), &["models", "--json"]));
    let names = |key: &str| -> Vec<String> {
        object[key].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names("installed").contains(&"smollm2-135m".to_owned()));
    assert!(!names("catalog").contains(&"smollm2-135m".to_owned()));
    assert_eq!(names("installed").len() + names("catalog").len(), sipllm::catalog::entries().len() + 1);
}

#[test]
fn rm_removes_only_what_is_in_the_library() {
    let home = home();
    let folder = home.path().join("data/models");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("mine.gguf");
    let outside = home.path().join("outside.gguf");
    for path in [&file, &outside] {
        std::fs::write(path, "GGUF").unwrap();
    }
    assert!(failure(&run(home.path(), &["rm", "mine"]), 2).contains("--yes"));
    assert!(failure(&run(home.path(), &["rm", outside.to_str().unwrap(), "-y"]), 1).contains("remove it yourself"));
    assert!(failure(&run(home.path(), &["rm", "other", "--yes"]), 1).contains("no model here is called `other`"));
    assert!(failure(&run(home.path(), &["rm", "min", "--yes"]), 1).contains("rm takes a whole name: `mine`?"));
    assert!(file.exists() && outside.exists());
    let mut within = sipllm_at(home.path());
    within.args(["rm", "mine.gguf", "--yes"]).current_dir(&folder);
    assert_eq!(success(&within.output().unwrap()), "removed mine, 4 B\n");
    assert!(!file.exists());
}

#[test]
fn what_pull_cannot_understand_is_one_line() {
    let home = home();
    for what in ["hf:a/b", "ftp://x/y.gguf", "https://example.invalid/page.html", "no such name", "hf:a/b/%2e.gguf"] {
        assert!(failure(&run(home.path(), &["pull", what]), 1).contains("`sipllm models` lists the catalog"), "{what}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    use std::process::{Command, Stdio};
    let home = home();
    let mut child = Command::new(common::program())
        .arg("man")
        .env("HOME", home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn the_log_is_a_file_and_never_the_terminal() {
    let home = home();
    let log = home.path().join("state/sipllm/sipllm.log");
    let with_log = |filter: &str, state: &Path| {
        let mut command = sipllm_at(home.path());
        command.args(["models", "--architectures"]).env("SIPLLM_LOG", filter).env("XDG_STATE_HOME", state);
        command.output().unwrap()
    };
    let quiet = with_log("trace", &home.path().join("state"));
    success(&quiet);
    assert_eq!(text(&quiet.stderr), "");
    if cfg!(target_os = "linux") {
        assert!(log.is_file());
        assert!(failure(&with_log("trace", Path::new("/dev/null/x")), 1).starts_with("cannot log to /dev/null/x/"));
    }
    assert!(failure(&with_log("sipllm=loud", &home.path().join("state")), 1).starts_with("SIPLLM_LOG: "));
}

#[test]
fn a_home_that_is_no_folder_is_one_without_settings_and_models() {
    let mut command = sipllm_at(Path::new("/dev/null"));
    assert!(success(&command.arg("models").output().unwrap()).starts_with("No model is installed in /dev/null/data"));
}

#[test]
fn a_mistyped_command_is_said_before_a_prompt_is_waited_for() {
    let complaint = failure(&run(home().path(), &["chta"]), 1);
    assert!(complaint.starts_with("no model is called `chta`"), "{complaint}");
}

#[test]
fn escape_codes_of_a_model_file_do_not_reach_the_terminal() {
    let home = home();
    let model = home.path().join("evil.gguf");
    let evil = "\u{1b}[31mH\u{7}\u{1b}]0;t\u{7}\u{202e}\u{9b}31m\u{7f}\nsecond line ";
    let mut writer = Writer::new();
    writer.set("tokenizer.ggml.model", "gpt2");
    writer.set("tokenizer.ggml.pre", format!("{evil}{}", "A".repeat(5000)));
    writer.set("tokenizer.ggml.tokens", &["a", "b"][..]);
    writer.set("tokenizer.ggml.merges", &["a b"][..]);
    writer.set("tokenizer.chat_template", format!("{{{{ raise_exception('{evil}') }}}}"));
    writer.write(std::fs::File::create(&model).unwrap(), |_, _| Ok(())).unwrap();
    let output = run(home.path(), &["tokenize", model.to_str().unwrap(), "a"]);
    success(&output);
    let told = text(&output.stderr);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("[31mH") && told.len() < 400, "{told}");
    assert!(!told.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{told:?}");
}

#[test]
fn an_empty_prompt_is_one_line() {
    let home = home();
    let toy = home.path().join("toy.gguf");
    success(&run(home.path(), &["toy", toy.to_str().unwrap(), "--layers", "1", "--width", "64"]));
    let complaint = failure(&run(home.path(), &[toy.to_str().unwrap()]), 1);
    assert!(complaint.contains("standard input, which is empty"), "{complaint}");
}

#[test]
fn toy_models_answer_on_every_way_in_without_escape_codes() {
    let home = home();
    let toy = home.path().join("toy.gguf");
    let toy = toy.to_str().unwrap();
    success(&run(home.path(), &["toy", toy, "--layers", "2", "--width", "64"]));
    for (args, stdin) in [
        (&["run", toy, "hi", "-n", "4", "--temp", "0"][..], ""),
        (&["run", toy, "-", "-n", "4", "--raw"], "hi\n"),
        (&["chat", "--plain", toy, "--temp", "0"], "/set max-tokens 4\nhi\n/stats\n"),
        (&["doctor"], ""),
        (&["inspect", toy], ""),
    ] {
        let output = sipllm_at(home.path()).args(args).write_stdin(stdin).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        for stream in [&output.stdout, &output.stderr] {
            assert!(!stream.contains(&0x1b), "{args:?}");
        }
    }
    for args in [
        &["run", toy, "hi", "-n", "4", "--json"][..],
        &["bench", toy, "-p", "4", "-n", "4", "-r", "1", "--json"],
        &["inspect", toy, "--json"],
        &["doctor", "--json"],
        &["doctor", toy, "--json"],
        &["tokenize", toy, "hi"],
        &["logits", toy, "--ids", "1,2", "--greedy", "2"],
    ] {
        assert!(json(&run(home.path(), args)).is_object(), "{args:?}");
    }
}

#[test]
fn commands_agree_on_a_models_name_and_on_the_least_it_runs_in_and_count_one_as_one() {
    let home = home();
    let toy = home.path().join("Tiny-Q8_0.gguf");
    let toy = toy.to_str().unwrap();
    success(&run(home.path(), &["toy", toy, "--layers", "1", "--width", "64", "--type", "q8_0"]));
    let bench = json(&run(home.path(), &["bench", toy, "-p", "1", "-n", "1", "-r", "1", "--json"]));
    let answer = json(&run(home.path(), &["run", toy, "hi", "-n", "1", "--json"]));
    assert_eq!([&bench["model"], &answer["model"]], ["Tiny", "Tiny"]);
    let doctor = success(&run(home.path(), &["doctor", toy]));
    assert!(doctor.contains(" Tiny\n") && doctor.contains(", 1 layer,"), "{doctor}");
    let inspect = success(&run(home.path(), &["inspect", toy]));
    for said in [&doctor, &inspect] {
        assert!(said.contains("the least, with 512 tokens; "), "{said}");
    }
    let bench = success(&run(home.path(), &["bench", toy, "-p", "1", "-n", "1", "-r", "1", "--threads", "1"]));
    for said in ["1 thread,", "1 token in 1 pass,", "1 token, "] {
        assert!(bench.contains(said), "{said}: {bench}");
    }
}

#[test]
fn logits_without_a_file_or_a_continuation_tell_what_comes_next() {
    let home = home();
    let toy = home.path().join("toy.gguf");
    let toy = toy.to_str().unwrap();
    success(&run(home.path(), &["toy", toy, "--layers", "2", "--width", "64"]));
    let told = json(&run(home.path(), &["logits", toy, "--ids", "1,2"]));
    let greedy = json(&run(home.path(), &["logits", toy, "--ids", "1,2", "--greedy", "1"]));
    let next = told["next"].as_array().unwrap();
    assert_eq!((next.len(), &next[0]["id"]), (5, &greedy["greedy"][0]));
    let logits: Vec<f64> = next.iter().map(|token| token["logit"].as_f64().unwrap()).collect();
    assert!(logits.is_sorted_by(|a, b| a >= b), "{logits:?}");
    assert!(greedy.get("next").is_none(), "what was asked for is all there is");
}

#[test]
fn an_empty_standard_input_is_no_prompt() {
    let home = home();
    let said = failure(&run(home.path(), &["run", "m.gguf", "-"]), 1);
    assert_eq!(said, "the prompt comes from standard input, which is empty");
}

#[test]
#[ignore = "needs the default model"]
fn the_default_model_answers_from_a_prompt_on_standard_input() {
    let home = home();
    let model = common::default_model();
    let mut command = sipllm_at(home.path());
    command.arg(model).args(["--temp", "0"]).write_stdin("What is the capital of France?\n");
    assert_eq!(success(&command.output().unwrap()), "The capital of France is Paris.\n");
}
