#!/usr/bin/env python3
"""Compares sipllm with llama.cpp on a real model: greedy ids exactly, and the choice of the 8-bit kernels over a text.

Usage: agree.py SIPLLM MODEL.gguf EXPANDED.gguf [-n 64] [--positions 500]      (needs llama-cpp-python and numpy)

EXPANDED is the model in F32 (expand_f32.py), which llama.cpp runs with an f32 cache on one sequence. First: for each prompt, -n greedy ids of
`sipllm logits --kernel exact --kv f32` must be llama.cpp's. Then, over --positions of text, how often `--kernel int8` has the same first choice.
"""
import argparse, ctypes, json, os, subprocess, sys, tempfile
import numpy as np
import llama_cpp as L

PROMPTS = ["The capital of France is", "def fibonacci(n):\n", "Once upon a time, in a small village by the sea, there lived an old fisherman who"]
TEXT = """The history of the lighthouse begins long before the tower itself was built. Sailors who crossed the bay by night steered by fires that the people of
the village lit on the headland, and more than one ship was lost when the wood was wet or the watchman slept. In 1786 the merchants of the town
petitioned the king for a proper light; he granted them a tax on every barrel of salted fish, and forty years later the first stone was laid. The tower
was made of granite, cut so exactly that no mortar was needed below the gallery. Its lamp burned whale oil at first, then paraffin, and a system of
lenses, each ground by hand in Paris, threw the beam eighteen miles out to sea. Keepers lived on the rock with their families. They kept a
logbook in which the weather, the ships that passed and the quantity of oil were written down every day, and from it we know that in the winter of 1838
nobody could land for seventy-one days. What does a machine do when it reads a text like this one? It predicts, for each word, the word that comes next.
Some of these guesses are easy: after "in the winter of" comes a number. Others depend on what has been said pages before. A program that computes with
8-bit integers instead of floating-point numbers makes small errors in every layer, and the question is how often they change its first guess. For
example:

def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)

print(mean([1, 2, 3]))  # prints 2.0

Here is a list of the largest cities of Europe: Istanbul, Moscow, London, Saint Petersburg, Berlin, Madrid, Kyiv, Rome, Paris, Bucharest, Minsk, Vienna,
Hamburg, Warsaw, Budapest, Barcelona, Munich, Milan. The Danube flows through four capitals: Vienna, Bratislava, Budapest and Belgrade. The
Rhine begins in the Swiss Alps, passes Basel, Strasbourg, Cologne and Rotterdam, and reaches the North Sea after 1,230 kilometres; for the last 800 of
them it carries more goods than any other river of the continent, coal and ore upstream, machines and chemicals down, and in dry summers, when the water at
Kaub falls below forty centimetres, half of its ships must wait. The people who live beside it measure their years by its floods."""

@L.llama_log_callback
def quiet(level, text, data): pass
L.llama_log_set(quiet, ctypes.c_void_p(0)); L.llama_backend_init()

class Peer:
    def __init__(self, path, positions):
        self.model = L.llama_model_load_from_file(path.encode(), L.llama_model_default_params())
        if not self.model: sys.exit(f"llama.cpp cannot load {path}")
        p = L.llama_context_default_params(); p.n_ctx = p.n_batch = p.n_ubatch = positions; p.type_k = p.type_v = L.GGML_TYPE_F32; p.flash_attn_type = 0
        p.n_threads = p.n_threads_batch = 2
        self.context = L.llama_init_from_model(self.model, p); self.vocab = L.llama_model_get_vocab(self.model); self.size = L.llama_vocab_n_tokens(self.vocab)
    def tokens(self, text):
        raw = text.encode(); buf = (L.llama_token * (len(raw) + 16))()
        return list(buf[:L.llama_tokenize(self.vocab, raw, len(raw), buf, len(buf), True, False)])
    def first_choices(self, ids, at):
        """The largest logit of each of the last positions, and how far the second is behind."""
        b = L.llama_batch_init(len(ids), 0, 1); b.n_tokens = len(ids)
        for i, t in enumerate(ids): b.token[i] = t; b.pos[i] = at + i; b.n_seq_id[i] = 1; b.seq_id[i][0] = 0; b.logits[i] = 1
        if L.llama_decode(self.context, b): sys.exit("llama.cpp does not decode")
        rows = [np.ctypeslib.as_array(L.llama_get_logits_ith(self.context, i), shape=(self.size,)) for i in range(len(ids))]
        L.llama_batch_free(b)
        return [(int(r.argmax()), float(np.diff(np.partition(r, -2)[-2:])[0])) for r in rows]
    def greedy(self, ids, n):
        L.llama_memory_clear(L.llama_get_memory(self.context), True)
        out, gaps = [], []
        best, gap = self.first_choices(ids, 0)[-1]
        for i in range(n):
            out.append(best); gaps.append(gap)
            if i + 1 < n: best, gap = self.first_choices([best], len(ids) + i)[-1]
        return out, gaps

a = argparse.ArgumentParser(); a.add_argument("sipllm"); a.add_argument("model"); a.add_argument("expanded"); a.add_argument("-n", type=int, default=64); a.add_argument("--positions", type=int, default=500); o = a.parse_args()
def sipllm(ids, *more):
    done = subprocess.run([o.sipllm, "logits", o.model, "--ids", ",".join(map(str, ids)), *more], capture_output=True, text=True)
    if done.returncode: sys.exit(done.stderr)
    return json.loads(done.stdout)

peer, bad = Peer(o.expanded, 640), 0
for prompt in PROMPTS:
    ids = peer.tokens(prompt); want, gaps = peer.greedy(ids, o.n)
    got = sipllm(ids, "--kernel", "exact", "--kv", "f32", "--greedy", str(o.n))["greedy"]
    same = next((i for i in range(o.n) if want[i] != got[i]), o.n)
    bad += same < o.n
    print(f"{prompt!r}: {same} of {o.n} greedy ids equal" + ("" if same == o.n else f" (the first two are {gaps[same]:.1e} apart there)"), flush=True)
ids = peer.tokens(TEXT)[:o.positions]
L.llama_memory_clear(L.llama_get_memory(peer.context), True)
want = [best for best, _ in peer.first_choices(ids, 0)]
for kernel in ["exact", "int8"]:
    with tempfile.NamedTemporaryFile() as file:
        sipllm(ids, "--kernel", kernel, "--out", file.name, *(["--kv", "f32"] if kernel == "exact" else []))
        got = np.fromfile(file.name, "<f4").reshape(len(ids), -1).argmax(1)
    share = float(np.mean(got == want)); bad += share < 0.97
    print(f"{kernel}: the first choice is the same at {int((got == want).sum())} of {len(ids)} positions, {share:.1%}", flush=True)
sys.exit(1 if bad else 0)
