#!/usr/bin/env python3
"""Decode and prefill speed against llama.cpp, interleaved on one machine, as a ratio.

    python3 -m venv VENV && VENV/bin/pip install llama-cpp-python==0.3.36 numpy
    cargo build --release
    VENV/bin/python benches/compare.py MODEL.gguf [MODEL.gguf ...] [--rounds 5] [-p 128] [-n 32] [--threads 2] [--kernel int8]

Each round runs llama.cpp, a plain read of 512 MB, then sipllm, in processes of their own but for the read, everything
resident. The table holds the medians and the ratio of medians; the range is that of the ratios round by round. Beside
decoding stands what it reads of the weights, in GB/s: no program decodes much faster than memory is read. Build
llama-cpp-python with the instruction sets of the processor (CMAKE_ARGS), or the comparison flatters sipllm.
"""
import argparse
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import threading
import time


def peer(model, threads, prompt, generate, repack=True):
    """One warm run and one counted run of llama.cpp, as a user runs it: mmap, f16 KV, its own choice of kernels."""
    import llama_cpp as L

    @L.llama_log_callback
    def quiet(level, text, data):
        pass

    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    model_params = L.llama_model_default_params()
    # Kernels that want the weights rearranged hold all of them in memory beside the map.
    model_params.use_extra_bufts = repack
    loaded = L.llama_model_load_from_file(model.encode(), model_params)
    if not loaded:
        sys.exit(f"llama.cpp cannot load {model}")
    params = L.llama_context_default_params()
    params.n_ctx = prompt + generate + 8
    params.n_batch = params.n_ctx
    params.n_threads = params.n_threads_batch = threads
    context = L.llama_init_from_model(loaded, params)
    vocabulary = L.llama_vocab_n_tokens(L.llama_model_get_vocab(loaded))
    first, count = (100, vocabulary - 300) if vocabulary > 1000 else (0, vocabulary)
    ids = [(i * 7919 + 13) % count + first for i in range(prompt)]

    def decode(tokens, position):
        batch = L.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position + i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, i == len(tokens) - 1
        failed = L.llama_decode(context, batch)
        L.llama_batch_free(batch)
        if failed:
            sys.exit(f"llama.cpp fails to decode: {failed}")

    for _ in range(2):
        L.llama_memory_clear(L.llama_get_memory(context), True)
        started = time.perf_counter()
        decode(ids, 0)
        read = time.perf_counter()
        for i in range(generate):
            decode([ids[i % len(ids)]], prompt + i)
        done = time.perf_counter()
    print(json.dumps({"prefill_tok_s": prompt / (read - started), "decode_tok_s": generate / (done - read)}))


class PlainRead:
    """Memory that several threads look through with `memchr` for what is not there; its speed in GB/s."""

    def __init__(self, threads, size=512 << 20):
        self.share = size // threads
        self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self.memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, 1 << 20):
            self.memory[at : at + (1 << 20)] = b"\1" * (1 << 20)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.starts = range(start, start + self.share * threads, self.share)
        # Calls through ctypes let other threads run.
        self.look = ctypes.CDLL(None).memchr
        self.look.argtypes, self.look.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), ctypes.c_void_p

    def once(self):
        threads = [threading.Thread(target=self.look, args=(start, 0, self.share)) for start in self.starts]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.share * len(threads) / (time.perf_counter() - begun) / 1e9

    def speed(self):
        return statistics.median(self.once() for _ in range(5))


def measured(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models", nargs="+")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("-p", "--prompt", type=int, default=128)
    arguments.add_argument("-n", "--generate", type=int, default=32)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--kernel", default="int8", help="of sipllm")
    arguments.add_argument("--sipllm", default="target/release/sipllm")
    arguments.add_argument("--peer-only", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("--no-repack", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.peer_only:
        peer(options.models[0], options.threads, options.prompt, options.generate, not options.no_repack)
        return
    numbers = ["-p", str(options.prompt), "-n", str(options.generate), "--threads", str(options.threads)]
    print("| model | decode tok/s | llama.cpp | ratio | GB/s | llama.cpp | plain read | prefill tok/s | llama.cpp | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    read = PlainRead(options.threads)
    for model in options.models:
        theirs, ours, reads = [], [], []
        for _ in range(options.rounds):
            theirs.append(measured([sys.executable, __file__, model, "--peer-only", *numbers]))
            reads.append(read.speed())
            own = ["-r", "1", "--budget", "100%", "--kernel", options.kernel, "--json"]
            ours.append(measured([options.sipllm, "bench", model, *own, *numbers]))
        cells = []
        for key in ("decode_tok_s", "prefill_tok_s"):
            mine, other = (statistics.median(run[key] for run in runs) for runs in (ours, theirs))
            ratios = sorted(a[key] / b[key] for a, b in zip(ours, theirs))
            cells += [f"{mine:.1f}", f"{other:.1f}", f"{mine / other:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"]
            if key == "decode_tok_s":
                touched = ours[0]["touched_bytes_per_token"] / 1e9
                cells += [f"{mine * touched:.1f}", f"{other * touched:.1f}", f"{statistics.median(reads):.1f}"]
        print(f"| {os.path.basename(model)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
