//! What the program makes of a model file: which family it is of, whether it runs, and in how much memory.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::engine::Loaded;
use crate::engine::protocol::{Budget, LoadRequest, ThinkingSwitch};
use crate::gguf::Gguf;
use crate::model::Hyperparameters;
use crate::model::architecture::{self, Architecture};
use crate::size::format_size;

use super::shown;
use crate::words::counted;

/// The family, and how the model runs or why it does not.
pub(super) struct Verdict {
    architecture: String,
    family: Option<&'static Architecture>,
    runs: Result<Runs, String>,
}

/// How a model runs.
struct Runs {
    shape: String,
    least_bytes: u64,
    /// Tokens that it has room for, and that `full_bytes` has.
    least_context: u32,
    full_bytes: u64,
    full_context: u32,
    /// Weights that one token needs.
    touched_bytes: u64,
    context: u32,
    has_template: bool,
    thinking: ThinkingSwitch,
    vocabulary: u32,
    warnings: Vec<String>,
}

impl Verdict {
    /// Tries the file, reading none of its matrices.
    pub(super) fn of(model: &Gguf, request: LoadRequest) -> Self {
        let architecture = model.metadata().str("general.architecture").unwrap_or_default();
        // All of it in memory: then nothing is measured on the disk.
        let request = LoadRequest { budget: Budget::Share(1.0), context: None, ..request };
        let runs = Loaded::open(request, &mut |_| ()).map_err(|failure| failure.message).map(|loaded| {
            let (hp, plan) = (loaded.model.hyperparameters(), loaded.ledger.plan_in_force());
            Runs {
                shape: shape(hp),
                least_bytes: plan.map_or(0, |plan| plan.least_bytes),
                least_context: plan.map_or(0, |plan| plan.least_context),
                full_context: loaded.ledger.most_context(),
                full_bytes: plan.map_or(0, |plan| plan.full_bytes),
                touched_bytes: loaded.info.touched_bytes_per_token,
                context: hp.context_trained,
                has_template: loaded.info.has_chat_template,
                thinking: loaded.info.thinking,
                vocabulary: loaded.info.vocabulary,
                warnings: loaded.info.warnings.clone(),
            }
        });
        Self { architecture: shown(architecture), family: architecture::find(architecture), runs }
    }

    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name:9} {text}");
        };
        match self.family {
            Some(family) => line("family", &format!("{}: {}", family.name, family.families)),
            None => line("family", &format!("{}: not known", self.architecture)),
        }
        match &self.runs {
            Err(why) => line("runs", &format!("no: {why}")),
            Ok(runs) => {
                line("shape", &runs.shape);
                let [least, full, touched] = [runs.least_bytes, runs.full_bytes, runs.touched_bytes].map(format_size);
                let [few, many] = [runs.least_context, runs.full_context].map(|n| counted(n, "token"));
                line("runs", &format!("yes, in {least} at the least, with {few}; {full} holds all of it and {many}"));
                line("reads", &format!("{touched} of weights for a token, less what is kept in memory"));
                let chat = match (runs.has_template, runs.thinking) {
                    (true, ThinkingSwitch { effort: true, .. }) => "has a template, which sets the effort of thinking",
                    (true, ThinkingSwitch { on_off: true, .. }) => "has a template, which switches thinking on and off",
                    (true, _) => "has a template",
                    (false, _) => "has no template: a base model, to be asked with `run --raw`",
                };
                line("chat", chat);
                line("tokens", &format!("{} in the vocabulary, a context of up to {}", runs.vocabulary, runs.context));
                runs.warnings.iter().for_each(|warning| line("note", &shown(warning)));
            }
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        let runs = self.runs.as_ref().ok();
        json!({
            "family": self.family.map(|family| family.families),
            "supported": runs.is_some(),
            "why_not": self.runs.as_ref().err(),
            "shape": runs.map(|runs| &runs.shape),
            "least_bytes": runs.map(|runs| runs.least_bytes),
            "least_context": runs.map(|runs| runs.least_context),
            "full_bytes": runs.map(|runs| runs.full_bytes),
            "touched_bytes_per_token": runs.map(|runs| runs.touched_bytes),
            "context": runs.map(|runs| runs.context),
            "chat_template": runs.map(|runs| runs.has_template),
            "can_think": runs.map(|runs| runs.thinking.on_off),
            "has_effort": runs.map(|runs| runs.thinking.effort),
        })
    }
}

/// `30 layers of width 576, 9 heads on 3 key/value heads of 64`, and what is odd.
fn shape(hp: &Hyperparameters) -> String {
    let mut shape = format!(
        "{} of width {}, {} on {} of {}",
        counted(hp.layers, "layer"),
        hp.width,
        counted(hp.heads, "head"),
        counted(hp.kv_heads, "key/value head"),
        hp.key_dim
    );
    let mut add = |text: String| {
        shape.push_str(", ");
        shape.push_str(&text);
    };
    if let Some(latent) = hp.latent {
        add(format!(
            "made of latent vectors of {} for heads of {} and {}",
            latent.rank, latent.key_dim, latent.value_dim
        ));
    }
    match hp.layers - hp.attending_layers() {
        0 => {}
        convolutions => add(format!("{convolutions} of the layers short convolutions")),
    }
    if let (Some(window), count @ 1..) = (hp.window, hp.kinds.iter().filter(|kind| kind.is_windowed).count()) {
        add(format!(
            "{} {window} tokens back",
            if count == 1 { "1 of the layers sees".to_owned() } else { format!("{count} of the layers see") }
        ));
    }
    if let Some(experts) = hp.experts {
        let shared = if experts.shared_ffn > 0 { " and a shared one" } else { "" };
        add(format!("{} of {} experts{shared} for a token", experts.used, experts.count));
    }
    shape
}
