//! Units of work in order, a run of neighbours for each thread.
//!
//! A thread takes its own run's units one by one, and so knows what it needs next, and has KV heads mostly for itself; then
//! it helps with the others' runs.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What each thread has taken of its run, on cache lines of their own.
#[derive(Default)]
pub(super) struct Runs {
    taken: Vec<Taken>,
}

#[derive(Default)]
#[repr(align(128))]
struct Taken(AtomicUsize);

impl Runs {
    pub(super) fn bytes_for(threads: usize) -> usize {
        threads * size_of::<Taken>()
    }

    pub(super) fn bytes(&self) -> usize {
        Self::bytes_for(self.taken.len())
    }

    /// Room for `threads` runs.
    pub(super) fn reserve(&mut self, threads: usize) {
        if self.taken.len() < threads {
            self.taken.resize_with(threads, Taken::default);
        }
    }

    /// Nothing is taken yet, before threads come that take.
    pub(super) fn begin(&self, units: usize, threads: usize) {
        for (thread, taken) in self.taken[..threads].iter().enumerate() {
            taken.0.store(units * thread / threads, Ordering::Relaxed);
        }
    }

    /// A unit of `0..units` that nobody else has, and the one that most likely comes next.
    pub(super) fn take(&self, thread: usize, units: usize, threads: usize) -> Option<(usize, Option<usize>)> {
        (thread..threads).chain(0..thread).find_map(|run| {
            let end = units * (run + 1) / threads;
            let taken = &self.taken[run].0;
            if taken.load(Ordering::Relaxed) >= end {
                return None;
            }
            let unit = taken.fetch_add(1, Ordering::Relaxed);
            (unit < end).then(|| (unit, Some(unit + 1).filter(|next| *next < end)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_taken_once_and_neighbours_by_the_same_thread() {
        for (units, threads) in [(0, 2), (1, 3), (16, 2), (7, 3), (5, 8)] {
            let mut runs = Runs::default();
            runs.reserve(threads);
            // As often as wanted.
            for late in 0..threads {
                runs.begin(units, threads);
                let mut taken = Vec::new();
                for thread in (0..threads).filter(|thread| *thread != late) {
                    let mut next = None;
                    while let Some((unit, following)) = runs.take(thread, units, threads) {
                        assert!(next.is_none_or(|next| next == unit));
                        taken.push(unit);
                        next = following;
                    }
                }
                taken.extend(std::iter::from_fn(|| runs.take(late, units, threads)).map(|(unit, _)| unit));
                taken.sort_unstable();
                assert_eq!(taken, (0..units).collect::<Vec<_>>(), "{threads} threads");
            }
        }
    }
}
