//! Which rotary table each layer uses, from what the header says.

use super::hyperparameters::{Hyperparameters, RopeScaling};
use super::layout::Layout;
use crate::kernels::ops::{RopeParams, RopeTable, Yarn};

/// The tables of a model: one for all layers, or another one for windowed layers.
pub struct Rope {
    global: RopeTable,
    windowed: Option<RopeTable>,
}

impl Rope {
    /// Tables for contexts of up to `context` positions (LongRoPE chooses its factors by that).
    pub fn new(hp: &Hyperparameters, layout: &Layout, context: usize) -> Self {
        let plain = RopeParams::plain(hp.rope_dim, hp.arch.pairing, f64::from(hp.rope_base));
        let plain = RopeParams { factors: layout.rope_freqs.clone(), ..plain };
        let global = match hp.rope_scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => RopeParams { scale: 1.0 / f64::from(factor), ..plain },
            // Fast and slow turns as the paper sets them for llama models.
            RopeScaling::Yarn { factor, original_context, attention_factor } => RopeParams {
                scale: 1.0 / f64::from(factor),
                yarn: Some(Yarn { ext_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0, original_context }),
                magnitude: f64::from(attention_factor),
                ..plain
            },
            RopeScaling::Long { original_context, attention_factor } => RopeParams {
                factors: if context > original_context as usize { &layout.rope_long } else { &layout.rope_short }
                    .clone(),
                magnitude: f64::from(attention_factor),
                ..plain
            },
        };
        let has_windows = hp.window.is_some() && (0..hp.layers).any(|layer| hp.arch.is_windowed(layer));
        let windowed = (has_windows && hp.arch.window_rope_base.is_some())
            .then(|| RopeTable::new(&RopeParams::plain(hp.rope_dim, hp.arch.pairing, f64::from(hp.rope_base_window))));
        Self { global: RopeTable::new(&global), windowed }
    }

    /// The table of this layer; `None` for a layer without RoPE.
    pub fn of_layer(&self, hp: &Hyperparameters, layer: usize) -> Option<&RopeTable> {
        if !hp.arch.has_rope(layer) {
            return None;
        }
        match &self.windowed {
            Some(windowed) if hp.arch.is_windowed(layer) => Some(windowed),
            _ => Some(&self.global),
        }
    }

    /// Makes the tables reach to `positions`.
    pub fn grow(&mut self, positions: usize) {
        self.global.grow(positions);
        if let Some(windowed) = &mut self.windowed {
            windowed.grow(positions);
        }
    }

    pub fn bytes(&self) -> usize {
        self.global.bytes() + self.windowed.as_ref().map_or(0, RopeTable::bytes)
    }
}
