//! How many planes of 8 bits an activation is rounded to.

/// A number of planes, known when a kernel is compiled.
pub(super) trait Planes: Copy {
    const COUNT: usize;
    /// The integer that a block's largest magnitude becomes: 127 in the high plane.
    const LARGEST: f32;

    /// A sum over both planes, from the sum over each; with one plane there is nothing in the low one.
    #[inline(always)]
    fn join(high: i32, low: i32) -> i32 {
        if Self::COUNT == 2 { (high << 8) + low } else { high }
    }
}

/// An integer is what the high plane says.
#[derive(Clone, Copy)]
pub(super) struct One;

/// An integer is `256 * high + low`.
#[derive(Clone, Copy)]
pub(super) struct Two;

impl Planes for One {
    const COUNT: usize = 1;
    const LARGEST: f32 = 127.0;
}

impl Planes for Two {
    const COUNT: usize = 2;
    const LARGEST: f32 = 127.0 * 256.0;
}
