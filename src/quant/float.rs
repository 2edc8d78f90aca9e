//! F32, F16 and BF16: no blocks, one number an element.

pub(super) fn decode_f32(row: &[u8], out: &mut [f32]) {
    for (bytes, element) in row.as_chunks::<4>().0.iter().zip(out) {
        *element = f32::from_le_bytes(*bytes);
    }
}

pub(super) fn decode_f16(row: &[u8], out: &mut [f32]) {
    for (bytes, element) in row.as_chunks::<2>().0.iter().zip(out) {
        *element = half::f16::from_le_bytes(*bytes).to_f32();
    }
}

/// BF16 is the upper half of an F32.
pub(super) fn decode_bf16(row: &[u8], out: &mut [f32]) {
    for (bytes, element) in row.as_chunks::<2>().0.iter().zip(out) {
        *element = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
    }
}
