//! Figures in lines of text: what the full screen's panels show.

use std::io::{self, Write};

use super::conversation::{Conversation, describe_answer, describe_model};
use crate::engine::protocol::Snapshot;
use crate::size::{format_budget, format_size};
use crate::words::counted;

impl Conversation {
    /// What `/stats`, `/memory`, `/layers` and `/speed` show.
    pub(super) fn figures(&self, name: &str, out: &mut impl Write) -> io::Result<()> {
        let snapshots = self.engine.snapshots();
        let snapshot = snapshots.borrow().clone();
        match name {
            "/memory" => memory(&snapshot, out),
            "/layers" => layers(&snapshot, out),
            "/speed" => speed(&snapshot, out),
            _ => self.stats(out),
        }
    }

    fn stats(&self, out: &mut impl Write) -> io::Result<()> {
        if let Some(model) = &self.model {
            writeln!(out, "model: {}", describe_model(model, self.context()))?;
        }
        let snapshots = self.engine.snapshots();
        let snapshot = snapshots.borrow().clone();
        let memory = &snapshot.memory;
        writeln!(
            out,
            "memory: {} held of {} (budget {}): pinned {}, ring {}, kv {}, scratch {}, base {}",
            format_size(memory.rss_bytes),
            format_size(memory.budget_bytes),
            format_budget(memory.budget),
            format_size(memory.pinned_bytes),
            format_size(memory.ring_bytes),
            format_size(memory.kv_bytes),
            format_size(memory.scratch_bytes),
            format_size(memory.base_bytes),
        )?;
        writeln!(out, "context: {} of {} tokens", snapshot.context_used, snapshot.context)?;
        match &self.last {
            Some(stats) => writeln!(out, "last answer: {}", describe_answer(stats)),
            None => Ok(()),
        }
    }
}

fn memory(snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    let m = &snapshot.memory;
    let least = format!("least budget, {}", counted(m.least_context, "token"));
    for (name, bytes) in [
        ("weights pinned", m.pinned_bytes),
        ("weights in the ring", m.ring_bytes),
        ("kv cache", m.kv_bytes),
        ("scratch of a pass", m.scratch_bytes),
        ("program, tokenizer", m.base_bytes),
        ("held, says the kernel", m.rss_bytes),
        ("budget", m.budget_bytes),
        (&least, m.least_bytes),
        ("all in memory from", m.full_bytes),
        ("model in the file cache", m.file_cache_bytes),
        ("the machine has left", m.available_bytes),
    ] {
        writeln!(out, "{name:<24} {:>10}", format_size(bytes))?;
    }
    Ok(())
}

fn layers(snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "layer, size, kept in memory; the last pass in milliseconds: read, wait, compute")?;
    let ms = |us: u32| f64::from(us) / 1e3;
    let count = snapshot.layers.len();
    for (i, layer) in snapshot.layers.iter().enumerate() {
        let name = if i + 1 == count { "head".to_owned() } else { i.to_string() };
        let kept = (layer.pinned_bytes.min(layer.bytes) * 100).checked_div(layer.bytes).unwrap_or(0);
        writeln!(
            out,
            "{name:>4} {:>10} {kept:>3}% {:>8.2} {:>8.2} {:>8.2}",
            format_size(layer.bytes),
            ms(layer.read_us),
            ms(layer.wait_us),
            ms(layer.compute_us)
        )?;
    }
    Ok(())
}

fn speed(snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    let s = &snapshot.speed;
    let known = |value: f32| if value > 0.0 { format!("{value:.2} tok/s") } else { "not measured yet".to_owned() };
    writeln!(out, "this answer: {}; prompts: {}", known(s.mean_tok_s), known(s.prefill_tok_s))?;
    writeln!(out, "the bound: {}, set by {}", known(s.bound_tok_s), s.limiter.name())?;
    writeln!(
        out,
        "disk: {} a second, {} streamed a token",
        format_size(s.disk_bytes_s),
        format_size(s.streamed_bytes_per_token)
    )
}
