//! The budget as the kernel sees it: the peak of the whole process stays under it by every source, and in a memory cgroup
//! of its size, page cache and all, nothing is killed.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const MIB: u64 = 1 << 20;
/// What a peak may be over its budget; a build for debugging has more code to touch, and least to give up for it.
const SLACK: u64 = if cfg!(debug_assertions) { 3 * MIB } else { MIB };
const PROGRAM: &str = env!("CARGO_BIN_EXE_sipllm");
/// What a cgroup counts on top of the resident set: page tables, kernel stacks, page cache on its way through.
const CGROUP_MARGIN_MIB: u64 = 24;

/// Its vocabulary weighs as much as its blocks.
fn toy(folder: &Path) -> PathBuf {
    let path = folder.join("toy.gguf");
    let shape = ["--layers", "12", "--width", "256", "--type", "q8_0", "--vocab", "32768", "--tied"];
    assert!(Command::new(PROGRAM).arg("toy").arg(&path).args(shape).output().unwrap().status.success());
    path
}

fn bench(mut command: Command, model: &Path, budget: &str, source: &str) -> Output {
    let how = ["-p", "100", "-n", "40", "-r", "1", "--ctx", "256", "--threads", "1", "--json"];
    // The speeds of devices go there, not into the user's own cache.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.arg("bench").arg(model).args(["--budget", budget, "--source", source]).args(how).output().unwrap()
}

fn figures(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn bytes(figures: &Value, key: &str) -> u64 {
    figures[key].as_u64().unwrap_or_else(|| panic!("{key} in {figures}"))
}

#[test]
fn the_peak_of_the_process_stays_under_every_budget_by_every_source_and_most_of_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let model = toy(folder.path());
    for source in ["direct", "buffered", "mmap"] {
        let budget_of = |budget| bytes(&figures(&bench(Command::new(PROGRAM), &model, budget, source)), "budget_bytes");
        // What the program itself takes differs a little from run to run.
        let (least, full) = (budget_of("0") + MIB, budget_of("100%"));
        for step in 0..4 {
            let budget = least + (full - least) * step / 4;
            let run = figures(&bench(Command::new(PROGRAM), &model, &budget.to_string(), source));
            let peak = bytes(&run, "peak_rss_bytes");
            assert!(peak <= budget + SLACK, "{source}: a peak of {peak} under a budget of {budget}");
            let streams = bytes(&run, "pinned_bytes") < bytes(&run, "touched_bytes_per_token") * 98 / 100;
            // An extent and the headroom may be left; a twentieth of a budget of this size.
            assert!(!streams || peak + 2 * MIB >= budget, "{source}: only {peak} of {budget} used");
        }
    }
}

#[test]
fn in_a_cgroup_of_the_budget_and_a_margin_nothing_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let model = toy(folder.path());
    let memcap = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools/memcap");
    let capped = |mib: u64| {
        let mut command = Command::new(&memcap);
        command.args([&mib.to_string(), PROGRAM]);
        command
    };
    let trial = Command::new(&memcap).args(["64", "true"]).output();
    if !trial.as_ref().is_ok_and(|trial| trial.status.success()) {
        let why = trial.map_or_else(|error| error.to_string(), |trial| String::from_utf8_lossy(&trial.stderr).into());
        eprintln!("SKIPPED: this machine lets no memory cgroup be made: {}", why.trim());
        return;
    }
    for source in ["direct", "buffered"] {
        let least = bytes(&figures(&bench(Command::new(PROGRAM), &model, "0", source)), "budget_bytes");
        for budget_mib in [least.div_ceil(MIB) + 1, least.div_ceil(MIB) + 8] {
            let budget = format!("{budget_mib}M");
            let output = bench(capped(budget_mib + CGROUP_MARGIN_MIB), &model, &budget, source);
            let run = figures(&output);
            assert_eq!(bytes(&run, "gen_tokens"), 40);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("killed 0"), "{source} at {budget}: {said}");
        }
    }
}
