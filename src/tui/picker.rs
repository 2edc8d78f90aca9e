//! What the pickers list, in words to filter by.

use super::app::App;
use super::message::{Effect, Job};
use crate::size::format_size;

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

/// Asks once how the model at `index` would run.
pub fn want_forecast(app: &mut App, index: usize) -> Vec<Effect> {
    let Some(path) = app.catalog.get(index).and_then(|e| e.installed.clone()) else { return Vec::new() };
    if app.forecasts.iter().any(|f| f.0 == path) {
        return Vec::new();
    }
    app.forecasts.push((path.clone(), None));
    vec![Effect::Job(Job::Forecast(path))]
}
