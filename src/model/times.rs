//! Where the time of a pass goes, operation by operation.

use std::time::{Duration, Instant};

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Qkv,
    Attention,
    /// Attention's output projection.
    Output,
    Ffn,
    Head,
    Sample,
    /// Norms, RoPE, biases, activation functions, quantising activations.
    Other,
    /// Waiting for weights.
    Wait,
}

impl Op {
    pub const ALL: [Op; 8] = [Op::Qkv, Op::Attention, Op::Output, Op::Ffn, Op::Head, Op::Sample, Op::Other, Op::Wait];

    pub fn name(self) -> &'static str {
        match self {
            Op::Qkv => "qkv",
            Op::Attention => "attention",
            Op::Output => "output",
            Op::Ffn => "ffn",
            Op::Head => "head",
            Op::Sample => "sample",
            Op::Other => "other",
            Op::Wait => "wait",
        }
    }
}

/// Time spent on each kind of work since the last [`OpTimes::reset`].
#[derive(Clone, Debug, Default)]
pub struct OpTimes([Duration; Op::ALL.len()]);

impl OpTimes {
    pub fn add(&mut self, op: Op, since: Instant) {
        self.add_duration(op, since.elapsed());
    }

    pub fn add_duration(&mut self, op: Op, spent: Duration) {
        self.0[op as usize] += spent;
    }

    pub fn get(&self, op: Op) -> Duration {
        self.0[op as usize]
    }

    pub fn reset(&mut self) {
        *self = Self::default();
    }
}
