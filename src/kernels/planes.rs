//! What integers activations are rounded to, and in what form kernels take them.

/// A form of integers, known when a kernel is compiled.
pub(super) trait Planes: Copy {
    /// Planes of 8 bits that an integer is the sum of.
    const COUNT: usize;
    /// Whether the integers stand together, as words of 16 bits.
    const WORDS: bool = false;
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

/// The same integers, each of them in one word.
#[derive(Clone, Copy)]
pub(super) struct Words;

impl Planes for One {
    const COUNT: usize = 1;
    const LARGEST: f32 = 127.0;
}

impl Planes for Two {
    const COUNT: usize = 2;
    const LARGEST: f32 = 127.0 * 256.0;
}

impl Planes for Words {
    const COUNT: usize = Two::COUNT;
    const WORDS: bool = true;
    const LARGEST: f32 = Two::LARGEST;
}

/// The integers of blocks.
///
/// In planes: the high one, then the low one if there are two. In words: of every four elements the first and third, then
/// the second and fourth, as a row's bytes are taken apart.
#[derive(Default)]
pub(super) struct Integers {
    all: Vec<i16>,
    /// Elements of a plane.
    plane: usize,
}

impl Integers {
    pub(super) fn new(elements: usize, planes: usize) -> Self {
        Self { all: vec![0; (elements * planes).div_ceil(2)], plane: elements }
    }

    /// Elements that there is room for.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.plane
    }

    /// (blocks, positions, elements of a block)
    #[inline(always)]
    pub(super) fn high(&self) -> *const i8 {
        self.all.as_ptr().cast()
    }

    /// The same; there is nothing with one plane.
    #[inline(always)]
    pub(super) fn low(&self) -> *const i8 {
        self.high().wrapping_add(self.plane)
    }

    /// (blocks, positions, words of a block)
    #[inline(always)]
    pub(super) fn words(&self) -> *const i16 {
        self.all.as_ptr()
    }

    /// `len` elements of each plane from element `first` on; of the low one none where there is but one.
    ///
    /// # Panics
    /// Where there are not so many.
    pub(super) fn planes(&self, first: usize, len: usize) -> [&[i8]; 2] {
        assert!(first + len <= self.plane, "elements of a plane");
        let low = if self.all.len() >= self.plane { len } else { 0 };
        // SAFETY: the elements are in the planes, and the low ones only if there is room for two planes.
        unsafe {
            [
                std::slice::from_raw_parts(self.high().add(first), len),
                std::slice::from_raw_parts(self.low().wrapping_add(first), low),
            ]
        }
    }
}

/// Where [`Integers`] are written.
#[derive(Clone, Copy)]
pub(super) struct IntegersOut {
    all: *mut i16,
    plane: usize,
}

impl IntegersOut {
    pub(super) fn new(to: &mut Integers) -> Self {
        Self { all: to.all.as_mut_ptr(), plane: to.plane }
    }

    /// Writes block `at`, of `N` elements.
    ///
    /// # Safety
    /// There is room for the block, and nobody else writes it.
    #[inline(always)]
    pub(super) unsafe fn write<P: Planes, const N: usize>(self, at: usize, high: &[i8; N], low: &[i8; N]) {
        let first = at * N;
        // SAFETY: as asked of the caller; the low plane follows the high one, and words have the room of both.
        unsafe {
            if P::WORDS {
                let words = &mut *self.all.add(first).cast::<[i16; N]>();
                for ((to, high), low) in
                    words.as_chunks_mut::<4>().0.iter_mut().zip(high.as_chunks::<4>().0).zip(low.as_chunks::<4>().0)
                {
                    let word = |i: usize| (i16::from(high[i]) << 8) + i16::from(low[i]);
                    *to = [word(0), word(2), word(1), word(3)];
                }
                return;
            }
            *self.all.cast::<i8>().add(first).cast() = *high;
            if P::COUNT == 2 {
                *self.all.cast::<i8>().add(self.plane + first).cast() = *low;
            }
        }
    }
}
