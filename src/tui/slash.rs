//! The slash commands, in the order in which they are offered.

use std::path::Path;

/// Everything that can be asked of the program by typing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slash {
    Help,
    Model,
    Budget,
    System,
    Set,
    Stop,
    Regen,
    Continue,
    Edit,
    Undo,
    Fork,
    Clear,
    Copy,
    Find,
    Read,
    Think,
    Sessions,
    Resume,
    Rename,
    Delete,
    Search,
    Export,
    Import,
    Pager,
    Stats,
    Memory,
    Layers,
    Speed,
    Panel,
    Freeze,
    Theme,
    Mouse,
    Keys,
    Quit,
}

impl Slash {
    pub const ALL: &'static [Slash] = &[
        Slash::Help,
        Slash::Model,
        Slash::Budget,
        Slash::System,
        Slash::Set,
        Slash::Stop,
        Slash::Regen,
        Slash::Continue,
        Slash::Edit,
        Slash::Undo,
        Slash::Fork,
        Slash::Clear,
        Slash::Copy,
        Slash::Find,
        Slash::Read,
        Slash::Think,
        Slash::Sessions,
        Slash::Resume,
        Slash::Rename,
        Slash::Delete,
        Slash::Search,
        Slash::Export,
        Slash::Import,
        Slash::Pager,
        Slash::Stats,
        Slash::Memory,
        Slash::Layers,
        Slash::Speed,
        Slash::Panel,
        Slash::Freeze,
        Slash::Theme,
        Slash::Mouse,
        Slash::Keys,
        Slash::Quit,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Slash::Help => "help",
            Slash::Model => "model",
            Slash::Budget => "budget",
            Slash::System => "system",
            Slash::Set => "set",
            Slash::Stop => "stop",
            Slash::Regen => "regen",
            Slash::Continue => "continue",
            Slash::Edit => "edit",
            Slash::Undo => "undo",
            Slash::Fork => "fork",
            Slash::Clear => "clear",
            Slash::Copy => "copy",
            Slash::Find => "find",
            Slash::Read => "read",
            Slash::Think => "think",
            Slash::Sessions => "sessions",
            Slash::Resume => "resume",
            Slash::Rename => "rename",
            Slash::Delete => "delete",
            Slash::Search => "search",
            Slash::Export => "export",
            Slash::Import => "import",
            Slash::Pager => "pager",
            Slash::Stats => "stats",
            Slash::Memory => "memory",
            Slash::Layers => "layers",
            Slash::Speed => "speed",
            Slash::Panel => "panel",
            Slash::Freeze => "freeze",
            Slash::Theme => "theme",
            Slash::Mouse => "mouse",
            Slash::Keys => "keys",
            Slash::Quit => "quit",
        }
    }

    /// What may follow the name.
    pub fn arguments(self) -> &'static str {
        match self {
            Slash::Model => "[NAME|PATH]",
            Slash::Budget => "[80M|60%|auto|0|+10%]",
            Slash::System => "[TEXT|off]",
            Slash::Set => "[temp 0.7]",
            Slash::Edit | Slash::Fork => "[N]",
            Slash::Copy => "[N|all]",
            Slash::Find => "[TEXT]",
            Slash::Search => "TEXT",
            Slash::Read | Slash::Import => "PATH",
            Slash::Think => "[on|off|low|medium|high|auto]",
            Slash::Resume => "[ID]",
            Slash::Rename => "TITLE",
            Slash::Delete => "[ID|undo]",
            Slash::Export => "FILE.md|.json|.txt",
            Slash::Theme => "[NAME|FILE]",
            Slash::Panel => "[memory|layers|speed]",
            _ => "",
        }
    }

    pub fn description(self) -> &'static str {
        match self {
            Slash::Help => "keys and commands",
            Slash::Model => "choose, fetch or switch the model",
            Slash::Budget => "show or change the memory budget, also during an answer",
            Slash::System => "show or set the system prompt",
            Slash::Set => "show or change temp, top-k, top-p, min-p, repeat-penalty, seed, max-tokens",
            Slash::Stop => "stop the answer and keep it",
            Slash::Regen => "answer the last message again",
            Slash::Continue => "go on with the last answer",
            Slash::Edit => "change your last (or Nth) message and send it again",
            Slash::Undo => "take back the last message and its answer",
            Slash::Fork => "go on in a copy of this chat (as far as message N)",
            Slash::Clear => "begin a new chat",
            Slash::Copy => "copy the last answer, code block N, or all",
            Slash::Find => "find in this chat, the latest place first; n and N go further",
            Slash::Read => "put a file into the message",
            Slash::Think => "unfold what was thought; on, off, low ..: how much the model is to think",
            Slash::Sessions => "choose among saved chats",
            Slash::Resume => "go on with the latest saved chat, or one by its id",
            Slash::Rename => "give this chat a title",
            Slash::Delete => "delete a saved chat (this one without an id); undo brings it back",
            Slash::Search => "search all saved chats",
            Slash::Export => "write this chat to a file",
            Slash::Import => "open an exported .json chat",
            Slash::Pager => "show the chat in $PAGER",
            Slash::Stats => "figures of the last answer and of memory",
            Slash::Memory => "the memory panel on the whole screen",
            Slash::Layers => "the layer map on the whole screen",
            Slash::Speed => "the speed panel on the whole screen",
            Slash::Panel => "show or hide the panels, or one of them",
            Slash::Freeze => "hold the figures still, or let them go on",
            Slash::Theme => "default, light, high-contrast, mono or a file",
            Slash::Mouse => "mouse clicks and wheel on or off (off leaves selecting to the terminal)",
            Slash::Keys => "the keys as they are bound",
            Slash::Quit => "leave",
        }
    }

    pub fn by_name(name: &str) -> Option<Slash> {
        let alias = match name {
            "exit" | "q" => "quit",
            "?" => "help",
            "new" => "clear",
            "chats" => "sessions",
            other => other,
        };
        Self::ALL.iter().copied().find(|s| s.name() == alias)
    }

    /// The command a line is, with its arguments; `Err` holds the name when there is no such command.
    pub fn parse(line: &str) -> Option<Result<(Slash, &str), &str>> {
        let rest = line.strip_prefix('/')?;
        let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        match Self::by_name(name) {
            Some(slash) => Some(Ok((slash, arguments.trim()))),
            // `//` and `/*` begin a message, and so does a path; what is neither was meant for a command.
            None if name.is_empty() || (name.starts_with(char::is_alphabetic) && !is_path(name)) => Some(Err(name)),
            None => None,
        }
    }

    /// Commands whose name begins with `prefix`.
    pub fn starting_with(prefix: &str) -> impl Iterator<Item = Slash> + '_ {
        Self::ALL.iter().copied().filter(move |s| s.name().starts_with(prefix))
    }
}

/// Whether a name after a slash begins with a folder or file of the root.
fn is_path(name: &str) -> bool {
    let first = name.split('/').next().unwrap_or_default();
    Path::new("/").join(first).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_only_with_a_slash_and_a_plain_name() {
        assert_eq!(Slash::parse("/budget  80M "), Some(Ok((Slash::Budget, "80M"))));
        assert_eq!(Slash::parse("/q"), Some(Ok((Slash::Quit, ""))));
        assert_eq!(Slash::parse("/nonsense 1"), Some(Err("nonsense")));
        assert_eq!(Slash::parse("/nonsense/system You are"), Some(Err("nonsense/system")));
        for message in ["/etc/passwd is a file", "/etc/none: why?", "/tmp", "// a comment", "/* another */", " /help"] {
            assert_eq!(Slash::parse(message), None, "{message}");
        }
        assert_eq!(Slash::parse("hello"), None);
    }

    #[test]
    fn each_command_is_offered_once_under_its_own_name() {
        for slash in Slash::ALL {
            assert_eq!(Slash::by_name(slash.name()), Some(*slash));
            assert_eq!(Slash::ALL.iter().filter(|s| s.name() == slash.name()).count(), 1);
        }
    }
}
