//! Ctrl-C and SIGTERM for commands that work on their own thread and look at a flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Watches for signals until it is dropped. The first one raises the flag; a second one ends the process at once.
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    watcher: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Interrupt {
    pub fn watch() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        // Registered before we return, so that no signal is lost from here on.
        let (mut interrupt, mut terminate) = {
            let _guard = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let raised = Arc::new(AtomicBool::new(false));
        let flag = raised.clone();
        let (stop, mut stopped) = oneshot::channel();
        let watcher = std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = &mut stopped => return,
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    if flag.swap(true, Ordering::Relaxed) {
                        std::process::exit(130);
                    }
                }
            });
        })?;
        Ok(Self { raised, watcher: Some((stop, watcher)) })
    }

    pub fn flag(&self) -> &AtomicBool {
        &self.raised
    }

    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        if let Some((stop, watcher)) = self.watcher.take() {
            let _ = stop.send(());
            let _ = watcher.join();
        }
    }
}
