//! The inference thread: takes commands one after the other, and survives what goes wrong in them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::figures::Figures;
use super::generation::{self, Outcome};
use super::handle::{EngineEnd, EngineHandle, Envelope, EventReceiver};
use super::loaded::Loaded;
use super::protocol::{Budget, Command, Event, Failure, FailureKind, LoadRequest, Phase, Request};
use crate::kernels::Cancel;
use crate::sanitize::sanitize;

/// Name of the thread, by which a panic hook can tell it from the screen's.
pub const THREAD_NAME: &str = "engine";

impl EngineHandle {
    /// Starts the engine. It ends when told to, or when every handle is gone.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn spawn() -> std::io::Result<(EngineHandle, EventReceiver)> {
        let (handle, events, end) = EngineHandle::pair();
        thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(move || Engine::new(end).run())?;
        Ok((handle, events))
    }
}

struct Engine {
    // Before the channels: whoever sees them closed finds the model's memory given back.
    loaded: Option<Loaded>,
    end: EngineEnd,
    figures: Figures,
}

impl Engine {
    fn new(end: EngineEnd) -> Self {
        Self { end, loaded: None, figures: Figures::default() }
    }

    fn run(mut self) {
        while let Ok(Envelope { command, cancel }) = self.end.commands.recv() {
            match command {
                Command::Shutdown => break,
                Command::Load(request) => self.load(*request),
                Command::Generate(request) => self.generate(&request, &cancel),
                Command::Reset => self.guarded(|engine| {
                    if let Some(loaded) = &mut engine.loaded {
                        loaded.reset();
                    }
                }),
                Command::TakeBudget => self.take_budget(),
            }
            self.publish();
        }
    }

    /// Does `work`; a panic in it becomes an event, and the model is opened anew.
    fn guarded(&mut self, work: impl FnOnce(&mut Self)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(self))) {
            self.send(Event::Failed(internal(&*panic)));
            self.reopen();
        }
    }

    fn load(&mut self, request: LoadRequest) {
        // The old model's memory goes before the new one's comes.
        self.loaded = None;
        self.figures.clear(Phase::Loading);
        self.publish();
        let events = self.end.events.clone();
        let mut tell = move |event| {
            let _ = events.send(event);
        };
        match self.open(request, &mut tell) {
            Ok(()) => {
                // Whoever hears of it finds its figures there.
                self.publish();
                if let Some(loaded) = &self.loaded {
                    self.send(Event::Loaded(Box::new(loaded.info.clone())));
                }
            }
            Err(failure) => {
                self.figures.clear(Phase::NoModel);
                self.send(Event::Failed(failure));
            }
        }
    }

    fn open(&mut self, request: LoadRequest, tell: &mut dyn FnMut(Event)) -> Result<(), Failure> {
        let result = catch_unwind(AssertUnwindSafe(|| Loaded::open(request, tell)));
        self.loaded = Some(result.unwrap_or_else(|panic| Err(internal(&*panic)))?);
        self.figures.clear(Phase::Idle);
        Ok(())
    }

    /// After a panic the model's state is not to be trusted.
    fn reopen(&mut self) {
        let Some(old) = self.loaded.take() else { return };
        let request = LoadRequest { budget: old.ledger.asked(), ..old.request };
        drop(old.model);
        // Front ends have the model still: they would take a beginning without an end for a load that hangs.
        if let Err(failure) = self.open(request, &mut |_| {}) {
            self.figures.clear(Phase::NoModel);
            self.send(Event::Failed(failure));
        }
    }

    fn generate(&mut self, request: &Request, cancel: &Cancel) {
        let id = request.id;
        let Some(loaded) = &mut self.loaded else {
            let message = "no model is loaded; choose one with /model".to_owned();
            let failure = Failure { kind: FailureKind::Request, message, shortfall: None };
            self.send(Event::Broken { id, failure });
            return;
        };
        let (end, figures) = (&self.end, &mut self.figures);
        let result = catch_unwind(AssertUnwindSafe(|| generation::generate(loaded, request, cancel, end, figures)));
        // Whoever hears of the end finds its figures there.
        self.publish();
        match result {
            Ok(Outcome::Finished(reason, stats)) => self.send(Event::Finished { id, reason, stats: Box::new(stats) }),
            Ok(Outcome::Broken(failure)) => self.send(Event::Broken { id, failure }),
            Err(panic) => {
                self.send(Event::Broken { id, failure: internal(&*panic) });
                self.reopen();
            }
        }
        if let Some(loaded) = &self.loaded {
            loaded.model.pool().park();
        }
        // A budget asked for too late for the answer.
        self.take_budget();
    }

    fn take_budget(&mut self) {
        let Some(budget) = self.end.controls.take_budget() else { return };
        self.guarded(|engine| engine.set_budget(budget));
    }

    fn set_budget(&mut self, budget: Budget) {
        let Some(loaded) = &mut self.loaded else { return };
        match loaded.set_budget(budget) {
            Ok(()) => {
                let bytes = loaded.ledger.plan_in_force().map_or(0, |plan| plan.budget_bytes);
                self.send(Event::BudgetSet { budget, bytes });
            }
            Err(failure) => self.send(Event::Failed(failure)),
        }
    }

    fn publish(&mut self) {
        if let Some(loaded) = &self.loaded {
            loaded.snapshot_into(&mut self.figures);
        }
        self.figures.publish(&self.end);
    }

    fn send(&self, event: Event) {
        let event = match event {
            Event::Failed(failure) => Event::Failed(safe(failure)),
            Event::Broken { id, failure } => Event::Broken { id, failure: safe(failure) },
            other => other,
        };
        // A front end that is gone needs no events.
        let _ = self.end.events.send(event);
    }
}

/// The failure with its words fit for a terminal: they may quote the file, its template above all.
fn safe(mut failure: Failure) -> Failure {
    failure.message = sanitize(&failure.message).into_owned();
    failure
}

/// A panic in words.
fn internal(panic: &(dyn Any + Send)) -> Failure {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    Failure {
        kind: FailureKind::Internal,
        message: format!("a defect in the engine: {}; please report it; the chat goes on", sanitize(text)),
        shortfall: None,
    }
}
