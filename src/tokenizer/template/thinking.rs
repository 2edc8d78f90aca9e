//! How much a model is to think, where its template has a say in it.

/// What a template is asked for, under the names that templates know: `enable_thinking`, `thinking`, `reasoning_effort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    Off,
    On,
    /// Thinking, with little, middling or much effort (gpt-oss).
    Low,
    Medium,
    High,
}

impl Thinking {
    pub const ALL: [Self; 5] = [Self::Off, Self::On, Self::Low, Self::Medium, Self::High];

    /// As it is written in commands, files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|thinking| thinking.name() == name)
    }

    /// The model is to think at all.
    pub(super) fn is_on(self) -> bool {
        self != Self::Off
    }

    /// `reasoning_effort`, where one is asked for.
    pub(super) fn effort(self) -> Option<&'static str> {
        matches!(self, Self::Low | Self::Medium | Self::High).then(|| self.name())
    }
}

/// What a template lets one choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThinkingSwitch {
    /// Thinking on or off.
    pub on_off: bool,
    /// Low or high effort.
    pub effort: bool,
}

impl ThinkingSwitch {
    /// What comes of asking for `thinking`, for the one who asked.
    pub fn outcome(self, thinking: Thinking) -> &'static str {
        match thinking {
            Thinking::On if self.on_off => "the model thinks before it answers",
            Thinking::Off if self.on_off => "the model answers without thinking",
            Thinking::On | Thinking::Off if self.effort => "this model's template knows low, medium and high only",
            Thinking::Low if self.effort => "the model thinks with little effort",
            Thinking::Medium if self.effort => "the model thinks with middling effort",
            Thinking::High if self.effort => "the model thinks with much effort",
            _ if self.on_off => "this model's template knows on and off only: the model thinks before it answers",
            _ => "this model's template has no switch for thinking",
        }
    }
}
