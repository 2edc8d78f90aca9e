//! How the row groups of one dispatch are shared out among threads.
//!
//! Each thread owns a run of groups, equal in cost, and walks it from the front in a few portions; when it is through,
//! it takes portions of the others' runs. So memory is read linearly, and a slow core holds nobody up.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Task;

/// Threads with a run of their own; further threads only help.
const RUNS: usize = 64;
/// Portions that a run is taken in.
const PORTIONS: usize = 8;

/// Rows of a task that a thread takes together.
pub(super) struct Portion {
    pub task: usize,
    pub rows: Range<usize>,
}

/// A counter on a cache line of its own.
#[repr(align(128))]
struct Taken(AtomicUsize);

/// The groups of all tasks, numbered through.
pub(super) struct Split<'a> {
    tasks: &'a [Task<'a>],
    group_rows: usize,
    runs: usize,
    /// First group of each run, and the end of the last.
    bounds: [usize; RUNS + 1],
    taken: [Taken; RUNS],
}

impl<'a> Split<'a> {
    /// Groups of `group_rows` rows (a task's last group has up to twice as many), shared among `threads`.
    ///
    /// `positions` counts the positions of a task that names none.
    pub(super) fn new(tasks: &'a [Task<'a>], group_rows: usize, threads: usize, positions: usize) -> Self {
        let runs = threads.clamp(1, RUNS);
        let cost = |task: &Task| task.weights.len() * task.positions.map_or(positions, |positions| positions.count);
        let all: usize = tasks.iter().map(cost).sum();
        let mut bounds = [0; RUNS + 1];
        let (mut group, mut before, mut run) = (0, 0, 1);
        for task in tasks {
            let (groups, cost) = (groups(task, group_rows), cost(task));
            // Where the next run begins inside this task, to the nearest group.
            while run < runs && all * run / runs < before + cost {
                bounds[run] = group + ((all * run / runs - before) * groups + cost / 2) / cost;
                run += 1;
            }
            group += groups;
            before += cost;
        }
        bounds[run..].fill(group);
        Self { tasks, group_rows, runs, bounds, taken: [const { Taken(AtomicUsize::new(0)) }; RUNS] }
    }

    /// Hands every portion that `thread` gets to `work`, until none is left or `work` returns false.
    pub(super) fn for_each(&self, thread: usize, mut work: impl FnMut(Portion) -> bool) {
        for turn in 0..self.runs {
            let run = (thread + turn) % self.runs;
            let groups = self.bounds[run]..self.bounds[run + 1];
            let portion = groups.len().div_ceil(PORTIONS);
            let taken = &self.taken[run].0;
            while taken.load(Ordering::Relaxed) < groups.len() {
                let first = groups.start + taken.fetch_add(portion, Ordering::Relaxed);
                let last = (first + portion).min(groups.end);
                if first < last && !self.visit(first..last, &mut work) {
                    return;
                }
            }
        }
    }

    /// The rows of the groups, task by task.
    fn visit(&self, range: Range<usize>, work: &mut impl FnMut(Portion) -> bool) -> bool {
        let mut before = 0;
        for (index, task) in self.tasks.iter().enumerate() {
            let count = groups(task, self.group_rows);
            let (start, end) = (range.start.max(before), range.end.min(before + count));
            if start < end {
                let end_row = if end == before + count { task.rows } else { (end - before) * self.group_rows };
                if !work(Portion { task: index, rows: (start - before) * self.group_rows..end_row }) {
                    return false;
                }
            }
            before += count;
            if before >= range.end {
                break;
            }
        }
        true
    }
}

/// Groups of a task; the rows over go to the last.
fn groups(task: &Task, group_rows: usize) -> usize {
    if task.rows == 0 { 0 } else { (task.rows / group_rows).max(1) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::gguf::TensorType;

    /// Tasks of these numbers of rows of 64 elements.
    fn tasks(rows: &[usize]) -> Vec<Task<'static>> {
        static WEIGHTS: [u8; 1 << 16] = [0; 1 << 16];
        let task = |rows: usize| Task {
            out: 0,
            first_row: 0,
            rows,
            ty: TensorType::Q8_0,
            weights: &WEIGHTS[..rows * 68],
            interleaved: false,
            positions: None,
        };
        rows.iter().map(|rows| task(*rows)).collect()
    }

    #[test]
    fn every_row_is_handed_out_once_whoever_comes() {
        for rows in [&[640][..], &[1], &[15, 0, 17, 31, 32, 33], &[16; 40], &[500, 3, 300]] {
            for threads in [1, 2, 3, 7, 100] {
                let tasks = tasks(rows);
                let split = Split::new(&tasks, 16, threads, 1);
                let taken: Vec<Vec<AtomicU32>> =
                    rows.iter().map(|rows| (0..*rows).map(|_| AtomicU32::new(0)).collect()).collect();
                // The last thread comes first and may take everything; the others find the rest.
                for thread in (0..threads).rev() {
                    split.for_each(thread, |portion| {
                        assert!(portion.rows.start.is_multiple_of(16));
                        taken[portion.task][portion.rows].iter().for_each(|row| {
                            row.fetch_add(1, Ordering::Relaxed);
                        });
                        true
                    });
                }
                assert!(taken.iter().flatten().all(|row| row.load(Ordering::Relaxed) == 1), "{rows:?}, {threads}");
            }
        }
    }

    #[test]
    fn runs_are_equal_in_cost_to_half_a_group() {
        let tasks = tasks(&[320, 64, 256]);
        for threads in 1..8 {
            let split = Split::new(&tasks, 16, threads, 1);
            for run in 0..threads {
                let groups = (split.bounds[run + 1] - split.bounds[run]) as f64;
                assert!((groups - 40.0 / threads as f64).abs() <= 1.0, "{threads} threads: {:?}", split.bounds);
            }
        }
    }

    #[test]
    fn a_thread_that_is_told_to_stop_takes_no_more() {
        let tasks = tasks(&[640]);
        let split = Split::new(&tasks, 16, 1, 1);
        let mut portions = 0;
        split.for_each(0, |_| {
            portions += 1;
            portions < 3
        });
        assert_eq!(portions, 3);
    }
}
