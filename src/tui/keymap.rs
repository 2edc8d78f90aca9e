//! Which key does what: defaults, changes from the configuration, and what may not be bound.

use std::collections::{BTreeMap, HashMap};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

macro_rules! actions {
    ($($action:ident $name:literal $keys:literal $what:literal;)*) => {
        /// What a key can be bound to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Action { $($action),* }

        impl Action {
            pub const ALL: &'static [Action] = &[$(Action::$action),*];

            /// Its name in the configuration.
            pub fn name(self) -> &'static str { match self { $(Action::$action => $name),* } }

            /// Its keys unless the configuration says otherwise, separated by spaces.
            fn default_keys(self) -> &'static str { match self { $(Action::$action => $keys),* } }

            pub fn description(self) -> &'static str { match self { $(Action::$action => $what),* } }
        }
    };
}

actions! {
    Send "send" "enter" "send the message";
    Newline "newline" "ctrl-j alt-enter shift-enter" "a new line in the message";
    Interrupt "interrupt" "ctrl-c" "stop the answer (kept); twice when idle: leave";
    Leave "leave" "ctrl-d" "leave, on an empty line";
    BudgetLess "budget-less" "alt-minus" "a tenth less memory";
    BudgetMore "budget-more" "alt-= alt-+" "a tenth more memory";
    BudgetEdit "budget-edit" "alt-g" "the budget editor";
    PageUp "page-up" "pageup" "a page back";
    PageDown "page-down" "pagedown" "a page on";
    LineUp "line-up" "alt-up ctrl-up" "a line back";
    LineDown "line-down" "alt-down ctrl-down" "a line on";
    Top "top" "alt-home ctrl-home alt-<" "to the beginning";
    Bottom "bottom" "alt-end ctrl-end alt->" "to the end, following it";
    FindNext "find-next" "alt-n" "the next place found, further back";
    FindPrevious "find-previous" "alt-r" "the place found before, further on";
    Complete "complete" "tab" "complete; unfold a paste";
    Editor "editor" "ctrl-g" "write the message in $EDITOR";
    Pager "pager" "alt-v" "the chat in $PAGER";
    Models "models" "alt-m" "choose a model";
    Sessions "sessions" "alt-s" "saved chats";
    Panel "panel" "alt-p" "show or hide the panels";
    Zoom "zoom" "alt-z" "figures on the whole screen, one after the other";
    Freeze "freeze" "alt-x" "hold the figures still";
    Think "think" "alt-t" "unfold or fold what was thought";
    Help "help" "f1 alt-h" "help";
    Redraw "redraw" "ctrl-l" "draw the screen anew";
    Suspend "suspend" "ctrl-z" "suspend to the shell";
}

/// A key with its modifiers, in one spelling for what terminals spell in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub code: KeyCode,
    pub modifiers: KeyModifiers,
}

impl From<KeyEvent> for Key {
    fn from(event: KeyEvent) -> Self {
        let mut modifiers = event.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT);
        let code = match event.code {
            // Shift is in the character itself.
            KeyCode::Char(c) => {
                modifiers -= KeyModifiers::SHIFT;
                KeyCode::Char(if modifiers.contains(KeyModifiers::CONTROL) { c.to_ascii_lowercase() } else { c })
            }
            KeyCode::BackTab => {
                modifiers -= KeyModifiers::SHIFT;
                KeyCode::BackTab
            }
            code => code,
        };
        Key { code, modifiers }
    }
}

/// A binding that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeymapError {
    #[error("[keymap] of the configuration: {0:?} is no action; there are {names}", names = action_names())]
    UnknownAction(String),
    #[error("[keymap] of the configuration: {action} = {key:?}: not a key such as alt-x, ctrl-up, f5 or pageup")]
    UnknownKey { action: String, key: String },
    #[error("[keymap] of the configuration: {key} is bound to both {first} and {second}")]
    Conflict { key: String, first: &'static str, second: &'static str },
    #[error(
        "[keymap] of the configuration: {action} = {key}: the line editor, the terminal, tmux or screen needs that key"
    )]
    Reserved { action: &'static str, key: String },
}

fn action_names() -> String {
    Action::ALL.iter().map(|action| action.name()).collect::<Vec<_>>().join(", ")
}

/// The keys in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keymap {
    bound: HashMap<Key, Action>,
}

impl Default for Keymap {
    fn default() -> Self {
        // The defaults are tested to be free of errors.
        Self::new(&BTreeMap::new()).unwrap_or(Self { bound: HashMap::new() })
    }
}

/// Control keys that readline, tmux, screen and the terminal itself own.
const RESERVED: &str = "abefhikmnpqstuwxy";

impl Keymap {
    /// The defaults with `changes`: action name to keys separated by spaces; no key at all unbinds the action.
    pub fn new(changes: &BTreeMap<String, String>) -> Result<Keymap, KeymapError> {
        if let Some(name) = changes.keys().find(|n| !Action::ALL.iter().any(|a| a.name() == n.as_str())) {
            return Err(KeymapError::UnknownAction(name.clone()));
        }
        let mut bound: HashMap<Key, Action> = HashMap::new();
        let mut changed: HashMap<Key, Action> = HashMap::new();
        for action in Action::ALL {
            let own = changes.get(action.name());
            for text in own.map_or(action.default_keys(), String::as_str).split_whitespace() {
                let key = parse_key(text).ok_or_else(|| KeymapError::UnknownKey {
                    action: action.name().to_owned(),
                    key: text.to_owned(),
                })?;
                if own.is_some() && is_reserved(key) {
                    return Err(KeymapError::Reserved { action: action.name(), key: text.to_owned() });
                }
                let map = if own.is_some() { &mut changed } else { &mut bound };
                if let Some(first) = map.insert(key, *action) {
                    return Err(KeymapError::Conflict {
                        key: key_name(key),
                        first: first.name(),
                        second: action.name(),
                    });
                }
            }
        }
        if let Some((key, action)) = changed.iter().find(|(k, a)| bound.get(k).is_some_and(|b| b != *a)) {
            let first = bound.get(key).map_or("", |a| a.name());
            return Err(KeymapError::Conflict { key: key_name(*key), first, second: action.name() });
        }
        bound.extend(changed);
        Ok(Keymap { bound })
    }

    pub fn action(&self, key: Key) -> Option<Action> {
        self.bound.get(&key).copied()
    }

    /// The keys of an action as one reads them, the first one first.
    pub fn keys(&self, action: Action) -> String {
        let mut keys: Vec<Key> = self.bound.iter().filter(|(_, a)| **a == action).map(|(k, _)| *k).collect();
        let order = |key: &Key| {
            let defaults = action.default_keys().split_whitespace();
            defaults.filter_map(parse_key).position(|d| d == *key).unwrap_or(0)
        };
        keys.sort_by_cached_key(|key| (order(key), key_name(*key)));
        keys.into_iter().map(key_name).collect::<Vec<_>>().join(" ")
    }

    /// The first key of an action, for hints.
    pub fn key(&self, action: Action) -> String {
        self.keys(action).split(' ').next().unwrap_or_default().to_owned()
    }
}

fn is_reserved(key: Key) -> bool {
    match key.code {
        KeyCode::Char(c) => key.modifiers.is_empty() || key.modifiers == KeyModifiers::CONTROL && RESERVED.contains(c),
        KeyCode::Backspace | KeyCode::Esc => true,
        _ => false,
    }
}

/// A key from its name in the configuration.
pub fn parse_key(text: &str) -> Option<Key> {
    let mut modifiers = KeyModifiers::NONE;
    let mut rest = text;
    loop {
        let (prefix, modifier) = if let Some(r) = rest.strip_prefix("ctrl-") {
            (r, KeyModifiers::CONTROL)
        } else if let Some(r) = rest.strip_prefix("alt-") {
            (r, KeyModifiers::ALT)
        } else if let Some(r) = rest.strip_prefix("shift-") {
            (r, KeyModifiers::SHIFT)
        } else {
            break;
        };
        modifiers |= modifier;
        rest = prefix;
    }
    let code = match rest {
        "enter" => KeyCode::Enter,
        "tab" => KeyCode::Tab,
        "space" => KeyCode::Char(' '),
        "minus" => KeyCode::Char('-'),
        "esc" => KeyCode::Esc,
        "backspace" => KeyCode::Backspace,
        "delete" => KeyCode::Delete,
        "insert" => KeyCode::Insert,
        "up" => KeyCode::Up,
        "down" => KeyCode::Down,
        "left" => KeyCode::Left,
        "right" => KeyCode::Right,
        "home" => KeyCode::Home,
        "end" => KeyCode::End,
        "pageup" => KeyCode::PageUp,
        "pagedown" => KeyCode::PageDown,
        other => match other.strip_prefix('f').and_then(|n| n.parse::<u8>().ok()) {
            Some(n @ 1..=12) => KeyCode::F(n),
            _ => {
                let mut chars = other.chars();
                match (chars.next(), chars.next()) {
                    (Some(c), None) => KeyCode::Char(c),
                    _ => return None,
                }
            }
        },
    };
    Some(Key { code, modifiers })
}

/// A key as it is written in help and hints: `Alt-=`, `^J`, `F1`.
pub fn key_name(key: Key) -> String {
    let code = match key.code {
        KeyCode::Char(' ') => "Space".to_owned(),
        KeyCode::Char('-') if !key.modifiers.is_empty() => "minus".to_owned(),
        KeyCode::Char(c) if key.modifiers == KeyModifiers::CONTROL => return format!("^{}", c.to_ascii_uppercase()),
        KeyCode::Char(c) => c.to_string(),
        KeyCode::F(n) => format!("F{n}"),
        KeyCode::PageUp => "PgUp".to_owned(),
        KeyCode::PageDown => "PgDn".to_owned(),
        other => format!("{other:?}"),
    };
    let mut name = String::new();
    for (modifier, text) in
        [(KeyModifiers::CONTROL, "Ctrl-"), (KeyModifiers::ALT, "Alt-"), (KeyModifiers::SHIFT, "Shift-")]
    {
        if key.modifiers.contains(modifier) {
            name.push_str(text);
        }
    }
    name + &code
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn changes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(a, k)| ((*a).to_owned(), (*k).to_owned())).collect()
    }

    #[test]
    fn the_defaults_are_free_of_conflicts_and_of_keys_others_need() {
        let map = Keymap::new(&BTreeMap::new()).unwrap();
        for letter in "absqhimy".chars() {
            let key = Key { code: KeyCode::Char(letter), modifiers: KeyModifiers::CONTROL };
            assert_eq!(map.action(key), None, "ctrl-{letter}");
        }
        for action in Action::ALL {
            assert!(!map.keys(*action).is_empty(), "{}", action.name());
        }
    }

    #[test]
    fn the_configuration_changes_unbinds_and_is_checked() {
        let map = Keymap::new(&changes(&[("zoom", "f5 alt-l"), ("help", "")])).unwrap();
        assert_eq!(map.action(parse_key("f5").unwrap()), Some(Action::Zoom));
        assert_eq!(map.action(parse_key("alt-z").unwrap()), None);
        assert_eq!(map.keys(Action::Help), "");
        let refused = |pairs: &[(&str, &str)]| Keymap::new(&changes(pairs)).unwrap_err().to_string();
        assert!(refused(&[("zoon", "f5")]).contains("\"zoon\" is no action"));
        assert!(refused(&[("zoom", "f77")]).contains("not a key"));
        assert!(refused(&[("zoom", "alt-m")]).contains("bound to both models and zoom"));
        assert!(refused(&[("zoom", "ctrl-a")]).contains("needs that key"));
    }

    #[test]
    fn keys_are_read_and_written_alike() {
        for (text, name) in
            [("alt-=", "Alt-="), ("ctrl-j", "^J"), ("f1", "F1"), ("alt-minus", "Alt-minus"), ("pageup", "PgUp")]
        {
            assert_eq!(key_name(parse_key(text).unwrap()), name);
        }
    }
}
