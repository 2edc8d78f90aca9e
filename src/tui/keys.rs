//! Keys on their way from the terminal. A thread waits for them, so that a terminal that hangs up in the middle of a
//! read stops that thread and not the one that saves the chat.

use std::io::{self, PipeReader, PipeWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::input::{Input, Parser};

/// How long what follows an Esc may be in coming: a slow link may cut a key's sequence in two.
const SEQUENCE_WITHIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

const CTRL_C: u8 = 3;
/// Events that wait at most; more of them wait in the terminal.
const MOST_WAITING: usize = 512;

/// Keys, pastes and mouse events while it lives; dropping it leaves the terminal's input to others.
pub struct Keys {
    events: Receiver<Input>,
    /// Closing it ends the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
    most_pasted: Arc<AtomicUsize>,
}

impl Keys {
    /// Pastes of more than `most_pasted` bytes are let pass.
    pub fn start(most_pasted: usize) -> io::Result<Keys> {
        let (stopped, stop) = io::pipe()?;
        let (sender, events) = channel(MOST_WAITING);
        let most_pasted = Arc::new(AtomicUsize::new(most_pasted));
        let most = most_pasted.clone();
        let thread =
            std::thread::Builder::new().name("keys".into()).spawn(move || forward(&stopped, &sender, &most))?;
        Ok(Keys { events, stop: Some(stop), thread: Some(thread), most_pasted })
    }

    pub fn set_most_pasted(&self, bytes: usize) {
        self.most_pasted.store(bytes, Ordering::Relaxed);
    }

    /// The next event; `None` once the terminal is gone.
    pub async fn next(&mut self) -> Option<Input> {
        self.events.recv().await
    }

    /// Reads no more: the terminal's input is for others.
    pub fn pause(&mut self) {
        self.stop = None;
        // The thread may be waiting for room.
        self.events.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// An event that is there already.
    pub fn waiting(&mut self) -> Option<Input> {
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
fn forward(stopped: &PipeReader, events: &Sender<Input>, most_pasted: &AtomicUsize) {
    let stdin = rustix::stdio::stdin();
    let mut parser = Parser::default();
    let mut bytes = [0; 4096];
    loop {
        let mut waits = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut waits, parser.is_waiting().then_some(&SEQUENCE_WITHIN)) {
            Ok(0) => {
                if parser.settle().is_some_and(|input| events.blocking_send(input).is_err()) {
                    return;
                }
                continue;
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        if !waits[1].revents().is_empty() || waits[0].revents().intersects(gone) {
            return;
        }
        let read = match rustix::io::read(stdin, &mut bytes) {
            Ok(0) => return,
            Ok(read) => read,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            Err(_) => return,
        };
        let mut open = true;
        // A paste whose end was lost would swallow every key: a Ctrl-C that comes alone is one.
        if bytes[..read] == [CTRL_C]
            && let Some(input) = parser.end_paste()
        {
            if events.blocking_send(input).is_err() {
                return;
            }
            continue;
        }
        parser.feed(&bytes[..read], most_pasted.load(Ordering::Relaxed), |input| {
            open = open && events.blocking_send(input).is_ok()
        });
        if !open {
            return;
        }
    }
}
