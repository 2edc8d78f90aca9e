//! A disk that fails in mid-answer: one clear message, a chat that lives, and an answer once the cause is gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/engine.rs"]
mod support;

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use sipllm::engine::protocol::{Budget, Command, Event, Failure, FailureKind, LoadRequest, Prompt, SourceKind};
use support::{End, Engine, finished, load, request};

/// Large enough that most of it is read anew each token.
fn toy(folder: &Path) -> PathBuf {
    let path = folder.join("toy.gguf");
    let shape = ["--layers", "8", "--width", "256", "--type", "q8_0"];
    let toy = std::process::Command::new(env!("CARGO_BIN_EXE_sipllm")).arg("toy").arg(&path).args(shape).output();
    assert!(toy.unwrap().status.success());
    path
}

fn streaming(path: &Path, source: SourceKind) -> LoadRequest {
    LoadRequest { source, budget: Budget::Least, threads: Some(1), ..load(path.to_owned()) }
}

fn tokens(n: u32) -> Prompt {
    Prompt::Tokens((0..n).map(|i| (i * 37 + 5) % 256).collect())
}

/// An answer in whose third token `trouble` comes.
fn troubled(engine: &mut Engine, mut trouble: impl FnMut()) -> End {
    let mut texts = 0;
    engine.answer_while(request(tokens(8), 16), |_, event| {
        if let Event::Text { .. } = event {
            texts += 1;
            if texts == 3 {
                trouble();
            }
        }
    })
}

fn assert_clear(failure: &Failure, path: &Path) {
    assert_eq!(failure.kind, FailureKind::Io, "{failure:?}");
    let message = &failure.message;
    assert!(message.contains(path.file_name().unwrap().to_str().unwrap()), "names the file: {message}");
    assert!(!message.contains('\n') && message.len() < 300, "one line: {message}");
}

#[test]
fn a_file_that_shrinks_in_mid_answer_ends_the_answer_and_not_the_chat() {
    let folder = tempfile::tempdir().unwrap();
    for source in [SourceKind::Direct, SourceKind::Buffered] {
        let path = toy(folder.path());
        let whole = fs::read(&path).unwrap();
        let (mut engine, _) = Engine::loaded(streaming(&path, source));
        let (expected, ..) = finished(engine.answer(request(tokens(8), 16)));
        engine.handle.send(Command::Reset);
        for cut in [whole.len() as u64 / 2, 0] {
            let end =
                troubled(&mut engine, || OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap());
            let End::Broken(failure) = end else { panic!("{source:?}: half of the weights are gone: {end:?}") };
            assert_clear(&failure, &path);
            // Still gone: told again, at once.
            let End::Broken(failure) = engine.answer(request(tokens(8), 16)) else { panic!("{source:?}: still gone") };
            assert_clear(&failure, &path);
            fs::write(&path, &whole).unwrap();
            let (text, ..) = finished(engine.answer(request(tokens(8), 16)));
            assert_eq!(text, expected, "{source:?}: the same answer, once the file is whole again");
        }
    }
}

#[test]
fn a_file_that_is_deleted_in_mid_answer_is_read_on_and_one_that_is_replaced_too() {
    let folder = tempfile::tempdir().unwrap();
    for source in [SourceKind::Direct, SourceKind::Buffered, SourceKind::Mmap] {
        let path = toy(folder.path());
        let (mut engine, _) = Engine::loaded(streaming(&path, source));
        let (expected, ..) = finished(engine.answer(request(tokens(8), 16)));
        engine.handle.send(Command::Reset);
        // The open file lives on as long as it is read.
        let (text, ..) = finished(troubled(&mut engine, || fs::remove_file(&path).unwrap()));
        assert!(text == expected, "{source:?}: deleted");
        engine.handle.send(Command::Reset);
        let (text, ..) = finished(troubled(&mut engine, || fs::write(&path, b"another").unwrap()));
        assert!(text == expected, "{source:?}: replaced");
    }
}

#[test]
fn a_file_that_shrinks_and_then_disappears_is_said_to_be_gone() {
    let folder = tempfile::tempdir().unwrap();
    for source in [SourceKind::Direct, SourceKind::Buffered] {
        let path = toy(folder.path());
        let whole = fs::read(&path).unwrap();
        let (mut engine, _) = Engine::loaded(streaming(&path, source));
        let end = troubled(&mut engine, || {
            OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 19).unwrap();
            fs::remove_file(&path).unwrap();
        });
        let End::Broken(failure) = end else { panic!("{source:?}: {end:?}") };
        assert_clear(&failure, &path);
        fs::write(&path, &whole).unwrap();
        finished(engine.answer(request(tokens(8), 4)));
    }
}

/// A one-shot answer, streamed, with the speeds of devices kept under `cache`; `before` is what the shell does first.
#[cfg(target_os = "linux")]
fn one_shot(model: &Path, cache: &Path, before: &str) -> std::process::Output {
    let answer = "exec \"$0\" run \"$1\" hello -n 6 --raw --temp 0 --budget 0 --threads 1";
    let mut command = std::process::Command::new("sh");
    command.arg("-c").arg(format!("{before}{answer}")).args([env!("CARGO_BIN_EXE_sipllm").as_ref(), model]);
    command.env("HOME", cache).env("XDG_CACHE_HOME", cache).env_remove("SIPLLM_LOG").output().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn where_the_speeds_of_a_disk_cannot_be_kept_the_answer_comes_all_the_same_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = toy(folder.path());
    let place = |name: &str| folder.path().join(name);
    let kept = "sipllm/devices.json";

    let fine = place("fine");
    let expected = one_shot(&path, &fine, "");
    assert!(expected.status.success(), "{}", String::from_utf8_lossy(&expected.stderr));
    assert!(fine.join(kept).is_file(), "where they can be kept, they are");

    let (file, directory, full) = (place("file"), place("directory"), place("full"));
    fs::write(&file, "in the folder's place").unwrap();
    fs::create_dir_all(directory.join(kept)).unwrap();
    fs::create_dir_all(&full).unwrap();
    // A size limit of 0 stands for a full disk: a file can be made, and not one byte be written to it.
    let no_bytes = "trap '' XFSZ; ulimit -f 0; ";
    // Nobody can make a folder in /proc, as in a home that is read-only.
    for (cache, before) in [(&file, ""), (&directory, ""), (&full, no_bytes), (&PathBuf::from("/proc/none"), "")] {
        let answer = one_shot(&path, cache, before);
        let said = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{}: {said}", cache.display());
        assert_eq!(answer.stdout, expected.stdout, "{}", cache.display());
        assert!(!said.contains("panicked") && !said.contains("rror"), "{}: {said}", cache.display());
    }
    assert_eq!(fs::read(&file).unwrap(), b"in the folder's place");
    assert!(fs::read_dir(directory.join(kept)).unwrap().next().is_none());
    let left: Vec<_> = fs::read_dir(full.join("sipllm")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
