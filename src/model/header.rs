//! Reading the keys of a model's header, each checked before it is a size of anything.

use super::ModelError;
use crate::gguf::{Gguf, Metadata};

/// Largest value accepted for a count in the header: no model comes near it, and products of two fit 64 bits.
pub(super) const MOST: u64 = 1 << 24;

/// Reads keys under the architecture's prefix.
pub(super) struct Header<'a> {
    pub metadata: &'a Metadata,
    pub prefix: &'static str,
}

impl Header<'_> {
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    pub fn count(&self, name: &str) -> Result<Option<usize>, ModelError> {
        let key = self.key(name);
        match self.metadata.u64(&key) {
            None => Ok(None),
            Some(v) if v == 0 || v > MOST => Err(ModelError::Header(format!("{key} is {v}, not within 1 to {MOST}"))),
            Some(v) => Ok(Some(v as usize)),
        }
    }

    pub fn required(&self, name: &str) -> Result<usize, ModelError> {
        self.count(name)?.ok_or_else(|| ModelError::Header(format!("{} is missing", self.key(name))))
    }

    /// A count that may be given per layer (an array) as long as all are equal, but for layers that have none (0).
    pub fn uniform(&self, gguf: &Gguf, name: &str) -> Result<Option<usize>, ModelError> {
        let key = self.key(name);
        if self.metadata.u64(&key).is_some() {
            return self.count(name);
        }
        let Some(values) = gguf.u64s(&key)? else { return Ok(None) };
        match values.iter().find(|&&v| v > 0) {
            Some(&v) if values.iter().all(|&x| x == v || x == 0) && v <= MOST => Ok(Some(v as usize)),
            _ => Err(ModelError::Header(format!("{key} differs from layer to layer, which is not supported"))),
        }
    }

    pub fn flag(&self, name: &str) -> Option<bool> {
        self.metadata.bool(&self.key(name))
    }

    pub fn f32(&self, name: &str) -> Result<Option<f32>, ModelError> {
        let key = self.key(name);
        match self.metadata.f64(&key) {
            Some(v) if !v.is_finite() => Err(ModelError::Header(format!("{key} is {v}"))),
            v => Ok(v.map(|v| v as f32)),
        }
    }

    /// A count of which 0 means that there is none.
    pub fn nonzero_count(&self, name: &str) -> Result<Option<usize>, ModelError> {
        if self.metadata.u64(&self.key(name)) == Some(0) { Ok(None) } else { self.count(name) }
    }

    /// A scale or cap: 0 means that there is none.
    pub fn nonzero(&self, name: &str) -> Result<Option<f32>, ModelError> {
        Ok(self.f32(name)?.filter(|v| *v != 0.0))
    }
}
