//! Every view at four sizes, in colour, mono and ASCII.
#![allow(clippy::unwrap_used)]

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use crate::engine::protocol::{Event, Failure, FailureKind, FinishReason, LedgerLine, Phase, Shortfall};
use crate::session::Summary;
use crate::tui::app::App;
use crate::tui::glyphs::{ASCII, Glyphs, UNICODE};
use crate::tui::message::{Msg, Reply};
use crate::tui::options::PullProgress;
use crate::tui::samples::{self, answer, engine, enter, press, type_in};
use crate::tui::theme::Theme;
use crate::tui::update::update;

const SIZES: [(u16, u16); 4] = [(80, 24), (120, 40), (200, 50), (40, 12)];

fn drawn(app: &mut App, (columns, rows): (u16, u16)) -> Terminal<TestBackend> {
    app.size = (columns, rows);
    super::prepare(app);
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| super::draw(frame, app)).unwrap();
    terminal
}

fn text(terminal: &Terminal<TestBackend>) -> String {
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        let mut skip = 0;
        for x in 0..buffer.area.width {
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let symbol = buffer[(x, y)].symbol();
            skip = crate::tui::wrap::text_width(symbol).saturating_sub(1);
            line.push_str(symbol);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The colour and weight of every cell, a letter each: what a theme does to a view.
fn styles(terminal: &Terminal<TestBackend>) -> String {
    let buffer = terminal.backend().buffer();
    let letter = |x: u16, y: u16| {
        let cell = &buffer[(x, y)];
        if cell.modifier.contains(Modifier::REVERSED) {
            return 'R';
        }
        let letter = match cell.fg {
            Color::Reset => '.',
            Color::DarkGray => 'd',
            Color::Green => 'g',
            Color::Cyan => 'c',
            Color::Magenta => 'm',
            Color::Blue => 'b',
            Color::Yellow => 'y',
            Color::LightRed => 'r',
            _ => '?',
        };
        match (letter, cell.modifier.contains(Modifier::BOLD)) {
            ('.', true) => 'B',
            (l, true) => l.to_ascii_uppercase(),
            (l, false) => l,
        }
    };
    (0..buffer.area.height).map(|y| (0..buffer.area.width).map(|x| letter(x, y)).collect::<String>() + "\n").collect()
}

/// A chat with a bit of everything.
fn chat(app: &mut App) {
    samples::ready(app);
    enter(app, "What is the capital of France?");
    let text = "The capital of France is **Paris**.\n\n1. one\n2. two with `code`\n\n```rust\nfn main() {}\n```\n\n\
                | name | size |\n|---|--:|\n| a | 1 |\n\n> quoted\n\n日本語のテキスト";
    answer(app, text, FinishReason::Stop);
    enter(app, "Tell me more");
    let id = app.answer.as_ref().unwrap().id;
    engine(app, Event::Text { id, text: "It lies on the Seine".into() });
    let mut figures = samples::figures();
    figures.generation = Some(id);
    figures.phase = Phase::Decode;
    update(app, Msg::Figures(figures.into()));
}

/// The view at the four sizes; then the same in ASCII, and its colours in the default theme and without any.
fn at_all_sizes(name: &str, app: &mut App) {
    for size in SIZES {
        insta::assert_snapshot!(format!("{name}_{}x{}", size.0, size.1), text(&drawn(app, size)));
    }
    let all = |app: &mut App, shown: fn(&Terminal<TestBackend>) -> String| {
        SIZES.map(|size| format!("{}x{}\n{}", size.0, size.1, shown(&drawn(app, size)))).join("\n")
    };
    insta::assert_snapshot!(format!("{name}_colours"), all(app, runs));
    look(app, Theme::mono(), ASCII);
    insta::assert_snapshot!(format!("{name}_mono"), all(app, runs));
    let ascii = all(app, text);
    let odd: String = ascii.chars().filter(|c| !c.is_ascii() && !"日本語のテキスト".contains(*c)).collect();
    assert_eq!(odd, "", "{name} in ASCII");
    insta::assert_snapshot!(format!("{name}_ascii"), ascii);
    look(app, Theme::named("default").unwrap(), UNICODE);
}

fn look(app: &mut App, theme: Theme, glyphs: Glyphs) {
    app.theme = theme.into();
    app.glyphs = glyphs;
    app.transcript.set_look(app.theme.clone(), glyphs);
}

/// The colours of each line as letters and how many columns each has.
fn runs(terminal: &Terminal<TestBackend>) -> String {
    let line = |line: &str| {
        let mut runs: Vec<(char, usize)> = Vec::new();
        for c in line.chars() {
            match runs.last_mut() {
                Some((last, count)) if *last == c => *count += 1,
                _ => runs.push((c, 1)),
            }
        }
        runs.iter().map(|(c, count)| format!("{c}{count}")).collect::<Vec<_>>().join(" ")
    };
    styles(terminal).lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn the_chat_in_mid_answer() {
    let mut app = samples::app();
    chat(&mut app);
    at_all_sizes("chat", &mut app);
}

#[test]
fn without_colour_no_cell_has_one() {
    let mut mono = samples::looking(Theme::mono(), UNICODE);
    chat(&mut mono);
    let terminal = drawn(&mut mono, (120, 40));
    assert!(terminal.backend().buffer().content().iter().all(|c| c.fg == Color::Reset && c.bg == Color::Reset));
}

#[test]
fn thoughts_places_found_notes_and_a_refused_budget() {
    let mut app = samples::app();
    samples::ready(&mut app);
    enter(&mut app, "Why is the sea salt?");
    answer(
        &mut app,
        "<think>rivers carry salt\n\nthe sun takes water</think>Rivers carry **salt** into it.",
        FinishReason::Stop,
    );
    let shortfall = Shortfall {
        asked_bytes: 1 << 20,
        least_bytes: 42 << 20,
        lines: vec![LedgerLine { what: "ring", bytes: 8 << 20 }, LedgerLine { what: "program", bytes: 34 << 20 }],
    };
    let failure = Failure {
        kind: FailureKind::Budget,
        message: "the budget of 1.0 MiB is under the least that runs".into(),
        shortfall: Some(shortfall),
    };
    engine(&mut app, Event::Failed(failure));
    at_all_sizes("notes", &mut app);
    press(&mut app, "alt-t");
    enter(&mut app, "/find salt");
    at_all_sizes("found", &mut app);
}

#[test]
fn saved_chats_and_a_screen_without_its_panels() {
    let mut app = samples::app();
    chat(&mut app);
    enter(&mut app, "/panel layers");
    for size in SIZES {
        insta::assert_snapshot!(format!("without_layers_{}x{}", size.0, size.1), text(&drawn(&mut app, size)));
    }
    enter(&mut app, "/panel");
    at_all_sizes("without_panels", &mut app);
    enter(&mut app, "/sessions");
    let summary = |id: &str, title: &str, branch: Option<&str>| Summary {
        id: id.into(),
        title: title.into(),
        messages: 4,
        changed: 0,
        branch_of: branch.map(str::to_owned),
        preview: "The last words of this chat, which go on for a while so that they are wrapped.".into(),
    };
    let chats = vec![
        summary("20260102-090000", "Whales (branch)", Some("20260101-080000")),
        summary("20260101-080000", "Whales", None),
    ];
    update(&mut app, Msg::Reply(Reply::Chats(chats)));
    at_all_sizes("chats", &mut app);
}

#[test]
fn the_first_screen_with_its_offer_and_the_fetch() {
    let mut app = samples::app();
    update(&mut app, Msg::Reply(samples::shelf()));
    at_all_sizes("offer", &mut app);
    press(&mut app, "enter");
    let progress = PullProgress { what: "fetching", done_bytes: 40 << 20, total_bytes: 94 << 20 };
    update(&mut app, Msg::Reply(Reply::Pulling(progress)));
    app.pull.as_mut().unwrap().resumed_bytes = Some(0);
    app.now = app.pull.as_ref().unwrap().since + std::time::Duration::from_secs(10);
    at_all_sizes("fetch", &mut app);
}

#[test]
fn reading_the_prompt() {
    let mut app = samples::app();
    samples::ready(&mut app);
    enter(&mut app, "a long prompt");
    let mut figures = samples::figures();
    figures.generation = Some(app.answer.as_ref().unwrap().id);
    figures.phase = Phase::Prefill { done_tokens: 96, total_tokens: 122, layer: 17, left_s: 4.2 };
    update(&mut app, Msg::Figures(figures.into()));
    assert!(text(&drawn(&mut app, (80, 24))).contains("reading prompt 96/122 · layer 17/30 · 4 s left"));
    at_all_sizes("prefill", &mut app);
}

#[test]
fn help_pickers_and_the_budget_editor() {
    let mut app = samples::app();
    samples::ready(&mut app);
    app.has_catalog = true;
    press(&mut app, "f1");
    at_all_sizes("help", &mut app);
    press(&mut app, "esc");
    enter(&mut app, "/budget");
    type_in(&mut app, "60%");
    at_all_sizes("budget", &mut app);
    press(&mut app, "esc");
    enter(&mut app, "/model");
    update(&mut app, Msg::Reply(samples::shelf()));
    press(&mut app, "down");
    at_all_sizes("models", &mut app);
}

#[test]
fn the_panels_zoomed() {
    let mut app = samples::app();
    chat(&mut app);
    for panel in ["memory", "layers", "speed"] {
        enter(&mut app, &format!("/{panel}"));
        press(&mut app, "right");
        press(&mut app, "right");
        at_all_sizes(&format!("zoom_{panel}"), &mut app);
        press(&mut app, "esc");
    }
}

#[test]
fn offers_above_the_composer_and_a_long_message() {
    let mut app = samples::app();
    chat(&mut app);
    type_in(&mut app, "/");
    at_all_sizes("popup", &mut app);
    app.composer.set("");
    app.popup = None;
    app.composer.insert(&"words that wrap ".repeat(40));
    at_all_sizes("composer", &mut app);
}

#[test]
fn a_screen_too_small_says_so_and_recovers() {
    let mut app = samples::app();
    chat(&mut app);
    assert_eq!(text(&drawn(&mut app, (20, 5))).trim(), "too small");
    for size in [(1, 1), (2, 3), (24, 6), (30, 7), (99, 15), (100, 16), (300, 100)] {
        drawn(&mut app, size);
    }
    assert!(text(&drawn(&mut app, (80, 24))).contains("Tell me more"));
}

#[test]
fn the_cursor_stands_where_the_next_character_goes() {
    let mut app = samples::app();
    samples::ready(&mut app);
    type_in(&mut app, "日本");
    let mut terminal = drawn(&mut app, (80, 24));
    let position = terminal.get_cursor_position().unwrap();
    assert_eq!((position.x, position.y), (2 + 4, 21));
}

#[test]
fn lists_that_do_not_fit_say_how_much_more_there_is() {
    let mut app = samples::app();
    samples::ready(&mut app);
    type_in(&mut app, "/");
    let all = crate::tui::slash::Slash::ALL.len();
    assert!(text(&drawn(&mut app, (80, 24))).contains(&format!("8 of {all} \u{2193}")));
    press(&mut app, "up");
    assert!(text(&drawn(&mut app, (80, 24))).contains(&format!("{all} of {all}")));
    press(&mut app, "ctrl-u");
    enter(&mut app, "/sessions");
    let chat = |n: u32| Summary { id: format!("2026010{}-00000{}", n / 10, n % 10), ..Summary::default() };
    update(&mut app, Msg::Reply(Reply::Chats((0..30).map(chat).collect())));
    assert!(text(&drawn(&mut app, (80, 24))).contains("11 of 30 \u{2193}"));
    press(&mut app, "end");
    assert!(text(&drawn(&mut app, (80, 24))).contains(" 30 of 30\n"));
}

#[test]
fn what_stands_in_the_side_panels_is_whole() {
    let mut app = samples::app();
    samples::ready(&mut app);
    app.frozen = true;
    let mut figures = samples::figures();
    figures.memory.rss_bytes = 112 << 20;
    figures.memory.budget_bytes = 112 << 20;
    figures.memory.pinned_bytes = 171 << 20;
    figures.layers.iter_mut().for_each(|l| l.compute_us = 0);
    app.snapshot = figures.into();
    let screen = text(&drawn(&mut app, (120, 40)));
    assert!(screen.contains("HELD       112.0 / 112.0 MiB \u{2502}"), "{screen}");
    assert!(screen.contains("times come with an answer "), "{screen}");
    assert!(screen.contains("pinned 171  \u{2593} ring 8.0"), "{screen}");
}

#[test]
fn a_budget_beyond_full_residency_takes_no_more_than_that() {
    let mut app = samples::app();
    samples::ready(&mut app);
    let mut figures = samples::figures();
    figures.memory.budget_bytes = 5 << 30;
    app.snapshot = figures.into();
    enter(&mut app, "/budget");
    // 5 GiB and the 62 MiB held, less 140 MiB.
    assert!(text(&drawn(&mut app, (80, 24))).contains("the machine would have 4.92 GiB left"));
}
