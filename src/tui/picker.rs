//! What the pickers list, in words to filter by.

use super::app::App;
use super::message::{Effect, Job};
use super::options::CatalogEntry;
use crate::engine::protocol::Budget;
use crate::size::format_size;

/// What a model holds beside its weights, roughly.
const BESIDE_WEIGHTS: u64 = 64 << 20;

/// One line a model: name, quantisation, size, licence.
pub fn model_names(app: &App) -> Vec<String> {
    app.catalog
        .iter()
        .map(|e| format!("{} {} {} {}", e.name, e.quantization, format_size(e.bytes), e.licence))
        .collect()
}

/// One line a chat: its title and id.
pub fn chat_names(app: &App) -> Vec<String> {
    app.chats.iter().map(|c| format!("{} {}", c.title, c.id)).collect()
}

/// Whether a model would fit into the memory that it may have: what is left once the one in use is gone, within the
/// budget. `None` while that is unknown.
pub fn fits(app: &App, entry: &CatalogEntry) -> Option<bool> {
    let room = left_bytes(app);
    match entry.bytes {
        0 => None,
        _ if too_small_budget(app, entry) => Some(false),
        _ => (room > 0).then_some(room >= full_bytes(app, entry)),
    }
}

/// Whether it is the budget that keeps a model from being wholly in memory.
pub fn too_small_budget(app: &App, entry: &CatalogEntry) -> bool {
    let full = full_bytes(app, entry);
    within_budget(app, full) < full
}

/// As much of `bytes` as the budget asked for has room for.
fn within_budget(app: &App, bytes: u64) -> u64 {
    match app.load.budget {
        Budget::Auto => bytes,
        Budget::Bytes(most) => bytes.min(most),
        Budget::Share(share) => (bytes as f64 * share) as u64,
        Budget::Least => 0,
    }
}

/// What the machine has left once the model in use is gone; 0 while unknown.
fn left_bytes(app: &App) -> u64 {
    let m = &app.snapshot.memory;
    if m.available_bytes > 0 { m.available_bytes + m.rss_bytes } else { app.available_bytes }
}

/// The budget from which on nothing of a model is streamed.
fn full_bytes(app: &App, entry: &CatalogEntry) -> u64 {
    let forecast = entry.installed.as_ref().and_then(|path| app.forecasts.iter().find(|f| f.0 == *path)?.1);
    // Where no forecast was made: the weights, and a little for the context and the program.
    forecast.map_or(entry.bytes + entry.bytes / 16 + BESIDE_WEIGHTS, |f| f.full_bytes)
}

/// Tokens a second to be expected of a model that is not here, from what the one in use needs a byte.
pub fn rough_tok_s(app: &App, entry: &CatalogEntry) -> Option<f32> {
    let info = app.info().filter(|i| i.experts == 0)?;
    let compute_us: u64 = app.snapshot.layers.iter().map(|l| u64::from(l.compute_us)).sum();
    if compute_us == 0 || entry.bytes == 0 {
        return None;
    }
    let compute_s = compute_us as f64 / 1e6 * entry.bytes as f64 / info.touched_bytes_per_token.max(1) as f64;
    let s = &app.snapshot.speed;
    let disk_s = match fits(app, entry)? {
        true => 0.0,
        false => {
            let room = within_budget(app, entry.bytes);
            let missing = entry.bytes - room.min(left_bytes(app));
            let rate = if s.disk_calibrated_bytes_s > 0 { s.disk_calibrated_bytes_s } else { s.disk_bytes_s };
            if rate == 0 {
                return None;
            }
            missing as f64 / rate as f64
        }
    };
    Some((1.0 / compute_s.max(disk_s)) as f32)
}

/// Asks once how the model at `index` would run.
pub fn want_forecast(app: &mut App, index: usize) -> Vec<Effect> {
    let Some(path) = app.catalog.get(index).and_then(|e| e.installed.clone()) else { return Vec::new() };
    if app.forecasts.iter().any(|f| f.0 == path) {
        return Vec::new();
    }
    app.forecasts.push((path.clone(), None));
    vec![Effect::Job(Job::Forecast { model: path, budget: app.load.budget })]
}
