//! Every view at four sizes, in colour, mono and ASCII.
#![allow(clippy::unwrap_used)]

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use crate::engine::protocol::{Event, FinishReason, Phase};
use crate::tui::app::App;
use crate::tui::glyphs::{ASCII, UNICODE};
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

fn at_all_sizes(name: &str, mut app: App) {
    for size in SIZES {
        let terminal = drawn(&mut app, size);
        insta::assert_snapshot!(format!("{name}_{}x{}", size.0, size.1), text(&terminal));
    }
}

#[test]
fn the_chat_in_mid_answer() {
    let mut app = samples::app();
    chat(&mut app);
    at_all_sizes("chat", app);
}

#[test]
fn the_chat_in_ascii_has_no_other_character_but_those_of_the_messages() {
    let mut app = samples::looking(Theme::mono(), ASCII);
    chat(&mut app);
    for size in SIZES {
        let shown = text(&drawn(&mut app, size));
        let odd: String = shown.chars().filter(|c| !c.is_ascii() && !"日本語のテキスト".contains(*c)).collect();
        assert_eq!(odd, "");
    }
    at_all_sizes("chat_ascii", app);
}

#[test]
fn the_colours_of_the_chat() {
    let mut app = samples::app();
    chat(&mut app);
    insta::assert_snapshot!("chat_colours", styles(&drawn(&mut app, (120, 40))));
    let mut mono = samples::looking(Theme::mono(), UNICODE);
    chat(&mut mono);
    let terminal = drawn(&mut mono, (120, 40));
    assert!(terminal.backend().buffer().content().iter().all(|c| c.fg == Color::Reset && c.bg == Color::Reset));
    insta::assert_snapshot!("chat_mono", styles(&terminal));
}

#[test]
fn the_first_screen_with_its_offer_and_the_fetch() {
    let mut app = samples::app();
    update(&mut app, Msg::Reply(Reply::Catalog(samples::catalog())));
    for size in SIZES {
        insta::assert_snapshot!(format!("offer_{}x{}", size.0, size.1), text(&drawn(&mut app, size)));
    }
    press(&mut app, "enter");
    let progress = PullProgress { what: "fetching", done_bytes: 40 << 20, total_bytes: 94 << 20 };
    update(&mut app, Msg::Reply(Reply::Pulling(progress)));
    app.pull.as_mut().unwrap().resumed_bytes = Some(0);
    app.now = app.pull.as_ref().unwrap().since + std::time::Duration::from_secs(10);
    at_all_sizes("fetch", app);
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
    at_all_sizes("prefill", app);
}

#[test]
fn help_pickers_and_the_budget_editor() {
    let mut app = samples::app();
    samples::ready(&mut app);
    app.has_catalog = true;
    press(&mut app, "f1");
    for size in SIZES {
        insta::assert_snapshot!(format!("help_{}x{}", size.0, size.1), text(&drawn(&mut app, size)));
    }
    press(&mut app, "esc");
    enter(&mut app, "/budget");
    type_in(&mut app, "60%");
    for size in SIZES {
        insta::assert_snapshot!(format!("budget_{}x{}", size.0, size.1), text(&drawn(&mut app, size)));
    }
    press(&mut app, "esc");
    enter(&mut app, "/model");
    update(&mut app, Msg::Reply(Reply::Catalog(samples::catalog())));
    press(&mut app, "down");
    at_all_sizes("models", app);
}

#[test]
fn the_panels_zoomed() {
    let mut app = samples::app();
    chat(&mut app);
    for panel in ["memory", "layers", "speed"] {
        enter(&mut app, &format!("/{panel}"));
        press(&mut app, "right");
        press(&mut app, "right");
        for size in SIZES {
            insta::assert_snapshot!(format!("zoom_{panel}_{}x{}", size.0, size.1), text(&drawn(&mut app, size)));
        }
        press(&mut app, "esc");
    }
}

#[test]
fn offers_above_the_composer_and_a_long_message() {
    let mut app = samples::app();
    chat(&mut app);
    type_in(&mut app, "/");
    for size in SIZES {
        insta::assert_snapshot!(format!("popup_{}x{}", size.0, size.1), text(&drawn(&mut app, size)));
    }
    app.composer.set("");
    app.popup = None;
    app.composer.insert(&"words that wrap ".repeat(40));
    at_all_sizes("composer", app);
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
