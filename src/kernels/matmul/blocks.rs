//! Quantised blocks as integers and scales: what exact decoding and the scalar int8 kernel start from.
//!
//! An element is `d * q + m` in a block of 32, `(d * scale) * q - (m * min)` in a block of 256, with one scale and min
//! for every [`Blocks::SUB`] elements. Layouts: the block structs of GGML, as in the files of `quant`.

use crate::quant::{IQ4_VALUES, MXFP4_VALUES};

/// The scales of one block.
pub(super) struct Scales {
    pub d: f32,
    pub m: f32,
    /// Of each sub-block, in element order.
    pub scale: [i8; 16],
    pub min: [u8; 16],
}

impl Scales {
    fn of_32(d: f32, m: f32) -> Self {
        Self { d, m, scale: [0; 16], min: [0; 16] }
    }
}

/// A format whose blocks are small integers times a scale.
pub(super) trait Blocks {
    /// Elements a block, 32 or 256.
    const LEN: usize;
    const BYTES: usize;
    /// Bytes before the first that are taken four at a time.
    const LEAD: usize = 0;
    /// Elements that share a scale.
    const SUB: usize = 32;
    /// Whether `m` counts.
    const MIN: bool = false;
    /// The order in which the int8 kernels add the products of a super-block's sub-blocks of 32.
    const ORDER: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    /// Writes the `LEN` integers of a block of `BYTES` bytes to the start of `q`.
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales;
}

pub(super) struct Q4_0;
pub(super) struct Q4_1;
pub(super) struct Q5_0;
pub(super) struct Q5_1;
pub(super) struct Q8_0;
pub(super) struct Iq4Nl;
pub(super) struct Mxfp4;
pub(super) struct Q2K;
pub(super) struct Q3K;
pub(super) struct Q4K;
pub(super) struct Q5K;
pub(super) struct Q6K;
pub(super) struct Iq4Xs;

/// A half-precision number to single precision: exact, and plain enough to be vectorised.
#[inline(always)]
pub(super) fn f16(bytes: [u8; 2]) -> f32 {
    let half = u32::from(u16::from_le_bytes(bytes));
    let magnitude = half & 0x7fff;
    // The exponent's bias differs by 112; the product also makes subnormals right.
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)).to_bits();
    let bits = if magnitude >= 0x7c00 { 0x7f80_0000 | magnitude << 13 } else { finite };
    f32::from_bits(bits | (half & 0x8000) << 16)
}

/// The half-precision number at `at`.
#[inline(always)]
fn half(block: &[u8], at: usize) -> f32 {
    f16([block[at], block[at + 1]])
}

/// `q[i]` of a block of 32 from low, then high nibbles of 16 bytes.
#[inline(always)]
fn nibbles(packed: &[u8], q: &mut [i8], value: impl Fn(usize, u8) -> i8) {
    for i in 0..16 {
        q[i] = value(i, packed[i] & 15);
        q[i + 16] = value(i + 16, packed[i] >> 4);
    }
}

impl Blocks for Q4_0 {
    const LEN: usize = 32;
    const BYTES: usize = 18;
    const LEAD: usize = 2;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        nibbles(&block[2..18], q, |_, x| x as i8 - 8);
        Scales::of_32(half(block, 0), 0.0)
    }
}

impl Blocks for Q4_1 {
    const LEN: usize = 32;
    const BYTES: usize = 20;
    const MIN: bool = true;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        nibbles(&block[4..20], q, |_, x| x as i8);
        Scales::of_32(half(block, 0), half(block, 2))
    }
}

/// The fifth bit of element `i`, in place.
#[inline(always)]
fn fifth_bit(high: u32, i: usize) -> u8 {
    (high >> i & 1) as u8 * 16
}

#[inline(always)]
fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

impl Blocks for Q5_0 {
    const LEN: usize = 32;
    const BYTES: usize = 22;
    const LEAD: usize = 2;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        let high = u32_at(block, 2);
        nibbles(&block[6..22], q, |i, x| (x | fifth_bit(high, i)) as i8 - 16);
        Scales::of_32(half(block, 0), 0.0)
    }
}

impl Blocks for Q5_1 {
    const LEN: usize = 32;
    const BYTES: usize = 24;
    const MIN: bool = true;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        let high = u32_at(block, 4);
        nibbles(&block[8..24], q, |i, x| (x | fifth_bit(high, i)) as i8);
        Scales::of_32(half(block, 0), half(block, 2))
    }
}

impl Blocks for Q8_0 {
    const LEN: usize = 32;
    const BYTES: usize = 34;
    const LEAD: usize = 2;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        for (q, x) in q[..32].iter_mut().zip(&block[2..34]) {
            *q = *x as i8;
        }
        Scales::of_32(half(block, 0), 0.0)
    }
}

impl Blocks for Iq4Nl {
    const LEN: usize = 32;
    const BYTES: usize = 18;
    const LEAD: usize = 2;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        nibbles(&block[2..18], q, |_, x| IQ4_VALUES[usize::from(x)]);
        Scales::of_32(half(block, 0), 0.0)
    }
}

impl Blocks for Mxfp4 {
    const LEN: usize = 32;
    const BYTES: usize = 17;
    const LEAD: usize = 1;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        nibbles(&block[1..17], q, |_, x| MXFP4_VALUES[usize::from(x)]);
        // 2^(e - 127), halved since the values are doubled; e = 0 is subnormal.
        let scale = f32::from_bits((u32::from(block[0]) << 23).max(0x0040_0000));
        Scales::of_32(scale * 0.5, 0.0)
    }
}

impl Blocks for Q2K {
    const LEN: usize = 256;
    const BYTES: usize = 84;
    const SUB: usize = 16;
    const MIN: bool = true;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        for sub in 0..8 {
            for i in 0..32 {
                q[sub * 32 + i] = (block[16 + sub / 4 * 32 + i] >> (sub % 4 * 2) & 3) as i8;
            }
        }
        let mut scales = Scales { d: half(block, 80), m: half(block, 82), scale: [0; 16], min: [0; 16] };
        for (i, both) in block[..16].iter().enumerate() {
            scales.scale[i] = (both & 15) as i8;
            scales.min[i] = both >> 4;
        }
        scales
    }
}

impl Blocks for Q3K {
    const LEN: usize = 256;
    const BYTES: usize = 110;
    const SUB: usize = 16;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        for sub in 0..8 {
            for i in 0..32 {
                let low = block[32 + sub / 4 * 32 + i] >> (sub % 4 * 2) & 3;
                q[sub * 32 + i] = (low | (block[i] >> sub & 1) << 2) as i8 - 4;
            }
        }
        let packed = &block[96..108];
        let mut scales = Scales { d: half(block, 108), m: 0.0, scale: [0; 16], min: [0; 16] };
        for i in 0..16 {
            let low = packed[i % 8] >> (i / 8 * 4) & 15;
            let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
            scales.scale[i] = (low | high << 4) as i8 - 32;
        }
        scales
    }
}

/// The eight 6-bit scales and mins that Q4_K and Q5_K pack in 12 bytes.
#[inline(always)]
fn scales_and_mins(block: &[u8]) -> Scales {
    let packed = &block[4..16];
    let mut scales = Scales { d: half(block, 0), m: half(block, 2), scale: [0; 16], min: [0; 16] };
    for i in 0..4 {
        scales.scale[i] = (packed[i] & 63) as i8;
        scales.min[i] = packed[i + 4] & 63;
        scales.scale[i + 4] = (packed[i + 8] & 15 | packed[i] >> 6 << 4) as i8;
        scales.min[i + 4] = packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4;
    }
    scales
}

impl Blocks for Q4K {
    const LEN: usize = 256;
    const BYTES: usize = 144;
    const MIN: bool = true;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        for pair in 0..4 {
            for i in 0..32 {
                let x = block[16 + pair * 32 + i];
                q[pair * 64 + i] = (x & 15) as i8;
                q[pair * 64 + 32 + i] = (x >> 4) as i8;
            }
        }
        scales_and_mins(block)
    }
}

impl Blocks for Q5K {
    const LEN: usize = 256;
    const BYTES: usize = 176;
    const MIN: bool = true;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        for pair in 0..4 {
            for i in 0..32 {
                let (x, high) = (block[48 + pair * 32 + i], block[16 + i] >> (2 * pair));
                q[pair * 64 + i] = (x & 15 | (high & 1) << 4) as i8;
                q[pair * 64 + 32 + i] = (x >> 4 | (high & 2) << 3) as i8;
            }
        }
        scales_and_mins(block)
    }
}

impl Blocks for Q6K {
    const LEN: usize = 256;
    const BYTES: usize = 210;
    const SUB: usize = 16;
    /// Low and high nibbles of one byte together.
    const ORDER: [usize; 8] = [0, 2, 1, 3, 4, 6, 5, 7];

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        for sub in 0..8 {
            let (low, high) = (sub / 4 * 64 + sub % 2 * 32, 128 + sub / 4 * 32);
            for i in 0..32 {
                let nibble = block[low + i] >> (sub % 4 / 2 * 4) & 15;
                q[sub * 32 + i] = (nibble | (block[high + i] >> (sub % 4 * 2) & 3) << 4) as i8 - 32;
            }
        }
        let mut scales = Scales { d: half(block, 208), m: 0.0, scale: [0; 16], min: [0; 16] };
        for i in 0..16 {
            scales.scale[i] = block[192 + i] as i8;
        }
        scales
    }
}

impl Blocks for Iq4Xs {
    const LEN: usize = 256;
    const BYTES: usize = 136;

    #[inline(always)]
    fn unpack(block: &[u8], q: &mut [i8]) -> Scales {
        for sub in 0..8 {
            let packed = &block[8 + sub * 16..24 + sub * 16];
            nibbles(packed, &mut q[sub * 32..sub * 32 + 32], |_, x| IQ4_VALUES[usize::from(x)]);
        }
        let high = u16::from_le_bytes([block[2], block[3]]);
        let mut scales = Scales { d: half(block, 0), m: 0.0, scale: [0; 16], min: [0; 16] };
        for i in 0..8 {
            let low = block[4 + i / 2] >> (i % 2 * 4) & 15;
            scales.scale[i] = (low | ((high >> (2 * i) & 3) << 4) as u8) as i8 - 32;
        }
        scales
    }
}

/// Calls `$then::<B, ...>()` with the [`Blocks`] of a type that has blocks of 32, or else yields `$otherwise`.
macro_rules! with_blocks_32 {
    ($ty:expr, $then:ident($($more:ty),*), else $otherwise:expr) => {{
        use $crate::gguf::TensorType as T;
        use $crate::kernels::matmul::blocks as b;
        match $ty {
            T::Q4_0 => $then::<b::Q4_0 $(, $more)*>(),
            T::Q4_1 => $then::<b::Q4_1 $(, $more)*>(),
            T::Q5_0 => $then::<b::Q5_0 $(, $more)*>(),
            T::Q5_1 => $then::<b::Q5_1 $(, $more)*>(),
            T::Q8_0 => $then::<b::Q8_0 $(, $more)*>(),
            T::IQ4_NL => $then::<b::Iq4Nl $(, $more)*>(),
            T::MXFP4 => $then::<b::Mxfp4 $(, $more)*>(),
            _ => $otherwise,
        }
    }};
}

/// The same for blocks of 256.
macro_rules! with_blocks_256 {
    ($ty:expr, $then:ident($($more:ty),*), else $otherwise:expr) => {{
        use $crate::gguf::TensorType as T;
        use $crate::kernels::matmul::blocks as b;
        match $ty {
            T::Q2_K => $then::<b::Q2K $(, $more)*>(),
            T::Q3_K => $then::<b::Q3K $(, $more)*>(),
            T::Q4_K => $then::<b::Q4K $(, $more)*>(),
            T::Q5_K => $then::<b::Q5K $(, $more)*>(),
            T::Q6_K => $then::<b::Q6K $(, $more)*>(),
            T::IQ4_XS => $then::<b::Iq4Xs $(, $more)*>(),
            _ => $otherwise,
        }
    }};
}

/// The same for both.
macro_rules! with_blocks {
    ($ty:expr, $then:ident($($more:ty),*), else $otherwise:expr) => {
        $crate::kernels::matmul::blocks::with_blocks_32!(
            $ty,
            $then($($more),*),
            else $crate::kernels::matmul::blocks::with_blocks_256!($ty, $then($($more),*), else $otherwise)
        )
    };
}
pub(super) use {with_blocks, with_blocks_32, with_blocks_256};
