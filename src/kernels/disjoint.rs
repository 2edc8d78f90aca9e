//! A slice written by several threads, each its own part.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice whose parts are handed out one by one.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: handing out a part is unsafe, and whoever does it vouches that no two parts overlap.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Self { start: data.as_mut_ptr(), len: data.len(), borrow: PhantomData }
    }

    /// # Safety
    /// While the part lives, no other part that overlaps it does.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn range(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: within the borrowed slice; the caller vouches that nobody else has this part.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
