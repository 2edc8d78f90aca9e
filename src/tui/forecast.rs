//! What a budget would mean for the model that is loaded, before it is asked for: the planner's rule (every pinned byte
//! saves one byte a pass) and the bound (the slower of disk and arithmetic), on the figures at hand and with the
//! context as full as it is.

use super::app::App;

/// What is to be expected of a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    /// Share of the weights kept in memory.
    pub resident: f64,
    pub streamed_bytes_per_token: u64,
    /// `None` while neither the disk nor the speed is known.
    pub tok_s: Option<f32>,
}

/// The outlook for `budget` bytes; `None` when the budget does not run or nothing is known.
pub fn outlook(app: &App, budget: u64) -> Option<Outlook> {
    let m = &app.snapshot.memory;
    let info = app.info()?;
    if m.full_bytes == 0 || app.context_with(budget).is_none() {
        return None;
    }
    let touched = info.touched_bytes_per_token.max(1) as f64;
    // The rest takes what it takes now: with a longer context, fewer weights are kept.
    let room = budget.saturating_sub(m.base_bytes + m.scratch_bytes + m.kv_bytes) as f64;
    let streamed = if room >= touched { 0.0 } else { (touched - room + m.ring_bytes as f64).min(touched) };
    let resident = 1.0 - streamed / touched;
    let s = &app.snapshot.speed;
    let disk = match s.disk_calibrated_bytes_s {
        0 => s.disk_bytes_s,
        known => known,
    } as f64;
    let disk_s = if disk > 0.0 {
        Some(streamed / disk)
    } else if streamed == 0.0 {
        Some(0.0)
    } else {
        None
    };
    let compute_s = compute_seconds(app);
    let tok_s = match (disk_s, compute_s) {
        (Some(disk), Some(compute)) => Some((1.0 / disk.max(compute)) as f32),
        (Some(disk), None) if disk > 0.0 => Some((1.0 / disk) as f32),
        _ => None,
    };
    Some(Outlook { resident, streamed_bytes_per_token: streamed as u64, tok_s })
}

/// What a token's arithmetic took of late, all layers together.
fn compute_seconds(app: &App) -> Option<f64> {
    let us: u64 = app.snapshot.layers.iter().map(|l| u64::from(l.compute_us)).sum();
    (us > 0).then(|| us as f64 / 1e6)
}
