//! Drives the engine for one-shot commands: load, answer, stop on SIGINT.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::Detailed;
use crate::engine::protocol::{
    Command, Event, Failure, FailureKind, FinishReason, GenerationStats, LoadRequest, ModelInfo, Request, Snapshot,
};
use crate::engine::{EngineHandle, EventReceiver};
use crate::size::format_size;

/// How an awaited step ended when it did not fail.
pub enum Step<T> {
    Done(T),
    /// SIGINT or SIGTERM came.
    Interrupted,
}

/// An engine with one model, driven synchronously.
pub struct Driver {
    runtime: Runtime,
    handle: EngineHandle,
    events: EventReceiver,
    answers: u64,
}

impl Driver {
    pub fn new() -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, events) = EngineHandle::spawn()?;
        Ok(Self { runtime, handle, events, answers: 0 })
    }

    /// Loads a model and waits for it.
    pub fn load(&mut self, request: LoadRequest) -> anyhow::Result<Step<ModelInfo>> {
        self.handle.send(Command::Load(Box::new(request)));
        self.wait(|event| match event {
            Event::Loaded(info) => Some(Ok(*info)),
            Event::Failed(failure) => Some(Err(failure)),
            _ => None,
        })
    }

    /// Makes one answer; `on_text` gets its pieces as they come. On an interrupt the answer is abandoned.
    pub fn generate(
        &mut self,
        request: Request,
        mut on_text: impl FnMut(&str) -> std::io::Result<()>,
    ) -> anyhow::Result<Step<(FinishReason, GenerationStats)>> {
        self.answers += 1;
        let request = Request { id: self.answers, ..request };
        self.handle.send(Command::Generate(Box::new(request)));
        let mut broken_output = None;
        let step = self.wait(|event| match event {
            Event::Text { text, .. } => on_text(&text).err().map(|error| {
                broken_output = Some(error);
                Err(Failure::default())
            }),
            Event::Finished { reason, stats, .. } => Some(Ok((reason, *stats))),
            Event::Broken { failure, .. } => Some(Err(failure)),
            _ => None,
        });
        match broken_output {
            Some(error) => {
                self.handle.cancel();
                Err(error.into())
            }
            None => step,
        }
    }

    /// Forgets the conversation.
    pub fn reset(&self) {
        self.handle.send(Command::Reset);
    }

    /// The newest figures.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.handle.snapshots().borrow().clone()
    }

    /// Takes events until `pick` has what it waits for, or the user interrupts.
    fn wait<T>(&mut self, mut pick: impl FnMut(Event) -> Option<Result<T, Failure>>) -> anyhow::Result<Step<T>> {
        let (handle, events) = (&self.handle, &mut self.events);
        self.runtime.block_on(async {
            let interrupt = interrupted();
            tokio::pin!(interrupt);
            loop {
                tokio::select! {
                    biased;
                    _ = &mut interrupt => {
                        handle.cancel();
                        return Ok(Step::Interrupted);
                    }
                    event = events.recv() => match event.map(&mut pick) {
                        Some(Some(Ok(value))) => return Ok(Step::Done(value)),
                        Some(Some(Err(failure))) => return Err(describe(&failure)),
                        Some(None) => {}
                        None => anyhow::bail!("the engine has gone; please report this"),
                    },
                }
            }
        })
    }
}

/// Ends when the user or the system asks the program to stop.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        result = tokio::signal::ctrl_c() => if result.is_err() { std::future::pending::<()>().await },
        _ = terminate.recv() => {}
    }
}

/// A failure as the command line reports it: one line, then the itemised list if there is one.
pub fn describe(failure: &Failure) -> anyhow::Error {
    // Flags help only where a command is given again, not in a chat.
    let advice = if failure.kind == FailureKind::Budget { "; raise --budget or lower --ctx" } else { "" };
    Detailed { message: format!("{}{advice}", failure.message), details: details(failure).collect() }.into()
}

/// What the least that runs is made of, a line each.
pub fn details(failure: &Failure) -> impl Iterator<Item = String> + '_ {
    failure.shortfall.iter().flat_map(|shortfall| {
        shortfall.lines.iter().map(|line| format!("{:>10}  {}", format_size(line.bytes), line.what))
    })
}
