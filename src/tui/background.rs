//! The threads that wait so that the one that draws never does: one for the disk, one for each fetch.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use super::message::{Job, Reply};
use super::options::{Catalog, TuiOptions};
use super::theme::Theme;
use crate::engine::protocol::LoadRequest;
use crate::session::{SessionError, Store, export};
use crate::small_file;

/// Names offered for a path.
const MOST_NAMES: usize = 200;
/// Progress of a fetch is told this often.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// How long leaving waits for what is still to be written.
const LAST_WRITES: Duration = Duration::from_secs(5);

pub struct Background {
    jobs: Option<Sender<Job>>,
    done: Receiver<()>,
    worker: Option<JoinHandle<()>>,
    replies: UnboundedSender<Reply>,
    catalog: Option<Arc<dyn Catalog>>,
    cancel_pull: Arc<AtomicBool>,
}

impl Background {
    pub fn start(options: &TuiOptions, replies: UnboundedSender<Reply>) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let (finished, done) = channel();
        let mut disk = Disk {
            store: Store::new(options.sessions_dir.clone()),
            history_file: options.history_file.clone(),
            catalog: options.catalog.clone(),
            load: options.load.clone(),
        };
        let answers = replies.clone();
        let worker = std::thread::Builder::new().name("disk".into()).spawn(move || {
            for job in queue {
                match disk.perform(job) {
                    Ok(Some(reply)) => {
                        let _ = answers.send(reply);
                    }
                    Ok(None) => {}
                    Err(e) => {
                        let _ = answers.send(Reply::Failed(e.to_string()));
                    }
                }
            }
            let _ = finished.send(());
        })?;
        let catalog = options.catalog.clone();
        Ok(Self { jobs: Some(jobs), done, worker: Some(worker), replies, catalog, cancel_pull: Arc::default() })
    }

    pub fn job(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }

    /// Fetches a model on a thread of its own.
    pub fn pull(&mut self, name: String) {
        let Some(catalog) = self.catalog.clone() else {
            let _ =
                self.replies.send(Reply::PullFailed { name, message: "there is no catalog".into(), cancelled: false });
            return;
        };
        let cancel = Arc::new(AtomicBool::new(false));
        self.cancel_pull = cancel.clone();
        let replies = self.replies.clone();
        let failed =
            Reply::PullFailed { name: name.clone(), message: "no thread could be started".into(), cancelled: false };
        let started = std::thread::Builder::new().name("fetch".into()).spawn(move || {
            let mut told: Option<(Instant, &str, bool)> = None;
            let mut progress = |p: super::options::PullProgress| {
                // The first bytes are told at once: more may be long in coming.
                let begun = p.done_bytes > 0;
                if told.is_none_or(|(at, what, had)| at.elapsed() >= PROGRESS_EVERY || (what, had) != (p.what, begun)) {
                    told = Some((Instant::now(), p.what, begun));
                    let _ = replies.send(Reply::Pulling(p));
                }
            };
            let reply = match catalog.pull(&name, &mut progress, &cancel) {
                Ok(path) => Reply::Pulled { name, path },
                Err(e) => {
                    let cancelled = cancel.load(Ordering::Relaxed);
                    Reply::PullFailed { name, message: super::clean(&format!("{e:#}")), cancelled }
                }
            };
            let _ = replies.send(reply);
        });
        if started.is_err() {
            let _ = self.replies.send(failed);
        }
    }

    pub fn cancel_pull(&self) {
        self.cancel_pull.store(true, Ordering::Relaxed);
    }
}

impl Drop for Background {
    /// Waits for what is still to be written, but not for ever: the disk may be gone.
    fn drop(&mut self) {
        self.cancel_pull();
        self.jobs = None;
        if self.done.recv_timeout(LAST_WRITES).is_ok()
            && let Some(worker) = self.worker.take()
        {
            let _ = worker.join();
        }
    }
}

/// What the disk's thread holds.
struct Disk {
    store: Store,
    history_file: Option<PathBuf>,
    /// Where what went to the clipboard is kept as well.
    catalog: Option<Arc<dyn Catalog>>,
    load: LoadRequest,
}

impl Disk {
    fn perform(&mut self, job: Job) -> anyhow::Result<Option<Reply>> {
        Ok(match job {
            Job::Append(record) => {
                self.store.append(record)?;
                None
            }
            Job::NewChat => {
                self.store.new_chat();
                None
            }
            Job::OpenChat(id) => Some(Reply::Opened(Box::new(self.store.open(&id)?))),
            Job::OpenLatest => Some(Reply::Opened(Box::new(self.store.open_latest()?))),
            Job::ListChats => Some(Reply::Chats(self.store.list()?)),
            Job::Fork { messages } => match self.store.current_id() {
                Some(_) => Some(Reply::Forked(self.store.fork(messages)?)),
                None => None,
            },
            Job::DeleteChat(id) => {
                let (title, current) = self.store.delete(id.as_deref())?;
                Some(Reply::Deleted { title, current })
            }
            Job::UndeleteChat => Some(Reply::Undeleted(self.store.undelete()?)),
            Job::Rename { id, title } => {
                let current = self.store.rename(&id, &title)?;
                Some(Reply::Renamed { title, current })
            }
            Job::Search(wanted) => {
                let hits = self.store.search(&wanted)?;
                Some(Reply::Found { wanted, hits })
            }
            Job::Export { path, title, messages } => {
                Some(Reply::Exported(export::write(&expand_home(&path), &title, &messages)?))
            }
            Job::Import(path) => {
                let (title, messages) = export::import(&expand_home(&path))?;
                Some(Reply::Imported { title, messages })
            }
            Job::ReadFile { path, most_bytes } => {
                let text = read_file(&expand_home(&path), most_bytes)?;
                Some(Reply::File { path, text })
            }
            Job::ListFiles(prefix) => {
                let names = names(&prefix);
                Some(Reply::Files { prefix, names })
            }
            Job::AddHistory(line) => {
                self.add_history(&line)?;
                None
            }
            Job::LoadTheme(name) => {
                let theme = Theme::load(&expand_home(&name))?;
                Some(Reply::Theme { name, theme: Box::new(theme) })
            }
            Job::KeepCopy(text) => match self.store.keep_copy(&text) {
                Ok(path) => Some(Reply::Kept(path)),
                Err(SessionError::NotSaved) => None,
                Err(e) => return Err(e.into()),
            },
            Job::Catalog => match &self.catalog {
                Some(catalog) => Some(shelf(catalog.as_ref())?),
                None => None,
            },
            Job::DiscardPart(name) => match &self.catalog {
                Some(catalog) => {
                    catalog.discard(&name)?;
                    Some(shelf(catalog.as_ref())?)
                }
                None => None,
            },
            Job::Forecast { model, budget } => {
                let load = LoadRequest { budget, ..self.load.clone() };
                let forecast = self.catalog.as_ref().and_then(|c| c.forecast(&model, &load));
                Some(Reply::Forecast { model, forecast })
            }
        })
    }

    fn add_history(&self, line: &str) -> std::io::Result<()> {
        let Some(path) = &self.history_file else { return Ok(()) };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
        file.write_all(format!("{line}\n").as_bytes())
    }
}

/// What there is to choose from.
fn shelf(catalog: &dyn Catalog) -> anyhow::Result<Reply> {
    Ok(Reply::Catalog { entries: catalog.entries()?, available_bytes: catalog.available_bytes() })
}

/// `~/` is the home folder, as in a shell.
pub fn expand_home(path: &str) -> String {
    match (path.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => path.to_owned(),
    }
}

fn read_file(path: &str, most_bytes: usize) -> anyhow::Result<String> {
    small_file::read_text(path.as_ref(), most_bytes as u64).map_err(|e| anyhow::anyhow!("{path}: {e}"))
}

/// Paths that begin with `prefix`, folders with a slash; names that hold control characters are left out.
fn names(prefix: &str) -> Vec<String> {
    let (folder, start) = match prefix.rfind('/') {
        Some(at) => prefix.split_at(at + 1),
        None => ("", prefix),
    };
    let path = expand_home(folder);
    let path = if path.is_empty() { Path::new(".") } else { Path::new(&path) };
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter_map(|e| {
            let name = e.file_name().into_string().ok()?;
            let hidden = name.starts_with('.') && !start.starts_with('.');
            let fits = name.starts_with(start) && !hidden && !name.chars().any(char::is_control);
            let slash = if e.path().is_dir() { "/" } else { "" };
            fits.then(|| format!("{folder}{name}{slash}"))
        })
        .filter(|n| n != prefix)
        .take(MOST_NAMES)
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn paths_are_completed_with_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("notes")).unwrap();
        std::fs::write(folder.path().join("novel.txt"), "x").unwrap();
        std::fs::write(folder.path().join(".hidden"), "x").unwrap();
        let base = folder.path().to_str().unwrap();
        assert_eq!(names(&format!("{base}/no")), [format!("{base}/notes/"), format!("{base}/novel.txt")]);
        assert_eq!(names(&format!("{base}/nov/")), Vec::<String>::new());
    }

    #[test]
    fn what_cannot_be_put_into_a_message_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("binary");
        std::fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
        assert!(read_file(binary.to_str().unwrap(), 100).unwrap_err().to_string().contains("not text"));
        assert!(read_file("/nowhere/at/all", 100).is_err());
        assert!(read_file(folder.path().to_str().unwrap(), 100).unwrap_err().to_string().contains("not a file"));
    }
}
