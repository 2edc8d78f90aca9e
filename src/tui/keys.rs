//! Keys on their way from the terminal. A thread waits for them, so that a terminal that hangs up in the middle of a
//! read stops that thread and not the one that saves the chat.

use std::io::{self, PipeReader, PipeWriter};
use std::thread::JoinHandle;
use std::time::Duration;

use crossterm::event::Event;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Keys, pastes and mouse events while it lives; dropping it leaves the terminal's input to others.
pub struct Keys {
    events: UnboundedReceiver<Event>,
    /// Closing it ends the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    pub fn start() -> io::Result<Keys> {
        let (stopped, stop) = io::pipe()?;
        let (sender, events) = unbounded_channel();
        let thread = std::thread::Builder::new().name("keys".into()).spawn(move || forward(&stopped, &sender))?;
        Ok(Keys { events, stop: Some(stop), thread: Some(thread) })
    }

    /// The next event; `None` once the terminal is gone.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Reads no more: the terminal's input is for others.
    pub fn pause(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// An event that is there already.
    pub fn waiting(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // A thread caught in a hang-up does not end, so it is not waited for.
        self.stop = None;
    }
}

/// Hands events on until the terminal or the receiver is gone.
fn forward(stopped: &PipeReader, events: &UnboundedSender<Event>) {
    let stdin = rustix::stdio::stdin();
    loop {
        let mut waits = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut waits, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        // A terminal that has hung up reads as empty for ever, and the parser would try for as long.
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        if !waits[1].revents().is_empty() || waits[0].revents().intersects(gone) {
            return;
        }
        // It looks at the terminal only where it may wait for a moment.
        while let Ok(true) = crossterm::event::poll(Duration::from_millis(1)) {
            match crossterm::event::read() {
                Ok(event) => {
                    if events.send(event).is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}
