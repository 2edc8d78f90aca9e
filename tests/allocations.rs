//! A decoded token takes nothing from the allocator, resident or streamed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use sipllm::engine::Loaded;
use sipllm::engine::protocol::{Budget, KernelKind, KvType, LoadRequest, Residency, SourceKind};
use sipllm::kernels::Cancel;
use sipllm::model::{NoHooks, Want};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_decoded_token_takes_nothing_from_the_allocator() {
    for name in ["llama", "gemma3", "mixtral"] {
        for kernel in [KernelKind::Int8, KernelKind::Fast, KernelKind::Exact] {
            for budget in [Budget::Bytes(1 << 30), Budget::Least] {
                let request = LoadRequest {
                    path: Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/models/{name}.gguf")),
                    budget,
                    threads: Some(2),
                    context: Some(128),
                    kernel,
                    residency: Residency::Quantized,
                    source: SourceKind::Buffered,
                    kv: KvType::F16,
                    prefill_batch: None,
                    disk_limit: None,
                    least_context: 128,
                    speeds_file: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("devices.json")),
                };
                let mut loaded = Loaded::open(request, &mut |_| ()).unwrap();
                loaded.make_room(64, 1).unwrap();
                let cancel = Cancel::never();
                // The first passes fill pins and scratch.
                let mut token = |id| loaded.model.forward(&[id], Want::Last, &mut NoHooks, &cancel).unwrap();
                (0..34).for_each(&mut token);
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                (34..60).for_each(&mut token);
                let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
                assert_eq!(allocations, 0, "{name} {kernel:?} {budget:?}: in 26 tokens");
            }
        }
    }
}
