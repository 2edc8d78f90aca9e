//! The protocol's settings in the terms of the modules that carry them out.

use super::protocol::{KvType, Residency, SourceKind};
use crate::kernels::ops;
use crate::weights;

impl From<SourceKind> for weights::SourceKind {
    fn from(kind: SourceKind) -> Self {
        match kind {
            SourceKind::Direct => Self::Direct,
            SourceKind::Buffered => Self::Buffered,
            SourceKind::Mmap => Self::Mmap,
        }
    }
}

impl From<weights::SourceKind> for SourceKind {
    fn from(kind: weights::SourceKind) -> Self {
        match kind {
            weights::SourceKind::Direct => Self::Direct,
            weights::SourceKind::Buffered => Self::Buffered,
            weights::SourceKind::Mmap => Self::Mmap,
        }
    }
}

impl From<Residency> for weights::Residency {
    fn from(residency: Residency) -> Self {
        match residency {
            Residency::Quantized => Self::Quantized,
            Residency::Fp32 => Self::Fp32,
        }
    }
}

impl From<KvType> for ops::KvElement {
    fn from(kv: KvType) -> Self {
        match kv {
            KvType::F16 => Self::F16,
            KvType::Q8_0 => Self::Q8_0,
            KvType::F32 => Self::F32,
        }
    }
}
