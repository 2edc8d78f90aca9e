//! A front end's end of the engine: ordered commands, latest-wins budget, instant cancel.
//!
//! Not responsible for what the engine does with them (`thread`).

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, watch};

use super::protocol::{Budget, Command, Event, Snapshot};
use crate::kernels::{Cancel, CancelHandle};

/// Events as the engine sends them: in order, without loss.
pub type EventReceiver = mpsc::UnboundedReceiver<Event>;

/// A command with the cancel token of the moment in which it was sent: a later cancel stops it, an earlier one does not.
#[derive(Debug)]
pub struct Envelope {
    pub command: Command,
    pub cancel: Cancel,
}

/// What reaches the engine in the middle of an answer without waiting in line.
#[derive(Debug, Default)]
pub struct Controls {
    cancel: CancelHandle,
    budget: Mutex<Option<Budget>>,
}

impl Controls {
    /// The budget asked for since the last call, if any: the last one wins.
    pub fn take_budget(&self) -> Option<Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The engine's side of the channels.
pub struct EngineEnd {
    pub commands: Receiver<Envelope>,
    pub controls: Arc<Controls>,
    pub events: mpsc::UnboundedSender<Event>,
    pub snapshots: watch::Sender<Arc<Snapshot>>,
}

/// Speaks to the engine thread; cheap to clone.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    commands: Sender<Envelope>,
    controls: Arc<Controls>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
}

impl EngineHandle {
    /// A handle with the engine's end of it, to be given to the engine thread or to a scripted stand-in.
    pub fn pair() -> (EngineHandle, EventReceiver, EngineEnd) {
        let (command_sender, commands) = channel();
        let (events, event_receiver) = mpsc::unbounded_channel();
        let (snapshot_sender, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        let controls = Arc::new(Controls::default());
        let handle = EngineHandle { commands: command_sender, controls: controls.clone(), snapshots };
        (handle, event_receiver, EngineEnd { commands, controls, events, snapshots: snapshot_sender })
    }

    /// Queues a command. An engine that is gone shows in its closed event channel.
    pub fn send(&self, command: Command) {
        let _ = self.commands.send(Envelope { command, cancel: self.controls.cancel.token() });
    }

    /// Stops the answer under way and those already queued; what was written stands.
    pub fn cancel(&self) {
        self.controls.cancel.cancel();
    }

    /// Asks for another budget, effective in mid-answer; the last one asked for wins.
    pub fn set_budget(&self, budget: Budget) {
        *self.controls.budget.lock().unwrap_or_else(PoisonError::into_inner) = Some(budget);
        self.send(Command::TakeBudget);
    }

    /// The figures, latest wins.
    pub fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }
}
