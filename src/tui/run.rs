//! The loop between terminal, engine and state: a key is drawn at once, what the engine says is gathered for a frame,
//! figures come four times a second, and while nothing happens nothing wakes it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use super::app::App;
use super::background::Background;
use super::clipboard::{Between, sequence};
use super::composer::History;
use super::glyphs::Glyphs;
use super::input::Input;
use super::keymap::Keymap;
use super::keys::Keys;
use super::message::{Effect, Job, Msg, Reply};
use super::options::{Resume, TuiOptions};
use super::terminal::{self, Screen};
use super::theme::Theme;
use super::update::{Effects, update};
use super::{outside, view};
use crate::engine::protocol::{Command, Event, Snapshot};
use crate::engine::{EngineHandle, EventReceiver};

/// Least time between frames that no key asked for.
const FRAME_LOCAL: Duration = Duration::from_millis(33);
const FRAME_SSH: Duration = Duration::from_millis(83);
/// Least time between figures.
const FIGURES_EVERY: Duration = Duration::from_millis(250);
/// How often the time of an answer is drawn when nothing else changes.
const TICK: Duration = Duration::from_secs(1);
/// How long leaving waits for the engine, at the most.
const LEAVE_WITHIN: Duration = Duration::from_millis(300);
/// Events taken at once before the screen is drawn.
const DRAIN: usize = 512;

/// How the chat ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The user went.
    ByChoice,
    /// A signal came, or the terminal went away.
    Terminated,
}

/// Runs the chat until the user leaves.
pub fn run(engine: EngineHandle, events: EventReceiver, options: TuiOptions) -> anyhow::Result<Left> {
    // All that can be wrong with the settings is said before the terminal is touched.
    let keymap = Keymap::new(&options.keys)?;
    let environment = |name: &str| std::env::var(name).ok();
    let colourless = environment("NO_COLOR").is_some_and(|v| !v.is_empty());
    let theme = Theme::load(&super::background::expand_home(&options.theme))?;
    let theme = if colourless { Theme::mono() } else { theme };
    let glyphs = Glyphs::for_terminal(options.ascii, environment);
    let mut app = App::new(&options, theme, glyphs, colourless, keymap);
    if let Some(text) = options.history_file.as_ref().and_then(|p| crate::small_file::read_text(p, 64 << 20).ok()) {
        app.composer.history = History::parse(&text);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Loop::start(engine, events, options, app)?.run())
}

struct Loop {
    app: App,
    engine: EngineHandle,
    events: EventReceiver,
    replies: UnboundedReceiver<Reply>,
    background: Background,
    screen: Screen,
    keys: Keys,
    frame_every: Duration,
    drawn: Instant,
    /// Something changed since the last frame.
    dirty: bool,
    left: Left,
    /// Last, so that the terminal is given back after everything else.
    _held: terminal::Held,
}

impl Loop {
    fn start(engine: EngineHandle, events: EventReceiver, options: TuiOptions, app: App) -> anyhow::Result<Self> {
        let (sender, replies) = unbounded_channel();
        let most_pasted = app.most_pasted_bytes();
        let background = Background::start(&options, sender)?;
        terminal::install_panic_hook();
        let held = terminal::enter(app.mouse)?;
        let over_ssh = std::env::var_os("SSH_CONNECTION").is_some() || std::env::var_os("SSH_TTY").is_some();
        let mut this = Self {
            app,
            engine,
            events,
            replies,
            background,
            screen: Screen::new()?,
            keys: Keys::start(most_pasted)?,
            frame_every: if over_ssh { FRAME_SSH } else { FRAME_LOCAL },
            drawn: Instant::now(),
            left: Left::ByChoice,
            dirty: true,
            _held: held,
        };
        this.app.size = terminal::size()?;
        this.begin(&options);
        Ok(this)
    }

    /// The first things asked for.
    fn begin(&mut self, options: &TuiOptions) {
        self.background.job(Job::Catalog);
        match &options.resume {
            Resume::Fresh => {}
            Resume::Last => self.background.job(Job::OpenLatest),
            Resume::Id(id) => self.background.job(Job::OpenChat(id.clone())),
        }
        if let Some(path) = &options.model {
            self.app.load.path = path.clone();
            self.app.model = super::app::Model::Loading { path: path.clone(), what: "opening", fraction: 0.0 };
            self.engine.send(Command::Load(Box::new(self.app.load.clone())));
        }
    }

    async fn run(mut self) -> anyhow::Result<Left> {
        let ended = self.turn().await;
        if ended.is_err() {
            // Nothing can be shown any more, but an answer under way is kept.
            self.save_unfinished();
        }
        self.engine.cancel();
        self.engine.send(Command::Shutdown);
        self.wait_for_the_engine().await;
        terminal::drop_input();
        ended.map(|()| self.left)
    }

    /// A key pressed while the model's memory goes is the chat's still: after it, the shell would show a `^C`.
    async fn wait_for_the_engine(&mut self) {
        let gone = async { while self.events.recv().await.is_some() {} };
        let _ = tokio::time::timeout(LEAVE_WITHIN, gone).await;
    }

    fn save_unfinished(&mut self) {
        for effect in super::update::save_unfinished(&mut self.app) {
            if let Effect::Job(job) = effect {
                self.background.job(job);
            }
        }
    }

    fn terminate(&mut self) -> io::Result<()> {
        self.left = Left::Terminated;
        self.apply(Msg::Terminated)
    }

    async fn turn(&mut self) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        let mut figures = self.engine.snapshots();
        let mut figures_after = Instant::now();
        let mut engine_gone = false;
        self.draw()?;
        while !self.app.leaving {
            let due = self.dirty.then(|| self.drawn + self.frame_every);
            let wait_figures = (Instant::now() < figures_after).then_some(figures_after);
            // While an answer is made, its time goes on in sight.
            let tick = self.app.answer.is_some().then(|| self.drawn + TICK);
            let deadline = due.into_iter().chain(wait_figures).chain(tick).min();
            tokio::select! {
                biased;
                // First, so that no flood of keys keeps the program alive.
                signal = signals.next() => self.signal(signal)?,
                input = self.keys.next() => {
                    match input {
                        Some(input) => self.input(input)?,
                        // The terminal is gone: what is said so far is saved on the way out.
                        None => self.terminate()?,
                    }
                    // A burst (a paste without brackets, a held key) is one frame.
                    for _ in 0..DRAIN {
                        match self.keys.waiting() {
                            Some(input) => self.input(input)?,
                            None => break,
                        }
                    }
                    self.draw()?;
                }
                event = self.events.recv(), if !engine_gone => match event {
                    Some(event) => {
                        let answering = self.app.answer.is_some();
                        self.engine(event, &mut figures)?;
                        for _ in 0..DRAIN {
                            let Ok(event) = self.events.try_recv() else { break };
                            self.engine(event, &mut figures)?;
                        }
                        // The end of an answer, which a key may have asked for, waits for no frame.
                        if answering && self.app.answer.is_none() {
                            self.draw()?;
                        }
                    }
                    None => {
                        engine_gone = true;
                        self.apply(Msg::EngineGone)?;
                    }
                },
                Some(reply) = self.replies.recv() => self.apply(Msg::Reply(reply))?,
                changed = figures.changed(), if wait_figures.is_none() && !engine_gone => {
                    figures_after = Instant::now() + FIGURES_EVERY;
                    if changed.is_ok() {
                        let snapshot = figures.borrow_and_update().clone();
                        if *snapshot != *self.app.snapshot {
                            self.apply(Msg::Figures(snapshot))?;
                        }
                    }
                }
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now).into()), if deadline.is_some() => {}
            }
            self.dirty |= self.app.answer.is_some() && self.drawn.elapsed() >= TICK;
            if self.dirty && self.drawn.elapsed() >= self.frame_every {
                self.draw()?;
            }
        }
        Ok(())
    }

    /// What the engine tells comes after its newest figures, which are there before it.
    fn engine(&mut self, event: Event, figures: &mut watch::Receiver<Arc<Snapshot>>) -> io::Result<()> {
        if !matches!(event, Event::Text { .. }) && figures.has_changed().unwrap_or(false) {
            let snapshot = figures.borrow_and_update().clone();
            self.apply(Msg::Figures(snapshot))?;
        }
        self.apply(Msg::Engine(event))
    }

    fn input(&mut self, input: Input) -> io::Result<()> {
        match input {
            Input::Key(key) => self.apply(Msg::Key(key)),
            Input::Paste(text) => self.apply(Msg::Paste(text)),
            Input::PasteTooLong { bytes } => self.apply(Msg::PasteTooLong { bytes }),
            Input::Mouse(mouse) => self.apply(Msg::Mouse(mouse)),
        }
    }

    fn apply(&mut self, msg: Msg) -> io::Result<()> {
        if matches!(&msg, Msg::Engine(Event::Started { .. })) && crate::fault::is_wanted("error") {
            return Err(io::Error::other("a fault that was asked for"));
        }
        self.app.now = Instant::now();
        let effects = update(&mut self.app, msg);
        self.keys.set_most_pasted(self.app.most_pasted_bytes());
        self.dirty = true;
        self.carry_out(effects)
    }

    fn carry_out(&mut self, effects: Effects) -> io::Result<()> {
        for effect in effects {
            match effect {
                Effect::Send(command) => self.engine.send(command),
                Effect::Cancel => self.engine.cancel(),
                Effect::SetBudget(budget) => self.engine.set_budget(budget),
                Effect::Job(job) => self.background.job(job),
                Effect::Pull(name) => self.background.pull(name),
                Effect::CancelPull => self.background.cancel_pull(),
                Effect::Copy(text) => {
                    let between = Between::from_environment(|name| std::env::var(name).ok());
                    self.screen.write(&sequence(&text, between))?;
                    self.apply(Msg::Reply(Reply::Copied { bytes: text.len() }))?;
                }
                Effect::Editor(text) => {
                    let edited = self.outside(|| outside::edit(&text))?;
                    self.apply(Msg::Reply(Reply::Edited(edited)))?;
                }
                Effect::Pager(text) => self.outside(|| outside::page(&text))?,
                Effect::Mouse(on) => terminal::set_mouse(on)?,
                Effect::Suspend => self.outside(outside::suspend)?,
                Effect::Redraw => {
                    self.screen.clear()?;
                    self.drawn = Instant::now().checked_sub(self.frame_every).unwrap_or(self.drawn);
                }
                Effect::Quit => self.app.leaving = true,
            }
        }
        Ok(())
    }

    /// Gives the terminal to another program for a while.
    fn outside<T>(&mut self, work: impl FnOnce() -> T) -> io::Result<T> {
        self.keys.pause();
        terminal::restore();
        let done = work();
        let held = terminal::enter(self.app.mouse)?;
        // One guard lives as long as the loop; this one would restore too early.
        std::mem::forget(held);
        self.keys = Keys::start(self.app.most_pasted_bytes())?;
        self.screen.clear()?;
        self.dirty = true;
        self.draw()?;
        Ok(done)
    }

    fn signal(&mut self, signal: Caught) -> io::Result<()> {
        match signal {
            Caught::Leave => self.terminate(),
            Caught::Resized => {
                let (columns, rows) = terminal::size()?;
                self.apply(Msg::Resize(columns, rows))?;
                self.draw()
            }
            // Stopped from outside and let go on: the terminal may have been changed meanwhile.
            Caught::GoneOn => {
                terminal::restore();
                std::mem::forget(terminal::enter(self.app.mouse)?);
                self.carry_out(vec![Effect::Redraw])?;
                self.draw()
            }
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        self.app.size = terminal::size()?;
        self.app.now = Instant::now();
        view::prepare(&mut self.app);
        let app = &self.app;
        self.screen.draw(app.size, |frame| view::draw(frame, app))?;
        self.drawn = Instant::now();
        self.dirty = false;
        Ok(())
    }
}

impl Drop for Loop {
    /// After a defect of the screen itself, what the model has said so far is kept all the same. The disk's thread is
    /// waited for.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.save_unfinished()));
        }
    }
}

enum Caught {
    Leave,
    Resized,
    GoneOn,
}

struct Signals {
    terminate: Signal,
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
    resize: Signal,
    go_on: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        // SIGCONT has no name among the kinds.
        let go_on = SignalKind::from_raw(rustix::process::Signal::CONT.as_raw());
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            resize: signal(SignalKind::window_change())?,
            go_on: signal(go_on)?,
        })
    }

    async fn next(&mut self) -> Caught {
        tokio::select! {
            _ = self.terminate.recv() => Caught::Leave,
            _ = self.hangup.recv() => Caught::Leave,
            _ = self.interrupt.recv() => Caught::Leave,
            _ = self.quit.recv() => Caught::Leave,
            _ = self.resize.recv() => Caught::Resized,
            _ = self.go_on.recv() => Caught::GoneOn,
        }
    }
}
