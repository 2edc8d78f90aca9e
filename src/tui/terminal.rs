//! The terminal: entered once, each frame written in one piece, and left as it was found, whatever happens.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

/// Alternate screen, bracketed paste.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?2004h\x1b[0m\x1b[2J";
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l";
/// Everything that any frame may have set: synchronised output, mouse, paste, colours, cursor, alternate screen.
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[?1006l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?2004l\x1b[0m\x1b[?25h\x1b[?1049l";
const CLEAR: &[u8] = b"\x1b[0m\x1b[2J";
const BEGIN_FRAME: &[u8] = b"\x1b[?2026h";
const END_FRAME: &[u8] = b"\x1b[?2026l";

/// Whether the terminal is in our hands.
static HELD: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back. Does nothing the second time; safe in a panic hook.
pub fn restore() {
    if HELD.swap(false, Ordering::SeqCst) {
        let _ = write_out(LEAVE);
        let _ = crossterm::terminal::disable_raw_mode();
    }
}

/// Forgets keys that were pressed and not read: they were for the chat, not for what comes after it.
pub fn drop_input() {
    let _ = rustix::termios::tcflush(rustix::stdio::stdin(), rustix::termios::QueueSelector::IFlush);
}

/// Restores when dropped: on return, on error and when a panic unwinds.
pub struct Held;

impl Drop for Held {
    fn drop(&mut self) {
        restore();
    }
}

/// Takes the terminal: raw mode, alternate screen, bracketed paste.
pub fn enter(mouse: bool) -> io::Result<Held> {
    crossterm::terminal::enable_raw_mode()?;
    HELD.store(true, Ordering::SeqCst);
    let held = Held;
    write_out(ENTER)?;
    if mouse {
        write_out(MOUSE_ON)?;
    }
    Ok(held)
}

pub fn set_mouse(on: bool) -> io::Result<()> {
    write_out(if on { MOUSE_ON } else { MOUSE_OFF })
}

/// Restores the terminal before the message of a panic on the thread that draws, and only there: a panic elsewhere
/// is caught and told in the chat.
pub fn install_panic_hook() {
    static ONCE: Once = Once::new();
    let ui: ThreadId = std::thread::current().id();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().id() == ui {
                restore();
                before(info);
            } else if HELD.load(Ordering::SeqCst) {
                tracing::error!("{info}");
            } else {
                before(info);
            }
        }));
    });
}

/// Past std's buffer and lock, which a panic may hold.
fn write_out(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                let stdout = rustix::stdio::stdout();
                let mut wait = [rustix::event::PollFd::new(&stdout, rustix::event::PollFlags::OUT)];
                let _ = rustix::event::poll(&mut wait, None);
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Columns and rows that are drawn on at most: a screen twice over is held in memory, and a window may claim any size.
const MOST: (u16, u16) = (500, 200);

/// Columns and rows to draw on.
pub fn size() -> io::Result<(u16, u16)> {
    let (columns, rows) = crossterm::terminal::size()?;
    Ok((columns.min(MOST.0), rows.min(MOST.1)))
}

/// Gathers what the backend writes, so that a frame goes out in one piece.
#[derive(Clone, Default)]
struct Gathered(Rc<RefCell<Vec<u8>>>);

impl Write for Gathered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Draws frames on the terminal.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Gathered>>,
    gathered: Gathered,
    size: (u16, u16),
}

impl Screen {
    pub fn new() -> io::Result<Screen> {
        let gathered = Gathered::default();
        let backend = CrosstermBackend::new(gathered.clone());
        let viewport = Viewport::Fixed(Rect::default());
        let terminal = Terminal::with_options(backend, TerminalOptions { viewport })?;
        Ok(Screen { terminal, gathered, size: (0, 0) })
    }

    /// One frame of `size`, in synchronised output; nothing is written when nothing changed.
    ///
    /// The size is the caller's, who has laid the view out for it: the window may have another one by now.
    pub fn draw(&mut self, size: (u16, u16), view: impl FnOnce(&mut ratatui::Frame)) -> io::Result<()> {
        if self.size != size {
            self.size = size;
            self.clear()?;
        }
        self.terminal.draw(view)?;
        self.send()
    }

    /// Everything is drawn anew with the next frame.
    pub fn clear(&mut self) -> io::Result<()> {
        // `Terminal::clear` would ask the terminal for the cursor, and wait for an answer.
        self.gathered.0.borrow_mut().extend_from_slice(CLEAR);
        self.terminal.resize(Rect::new(0, 0, self.size.0, self.size.1))
    }

    /// Writes bytes between frames.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_out(bytes)
    }

    fn send(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut *self.gathered.0.borrow_mut());
        if bytes.is_empty() {
            return Ok(());
        }
        let mut frame = Vec::with_capacity(bytes.len() + BEGIN_FRAME.len() + END_FRAME.len());
        frame.extend_from_slice(BEGIN_FRAME);
        frame.extend_from_slice(&bytes);
        frame.extend_from_slice(END_FRAME);
        write_out(&frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_undoes_every_mode_that_is_ever_set() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let leave = text(LEAVE);
        for set in [ENTER, MOUSE_ON, BEGIN_FRAME] {
            for mode in
                text(set).split('\u{1b}').filter_map(|s| s.strip_prefix("[?")?.strip_suffix('h').map(str::to_owned))
            {
                assert!(leave.contains(&format!("[?{mode}l")), "{mode}");
            }
        }
        assert!(leave.contains("[?25h") && leave.contains("[0m"));
    }
}
