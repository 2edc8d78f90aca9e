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
        let cost = |task: &Task| task.weights.len() * task.positions.map_or(positions, <[u32]>::len);
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
