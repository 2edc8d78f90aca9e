//! Colours by role, in the terminal's own sixteen so that they follow the user's scheme, and with modifiers that carry
//! the meaning where there is no colour.

use std::path::Path;

use ratatui::style::{Color, Modifier, Style};

macro_rules! roles {
    ($($(#[$doc:meta])* $role:ident),* $(,)?) => {
        /// A style for each thing on the screen.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Theme { $($(#[$doc])* pub $role: Style),* }

        impl Theme {
            fn role_mut(&mut self, name: &str) -> Option<&mut Style> {
                match name { $(stringify!($role) => Some(&mut self.$role),)* _ => None }
            }

            /// The names that a theme file may set.
            pub const ROLES: &'static [&'static str] = &[$(stringify!($role)),*];
        }
    };
}

roles! {
    text, dim, title, border,
    user, assistant, notice, error,
    heading, strong, code, code_bar, link, quote,
    /// Memory that holds weights between passes.
    pinned,
    /// Memory of weights on their way through.
    ring,
    kv, base,
    /// A layer under the kernels.
    computing,
    /// A layer on disk.
    cold,
    selection, found, key,
    good, warn,
}

/// A theme that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ThemeError {
    #[error("theme {0:?}: not one of default, light, high-contrast, mono, and no file of that name")]
    Unknown(String),
    #[error("theme {path}: {message}")]
    File { path: String, message: String },
}

impl Theme {
    /// The names [`Theme::named`] knows, in the order in which they are offered.
    pub const NAMES: &'static [&'static str] = &["default", "light", "high-contrast", "mono"];

    /// A built-in theme.
    pub fn named(name: &str) -> Option<Theme> {
        Some(match name {
            "default" => Self::dark(),
            "light" => Self::light(),
            "high-contrast" => Self::high_contrast(),
            "mono" => Self::mono(),
            _ => return None,
        })
    }

    /// A built-in theme, or one from a file of `role = "bold cyan on black"` lines over the default.
    pub fn load(name_or_path: &str) -> Result<Theme, ThemeError> {
        if let Some(theme) = Self::named(name_or_path) {
            return Ok(theme);
        }
        let path = Path::new(name_or_path);
        if !path.is_file() {
            return Err(ThemeError::Unknown(name_or_path.to_owned()));
        }
        let file_error = |message: String| ThemeError::File { path: name_or_path.to_owned(), message };
        let text = crate::small_file::read_text(path, 1 << 20).map_err(|e| file_error(e.to_string()))?;
        Self::from_toml(&text).map_err(file_error)
    }

    fn from_toml(text: &str) -> Result<Theme, String> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.message().to_owned())?;
        let mut theme = match table.get("base").and_then(|v| v.as_str()) {
            Some(base) => Self::named(base).ok_or_else(|| format!("base {base:?} is not a built-in theme"))?,
            None => Self::dark(),
        };
        for (role, value) in table.iter().filter(|(role, _)| *role != "base") {
            let words = value.as_str().ok_or_else(|| format!("{role}: wants text such as \"bold cyan\""))?;
            let style = parse_style(words).map_err(|word| format!("{role}: {word:?} is no colour or modifier"))?;
            *theme
                .role_mut(role)
                .ok_or_else(|| format!("{role} is no role; there are {}", Self::ROLES.join(", ")))? = style;
        }
        Ok(theme)
    }

    fn dark() -> Theme {
        let fg = |c| Style::new().fg(c);
        let plain = Style::new();
        Theme {
            text: plain,
            dim: fg(Color::DarkGray),
            title: plain.add_modifier(Modifier::BOLD),
            border: fg(Color::DarkGray),
            user: fg(Color::Cyan).add_modifier(Modifier::BOLD),
            assistant: fg(Color::Green).add_modifier(Modifier::BOLD),
            notice: fg(Color::Yellow),
            error: fg(Color::LightRed),
            heading: fg(Color::Cyan).add_modifier(Modifier::BOLD),
            strong: plain.add_modifier(Modifier::BOLD),
            code: fg(Color::Yellow),
            code_bar: fg(Color::DarkGray),
            link: fg(Color::Blue).add_modifier(Modifier::UNDERLINED),
            quote: fg(Color::DarkGray).add_modifier(Modifier::ITALIC),
            pinned: fg(Color::Green),
            ring: fg(Color::Cyan),
            kv: fg(Color::Magenta),
            base: fg(Color::Blue),
            computing: fg(Color::Yellow).add_modifier(Modifier::BOLD),
            cold: fg(Color::DarkGray),
            selection: plain.add_modifier(Modifier::REVERSED),
            found: fg(Color::Black).bg(Color::Yellow),
            key: fg(Color::Cyan),
            good: fg(Color::Green),
            warn: fg(Color::Yellow),
        }
    }

    /// For terminals with a light background: nothing yellow or light.
    fn light() -> Theme {
        let fg = |c| Style::new().fg(c);
        Theme {
            notice: fg(Color::Magenta),
            error: fg(Color::Red).add_modifier(Modifier::BOLD),
            user: fg(Color::Blue).add_modifier(Modifier::BOLD),
            heading: fg(Color::Blue).add_modifier(Modifier::BOLD),
            code: fg(Color::Magenta),
            ring: fg(Color::Blue),
            base: fg(Color::DarkGray),
            computing: fg(Color::Red).add_modifier(Modifier::BOLD),
            key: fg(Color::Blue),
            warn: fg(Color::Red),
            ..Self::dark()
        }
    }

    fn high_contrast() -> Theme {
        let fg = |c| Style::new().fg(c).add_modifier(Modifier::BOLD);
        Theme {
            text: Style::new().fg(Color::White),
            dim: Style::new().fg(Color::White),
            border: Style::new().fg(Color::White),
            notice: fg(Color::LightYellow),
            error: fg(Color::LightRed),
            user: fg(Color::LightCyan),
            assistant: fg(Color::LightGreen),
            heading: fg(Color::LightCyan),
            code: Style::new().fg(Color::LightYellow),
            code_bar: Style::new().fg(Color::White),
            quote: Style::new().fg(Color::White),
            cold: Style::new().fg(Color::White),
            link: fg(Color::LightBlue).add_modifier(Modifier::UNDERLINED),
            pinned: fg(Color::LightGreen),
            ring: fg(Color::LightCyan),
            kv: fg(Color::LightMagenta),
            base: fg(Color::LightBlue),
            computing: fg(Color::LightYellow),
            key: fg(Color::LightCyan),
            ..Self::dark()
        }
    }

    /// No colour at all: weight, underline and reverse only.
    pub fn mono() -> Theme {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let dim = plain.add_modifier(Modifier::DIM);
        Theme {
            text: plain,
            dim,
            title: bold,
            border: dim,
            user: bold,
            assistant: bold,
            notice: plain,
            error: bold,
            heading: bold.add_modifier(Modifier::UNDERLINED),
            strong: bold,
            code: plain,
            code_bar: dim,
            link: plain.add_modifier(Modifier::UNDERLINED),
            quote: plain.add_modifier(Modifier::ITALIC),
            pinned: plain,
            ring: plain,
            kv: plain,
            base: plain,
            computing: bold,
            cold: dim,
            selection: plain.add_modifier(Modifier::REVERSED),
            found: plain.add_modifier(Modifier::REVERSED),
            key: bold,
            good: plain,
            warn: bold,
        }
    }
}

/// `bold cyan on black` as a style; the error is the word not understood.
fn parse_style(words: &str) -> Result<Style, String> {
    let mut style = Style::new();
    let mut background = false;
    for word in words.split_whitespace() {
        let modifier = match word {
            "bold" => Modifier::BOLD,
            "dim" => Modifier::DIM,
            "italic" => Modifier::ITALIC,
            "underlined" => Modifier::UNDERLINED,
            "reversed" => Modifier::REVERSED,
            "on" => {
                background = true;
                continue;
            }
            colour => {
                let colour: Color = colour.parse().map_err(|_| word.to_owned())?;
                style = if background { style.bg(colour) } else { style.fg(colour) };
                background = false;
                continue;
            }
        };
        style = style.add_modifier(modifier);
    }
    Ok(style)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_mono_theme_has_no_colour_in_any_role() {
        let mut theme = Theme::mono();
        for role in Theme::ROLES {
            let style = *theme.role_mut(role).unwrap();
            assert_eq!((style.fg, style.bg), (None, None), "{role}");
        }
    }

    #[test]
    fn built_in_themes_use_the_terminals_sixteen_colours_only() {
        for name in Theme::NAMES {
            let mut theme = Theme::named(name).unwrap();
            for role in Theme::ROLES {
                let style = *theme.role_mut(role).unwrap();
                for colour in [style.fg, style.bg].into_iter().flatten() {
                    assert!(!matches!(colour, Color::Rgb(..) | Color::Indexed(_)), "{name}.{role}");
                }
            }
        }
    }

    #[test]
    fn a_theme_file_changes_what_it_names_and_is_refused_with_the_reason() {
        let theme = Theme::from_toml("base = \"light\"\nuser = \"bold red on white\"").unwrap();
        assert_eq!(theme.user, Style::new().fg(Color::Red).bg(Color::White).add_modifier(Modifier::BOLD));
        assert_eq!(theme.code, Theme::light().code);
        assert!(Theme::from_toml("usr = \"red\"").unwrap_err().contains("usr is no role"));
        assert!(Theme::from_toml("user = \"reddish\"").unwrap_err().contains("\"reddish\""));
        assert!(Theme::from_toml("user = ").is_err());
    }
}
