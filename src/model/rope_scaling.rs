//! How positions are scaled, as the header asks for it.

use super::ModelError;
use super::architecture::Architecture;
use super::header::{Header, MOST};
use crate::gguf::Gguf;

/// Rotary scaling as the header asks for it.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// Positions divided by the factor.
    Linear {
        factor: f32,
    },
    /// YaRN (Peng et al., 2023).
    Yarn {
        factor: f32,
        original_context: u32,
        /// What queries and keys are multiplied with beside YaRN's own factor.
        attention_factor: f32,
        beta_fast: f32,
        beta_slow: f32,
    },
    /// LongRoPE (Ding et al., 2024): per-dimension factors, `rope_factors_short.weight` up to the original
    /// context and `rope_factors_long.weight` beyond it.
    Long {
        factor: f32,
        original_context: u32,
        attention_factor: f32,
    },
}

/// The base of the rotary frequencies, stretched where the file asks for it (`rope.scaling.alpha`).
pub(super) fn rope_base(header: &Header<'_>, key_dim: usize) -> Result<f32, ModelError> {
    let base = header.f32("rope.freq_base")?.unwrap_or(10_000.0);
    let Some(alpha) = header.nonzero("rope.scaling.alpha")?.filter(|alpha| *alpha > 0.0 && key_dim > 2) else {
        return Ok(base);
    };
    let power = key_dim as f64 / (key_dim as f64 - 2.0);
    Ok((f64::from(base) * libm::pow(f64::from(alpha), power)) as f32)
}

/// Positions that the model was first trained on.
pub(super) fn original_context(header: &Header<'_>, context_trained: u32) -> u32 {
    let given = header.metadata.u64(&header.key("rope.scaling.original_context_length"));
    given.filter(|context| (1..=MOST).contains(context)).map_or(context_trained, |context| context as u32)
}

/// Keys as the GGUF specification and llama.cpp's converter name them.
pub(super) fn rope_scaling(
    gguf: &Gguf,
    header: &Header<'_>,
    arch: &Architecture,
    context_trained: u32,
) -> Result<RopeScaling, ModelError> {
    let factor = match header.nonzero("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => header.nonzero("rope.scale_linear")?,
    };
    let original_context = original_context(header, context_trained);
    let attention_factor = header.nonzero("rope.scaling.attn_factor")?.unwrap_or(1.0);
    let kind = header.metadata.str(&header.key("rope.scaling.type"));
    if gguf.tensor("rope_factors_long.weight").is_some() {
        let factor = factor.filter(|_| kind != Some("none")).unwrap_or(1.0);
        return Ok(RopeScaling::Long { factor, original_context, attention_factor });
    }
    match (kind, factor) {
        (Some("yarn"), Some(factor)) => {
            // `mscale` as DeepSeek defined it, with `mscale_all_dim` in the file.
            let all = header.nonzero("rope.scaling.yarn_log_multiplier")?.filter(|_| factor > 1.0);
            // Latent attention has it in the scale of its scores instead, see [`latent_scale`].
            let all = all.map(|all| if arch.latent { 1.0 } else { all });
            let all = all.map_or(1.0, |m| 1.0 + 0.1 * f64::from(m) * libm::log(f64::from(factor)));
            Ok(RopeScaling::Yarn {
                factor,
                original_context,
                attention_factor: (f64::from(attention_factor) / all) as f32,
                beta_fast: header.nonzero("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: header.nonzero("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            })
        }
        (Some("none"), _) => Ok(RopeScaling::None),
        (Some("linear" | "longrope") | None, Some(factor)) => Ok(RopeScaling::Linear { factor }),
        (None | Some("linear" | "yarn" | "longrope"), None) => Ok(RopeScaling::None),
        (Some(other), _) => {
            Err(ModelError::Header(format!("{} is {other:?}, which is not known", header.key("rope.scaling.type"))))
        }
    }
}

/// What YaRN multiplies the scores of latent attention with: the square of `mscale`, since the elements that are not
/// turned are to have it too. The file has a tenth of DeepSeek's `mscale_all_dim`.
pub(super) fn latent_scale(header: &Header<'_>, scaling: &RopeScaling) -> Result<f64, ModelError> {
    let RopeScaling::Yarn { factor, attention_factor, .. } = scaling else { return Ok(1.0) };
    let all = f64::from(header.f32("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0));
    let stretch = libm::log(f64::from(*factor).max(1.0));
    let magnitude = f64::from(*attention_factor) * (1.0 + 0.1 * stretch);
    Ok((magnitude * (1.0 + all * stretch)).powi(2))
}
