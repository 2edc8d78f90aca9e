//! What short convolutions remember: the last few rows of their input, a few kilobytes a layer whatever the context.
//!
//! The rows of one moment cannot be had from those of a later one, so the cache keeps them at the end of each page of
//! positions too: a conversation that is cut goes on from there.

use std::ops::Range;

use crate::kernels::ops::PAGE_POSITIONS;

/// The rows of all convolutions of a model.
#[derive(Debug, Default)]
pub struct ConvolutionState {
    /// Convolutions of the model.
    layers: usize,
    /// Rows of one.
    rows: usize,
    width: usize,
    /// (layers, rows, width): the rows before the next position.
    now: Vec<f32>,
    /// The same after the pass that is under way.
    next: Vec<f32>,
}

impl ConvolutionState {
    /// Of `layers` convolutions over `taps` positions each.
    pub fn new(layers: usize, taps: usize, width: usize) -> Self {
        let rows = if layers == 0 { 0 } else { taps - 1 };
        let floats = layers * rows * width;
        Self { layers, rows, width, now: vec![0.0; floats], next: vec![0.0; floats] }
    }

    /// Bytes of a copy.
    pub fn bytes(&self) -> usize {
        self.now.len() * size_of::<f32>()
    }

    pub fn is_empty(&self) -> bool {
        self.layers == 0
    }

    fn range(&self, convolution: usize) -> Range<usize> {
        let len = self.rows * self.width;
        convolution * len..(convolution + 1) * len
    }

    /// The rows (rows, width) before the next position.
    pub fn before(&self, convolution: usize) -> &[f32] {
        &self.now[self.range(convolution)]
    }

    /// Takes the rows of a pass whose first position is `first`; `save` gets the page and the bytes of each copy, and
    /// where in a page's copy they begin.
    pub fn take(&mut self, convolution: usize, first: usize, x: &[f32], mut save: impl FnMut(usize, usize, &[f32])) {
        let (rows, width, range) = (self.rows, self.width, self.range(convolution));
        let count = x.len() / width;
        // Rows from `first - rows` on: what was before, then those of the pass.
        let row = |index: usize| match index.checked_sub(rows) {
            Some(position) => &x[position * width..][..width],
            None => &self.now[range.start + index * width..][..width],
        };
        let end = first + count;
        for boundary in (first / PAGE_POSITIONS + 1)..=(end / PAGE_POSITIONS) {
            let at = boundary * PAGE_POSITIONS - first;
            for i in 0..rows {
                save(boundary - 1, (range.start + i * width) * size_of::<f32>(), row(at + i));
            }
        }
        for i in 0..rows {
            let to = range.start + i * width;
            self.next[to..to + width].copy_from_slice(row(count + i));
        }
    }

    /// The pass is done: its rows are those before the next position.
    pub fn advance(&mut self) {
        std::mem::swap(&mut self.now, &mut self.next);
    }

    /// Back to the beginning (`None`), or to a copy.
    pub fn restore(&mut self, copy: Option<&[u8]>) {
        match copy {
            None => self.now.fill(0.0),
            Some(bytes) => {
                for (value, bytes) in self.now.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *value = f32::from_ne_bytes(*bytes);
                }
            }
        }
    }
}
