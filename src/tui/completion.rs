//! What is offered while a slash command is typed.

use super::app::App;
use super::message::{Effect, Job};
use super::slash::Slash;
use super::theme::Theme;

/// Offers for the word under the cursor.
#[derive(Clone, Debug, PartialEq)]
pub struct Popup {
    /// Bytes of the composer's text that an offer replaces.
    pub from: usize,
    pub offers: Vec<Offer>,
    pub selected: usize,
    /// The offers are commands, not arguments.
    pub commands: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    pub text: String,
    pub note: String,
}

impl Popup {
    fn new(from: usize, offers: Vec<Offer>, commands: bool) -> Option<Self> {
        (!offers.is_empty()).then_some(Self { from, offers, selected: 0, commands })
    }

    pub fn move_by(&mut self, step: isize) {
        let count = self.offers.len() as isize;
        self.selected = (self.selected as isize + step).rem_euclid(count.max(1)) as usize;
    }

    pub fn chosen(&self) -> Option<&Offer> {
        self.offers.get(self.selected)
    }
}

/// Brings the popup in line with the text; asks for files where a path is being typed.
pub fn refresh(app: &mut App) -> Vec<Effect> {
    let text = app.composer.text();
    let at_end = app.composer.cursor() == text.len();
    let kept = app.popup.take().map(|p| (p.from, p.selected));
    if !at_end || text.contains('\n') || !text.starts_with('/') || app.composer.history.is_shown() {
        return Vec::new();
    }
    let mut effects = Vec::new();
    app.popup = match text[1..].split_once(' ') {
        None => {
            let offers = Slash::starting_with(&text[1..])
                .map(|s| Offer { text: format!("/{}", s.name()), note: describe(s) })
                .collect();
            Popup::new(0, offers, true)
        }
        Some((name, argument)) => {
            let from = text.len() - argument.len();
            match Slash::by_name(name) {
                Some(Slash::Read | Slash::Import) => {
                    effects.push(Effect::Job(Job::ListFiles(argument.to_owned())));
                    None
                }
                Some(slash) => {
                    if matches!(slash, Slash::Resume | Slash::Delete) && !app.chats_asked {
                        app.chats_asked = true;
                        effects.push(Effect::Job(Job::ListChats));
                    }
                    Popup::new(from, arguments(app, slash, argument), false)
                }
                None => None,
            }
        }
    };
    if let (Some(popup), Some((from, selected))) = (&mut app.popup, kept)
        && popup.from == from
    {
        popup.selected = selected.min(popup.offers.len() - 1);
    }
    effects
}

/// Names for a path that is still being typed.
pub fn offer_files(app: &mut App, prefix: &str, names: Vec<String>) {
    let text = app.composer.text();
    let Some((name, argument)) = text.split_once(' ') else { return };
    if argument == prefix && matches!(Slash::by_name(&name[1..]), Some(Slash::Read | Slash::Import)) {
        let offers = names.into_iter().map(|text| Offer { text, note: String::new() }).collect();
        app.popup = Popup::new(text.len() - argument.len(), offers, false);
    }
}

fn describe(slash: Slash) -> String {
    match slash.arguments() {
        "" => slash.description().to_owned(),
        arguments => format!("{arguments}  {}", slash.description()),
    }
}

fn arguments(app: &App, slash: Slash, typed: &str) -> Vec<Offer> {
    let begins = |text: &str| text.to_lowercase().starts_with(&typed.to_lowercase()) && text != typed;
    let plain = |names: &[&str]| -> Vec<Offer> {
        let matching = names.iter().filter(|n| begins(n));
        matching.map(|n| Offer { text: (*n).to_owned(), note: String::new() }).collect()
    };
    match slash {
        Slash::Theme => plain(Theme::NAMES),
        Slash::Think => plain(&["on", "off", "low", "medium", "high", "auto"]),
        Slash::Set => plain(&["temp", "top-k", "top-p", "min-p", "repeat-penalty", "seed", "max-tokens"]),
        Slash::Copy => plain(&["all"]),
        Slash::Panel => plain(&["memory", "layers", "speed"]),
        Slash::Budget => plain(&["auto", "60%", "80%", "100%"]),
        Slash::Model => {
            let entries = app.catalog.iter().filter(|e| begins(&e.name));
            entries.map(|e| Offer { text: e.name.clone(), note: e.title.clone() }).collect()
        }
        Slash::Resume | Slash::Delete => {
            let chats = app.chats.iter().filter(|c| begins(&c.id));
            chats.map(|c| Offer { text: c.id.clone(), note: c.title.clone() }).take(50).collect()
        }
        _ => Vec::new(),
    }
}
