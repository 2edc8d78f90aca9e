//! `sipllm bench`: speed and memory of one model under one budget.

use std::io::{Write, stdout};

use serde_json::json;

use super::Outcome;
use super::driver::{Driver, Step};
use super::pull::model_path;
use crate::cli::BenchArgs;
use crate::config::Settings;
use crate::engine::protocol::{GenerationStats, ModelInfo, Prompt, Request, Sampling, Snapshot};
use crate::size::format_size;
use crate::words::counted;

/// Tokens of the answer that warms up: caches, page tables and pins.
const WARM_UP_TOKENS: u32 = 2;

pub fn run(args: &BenchArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let Some(path) = model_path(args.model.as_deref(), settings)? else { return Ok(Outcome::Interrupted) };
    let mut driver = Driver::new()?;
    let positions = args.prompt_tokens.saturating_add(args.gen_tokens);
    let request = settings.load_request(path, positions);
    let Step::Done(info) = driver.load(request)? else { return Ok(Outcome::Interrupted) };
    if args.prompt_tokens > info.context {
        let (asked, context) = (counted(args.prompt_tokens, "token"), info.context);
        anyhow::bail!("a prompt of {asked} does not fit the context of {context}; raise --ctx or the budget");
    }
    let ids = prompt(args.prompt_tokens, info.vocabulary);
    let (mut first, mut runs) = (None, Vec::new());
    for run in 0..=args.repetitions {
        driver.reset();
        let gen_tokens = if run == 0 { WARM_UP_TOKENS.min(args.gen_tokens) } else { args.gen_tokens };
        let Step::Done((_, stats)) = driver.generate(answer(ids.clone(), gen_tokens, info.experts > 0), |_| Ok(()))?
        else {
            return Ok(Outcome::Interrupted);
        };
        if run > 0 {
            runs.push(stats);
        } else {
            first = Some(stats);
        }
    }
    let first_ttft_s = first.map_or(0.0, |stats| stats.ttft_s);
    let report = Report { info: &info, first_ttft_s, runs: &runs, snapshot: &driver.snapshot() };
    if args.json {
        writeln!(stdout(), "{}", report.json())?;
    } else {
        report.print(args.ops)?;
    }
    Ok(Outcome::Done)
}

/// Ids spread over the vocabulary, the same for everyone who asks.
fn prompt(tokens: u32, vocabulary: u32) -> Vec<u32> {
    let (first, count) = if vocabulary > 1000 { (100, vocabulary - 300) } else { (0, vocabulary) };
    (0..u64::from(tokens)).map(|i| ((i * 7919 + 13) % u64::from(count)) as u32 + first).collect()
}

fn answer(ids: Vec<u32>, max_tokens: u32, has_experts: bool) -> Request {
    Request {
        id: 0,
        prompt: Prompt::Tokens(ids),
        // Tokens as different as can be: one that repeats asks for the same experts for ever, as no text does.
        sampling: match has_experts {
            true => {
                Sampling { temperature: 20.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(1), ..Sampling::default() }
            }
            false => Sampling { temperature: 0.0, ..Sampling::default() },
        },
        max_tokens: Some(max_tokens),
        stop: Vec::new(),
        stop_at_end: false,
        thinking: None,
    }
}

struct Report<'a> {
    info: &'a ModelInfo,
    /// Of the warm-up: its prompt finds no weights in memory.
    first_ttft_s: f64,
    runs: &'a [GenerationStats],
    snapshot: &'a Snapshot,
}

impl Report<'_> {
    fn median(&self, figure: impl Fn(&GenerationStats) -> f64) -> f64 {
        let mut values: Vec<f64> = self.runs.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
    }

    /// Bytes streamed by one decoded token.
    fn decode_streamed_bytes_per_token(&self) -> f64 {
        self.median(|s| s.decode_streamed_bytes as f64 / f64::from(s.generated_tokens.saturating_sub(1).max(1)))
    }

    /// Share of the experts asked for while decoding that were in memory; of a model with experts.
    fn expert_hit_rate(&self) -> Option<f64> {
        let has_experts = self.info.experts > 0;
        has_experts.then(|| self.median(|s| s.decode_expert_hits as f64 / s.decode_expert_uses.max(1) as f64))
    }

    fn json(&self) -> serde_json::Value {
        let (info, memory, speed) = (self.info, &self.snapshot.memory, &self.snapshot.speed);
        let decode_tok_s = self.median(|s| s.decode_tok_s);
        let bound = f64::from(speed.bound_tok_s);
        json!({
            "model": info.name,
            "arch": info.architecture,
            "quant": info.quantization,
            "threads": info.threads,
            "kernel": info.kernel,
            "isa": info.isa,
            "source": info.source,
            "budget_bytes": memory.budget_bytes,
            "weights_bytes": info.weights_bytes,
            "touched_bytes_per_token": info.touched_bytes_per_token,
            "prompt_tokens": self.runs[0].prompt_tokens,
            "gen_tokens": self.runs[0].generated_tokens,
            "load_s": info.load_s,
            "first_ttft_s": self.first_ttft_s,
            "ttft_s": self.median(|s| s.ttft_s),
            "prefill_tok_s": self.median(|s| s.prefill_tok_s),
            "decode_tok_s": decode_tok_s,
            "pinned_bytes": memory.pinned_bytes,
            "ring_bytes": memory.ring_bytes,
            "kv_bytes": memory.kv_bytes,
            "base_bytes": memory.base_bytes,
            "resident_weight_bytes": memory.peak_weight_bytes,
            "peak_rss_bytes": memory.peak_rss_bytes,
            "file_cache_bytes": memory.file_cache_bytes,
            "prefill_passes": self.runs[0].prefill_passes,
            "prefill_streamed_bytes": self.median(|s| s.prefill_streamed_bytes as f64) as u64,
            "decode_streamed_bytes_per_token": self.decode_streamed_bytes_per_token() as u64,
            "disk_bytes_s": speed.disk_bytes_s,
            "disk_calibrated_bytes_s": speed.disk_calibrated_bytes_s,
            "expert_hit_rate": self.expert_hit_rate(),
            "experts_resident": self.snapshot.experts.as_ref().map(|experts| experts.resident),
            "stall_fraction": self.median(|s| s.stall_fraction),
            "bound_tok_s": bound,
            "bound_ratio": if bound > 0.0 { decode_tok_s / bound } else { 0.0 },
            "tokens_per_pass": 1.0,
            "op_ms": self.op_ms(),
        })
    }

    /// Milliseconds a decoded token spends on each kind of work.
    fn op_ms(&self) -> serde_json::Map<String, serde_json::Value> {
        self.snapshot.speed.op_ms.iter().map(|&(op, ms)| (op.to_owned(), json!(ms))).collect()
    }

    fn print(&self, ops: bool) -> std::io::Result<()> {
        let (info, memory) = (self.info, &self.snapshot.memory);
        let mut out = stdout().lock();
        writeln!(
            out,
            "{} ({}, {}), {}, {}",
            info.name,
            info.architecture,
            info.quantization,
            counted(info.threads, "thread"),
            info.isa
        )?;
        writeln!(
            out,
            "prefill  {:>9.2} tok/s  {} in {}, {} streamed, first token after {:.2} s",
            self.median(|s| s.prefill_tok_s),
            counted(self.runs[0].prompt_tokens, "token"),
            counted(self.runs[0].prefill_passes, "pass"),
            format_size(self.median(|s| s.prefill_streamed_bytes as f64) as u64),
            self.median(|s| s.ttft_s)
        )?;
        writeln!(
            out,
            "decode   {:>9.2} tok/s  {}, {} streamed a token, {:.0}% of the time waiting for the disk",
            self.median(|s| s.decode_tok_s),
            counted(self.runs[0].generated_tokens, "token"),
            format_size(self.decode_streamed_bytes_per_token() as u64),
            100.0 * self.median(|s| s.stall_fraction)
        )?;
        if let (Some(rate), Some(experts)) = (self.expert_hit_rate(), &self.snapshot.experts) {
            writeln!(
                out,
                "experts  {:>8.1}%  of those asked for were in memory, {} of {} are",
                100.0 * rate,
                experts.resident,
                experts.total
            )?;
        }
        writeln!(
            out,
            "memory   {} at the most of a budget of {}: {} pinned, {} ring, {} kv, {} base",
            format_size(memory.peak_rss_bytes),
            format_size(memory.budget_bytes),
            format_size(memory.pinned_bytes),
            format_size(memory.ring_bytes),
            format_size(memory.kv_bytes),
            format_size(memory.base_bytes)
        )?;
        if ops {
            for (op, ms) in &self.snapshot.speed.op_ms {
                writeln!(out, "{op:<10} {ms:>8.3} ms a token")?;
            }
        }
        Ok(())
    }
}
