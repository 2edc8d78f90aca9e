//! Chat templates: a conversation as the text the model was trained on.

mod engine;
mod python;
mod source;
#[cfg(test)]
mod tests;
mod thinking;
mod thoughts;

use std::borrow::Cow;
use std::sync::Arc;

use minijinja::context;

use super::{TemplateError, Tokenizer};
use crate::gguf::Gguf;
use engine::{Clock, Engine};
pub use thinking::{Thinking, ThinkingSwitch};
pub use thoughts::is_thinking;

/// One message as a template sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateMessage<'a> {
    /// `system`, `user` or `assistant`.
    pub role: &'a str,
    pub content: &'a str,
}

/// What to render beside the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenderOptions {
    /// Ends with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// The last message is an unfinished answer: its end is left out, so that the model carries it on.
    pub continue_last: bool,
    /// For a template that knows it; `None` leaves it as the template does.
    pub thinking: Option<Thinking>,
}

/// The chat template of a model.
#[derive(Debug)]
pub struct ChatTemplate {
    source: Cow<'static, str>,
    engine: Option<Engine>,
    bos: String,
    eos: String,
    is_fallback: bool,
    /// There are no turns: the model goes on with the text.
    is_completion: bool,
    switch: ThinkingSwitch,
    /// Whether a system message is a message of its own; else it goes before the first of the user.
    has_system: bool,
    /// Whether answers come in channels, thoughts in one of their own (gpt-oss).
    has_channels: bool,
    warnings: Vec<String>,
}

/// The text so far, for a model that goes on with text and knows no turns: what the user writes stands in a paragraph of
/// its own, what the model wrote goes on from it.
const COMPLETION: &str = "{% for message in messages %}{% if message.role == 'assistant' %}\
                          {% if message.content[:1] not in ' \n' %}{{ ' ' }}{% endif %}\
                          {% elif not loop.first %}{{ '\n\n' }}{% endif %}{{ message.content }}{% endfor %}";

/// The template that stands in for one that is broken, or missing where the vocabulary has its marks.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + \
                      '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

impl ChatTemplate {
    /// The template of a model's file; ChatML when it has none or a broken one.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Self {
        let spelling = |id: Option<u32>| id.map(|id| tokenizer.spelling(id)).unwrap_or_default();
        let (bos, eos) = (spelling(tokenizer.bos()), spelling(tokenizer.eos()));
        let source = gguf.metadata().str("tokenizer.chat_template").filter(|source| !source.trim().is_empty());
        let knows_chatml = tokenizer.encode("<|im_start|>", true).len() == 1;
        let (stand_in, warning) = match source.map(|source| Self::from_source(source.to_owned(), &bos, &eos)) {
            Some(Ok(template)) => return template,
            Some(Err(error)) => {
                (CHATML, format!("the model's chat template cannot be used ({error}): ChatML stands in for it"))
            }
            None if knows_chatml => (CHATML, "the model has no chat template: ChatML stands in for it".to_owned()),
            None => {
                let warning = "the model has no chat template, as models that are not made to chat: it goes on with what you write";
                (COMPLETION, warning.to_owned())
            }
        };
        let (warnings, is_completion) = (vec![warning], stand_in == COMPLETION);
        match Self::from_source(stand_in, &bos, &eos) {
            Ok(template) => Self { is_fallback: true, is_completion, warnings, ..template },
            // Not even a thread could be had; rendering says so.
            Err(_) => Self {
                source: stand_in.into(),
                engine: None,
                bos,
                eos,
                is_fallback: true,
                is_completion,
                switch: ThinkingSwitch::default(),
                has_system: true,
                has_channels: false,
                warnings,
            },
        }
    }

    /// The template with this Jinja source; `bos` and `eos` are the spellings of these tokens.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn from_source(source: impl Into<Cow<'static, str>>, bos: &str, eos: &str) -> Result<Self, String> {
        Self::new(source.into(), bos, eos, Arc::new(jiff::ZonedDateTime::now))
    }

    /// Compiles a template and tries what it can do.
    fn new(source: Cow<'static, str>, bos: &str, eos: &str, clock: Clock) -> Result<Self, String> {
        let mut template = Self {
            engine: Some(Engine::new(&source, clock)?),
            has_channels: source.contains("<|channel|>") && source.contains("<|message|>"),
            source,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            is_fallback: false,
            is_completion: false,
            switch: ThinkingSwitch::default(),
            has_system: true,
            warnings: Vec::new(),
        };
        let (system, user) = (message("system", "be-brief"), message("user", "who-are-you"));
        let prompt = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
        let with_system = template.render_as_is(&[system, user], &prompt);
        template.has_system = with_system.as_ref().is_ok_and(|text| text.contains(system.content));
        let alone = template.render_as_is(&[user], &prompt).or(with_system).map_err(|error| error.to_string())?;
        if !alone.contains(user.content) {
            return Err("it leaves out what the user says".into());
        }
        let thinking = |on| {
            let opts = RenderOptions { thinking: Some(on), ..prompt };
            template.render(&[user], &opts).ok()
        };
        template.switch = ThinkingSwitch {
            on_off: thinking(Thinking::On) != thinking(Thinking::Off),
            effort: thinking(Thinking::Low) != thinking(Thinking::High),
        };
        Ok(template)
    }

    /// The Jinja source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether there are no turns: an answer goes on with the text of the last message.
    pub fn is_completion(&self) -> bool {
        self.is_completion
    }

    /// Whether this stands in for a template of the model's own.
    pub fn is_fallback(&self) -> bool {
        self.is_fallback
    }

    /// What the template lets one choose of thinking.
    pub fn thinking_switch(&self) -> ThinkingSwitch {
        self.switch
    }

    /// Whether answers come in channels.
    pub fn has_channels(&self) -> bool {
        self.has_channels
    }

    /// What the template begins an answer with where that is a thought (`<think>`): the user is to see it as the model's.
    pub fn opening(&self, thinking: Option<Thinking>) -> Option<String> {
        let options = RenderOptions { add_generation_prompt: true, continue_last: false, thinking };
        let prompt = self.render(&[message("user", "who-are-you")], &options).ok()?;
        thoughts::opening(&prompt).map(str::to_owned)
    }

    /// Texts that end an answer where the model has no token for the end of a turn.
    pub fn stops(&self) -> &'static [&'static str] {
        if self.is_fallback && !self.is_completion { &["<|im_end|>", "<|im_start|>"] } else { &[] }
    }

    /// What a user should know about this template; usually empty.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Renders a conversation. A system message that the template has no place for goes before the first message of the
    /// user; messages of one speaker that follow one another, where the template refuses that, are joined.
    ///
    /// # Errors
    /// The template refuses the conversation, is broken, or does more work than a template may.
    pub fn render(&self, messages: &[TemplateMessage<'_>], opts: &RenderOptions) -> Result<String, TemplateError> {
        if let ([before @ .., last], true) = (messages, opts.continue_last)
            && last.role == "assistant"
        {
            // What the model was given when it began the answer, and what it said since: token for token what it
            // would have seen had it not stopped.
            let opts = RenderOptions { add_generation_prompt: true, continue_last: false, ..*opts };
            let prompt = self.render(before, &opts)?;
            let begun = if self.has_channels {
                Cow::Owned(thoughts::in_channels(last.content))
            } else {
                Cow::Borrowed(thoughts::after_opening(&prompt, last.content))
            };
            return Ok(prompt + &begun);
        }
        let folded;
        let messages = match messages {
            [system, user, rest @ ..] if !self.has_system && system.role == "system" && user.role == "user" => {
                let content = format!("{}\n\n{}", system.content, user.content);
                folded = content;
                let first = message("user", &folded);
                Cow::Owned([&[first], rest].concat())
            }
            _ => Cow::Borrowed(messages),
        };
        match self.render_as_is(&messages, opts) {
            Err(TemplateError::Refused(reason)) => {
                let joined = join_turns(&messages);
                if joined.len() == messages.len() {
                    return Err(TemplateError::Refused(reason));
                }
                let joined: Vec<_> = joined.iter().map(|(role, content)| message(role, content)).collect();
                self.render_as_is(&joined, opts)
            }
            rendered => rendered,
        }
    }

    fn render_as_is(&self, messages: &[TemplateMessage<'_>], opts: &RenderOptions) -> Result<String, TemplateError> {
        let engine = self.engine.as_ref().ok_or_else(|| TemplateError::Failed("it could not be compiled".into()))?;
        let bytes = messages.iter().map(|m| m.role.len() + m.content.len()).sum();
        let count = messages.len();
        let value = |m: &TemplateMessage<'_>| match thoughts::split(m.content) {
            Some((thinking, content)) if self.has_channels && m.role == "assistant" => {
                context! { role => m.role, content => content, thinking => thinking }
            }
            _ => context! { role => m.role, content => m.content },
        };
        let messages: Vec<_> = messages.iter().map(value).collect();
        // As transformers calls a template: what is not given is none.
        let always = context! {
            messages => messages,
            add_generation_prompt => opts.add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            tools => (),
            documents => (),
        };
        let context = match opts.thinking {
            Some(thinking) => {
                let on = thinking.is_on();
                let asked = context! { enable_thinking => on, thinking => on, ..always };
                match thinking.effort() {
                    Some(effort) => context! { reasoning_effort => effort, ..asked },
                    None => asked,
                }
            }
            None => always,
        };
        engine.render(context, count, bytes)
    }
}

fn message<'a>(role: &'a str, content: &'a str) -> TemplateMessage<'a> {
    TemplateMessage { role, content }
}

/// Messages of one speaker that follow one another, as one.
fn join_turns<'a>(messages: &[TemplateMessage<'a>]) -> Vec<(&'a str, String)> {
    let mut joined: Vec<(&str, String)> = Vec::new();
    for message in messages {
        match joined.last_mut() {
            Some((role, content)) if *role == message.role => {
                content.push_str("\n\n");
                content.push_str(message.content);
            }
            _ => joined.push((message.role, message.content.to_owned())),
        }
    }
    joined
}

/// The tokens that end an answer by what the model's template puts after one.
pub(super) fn implied_ends(gguf: &Gguf, tokenizer: &Tokenizer) -> Option<u32> {
    const ANSWER: &str = "well-here-i-am";
    let template = ChatTemplate::from_gguf(gguf, tokenizer);
    if template.is_fallback {
        return None;
    }
    let turns = [message("user", "hello"), message("assistant", ANSWER), message("user", "thanks")];
    let rendered = template.render(&turns, &RenderOptions::default()).ok()?;
    let (_, after) = rendered.split_once(ANSWER)?;
    let mut ids = tokenizer.encode(after, true).into_iter();
    let id = ids.find(|&id| tokenizer.is_control(id) || !tokenizer.piece(id).trim_ascii().is_empty())?;
    tokenizer.is_whole(id).then_some(id)
}
