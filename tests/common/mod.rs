//! What integration tests share: the program, and the real default model.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The program under test.
pub fn sipllm() -> assert_cmd::Command {
    assert_cmd::Command::new(program())
}

/// Path of the program under test.
pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_sipllm")
}

/// The program with a home of its own: no settings, no models, nothing of the user's.
pub fn sipllm_at(home: &Path) -> assert_cmd::Command {
    let mut command = sipllm();
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("SIPLLM_") || text.starts_with("XDG_") || text.starts_with("HF_") {
            command.env_remove(&name);
        }
    }
    command.env("HOME", home).env("SIPLLM_DATA_DIR", home.join("data"));
    command
}

/// The real default model, SmolLM2 135M in Q4_1. `SIPLLM_TEST_MODEL` names it; else it is where the program keeps it,
/// and is fetched there where it is not. Tests that call this are `#[ignore]`d, since it takes the network once.
pub fn default_model() -> &'static Path {
    static MODEL: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(path) = std::env::var_os("SIPLLM_TEST_MODEL") {
            let path = PathBuf::from(path);
            assert!(path.is_file(), "SIPLLM_TEST_MODEL: {} is no file", path.display());
            return path;
        }
        let settings = sipllm::config::Settings::load(None).expect("settings");
        let folder = sipllm::catalog::Library::open(&settings).expect("a data folder").folder().to_owned();
        let entry = sipllm::catalog::default_entry().expect("a default model");
        // Several test programs may come here at once: fetching takes a lock, and whoever waited finds the file.
        let request = sipllm::catalog::Request::of(entry);
        let never = std::sync::atomic::AtomicBool::new(false);
        sipllm::catalog::pull(&request, &folder, sipllm::catalog::Sources::Any, &mut |_| {}, &never)
            .unwrap_or_else(|error| panic!("the tests need {}: {error}", entry.name))
    });
    &MODEL
}
