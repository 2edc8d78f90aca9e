//! The log: a file in the state folder, when `SIPLLM_LOG` says what to put there; never the terminal, which belongs to
//! the chat. Also what becomes of a panic.

use std::fs::OpenOptions;
use std::path::PathBuf;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::engine;
use crate::places;

/// A log that has grown past this begins anew.
const MOST_BYTES: u64 = 16 << 20;

/// Why there is no log although one was asked for.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("SIPLLM_LOG: {0}; write debug, or sipllm=trace")]
    Filter(String),
    #[error("SIPLLM_LOG asks for a log, and no home folder is known for this user")]
    NoHome,
    #[error("cannot log to {}: {source}", path.display())]
    Unwritable { path: PathBuf, source: std::io::Error },
}

/// Starts the log if `SIPLLM_LOG` is set. It is written until the guard is dropped.
pub fn start() -> Result<Option<WorkerGuard>, LogError> {
    let Some(directives) = std::env::var("SIPLLM_LOG").ok().filter(|text| !text.is_empty()) else { return Ok(None) };
    let filter = EnvFilter::try_new(&directives).map_err(|error| LogError::Filter(error.to_string()))?;
    let folder = places::state_dir().ok_or(LogError::NoHome)?;
    let path = folder.join("sipllm.log");
    let open = || {
        std::fs::create_dir_all(&folder)?;
        let anew = std::fs::metadata(&path).is_ok_and(|data| data.len() > MOST_BYTES);
        if anew {
            std::fs::remove_file(&path)?;
        }
        OpenOptions::new().append(true).create(true).open(&path)
    };
    let file = open().map_err(|source| LogError::Unwritable { path: path.clone(), source })?;
    // A slow disk must not hold up the engine; lines that find no room are dropped.
    let (writer, guard) = NonBlockingBuilder::default().buffered_lines_limit(4096).lossy(true).finish(file);
    // A second call, which only tests make, finds the log started.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false).try_init();
    Ok(Some(guard))
}

/// One line for a panic, which is a defect, instead of a backtrace over the user's screen. The engine's own panics are
/// caught and told as events: they go to the log only.
pub fn tell_panics(mut tell: impl FnMut(&str) + Send + 'static) {
    let tell = std::sync::Mutex::new(move |line: &str| tell(line));
    std::panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        let place = info.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
        let line = format!("internal error: {}{place}; please report it", text.unwrap_or("unknown"));
        tracing::error!("{line}");
        if std::thread::current().name() != Some(engine::THREAD_NAME)
            && let Ok(mut tell) = tell.lock()
        {
            tell(&line);
        }
    }));
}
