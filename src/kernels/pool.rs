//! The threads that compute: pinned, spinning briefly between dispatches, parked when there is nothing to do.
//!
//! A dispatch to spinning workers costs a fraction of a microsecond, to parked ones some tens. The caller is thread 0 and
//! works too. What is computed must not depend on which thread takes which chunk: every result is owned by one chunk.
//!
//! Work that is shared out as threads come never waits for one that has not come: on a busy machine a worker may be
//! without a processor for milliseconds, and the others have done everything long before.

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::cores;
use super::disjoint::Disjoint;
use super::gate::Gate;

pub use super::cores::default_threads;

/// How long a worker without work spins before it parks: longer than the pauses between the dispatches of one token.
const SPIN: Duration = Duration::from_millis(1);
/// The same when there are more threads than cores; the time is spent yielding.
const SPIN_CROWDED: Duration = Duration::from_micros(50);

/// The job of one dispatch. The pointer's lifetime is erased; [`Pool::run`] outlives every use of it.
type Job = *const (dyn Fn(usize) + Sync);

/// Keeps what is written by different threads on different cache lines (and out of the adjacent-line prefetcher).
#[repr(align(128))]
struct Apart<T>(T);

struct Shared {
    /// What the workers watch.
    gate: Apart<Gate>,
    /// Workers parked or about to be.
    parked: Apart<AtomicUsize>,
    /// Set by [`Pool::park`], cleared by the next dispatch.
    park_now: AtomicBool,
    quit: AtomicBool,
    crowded: bool,
    job: UnsafeCell<Option<Job>>,
    /// The first panic of a worker in the current dispatch.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written only by the thread that holds `Pool::busy`, while the gate is closed and no worker is in; workers
// read it between coming in and leaving, and the gate orders the two. The pointee is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above; a job pointer is never used after the dispatch that set it.
unsafe impl Send for Shared {}

/// A set of threads that run one job together.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Handles to unpark by, in the order of `workers`.
    sleepers: Vec<Thread>,
    /// Held during a dispatch.
    busy: AtomicBool,
}

impl Pool {
    /// A pool of `threads` threads (at least 1), the caller of [`run`](Self::run) among them.
    ///
    /// When it takes one thread for each physical core that the process may use, each worker is bound to a core of its
    /// own; with fewer threads the scheduler knows better, with more there is nothing to choose. The caller itself is
    /// never bound, since threads that it spawns would inherit that. Threads that cannot be started are done without.
    pub fn new(threads: usize) -> Self {
        let cores = cores::physical_cores();
        let logical: usize = cores.iter().map(|siblings| siblings.len().max(1)).sum();
        let shared = Arc::new(Shared {
            gate: Apart(Gate::default()),
            parked: Apart(AtomicUsize::new(0)),
            park_now: AtomicBool::new(false),
            quit: AtomicBool::new(false),
            crowded: threads > logical,
            job: UnsafeCell::new(None),
            panic: Mutex::new(None),
        });
        let mut workers = Vec::new();
        for thread in 1..threads.clamp(1, Gate::MOST) {
            let place = if threads == cores.len() { cores[thread].clone() } else { Vec::new() };
            let theirs = Arc::clone(&shared);
            let spawned = std::thread::Builder::new().name(format!("compute-{thread}")).spawn(move || {
                cores::bind_current_thread(&place);
                work(&theirs, thread);
            });
            match spawned {
                Ok(handle) => workers.push(handle),
                Err(_) => break,
            }
        }
        let sleepers = workers.iter().map(|handle| handle.thread().clone()).collect();
        Self { shared, workers, sleepers, busy: AtomicBool::new(false) }
    }

    /// Threads that a dispatch runs on, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job(thread)` once on each thread, `thread` in `0..threads()`, and returns when all are done.
    ///
    /// A panic in the job comes out here, after every thread is done; the pool goes on working. Called from within a job,
    /// or while another thread is in a dispatch, it runs all shares one after the other on the calling thread.
    pub fn run(&self, job: &(dyn Fn(usize) + Sync)) {
        self.dispatch(job, true);
    }

    /// Runs `job(thread)` on the caller and on those workers that come before the caller's share returns, each at most once:
    /// for jobs that take pieces of work until none is left. Returns when all who came are done. Otherwise as [`run`](Self::run).
    pub fn share(&self, job: &(dyn Fn(usize) + Sync)) {
        self.dispatch(job, false);
    }

    fn dispatch(&self, job: &(dyn Fn(usize) + Sync), all: bool) {
        if self.workers.is_empty() {
            return job(0);
        }
        if self.busy.swap(true, Ordering::Acquire) {
            return (0..if all { self.threads() } else { 1 }).for_each(job);
        }
        let outcome = self.dispatch_alone(job, all);
        self.busy.store(false, Ordering::Release);
        if let Err(payload) = outcome {
            resume_unwind(payload);
        }
    }

    /// The dispatch itself; the caller holds `busy`.
    fn dispatch_alone(&self, job: &(dyn Fn(usize) + Sync), all: bool) -> std::thread::Result<()> {
        let shared = &*self.shared;
        let gate = &shared.gate.0;
        let pointer: *const (dyn Fn(usize) + Sync + '_) = job;
        // SAFETY: only the lifetime changes. The gate is closed and nobody is in, so no worker looks at `job` now; and this
        // function returns only when that is so again, so the pointer is not used after the borrow.
        unsafe { *shared.job.get() = Some(std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Job>(pointer)) };
        shared.park_now.store(false, Ordering::Relaxed);
        // Sequentially consistent against a worker that counts itself parked and then looks at the gate once more:
        // one of the two sees the other.
        gate.open();
        if shared.parked.0.load(Ordering::SeqCst) != 0 {
            self.sleepers.iter().for_each(Thread::unpark);
        }
        let mine = catch_unwind(AssertUnwindSafe(|| job(0)));
        if all {
            self.wait_until(|| gate.look().came() == self.workers.len());
        }
        gate.close();
        self.wait_until(|| gate.look().inside() == 0);
        let theirs = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        mine.and(theirs.map_or(Ok(()), Err))
    }

    /// Waits for workers: they are about to be through, or have lost their processor, which may be this one.
    fn wait_until(&self, done: impl Fn() -> bool) {
        let mut spins = 0_u32;
        while !done() {
            spins += 1;
            if self.shared.crowded || spins > 10_000 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Runs `job(thread, items)` over disjoint ranges that cover `0..items`, handed to whichever thread is free.
    ///
    /// Ranges are multiples of `grain` but for the last; they are large at first and shrink to `grain`, so that a slow
    /// thread holds up the others by one small range at most. `thread` is in `0..threads()`, for scratch of its own.
    pub fn for_each_chunk(&self, items: usize, grain: usize, job: &(dyn Fn(usize, Range<usize>) + Sync)) {
        let grain = grain.max(1);
        if items == 0 {
            return;
        }
        if self.workers.is_empty() || items <= grain {
            return job(0, 0..items);
        }
        let next = Apart(AtomicUsize::new(0));
        let next = &next.0;
        let share = 2 * self.threads();
        self.share(&|thread| {
            let mut start = next.load(Ordering::Relaxed);
            while start < items {
                let grains = ((items - start) / share / grain).max(1);
                let end = (start + grains * grain).min(items);
                match next.compare_exchange_weak(start, end, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => {
                        job(thread, start..end);
                        start = next.load(Ordering::Relaxed);
                    }
                    Err(now) => start = now,
                }
            }
        });
    }

    /// Runs `job(thread, item)` for `0..items`, in order, one at a time to whichever thread is free: for few and large items.
    pub fn for_each_item(&self, items: usize, job: &(dyn Fn(usize, usize) + Sync)) {
        if self.workers.is_empty() || items <= 1 {
            return (0..items).for_each(|item| job(0, item));
        }
        let next = Apart(AtomicUsize::new(0));
        let next = &next.0;
        self.share(&|thread| {
            loop {
                let item = next.fetch_add(1, Ordering::Relaxed);
                if item >= items {
                    return;
                }
                job(thread, item);
            }
        });
    }

    /// Like [`for_each_chunk`](Self::for_each_chunk) over the rows of `data`: `job(first_row, rows)` owns the rows it is given.
    pub fn for_each_row<T: Send>(
        &self,
        data: &mut [T],
        row_len: usize,
        grain: usize,
        job: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        assert!(row_len > 0 && data.len().is_multiple_of(row_len), "{} elements are no rows of {row_len}", data.len());
        let rows = data.len() / row_len;
        let shared = Disjoint::new(data);
        self.for_each_chunk(rows, grain, &|_, range| {
            // SAFETY: chunks do not overlap.
            job(range.start, unsafe { shared.range(range.start * row_len..range.end * row_len) });
        });
    }

    /// Parks the workers at once: the disk or the user is waited for. The next dispatch wakes them.
    pub fn park(&self) {
        self.shared.park_now.store(true, Ordering::Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Relaxed);
        self.shared.gate.0.open();
        self.sleepers.iter().for_each(Thread::unpark);
        for worker in self.workers.drain(..) {
            // Workers catch the panics of their jobs; there is nothing to learn from the result.
            let _ = worker.join();
        }
    }
}

/// The life of one worker.
fn work(shared: &Shared, thread: usize) {
    let gate = &shared.gate.0;
    let mut seen = 0_u32;
    loop {
        wait_for_change(shared, seen);
        let entered;
        (seen, entered) = gate.enter();
        // After coming in: whoever was on the way to an earlier dispatch may come in where the pool is dropped, when there
        // is no job any more.
        if shared.quit.load(Ordering::Relaxed) {
            return;
        }
        if !entered {
            continue;
        }
        // SAFETY: `job` was written before the gate was opened, and stays until this worker has left.
        if let Some(job) = unsafe { *shared.job.get() } {
            // SAFETY: `dispatch_alone` keeps the closure borrowed until everyone has left.
            let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (*job)(thread) }));
            if let Err(payload) = outcome {
                shared.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
            }
        }
        gate.leave();
    }
}

/// Waits for a dispatch after the one `seen`, first spinning, then parked.
fn wait_for_change(shared: &Shared, seen: u32) {
    let gate = &shared.gate.0;
    let limit = if shared.crowded { SPIN_CROWDED } else { SPIN };
    let mut began: Option<Instant> = None;
    loop {
        for _ in 0..64 {
            if gate.look().epoch() != seen {
                return;
            }
            if shared.crowded {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        let waited = began.get_or_insert_with(Instant::now).elapsed();
        if waited >= limit || shared.park_now.load(Ordering::Relaxed) {
            break;
        }
    }
    shared.parked.0.fetch_add(1, Ordering::SeqCst);
    while gate.look_in_order().epoch() == seen {
        std::thread::park();
    }
    shared.parked.0.fetch_sub(1, Ordering::SeqCst);
}

#[cfg(test)]
#[allow(clippy::panic, clippy::expect_used)]
mod tests {
    use super::*;

    const SIZES: [usize; 5] = [1, 2, 3, 7, 16];

    #[test]
    fn a_worker_that_comes_while_the_pool_is_dropped_runs_nothing_any_more() {
        // An emulator keeps memory for each thread that ever was.
        let rounds = if cfg!(target_arch = "x86_64") { 4_000 } else { 100 };
        for round in 0..rounds {
            let (pool, dropped) = (Pool::new(SIZES[1 + round % 4]), Arc::new(AtomicBool::new(false)));
            let (late, seen) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&dropped));
            let count = Arc::clone(&late);
            // Leaked, so that a late worker does no harm before it is found out.
            let job: &'static (dyn Fn(usize) + Sync) = Box::leak(Box::new(move |_| {
                count.fetch_add(usize::from(seen.load(Ordering::SeqCst)), Ordering::SeqCst);
            }));
            pool.share(job);
            dropped.store(true, Ordering::SeqCst);
            drop(pool);
            assert_eq!(late.load(Ordering::SeqCst), 0, "round {round}");
        }
    }

    #[test]
    fn every_thread_runs_its_share_once() {
        for threads in SIZES {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for _ in 0..200 {
                let runs: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                pool.run(&|thread| {
                    runs[thread].fetch_add(1, Ordering::Relaxed);
                });
                assert!(runs.iter().all(|r| r.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn shared_work_is_done_once_by_whoever_comes_and_waits_for_nobody_else() {
        let pool = Pool::new(3);
        let stuck = AtomicBool::new(true);
        for _ in 0..200 {
            let left = AtomicUsize::new(50);
            let done = AtomicUsize::new(0);
            pool.share(&|_| {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(done.load(Ordering::Relaxed), 50);
        }
        // A worker that came is waited for, however long it takes.
        let came = AtomicUsize::new(0);
        pool.share(&|thread| {
            if thread == 0 {
                while came.load(Ordering::Acquire) == 0 {
                    std::hint::spin_loop();
                }
            } else {
                came.fetch_add(1, Ordering::Release);
                std::thread::sleep(Duration::from_millis(5));
                stuck.store(false, Ordering::Release);
            }
        });
        assert!(!stuck.load(Ordering::Acquire));
    }

    #[test]
    fn chunks_cover_every_item_once_in_multiples_of_the_grain() {
        for threads in SIZES {
            let pool = Pool::new(threads);
            for (items, grain) in [(0, 4), (1, 1), (5, 1), (16, 16), (17, 16), (1000, 8), (1003, 8), (3, 0)] {
                let taken: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                pool.for_each_chunk(items, grain, &|thread, range| {
                    assert!(thread < threads);
                    assert!(range.start % grain.max(1) == 0 && !range.is_empty());
                    range.for_each(|item| {
                        taken[item].fetch_add(1, Ordering::Relaxed);
                    });
                });
                assert!(taken.iter().all(|t| t.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn parked_workers_wake_for_the_next_dispatch() {
        let pool = Pool::new(3);
        for pause_us in [0, 10, 100, 1500, 3000] {
            for park in [false, true] {
                if park {
                    pool.park();
                }
                std::thread::sleep(Duration::from_micros(pause_us));
                let runs = AtomicUsize::new(0);
                pool.run(&|_| {
                    runs.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(runs.load(Ordering::Relaxed), 3);
            }
        }
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(3);
        for guilty in 0..3 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|thread| {
                    if thread == guilty {
                        resume_unwind(Box::new(guilty));
                    }
                });
            }));
            assert_eq!(caught.expect_err("the panic is lost").downcast_ref(), Some(&guilty));
            let runs = AtomicUsize::new(0);
            pool.run(&|_| {
                runs.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(runs.load(Ordering::Relaxed), 3);
        }
    }

    #[test]
    fn nested_and_concurrent_dispatches_run_every_share() {
        let pool = Pool::new(2);
        let runs = AtomicUsize::new(0);
        pool.run(&|_| {
            pool.run(&|_| {
                runs.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(runs.load(Ordering::Relaxed), 4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        pool.for_each_chunk(10, 1, &|_, range| {
                            runs.fetch_add(range.len(), Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(runs.load(Ordering::Relaxed), 4 + 4 * 500 * 10);
    }
}
