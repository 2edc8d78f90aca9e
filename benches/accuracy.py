#!/usr/bin/env python3
"""How far integer products move a model's predictions: ours and llama.cpp's, against exact arithmetic.

    python3 -m venv VENV && VENV/bin/pip install llama-cpp-python==0.3.36 numpy
    cargo build --release
    VENV/bin/python benches/accuracy.py MODEL.gguf [--text tests/data/prose.txt] [--positions 300]

The reference is `sipllm --kernel exact`: the same weights, decoded to f32 and multiplied in f32. All run the same
tokens with a KV cache in f32. Top-1 counts positions whose likeliest token is the same; KL is the mean over positions of
the Kullback-Leibler divergence from the reference's distribution, in nats.
"""
import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile

import numpy as np


def ours(program, model, ids, kernel, vocabulary):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits.f32")
        command = [program, "logits", model, "--ids", ",".join(map(str, ids)), "--out", out, "--kernel", kernel, "--kv", "f32"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command[:3])}: {done.stderr.strip()}")
        return np.fromfile(out, dtype="<f4").reshape(len(ids), vocabulary)


def open_peer(model, positions):
    """llama.cpp with the model in it: its context, and the size of the vocabulary."""
    import llama_cpp as L

    @L.llama_log_callback
    def quiet(level, text, data):
        pass

    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    loaded = L.llama_model_load_from_file(model.encode(), L.llama_model_default_params())
    if not loaded:
        sys.exit(f"llama.cpp cannot load {model}")
    params = L.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = positions + 8
    params.type_k = params.type_v = L.GGML_TYPE_F32
    params.flash_attn_type = 0
    context = L.llama_init_from_model(loaded, params)
    return L, context, L.llama_vocab_n_tokens(L.llama_model_get_vocab(loaded)), quiet


def theirs(peer, ids):
    L, context, vocabulary, _ = peer
    batch = L.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i, 1
        batch.seq_id[i][0], batch.logits[i] = 0, 1
    if L.llama_decode(context, batch):
        sys.exit("llama.cpp fails to decode")
    rows = [np.ctypeslib.as_array(L.llama_get_logits_ith(context, i), shape=(vocabulary,)).copy() for i in range(len(ids))]
    L.llama_batch_free(batch)
    return np.stack(rows)


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models", nargs="+")
    arguments.add_argument("--text", default="tests/data/prose.txt")
    arguments.add_argument("--positions", type=int, default=300)
    arguments.add_argument("--sipllm", default="target/release/sipllm")
    options = arguments.parse_args()
    with open(options.text, encoding="utf-8") as file:
        text = file.read()
    print("| model | positions | int8 top-1 | mean KL | fast top-1 | mean KL | llama.cpp top-1 | mean KL |")
    print("|---|---|---|---|---|---|---|---|")
    for model in options.models:
        tokens = subprocess.run([options.sipllm, "tokenize", model, text], capture_output=True, text=True, check=True)
        ids = json.loads(tokens.stdout)["ids"][: options.positions]
        peer = open_peer(model, len(ids))
        exact = log_softmax(ours(options.sipllm, model, ids, "exact", peer[2]))
        cells = []
        mine = [ours(options.sipllm, model, ids, kernel, peer[2]) for kernel in ("int8", "fast")]
        for logits in (*mine, theirs(peer, ids)):
            other = log_softmax(logits)
            same = (other.argmax(axis=1) == exact.argmax(axis=1)).mean()
            divergence = (np.exp(exact) * (exact - other)).sum(axis=1).mean()
            cells += [f"{100 * same:.1f} %", f"{divergence:.2e}"]
        print(f"| {os.path.basename(model)} | {len(ids)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
