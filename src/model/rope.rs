//! Which rotary table each layer uses, from what the header says.

use super::architecture::WindowRope;
use super::hyperparameters::Hyperparameters;
use super::layout::Layout;
use super::rope_scaling::RopeScaling;
use crate::kernels::ops::{RopeParams, RopeTable, Yarn};

/// The tables of a model: one for all layers, or another one for windowed layers.
pub struct Rope {
    global: RopeTable,
    windowed: Option<RopeTable>,
}

impl Rope {
    /// Tables for contexts of up to `context` positions (LongRoPE chooses its factors by that).
    pub fn new(hp: &Hyperparameters, layout: &Layout, context: usize) -> Self {
        let plain = RopeParams::plain(hp.rope_dim, hp.pairing, f64::from(hp.rope_base));
        let plain = RopeParams { factors: layout.rope_freqs.clone(), ..plain };
        let global = match hp.rope_scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => RopeParams { scale: 1.0 / f64::from(factor), ..plain },
            RopeScaling::Yarn { factor, original_context, attention_factor, beta_fast, beta_slow } => RopeParams {
                scale: 1.0 / f64::from(factor),
                yarn: Some(Yarn {
                    ext_factor: 1.0,
                    beta_fast: f64::from(beta_fast),
                    beta_slow: f64::from(beta_slow),
                    original_context,
                }),
                magnitude: f64::from(attention_factor),
                ..plain
            },
            RopeScaling::Long { factor, original_context, attention_factor } => RopeParams {
                scale: 1.0 / f64::from(factor),
                factors: if context > original_context as usize { &layout.rope_long } else { &layout.rope_short }
                    .clone(),
                magnitude: f64::from(attention_factor),
                ..plain
            },
        };
        let has_windows = hp.kinds.iter().any(|kind| kind.is_windowed);
        let base = f64::from(hp.rope_base_window);
        let of_windows = match hp.arch.window_rope {
            WindowRope::Same => RopeParams { base, ..global.clone() },
            WindowRope::Unscaled(_) => RopeParams::plain(hp.rope_dim, hp.pairing, base),
        };
        let windowed = (has_windows && of_windows != global).then(|| RopeTable::new(&of_windows));
        Self { global: RopeTable::new(&global), windowed }
    }

    /// The table of this layer; `None` for a layer without RoPE.
    pub fn of_layer(&self, hp: &Hyperparameters, layer: usize) -> Option<&RopeTable> {
        if !hp.kinds[layer].has_rope {
            return None;
        }
        match &self.windowed {
            Some(windowed) if hp.kinds[layer].is_windowed => Some(windowed),
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
