//! Disks that fail, stall or lose a file.

use super::*;

/// A source that fails, stalls or counts on command.
#[derive(Debug)]
struct Unruly {
    inner: Box<dyn Source>,
    switch: Arc<Switch>,
}

#[derive(Debug, Default)]
struct Switch {
    fail: AtomicBool,
    stall: AtomicBool,
    reads: AtomicU64,
}

impl Source for Unruly {
    fn kind(&self) -> SourceKind {
        self.inner.kind()
    }
    fn alignment(&self) -> u64 {
        self.inner.alignment()
    }
    fn read(&self, part: u16, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.switch.reads.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        while self.switch.stall.load(Ordering::Relaxed) && since.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.switch.fail.load(Ordering::Relaxed) {
            return Err(std::io::Error::from_raw_os_error(5));
        }
        self.inner.read(part, offset, buffer)
    }
    fn map(&self, part: u16, offset: u64, bytes: usize) -> Option<std::io::Result<Slot>> {
        self.inner.map(part, offset, bytes)
    }
    fn reopen(&self, part: u16) -> std::io::Result<()> {
        self.inner.reopen(part)
    }
    fn path(&self, part: u16) -> &Path {
        self.inner.path(part)
    }
}

fn unruly(fixture: &Fixture, kind: SourceKind) -> (WeightStore, Arc<Switch>) {
    let switch = Arc::new(Switch::default());
    let inner = source::open(kind, std::slice::from_ref(&fixture.path)).unwrap();
    let source = Box::new(Unruly { inner, switch: Arc::clone(&switch) });
    (WeightStore::with_source(source, &fixture.specs, options(kind)).unwrap(), switch)
}

#[test]
fn a_row_that_was_expected_from_a_failing_disk_is_read_again_when_it_is_needed() {
    let fixture = fixture(specs(3, 500));
    let (mut store, switch) = unruly(&fixture, SourceKind::Direct);
    let offset = fixture.specs.last().unwrap().offset;
    let (at, mut row) = (RowsAt { part: 0, offset, row_bytes: 68 }, [0; 68]);
    switch.fail.store(true, Ordering::Relaxed);
    store.expect_row(at, 7);
    let error = store.read_rows(at, &[7], &mut row, &Cancel::never(), || ()).unwrap_err();
    assert!(matches!(error, StoreError::Read { .. }), "{error}");
    store.expect_row(at, 7);
    while switch.reads.load(Ordering::Relaxed) < 6 {
        std::thread::yield_now();
    }
    switch.fail.store(false, Ordering::Relaxed);
    store.read_rows(at, &[7], &mut row, &Cancel::never(), || ()).unwrap();
    assert_eq!(row, fixture.content[offset as usize + 7 * 68..][..68]);
}

#[test]
fn an_error_of_the_disk_names_the_file_and_the_next_pass_works() {
    let fixture = fixture(specs(6, 500));
    for kind in [SourceKind::Direct, SourceKind::Buffered] {
        let (mut store, switch) = unruly(&fixture, kind);
        store.apply(&placement(store.table(), 5, 4));
        walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
        for _ in 0..3 {
            let mut leases = 0;
            let error = walk(&mut store, &fixture, PassEnd::Head, |_| {
                leases += 1;
                if leases == 9 {
                    switch.fail.store(true, Ordering::Relaxed);
                }
            })
            .unwrap_err();
            let text = error.to_string();
            assert!(text.contains("model.gguf") && text.contains("reading") && !text.contains('\n'), "{text}");
            store.end_pass();
            // A disk that fails is left alone while nobody waits for it ...
            std::thread::sleep(Duration::from_millis(20));
            let reads = switch.reads.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(switch.reads.load(Ordering::Relaxed), reads);
            // ... and what failed then is not reported once it is back.
            switch.fail.store(false, Ordering::Relaxed);
            walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
        }
    }
}

#[test]
fn a_file_that_shrinks_is_reported_and_works_again_once_it_is_whole() {
    let fixture = fixture(specs(6, 500));
    for kind in SOURCES {
        let mut store = WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options(kind)).unwrap();
        store.apply(&placement(store.table(), 5, 4));
        walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
        if kind == SourceKind::Mmap {
            continue; // what is mapped when the file shrinks is a SIGBUS
        }
        std::fs::OpenOptions::new().write(true).open(&fixture.path).unwrap().set_len(4096).unwrap();
        let error = walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap_err().to_string();
        assert!(error.contains("the file ends before that"), "{error}");
        std::fs::write(&fixture.path, &fixture.content).unwrap();
        walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
    }
}

#[test]
fn a_wait_for_a_stalled_disk_is_cancelled_within_milliseconds_and_the_next_pass_works() {
    let fixture = fixture(specs(6, 500));
    let (mut store, switch) = unruly(&fixture, SourceKind::Buffered);
    switch.stall.store(true, Ordering::Relaxed);
    store.apply(&placement(store.table(), 5, 4));
    // The best of a few, since other processes may have the machine.
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let handle = CancelHandle::new();
        let cancel = handle.token();
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            handle.cancel();
            Instant::now()
        });
        store.begin_pass(1, PassEnd::Head);
        let error = store.acquire(0..4, &cancel).unwrap_err();
        best = best.min(canceller.join().unwrap().elapsed());
        assert!(matches!(error, StoreError::Cancelled));
    }
    assert!(best < Duration::from_millis(40), "{best:?}");
    let handle = CancelHandle::new();
    let cancel = handle.token();
    handle.cancel();
    let mut row = [0; 68];
    let at = RowsAt { part: 0, offset: 1056, row_bytes: 68 };
    assert!(matches!(store.read_rows(at, &[3], &mut row, &cancel, || ()), Err(StoreError::Cancelled)));
    switch.stall.store(false, Ordering::Relaxed);
    walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
}
