//! The instruction sets that kernels are written for, and which of them this processor has.

use crate::sanitize::line;

/// An instruction set, from the plainest to the widest. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Plain Rust, any processor.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// The same with 8-bit dot products.
    AvxVnni,
    /// AVX-512 (F, BW, DQ, VL) with 8-bit dot products.
    Avx512Vnni,
    /// aarch64 as every processor has it (Cortex-A72).
    Neon,
    /// With 8-bit dot products (Cortex-A76).
    Dotprod,
    /// With 8-bit matrix products.
    I8mm,
}

impl Isa {
    pub const ALL: [Self; 7] =
        [Self::Scalar, Self::Avx2, Self::AvxVnni, Self::Avx512Vnni, Self::Neon, Self::Dotprod, Self::I8mm];

    /// The widest that this processor has, or the one that the environment variable `SIPLLM_ISA` names, where supported.
    pub fn detect() -> Self {
        let asked = std::env::var("SIPLLM_ISA").ok();
        let asked = Self::ALL.into_iter().find(|isa| Some(isa.name()) == asked.as_deref());
        match asked {
            Some(isa) if isa.is_supported() => isa,
            _ => Self::ALL.into_iter().rfind(|isa| isa.is_supported()).unwrap_or(Self::Scalar),
        }
    }

    /// Whether `SIPLLM_ISA`, where it is set, names an instruction set of this processor.
    ///
    /// # Errors
    /// What is wrong with it, and what could be written.
    pub fn check_environment() -> Result<(), String> {
        match std::env::var_os("SIPLLM_ISA").filter(|name| !name.is_empty()) {
            Some(name) => Self::check(&name.to_string_lossy()),
            None => Ok(()),
        }
    }

    fn check(name: &str) -> Result<(), String> {
        let supported: Vec<&str> = Self::supported().into_iter().map(Self::name).collect();
        if supported.contains(&name) {
            return Ok(());
        }
        let (name, known) = (line(name, 40), supported.join(", "));
        Err(format!(
            "environment variable SIPLLM_ISA: `{name}` is no instruction set of this processor; it has {known}"
        ))
    }

    /// As it is written in `SIPLLM_ISA` and shown to the user.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512Vnni => "avx512-vnni",
            Self::Neon => "neon",
            Self::Dotprod => "dotprod",
            Self::I8mm => "i8mm",
        }
    }

    /// Whether this processor has it. Detection is cached by the standard library; asking costs a load or two.
    #[inline]
    pub fn is_supported(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => has_avx2() && is_x86_feature_detected!("avxvnni"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => {
                has_avx2()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "aarch64")]
            Self::Dotprod => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(target_arch = "aarch64")]
            Self::I8mm => {
                std::arch::is_aarch64_feature_detected!("dotprod") && std::arch::is_aarch64_feature_detected!("i8mm")
            }
            _ => false,
        }
    }

    /// All that this processor has, for tests that compare them.
    pub fn supported() -> Vec<Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_supported()).collect()
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_detected_is_supported() {
        assert!(Isa::detect().is_supported());
        assert_eq!(Isa::supported().first(), Some(&Isa::Scalar));
        assert!(Isa::supported().contains(&Isa::detect()));
    }
}
