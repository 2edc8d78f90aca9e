//! `sipllm logits`: the numbers themselves, for comparison with other programs.

use std::fs::File;
use std::io::{BufWriter, Write, stdout};

use anyhow::Context;
use serde_json::json;

use super::Outcome;
use super::driver::describe;
use super::pull::model_path;
use crate::cli::LogitsArgs;
use crate::config::Settings;
use crate::engine::Loaded;
use crate::kernels::Cancel;
use crate::model::{NoHooks, Want};

/// Positions in one pass when nothing else is asked for: their logits are all held at once.
const BATCH: usize = 32;
/// Tokens that are told where no logits are written and none is gone on with.
const SUMMARY_TOKENS: usize = 5;

pub fn run(args: &LogitsArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let Some(path) = model_path(Some(&args.model_file), settings)? else { return Ok(Outcome::Interrupted) };
    let positions = (args.ids.len() as u32).saturating_add(args.greedy);
    let mut loaded =
        Loaded::open(settings.load_request(path, positions), &mut |_| ()).map_err(|failure| describe(&failure))?;
    let mut batch = settings.prefill_batch.map_or(BATCH, |batch| batch as usize).min(args.ids.len());
    loop {
        loaded.ledger.hold_logits(batch);
        match loaded.make_room(positions.min(loaded.info.context), batch as u32) {
            Err(_) if batch > 1 => batch /= 2,
            room => break room.map_err(|failure| describe(&failure))?,
        }
    }
    if positions > loaded.ledger.context() {
        let context = loaded.ledger.context();
        anyhow::bail!("{positions} positions do not fit a context of {context}; raise --ctx or the budget");
    }
    let mut out = args
        .out
        .as_ref()
        .map(|path| File::create(path).with_context(|| format!("cannot write {}", path.display())))
        .transpose()?
        .map(BufWriter::new);
    let model = &mut loaded.model;
    batch = batch.min(model.batch());
    model.set_batch(batch, batch);
    let cancel = Cancel::never();
    for ids in args.ids.chunks(batch) {
        model.forward(ids, Want::All, &mut NoHooks, &cancel)?;
        if let Some(out) = &mut out {
            for logit in model.logits() {
                out.write_all(&logit.to_le_bytes())?;
            }
        }
    }
    if let Some(mut out) = out {
        out.flush()?;
    }
    let vocabulary = model.hyperparameters().vocabulary;
    let mut greedy = Vec::new();
    for step in 0..args.greedy {
        let rows = model.logits();
        let next = first_maximum(&rows[rows.len() - vocabulary..]);
        greedy.push(next);
        if step + 1 < args.greedy {
            model.forward(&[next], Want::Last, &mut NoHooks, &cancel)?;
        }
    }
    let mut report = json!({ "prompt": args.ids, "greedy": greedy });
    // Where nothing was asked for by name: what comes next.
    if args.out.is_none() && args.greedy == 0 {
        let rows = model.logits();
        let next = likeliest(&rows[rows.len() - vocabulary..], SUMMARY_TOKENS);
        let told = |(id, logit)| json!({ "id": id, "logit": logit, "text": String::from_utf8_lossy(&loaded.tokenizer.piece(id)) });
        report["next"] = next.into_iter().map(told).collect();
    }
    writeln!(stdout(), "{report}")?;
    Ok(Outcome::Done)
}

/// The tokens with the highest logits, the highest first; of equals, the one with the lower id.
fn likeliest(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(count);
    all
}

fn first_maximum(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = i;
        }
    }
    best as u32
}
