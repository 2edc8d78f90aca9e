//! Random rows of every format, for toy models and tests.

use super::block::F16;
use super::q3_k::BlockQ3K;
use super::q4_k::pack_scales_mins;
use crate::gguf::TensorType;

/// A small, fast generator (xoshiro256++ by Blackman and Vigna, seeded by SplitMix64): the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1).
    #[inline]
    pub fn next_f32(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Uniform in `low..high`, which is not empty.
    #[inline]
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + ((u128::from(self.next_u64()) * u128::from(high - low)) >> 64) as u64
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        for word in words {
            *word = self.next_u64().to_le_bytes();
        }
        let last = self.next_u64().to_le_bytes();
        for (byte, random) in rest.iter_mut().zip(last) {
            *byte = random;
        }
    }
}

/// Standard deviation of values uniform in -1..1.
const UNIFORM_STD: f32 = 0.577_350_3;

/// Fills `out` with one row (whole blocks) of random weights of standard deviation about `scale` and mean near zero.
///
/// Of a type that is not supported, the row is zero.
pub fn fill_random_row(ty: TensorType, rng: &mut Rng, scale: f32, out: &mut [u8]) {
    match ty {
        TensorType::F32 => {
            for bytes in out.as_chunks_mut::<4>().0 {
                *bytes = uniform(rng, scale).to_le_bytes();
            }
        }
        TensorType::F16 => {
            for bytes in out.as_chunks_mut::<2>().0 {
                *bytes = F16::from_f32(uniform(rng, scale)).0;
            }
        }
        TensorType::BF16 => {
            for bytes in out.as_chunks_mut::<2>().0 {
                *bytes = half::bf16::from_f32(uniform(rng, scale)).to_le_bytes();
            }
        }
        _ => {
            let Some(fix) = scale_writer(ty) else { return out.fill(0) };
            rng.fill(out);
            for block in out.chunks_exact_mut(ty.block_bytes()) {
                // Blocks differ in size as those of real models do.
                let size = scale * (0.75 + 0.5 * rng.next_f32());
                fix(rng, size, block);
            }
        }
    }
}

fn uniform(rng: &mut Rng, scale: f32) -> f32 {
    (rng.next_f32() * 2.0 - 1.0) * (scale / UNIFORM_STD)
}

type ScaleWriter = fn(&mut Rng, f32, &mut [u8]);

/// What makes a block of random bytes one of sane values: writes its scales, so that its elements have this standard deviation.
///
/// The divisors are the standard deviations of the integers that random bits stand for.
fn scale_writer(ty: TensorType) -> Option<ScaleWriter> {
    Some(match ty {
        // Their integers have no middle: scales of either sign make the mean zero, or all rows would have a direction in common.
        TensorType::Q4_0 => |rng, size, block| put(block, 0, either_sign(rng, size / 4.64)),
        TensorType::Q4_1 => |_, size, block| {
            put(block, 0, size / 4.61);
            put(block, 2, size / 4.61 * -7.5);
        },
        TensorType::Q5_0 => |rng, size, block| put(block, 0, either_sign(rng, size / 9.25)),
        TensorType::Q5_1 => |_, size, block| {
            put(block, 0, size / 9.23);
            put(block, 2, size / 9.23 * -15.5);
        },
        TensorType::Q8_0 => |_, size, block| put(block, 0, size / 73.9),
        TensorType::Q2_K => |rng, size, block| {
            // The same four bits for scale and minimum centre each sub-block.
            for byte in &mut block[..16] {
                *byte = rng.range(8, 16) as u8 * 0x11;
            }
            put(block, 80, size / (1.118 * 11.73));
            put(block, 82, size / (1.118 * 11.73) * 1.5);
        },
        TensorType::Q3_K => |rng, size, block| {
            let scales = std::array::from_fn(|_| {
                let magnitude = rng.range(12, 32) as i8;
                if rng.next_u64() & 1 == 0 { magnitude } else { -magnitude }
            });
            block[96..108].copy_from_slice(&BlockQ3K::pack_scales(&scales));
            put(block, 108, size / (2.345 * 22.3));
        },
        TensorType::Q4_K => |rng, size, block| centred_k_scales(rng, size / 4.61, 7.5, block),
        TensorType::Q5_K => |rng, size, block| centred_k_scales(rng, size / 9.23, 15.5, block),
        TensorType::Q6_K => |rng, size, block| {
            for byte in &mut block[192..208] {
                let magnitude = rng.range(48, 128) as i8;
                *byte = (if rng.next_u64() & 1 == 0 { magnitude } else { -magnitude }) as u8;
            }
            put(block, 208, size / (18.48 * 90.5));
        },
        TensorType::IQ4_NL => |_, size, block| put(block, 0, size / 67.9),
        TensorType::IQ4_XS => |_, size, block| put(block, 0, size / (67.9 * 18.1)),
        TensorType::MXFP4 => |_, size, block| {
            // The values have a standard deviation of 5.9; the exponent nearest to size / 5.9.
            block[0] = ((size / 5.9).log2().round() + 128.0).clamp(0.0, 254.0) as u8;
        },
        // The scales keep their random bits, a factor of about eight between the smallest and the largest.
        TensorType::IQ1_S => |_, size, block| put(block, 0, size / 7.15),
        TensorType::IQ1_M => |_, size, block| {
            let d = u16::from_le_bytes(F16::from_f32(size / 7.19).0);
            for i in 0..4 {
                let top = &mut block[49 + 2 * i];
                *top = (*top & 15) | ((d >> (4 * i)) as u8) << 4;
            }
        },
        TensorType::IQ2_XXS => |_, size, block| put(block, 0, size / 54.8),
        TensorType::IQ2_XS => |_, size, block| put(block, 0, size / 56.1),
        TensorType::IQ2_S => |_, size, block| put(block, 0, size / 57.4),
        TensorType::IQ3_XXS => |_, size, block| put(block, 0, size / 145.0),
        TensorType::IQ3_S => |_, size, block| put(block, 0, size / 139.6),
        TensorType::TQ1_0 => |_, size, block| put(block, 52, size / 0.824),
        TensorType::TQ2_0 => |_, size, block| {
            // The bits 11 would stand for 2, which is not ternary: they become 01.
            for byte in &mut block[..64] {
                *byte &= !((*byte & 0x55) << 1);
            }
            put(block, 64, size / 0.718);
        },
        _ => return None,
    })
}

/// Scales equal to minimums, `dmin` the middle of the values: each sub-block is centred.
fn centred_k_scales(rng: &mut Rng, d: f32, middle: f32, block: &mut [u8]) {
    let scales = std::array::from_fn(|_| rng.range(32, 64) as u8);
    block[4..16].copy_from_slice(&pack_scales_mins(&scales, &scales));
    put(block, 0, d / 48.4);
    put(block, 2, d / 48.4 * middle);
}

fn either_sign(rng: &mut Rng, value: f32) -> f32 {
    if rng.next_u64() & 1 == 0 { value } else { -value }
}

fn put(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&F16::from_f32(value).0);
}
