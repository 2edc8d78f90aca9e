//! The tokens that mean something: begin and end of text, end of turn.
//!
//! Files often say too little, so, as llama.cpp does, some are known by their spelling.

use super::vocab::{Attributes, Vocab};
use crate::gguf::Metadata;

/// Special tokens by role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Special {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) eot: Option<u32>,
    pub(super) eom: Option<u32>,
    pub(super) unknown: Option<u32>,
    /// Tokens that end an answer, ascending.
    pub(super) ends: Vec<u32>,
    /// Tokens that look like ends but are none in this vocabulary.
    pub(super) not_ends: Vec<u32>,
}

const END_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

const END_OF_MESSAGE: &[&str] = &["<|eom_id|>"];

/// Always an end, whatever the file says.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Tokens of code models around the text to fill in: the keys that name them, their spellings, and whether they end an
/// answer.
const FILL_IN: &[(&[&str], &[&str], bool)] = &[
    (
        &["fim_pre_token_id", "prefix_token_id"],
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
        false,
    ),
    (
        &["fim_suf_token_id", "suffix_token_id"],
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
        false,
    ),
    (
        &["fim_mid_token_id", "middle_token_id"],
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
        false,
    ),
    (&["fim_pad_token_id"], &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"], true),
    (&["fim_rep_token_id"], &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"], true),
    (&["fim_sep_token_id"], &["<|file_sep|>"], true),
];

/// Parts of gpt-oss's answers that are to be seen.
const CHANNEL_MARKS: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

impl Special {
    /// Finds the special tokens and corrects the attributes of those that files commonly have wrong. `default` holds
    /// what the kind of vocabulary has where the file is silent.
    pub(super) fn find(metadata: &Metadata, vocab: &mut Vocab, default: Special) -> Self {
        let named = |vocab: &Vocab, key: &str, default: Option<u32>| {
            let id = metadata.u64(&format!("tokenizer.ggml.{key}")).and_then(|id| u32::try_from(id).ok());
            id.into_iter().chain(default).find(|&id| (id as usize) < vocab.len())
        };
        let mut special = Self {
            bos: named(vocab, "bos_token_id", default.bos),
            eos: named(vocab, "eos_token_id", default.eos),
            eot: named(vocab, "eot_token_id", None),
            eom: named(vocab, "eom_token_id", None),
            unknown: named(vocab, "unknown_token_id", default.unknown),
            ..Self::default()
        };
        special.eot = special.eot.or_else(|| control_token(vocab, END_OF_TURN));
        special.eom = special.eom.or_else(|| control_token(vocab, END_OF_MESSAGE));
        let mut ends: Vec<u32> = Vec::new();
        for &(keys, spellings, ends_answer) in FILL_IN {
            let by_key = keys.iter().find_map(|key| named(vocab, key, None));
            let id = by_key.or_else(|| control_token(vocab, spellings));
            ends.extend(id.filter(|_| ends_answer));
        }
        for spelling in ENDS {
            ends.extend(control_token(vocab, &[spelling]));
        }
        for id in CHANNEL_MARKS.iter().filter_map(|mark| vocab.find(mark.as_bytes())).collect::<Vec<_>>() {
            vocab.set_attributes(id, Attributes::USER_DEFINED);
        }
        ends.extend(special.eos.into_iter().chain(special.eot).chain(special.eom));
        special.ends = ends;
        special.remove_what_only_looks_like_an_end(vocab);
        special.ends.sort_unstable();
        special.ends.dedup();
        special
    }

    /// In the harmony format `<|end|>` ends a channel, not the answer; in some vocabularies `</s>` is ordinary text.
    fn remove_what_only_looks_like_an_end(&mut self, vocab: &mut Vocab) {
        let end = |text: &str| vocab.find(text.as_bytes()).filter(|id| self.ends.contains(id));
        let call = end("<|call|>").or_else(|| end("<|calls|>")).is_some();
        let harmony = call && (end("<|return|>").is_some() || end("<|flush|>").is_some());
        let plain_s = end("<|tool_response>").or_else(|| end("<|plamo:eos|>")).is_some();
        let removed = [
            end("<|end|>").filter(|_| harmony).map(|id| (id, Attributes::USER_DEFINED)),
            end("</s>").filter(|_| plain_s).map(|id| (id, Attributes::NORMAL)),
        ];
        for (id, attributes) in removed.into_iter().flatten() {
            self.ends.retain(|&end| end != id);
            self.not_ends.push(id);
            vocab.set_attributes(id, attributes);
        }
    }

    /// Adds an end that the chat template implies.
    pub(super) fn add_end(&mut self, id: u32) {
        if !self.not_ends.contains(&id)
            && let Err(at) = self.ends.binary_search(&id)
        {
            self.ends.insert(at, id);
        }
    }
}

/// The first of these spellings that is a token, which is thereby a control token.
fn control_token(vocab: &mut Vocab, spellings: &[&str]) -> Option<u32> {
    let id = spellings.iter().find_map(|text| vocab.find(text.as_bytes()))?;
    vocab.set_attributes(id, vocab.attributes(id).or(Attributes::CONTROL));
    Some(id)
}

/// Phi-3 swallows the blanks after its special tokens, which no file says.
pub(super) fn mark_stripping_tokens(metadata: &Metadata, vocab: &mut Vocab) {
    let name = metadata.str("general.name").unwrap_or_default().to_ascii_lowercase();
    if !(name.contains("phi-3") || name.contains("phi3")) {
        return;
    }
    let whole = Attributes::CONTROL.or(Attributes::USER_DEFINED).or(Attributes::UNKNOWN);
    let stripping: Vec<u32> = vocab.having(whole).chain(vocab.find(b"</s>")).collect();
    for id in stripping {
        vocab.set_attributes(id, vocab.attributes(id).or(Attributes::RSTRIP));
    }
    for text in ["<unk>", "<s>", "<|endoftext|>"] {
        if let Some(id) = vocab.find(text.as_bytes()) {
            vocab.set_attributes(id, vocab.attributes(id).without(Attributes::RSTRIP));
        }
    }
}
