#!/usr/bin/env python3
"""Tiny models of every family and of its odd parameters, and what llama.cpp makes of them.

Usage: family_models.py [NAME..] [--keep FOLDER] [--write]      (needs llama-cpp-python, gguf and numpy)

Each model is a recipe: metadata, and tensors whose values follow from their names alone (`values`), so that tests/families.rs makes the same file
from the recipe. --keep writes the GGUF files; --write writes recipes with llama.cpp's logits and greedy ids to tests/data/families.zip.
Values are multiples of a power of two by -127 to 127, so Q8_0 holds them exactly; llama.cpp runs them as F32.

llama.cpp looks GELU up in a table of f16. For logits to 1e-3 of the families with GELU, let LLAMA_CPP_LIB_PATH name a folder with libraries
whose ggml-cpu was built without GGML_GELU_FP16 (ggml/src/ggml-cpu/vec.h).
"""
import argparse, json, os, pathlib, struct, subprocess, sys, tempfile, zipfile
import numpy as np

OUT = pathlib.Path(__file__).parent.parent / "data" / "families.zip"
VOCAB, PROMPT, GREEDY, SHOWN = 96, 22, 8, 4
IDS = [(i * 37 + 5) % VOCAB for i in range(PROMPT)]

# --- values ---------------------------------------------------------------------------------------------------------------------

def values(name, count, offset, shift):
    """offset + n / 2^shift, n from -127 to 127 by splitmix64 of the position, seeded by FNV-1a of the name."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    n = ((z >> np.uint64(32)) % np.uint64(255)).astype(np.int64) - 127
    return (offset + n / 2.0**shift).astype(np.float32)

# --- recipes --------------------------------------------------------------------------------------------------------------------

class Recipe:
    def __init__(self, name, arch):
        self.name, self.arch, self.keys, self.tensors = name, arch, [], []
    def key(self, suffix, value, kind=None):
        kind = kind or {bool: "bool", int: "u32", float: "f32", str: "str"}[type(value)] if not isinstance(value, list) else kind
        self.keys.append([suffix if suffix.startswith(("general.", "tokenizer.")) else f"{self.arch}.{suffix}", kind, value])
    def tensor(self, name, shape, offset=0.0, shift=None):
        if shift is None: shift = round(np.log2(73 * np.sqrt(shape[0])))
        self.tensors.append([name, shape, offset, int(shift)])
    def norm(self, name, width, bias=False):
        self.tensor(f"{name}.weight", [width], 1.0, 9)
        if bias: self.bias(name, width)
    def bias(self, name, *shape): self.tensor(f"{name}.bias", list(shape), 0.0, 9)

def recipe(name, arch, *, layers=3, width=64, heads=4, kv=2, head_dim=None, ffn=96, eps="rms", norm_bias=False, pre=True, post=False, post_key=True, ffn_norm="ffn_norm",
           qk_norm=None, qk_shift=9, qkv_bias=False, out_bias=False, ffn_bias=False, fused_qkv=False, fused_qkv_bias=False, fused_up=False, gated=True, tied=False, head_bias=False, rope_dim=None, head_keys=None,
           experts=None, expert_ffn=32, shared=0, shared_gate=False, router_bias=False, probs_bias=False, expert_bias=False, fused_gate_up=False, dense_lead=0, moe_step=1, sinks=False, rope_freqs=False, longrope=False,
           conv=None, conv_kernel=3, keys=(), embedding_shift=None, head_gain=0, output_norm="output_norm", v_dim=None, latent=None):
    r = Recipe(name, arch)
    d = head_dim or width // heads
    vd = v_dim or d
    r.key("context_length", 512); r.key("embedding_length", width); r.key("block_count", layers); r.key("feed_forward_length", ffn)
    r.key("attention.head_count", heads)
    if conv: r.key("attention.head_count_kv", [0 if l in conv else kv for l in range(layers)], "i32s"); r.key("shortconv.l_cache", conv_kernel)
    else: r.key("attention.head_count_kv", kv)
    r.key("attention.layer_norm_rms_epsilon" if eps == "rms" else "attention.layer_norm_epsilon", 1e-5)
    if latent:
        rank, short, split = latent
        r.key("attention.kv_lora_rank", rank)
        if short: r.key("attention.q_lora_rank", short)
        if split: r.key("attention.key_length", rank + rope_dim); r.key("attention.value_length", rank); r.key("attention.key_length_mla", d); r.key("attention.value_length_mla", vd)
        else: r.key("attention.key_length", d); r.key("attention.value_length", vd)
    elif head_keys if head_keys is not None else d * heads != width: r.key("attention.key_length", d); r.key("attention.value_length", vd)
    r.key("rope.dimension_count", rope_dim or d); r.key("vocab_size", VOCAB)
    if experts: r.key("expert_count", experts[0]); r.key("expert_used_count", experts[1])
    for k, v, *kind in keys: r.key(k, v, *kind)
    # A tied head meets the embedding again: small rows, or the last token would outweigh all that the layers do.
    r.tensor("token_embd.weight", [width, VOCAB], 0.0, embedding_shift or (9 if tied else 6))
    r.norm(output_norm, width, norm_bias)
    if not tied: r.tensor("output.weight", [width, VOCAB], 0.0, round(np.log2(73 * np.sqrt(width))) - 1 - head_gain)
    if head_bias: r.bias("output", VOCAB)
    if rope_freqs: r.tensor("rope_freqs.weight", [(rope_dim or d) // 2], 4.5, 5)
    if longrope:
        r.tensor("rope_factors_long.weight", [(rope_dim or d) // 2], 4.5, 5); r.tensor("rope_factors_short.weight", [(rope_dim or d) // 2], 1.5, 7)
    for l in range(layers):
        b = f"blk.{l}."
        q, k, v = heads * d, kv * d, kv * vd
        if pre: r.norm(b + "attn_norm", width, norm_bias)
        if conv and l in conv:
            r.tensor(b + "shortconv.conv.weight", [conv_kernel, width], 0.0, 7); r.tensor(b + "shortconv.in_proj.weight", [width, 3 * width]); r.tensor(b + "shortconv.out_proj.weight", [width, width])
        elif latent:
            rank, short, split = latent; plain = d - rope_dim
            if short: r.tensor(b + "attn_q_a.weight", [width, short]); r.tensor(b + "attn_q_a_norm.weight", [short], 1.0, 9); r.tensor(b + "attn_q_b.weight", [short, q])
            else: r.tensor(b + "attn_q.weight", [width, q])
            r.tensor(b + "attn_kv_a_mqa.weight", [width, rank + rope_dim]); r.tensor(b + "attn_kv_a_norm.weight", [rank], 1.0, 9)
            if split: r.tensor(b + "attn_k_b.weight", [plain, rank, heads]); r.tensor(b + "attn_v_b.weight", [rank, vd, heads])
            else: r.tensor(b + "attn_kv_b.weight", [rank, heads * (plain + vd)])
            r.tensor(b + "attn_output.weight", [heads * vd, width])
        else:
            if fused_qkv:
                r.tensor(b + "attn_qkv.weight", [width, q + k + v])
                if fused_qkv_bias: r.bias(b + "attn_qkv", q + k + v)
            else:
                for part, rows in (("q", q), ("k", k), ("v", v)):
                    r.tensor(f"{b}attn_{part}.weight", [width, rows])
            if qkv_bias:
                for part, rows in (("q", q), ("k", k), ("v", v)): r.bias(f"{b}attn_{part}", rows)
            if qk_norm == "head":
                r.tensor(b + "attn_q_norm.weight", [d], 1.0, qk_shift); r.tensor(b + "attn_k_norm.weight", [d], 1.0, qk_shift)
            elif qk_norm == "whole":
                r.tensor(b + "attn_q_norm.weight", [q], 1.0, qk_shift); r.tensor(b + "attn_k_norm.weight", [k], 1.0, qk_shift)
            if sinks: r.tensor(b + "attn_sinks.weight", [heads], 0.0, 6)
            r.tensor(b + "attn_output.weight", [heads * vd, width])
            if out_bias: r.bias(b + "attn_output", width)
        if post: r.norm(b + "post_attention_norm", width)
        if ffn_norm: r.norm(b + ffn_norm, width, norm_bias)
        if experts and l >= dense_lead and (l + 1) % moe_step == 0:
            n, f = experts[0], expert_ffn
            r.tensor(b + "ffn_gate_inp.weight", [width, n], 0.0, round(np.log2(73 * np.sqrt(width))) - 1)
            if router_bias: r.bias(b + "ffn_gate_inp", n)
            if probs_bias: r.tensor(b + "exp_probs_b.bias", [n], 0.0, 9)
            if fused_gate_up: r.tensor(b + "ffn_gate_up_exps.weight", [width, 2 * f, n])
            else: r.tensor(b + "ffn_gate_exps.weight", [width, f, n]); r.tensor(b + "ffn_up_exps.weight", [width, f, n])
            r.tensor(b + "ffn_down_exps.weight", [f, width, n])
            if expert_bias: r.bias(b + "ffn_gate_exps", f, n); r.bias(b + "ffn_up_exps", f, n); r.bias(b + "ffn_down_exps", width, n)
            if shared:
                if shared_gate: r.tensor(b + "ffn_gate_inp_shexp.weight", [width])
                r.tensor(b + "ffn_gate_shexp.weight", [width, shared]); r.tensor(b + "ffn_up_shexp.weight", [width, shared]); r.tensor(b + "ffn_down_shexp.weight", [shared, width])
        else:
            if gated and not fused_up: r.tensor(b + "ffn_gate.weight", [width, ffn])
            r.tensor(b + "ffn_up.weight", [width, 2 * ffn if fused_up else ffn]); r.tensor(b + "ffn_down.weight", [ffn, width])
            if ffn_bias:
                if gated and not fused_up: r.bias(b + "ffn_gate", ffn)
                r.bias(b + "ffn_up", ffn); r.bias(b + "ffn_down", width)
        if post and post_key: r.norm(b + "post_ffw_norm", width)
    return r

YARN = [("rope.scaling.type", "yarn"), ("rope.scaling.factor", 4.0), ("rope.scaling.original_context_length", 16)]
GRANITE = [("logit_scale", 6.0), ("residual_scale", 0.22), ("embedding_scale", 12.0), ("attention.scale", 0.0625)]
LAYER = dict(eps="layer", norm_bias=True)
GEMMA = dict(head_dim=32, tied=True, embedding_shift=10, post=True)
SCALED = dict(embedding_shift=9)

def recipes():
    R = recipe
    yield R("llama", "llama")
    yield R("llama-all-heads", "llama", kv=4, head_dim=32)
    yield R("llama-one-kv-head", "llama", kv=1, tied=True)
    yield R("llama-biases", "llama", qkv_bias=True, out_bias=True, ffn_bias=True)
    yield R("llama-rope-freqs", "llama", rope_freqs=True, tied=True, keys=[("rope.freq_base", 500000.0)])
    yield R("llama-linear", "llama", keys=[("rope.scaling.type", "linear"), ("rope.scaling.factor", 4.0)])
    yield R("llama-linear-old-key", "llama", keys=[("rope.scale_linear", 2.0)])
    yield R("llama-yarn", "llama", keys=YARN)
    yield R("llama-yarn-attn-factor", "llama", keys=YARN + [("rope.scaling.attn_factor", 0.8)])
    yield R("llama-longrope-long", "llama", longrope=True, keys=[("rope.scaling.type", "longrope"), ("rope.scaling.original_context_length", 16), ("rope.scaling.attn_factor", 1.2)])
    yield R("mixtral", "llama", experts=(4, 2), expert_ffn=96)
    yield R("mixtral-fused-qkv", "llama", experts=(4, 3), expert_ffn=96, fused_qkv=True, fused_qkv_bias=True)
    yield R("qwen2", "qwen2", qkv_bias=True, tied=True)
    yield R("qwen2-yarn", "qwen2", qkv_bias=True, keys=YARN)
    yield R("qwen2moe", "qwen2moe", qkv_bias=True, experts=(8, 3), shared=64, shared_gate=True, keys=[("expert_feed_forward_length", 32), ("expert_shared_feed_forward_length", 64)])
    yield R("qwen2vl", "qwen2vl", qkv_bias=True, keys=[("rope.dimension_sections", [2, 3, 3, 0], "i32s")])
    yield R("qwen3", "qwen3", qk_norm="head", head_dim=32)
    yield R("qwen3-untied-yarn", "qwen3", qk_norm="head", head_dim=32, keys=YARN)
    yield R("qwen3moe", "qwen3moe", qk_norm="head", head_dim=32, experts=(8, 3), keys=[("expert_feed_forward_length", 32)])
    yield R("qwen3vl", "qwen3vl", qk_norm="head", head_dim=32, keys=[("rope.dimension_sections", [6, 5, 5, 0], "i32s")])
    yield R("qwen3vlmoe", "qwen3vlmoe", qk_norm="head", head_dim=32, experts=(8, 3), keys=[("rope.dimension_sections", [6, 5, 5, 0], "i32s"), ("expert_feed_forward_length", 32)])
    yield R("gemma", "gemma", **(GEMMA | dict(post=False, kv=1)))
    yield R("gemma2", "gemma2", **GEMMA, layers=4, keys=[("attention.sliding_window", 6), ("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0)])
    yield R("gemma2-defaults", "gemma2", **GEMMA, layers=2)
    yield R("gemma2-pattern", "gemma2", **GEMMA, layers=4, keys=[("attention.sliding_window", 6), ("attention.sliding_window_pattern", 4), ("attn_logit_softcapping", 5.0), ("final_logit_softcapping", 3.0)])
    yield R("gemma3", "gemma3", **GEMMA, layers=7, qk_norm="head", keys=[("attention.sliding_window", 6), ("rope.freq_base", 1000000.0), ("rope.freq_base_swa", 10000.0), ("rope.scaling.type", "linear"), ("rope.scaling.factor", 8.0)])
    yield R("gemma3-no-window", "gemma3", **(GEMMA | dict(tied=False, embedding_shift=8)), qk_norm="head", keys=[("rope.freq_base", 1000000.0)])
    yield R("gemma3-pattern", "gemma3", **GEMMA, layers=4, qk_norm="head", keys=[("attention.sliding_window", 5), ("attention.sliding_window_pattern", [True, False, False, True], "bools"), ("rope.freq_base", 1000000.0), ("final_logit_softcapping", 3.0)])
    yield R("phi2", "phi2", **LAYER, ffn_norm=None, qkv_bias=True, out_bias=True, ffn_bias=True, gated=False, head_bias=True, rope_dim=8)
    yield R("phi2-fused", "phi2", **LAYER, ffn_norm=None, fused_qkv=True, fused_qkv_bias=True, out_bias=True, ffn_bias=True, gated=False, head_bias=True, rope_dim=8, kv=4)
    yield R("phi3", "phi3", fused_qkv=True, fused_up=True, keys=[("attention.sliding_window", 6)])
    yield R("phi3-partial-longrope-long", "phi3", fused_qkv=True, fused_up=True, rope_dim=12, longrope=True, tied=True, keys=[("rope.scaling.original_context_length", 16), ("rope.scaling.attn_factor", 1.19)])
    yield R("phi3-partial-longrope-short", "phi3", fused_qkv=True, fused_up=True, rope_dim=12, longrope=True, tied=True, keys=[("rope.scaling.original_context_length", 512), ("rope.scaling.attn_factor", 1.19)])
    yield R("smollm3", "smollm3", layers=5, tied=True)
    yield R("smollm3-yarn", "smollm3", layers=5, keys=YARN)
    yield R("granite", "granite", keys=GRANITE, tied=True, **SCALED)
    yield R("granite-biases-no-rope", "granite", keys=GRANITE + [("rope.scaling.finetuned", False)], qkv_bias=True, out_bias=True, ffn_bias=True, **SCALED)
    yield R("granitemoe", "granitemoe", keys=GRANITE, experts=(8, 3), expert_ffn=96, **SCALED)
    yield R("granitemoe-shared", "granitemoe", keys=GRANITE + [("expert_shared_feed_forward_length", 64)], experts=(8, 3), expert_ffn=96, shared=64, **SCALED)
    yield R("olmo2", "olmo2", pre=False, post=True, ffn_norm=None, qk_norm="whole")
    yield R("olmo3", "olmo2", layers=5, pre=False, post=True, ffn_norm=None, qk_norm="whole", keys=YARN + [("attention.sliding_window", 6)])
    yield R("olmoe", "olmoe", qk_norm="whole", experts=(8, 3), expert_ffn=96, kv=4)
    yield R("starcoder2", "starcoder2", **LAYER, qkv_bias=True, out_bias=True, ffn_bias=True, gated=False, tied=True)
    yield R("chatglm", "chatglm", fused_qkv=True, fused_qkv_bias=True, fused_up=True, rope_dim=8)
    yield R("glm4", "glm4", post=True, fused_up=True, qkv_bias=True, head_dim=32, rope_dim=16)
    yield R("glm4-multimodal", "glm4", post=True, fused_up=True, qkv_bias=True, head_dim=32, rope_dim=16, tied=True, keys=[("rope.dimension_sections", [2, 3, 3, 0], "i32s")])
    yield R("gpt-oss", "gpt-oss", layers=4, head_dim=32, qkv_bias=True, out_bias=True, sinks=True, ffn_norm="post_attention_norm", experts=(8, 3), router_bias=True, expert_bias=True,
            keys=YARN + [("attention.sliding_window", 6), ("expert_feed_forward_length", 32)])
    yield R("command-r", "command-r", eps="layer", tied=True, ffn_norm=None, keys=[("logit_scale", 2.5)])
    yield R("cohere2", "cohere2", eps="layer", layers=5, tied=True, ffn_norm=None, keys=[("logit_scale", 2.5), ("attention.sliding_window", 6)])
    yield R("stablelm", "stablelm", **LAYER, qkv_bias=True, rope_dim=4)
    yield R("stablelm-parallel", "stablelm", **LAYER, ffn_norm=None, rope_dim=4)
    yield R("exaone", "exaone", head_dim=32, rope_freqs=True, tied=True)
    yield R("exaone4", "exaone4", pre=False, post=True, ffn_norm=None, qk_norm="head", rope_freqs=True)
    yield R("internlm2", "internlm2")
    yield R("minicpm", "minicpm", tied=True)
    yield R("minicpm-keys", "minicpm", longrope=True, keys=[("embedding_scale", 6.0), ("residual_scale", 0.3), ("logit_scale", 0.5), ("rope.scaling.type", "longrope"), ("rope.scaling.original_context_length", 16)])
    yield R("arcee", "arcee", head_dim=32, gated=False, rope_freqs=True)
    yield R("nemotron", "nemotron", **LAYER, gated=False, ffn_bias=True, out_bias=True, rope_dim=8)
    yield R("ernie4_5", "ernie4_5", head_dim=32, tied=True)
    yield R("ernie4_5-moe", "ernie4_5-moe", layers=4, experts=(8, 3), shared=64, probs_bias=True, dense_lead=1, head_dim=32,
            keys=[("expert_feed_forward_length", 32), ("expert_shared_feed_forward_length", 64), ("interleave_moe_layer_step", 1), ("leading_dense_block_count", 1)])
    yield R("hunyuan-dense", "hunyuan-dense", head_dim=32, qk_norm="head", tied=True)
    yield R("seed_oss", "seed_oss", head_dim=32, qkv_bias=True, post=True, post_key=False, ffn_norm=None)
    yield R("mistral3", "mistral3", head_dim=32, keys=YARN + [("rope.scaling.yarn_beta_fast", 16.0), ("rope.scaling.yarn_beta_slow", 2.0), ("rope.scaling.yarn_log_multiplier", 1.0), ("attention.temperature_scale", 0.5)])
    yield R("bailingmoe", "bailingmoe", experts=(8, 3), shared=64, head_dim=32,
            keys=[("expert_feed_forward_length", 32), ("expert_shared_count", 2), ("expert_weights_scale", 1.5), ("expert_weights_norm", True), ("leading_dense_block_count", 0)])
    yield R("bailingmoe-unnormalised", "bailingmoe", experts=(8, 3), shared=32, head_dim=32,
            keys=[("expert_feed_forward_length", 32), ("expert_shared_count", 1), ("expert_weights_norm", False), ("leading_dense_block_count", 0)])
    yield R("dots1", "dots1", layers=4, kv=4, qk_norm="head", experts=(8, 3), shared=64, probs_bias=True, dense_lead=1,
            keys=[("expert_feed_forward_length", 32), ("expert_shared_count", 2), ("expert_weights_scale", 2.5), ("expert_weights_norm", True), ("expert_gating_func", 2), ("leading_dense_block_count", 1)])
    yield R("deepseek", "deepseek", experts=(8, 3), shared=64, dense_lead=1, keys=[("expert_feed_forward_length", 32), ("expert_shared_count", 2), ("leading_dense_block_count", 1), ("expert_weights_scale", 1.5)])
    glm = dict(kv=2, head_dim=32, rope_dim=16, layers=4, experts=(8, 3), shared=32, probs_bias=True, dense_lead=1, ffn_norm="post_attention_norm")
    GLM = [("expert_feed_forward_length", 32), ("expert_shared_count", 1), ("leading_dense_block_count", 1), ("expert_weights_scale", 1.5), ("expert_weights_norm", True)]
    yield R("glm4moe", "glm4moe", **glm, qkv_bias=True, keys=GLM)
    yield R("glm4moe-normed", "glm4moe", **glm, qk_norm="head", qkv_bias=True, keys=GLM + [("expert_gating_func", 2)])
    yield R("minimax-m2", "minimax-m2", head_dim=32, rope_dim=16, qk_norm="whole", experts=(8, 3), ffn=32, probs_bias=True, keys=[("expert_feed_forward_length", 32), ("expert_gating_func", 2)])
    yield R("hunyuan-moe", "hunyuan-moe", head_dim=32, qk_norm="head", tied=True, experts=(8, 3), ffn=32, shared=64, keys=[("expert_feed_forward_length", 32), ("expert_shared_feed_forward_length", 64)])
    deepseek = dict(head_dim=48, rope_dim=16, v_dim=32, shared=64, layers=4, dense_lead=1)
    DEEPSEEK = [("expert_feed_forward_length", 32), ("expert_shared_count", 2), ("leading_dense_block_count", 1)]
    yield R("deepseek2-lite", "deepseek2", **(deepseek | dict(layers=27)), kv=4, latent=(64, 0, False), experts=(8, 3), keys=DEEPSEEK + YARN + [("rope.scaling.yarn_log_multiplier", 0.0707), ("expert_weights_scale", 1.5)])
    yield R("deepseek2-whole", "deepseek2", **deepseek, kv=4, latent=(64, 32, False), experts=(8, 3), probs_bias=True,
            keys=DEEPSEEK + YARN + [("rope.scaling.yarn_log_multiplier", 0.1), ("expert_weights_norm", True), ("expert_gating_func", 2), ("expert_weights_scale", 2.5)])
    yield R("deepseek2-split", "deepseek2", **deepseek, kv=1, latent=(64, 32, True), experts=(16, 3), probs_bias=True,
            keys=DEEPSEEK + YARN + [("rope.scaling.yarn_log_multiplier", 0.1), ("expert_weights_norm", True), ("expert_gating_func", 2), ("expert_weights_scale", 2.5), ("expert_group_count", 4), ("expert_group_used_count", 2)])
    yield R("deepseek2-split-lite", "deepseek2", **(deepseek | dict(layers=27)), kv=1, latent=(64, 0, True), experts=(8, 3), fused_gate_up=True, keys=DEEPSEEK + YARN + [("rope.scaling.attn_factor", 0.9), ("attention.temperature_scale", 0.5), ("attention.temperature_length", 16)])
    yield R("deepseek2-dense", "deepseek2", **(deepseek | dict(shared=0)), kv=1, latent=(32, 64, True), keys=[("leading_dense_block_count", 4), ("expert_feed_forward_length", 32), ("expert_shared_count", 2)])
    yield R("mistral4", "mistral4", **deepseek, kv=1, latent=(64, 32, True), experts=(8, 3), keys=DEEPSEEK + YARN + [("rope.scaling.yarn_log_multiplier", 0.1), ("attention.temperature_scale", 0.5), ("attention.temperature_length", 16), ("expert_weights_norm", True)])
    yield R("lfm2", "lfm2", layers=5, qk_norm="head", conv=(0, 1, 3), tied=True, output_norm="token_embd_norm")
    yield R("lfm2-windowed", "lfm2", layers=4, qk_norm="head", conv=(1, 2), conv_kernel=4, output_norm="token_embd_norm", keys=[("attention.sliding_window", 6)])
    yield R("lfm2moe", "lfm2moe", layers=5, qk_norm="head", conv=(0, 1, 3), tied=True, output_norm="token_embd_norm", experts=(8, 3), probs_bias=True, dense_lead=2,
            keys=[("expert_feed_forward_length", 32), ("expert_gating_func", 2), ("leading_dense_block_count", 2)])

# --- files ----------------------------------------------------------------------------------------------------------------------

def write(r, path):
    import gguf
    w = gguf.GGUFWriter(path, r.arch)
    for key, kind, value in r.keys + tokenizer():
        add = {"u32": w.add_uint32, "f32": w.add_float32, "bool": w.add_bool, "str": w.add_string}.get(kind, w.add_array)
        add(key, value)
    for name, shape, offset, shift in r.tensors:
        w.add_tensor(name, values(name, int(np.prod(shape)), offset, shift).reshape(shape[::-1]))
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()

def tokenizer():
    """A byte-level vocabulary that is not complete: these models are fed ids."""
    tokens = [chr(c) for c in range(33, 33 + VOCAB - 4)] + ["Ċ", "Ġ", "<|end|>", "<|pad|>"]
    return [["tokenizer.ggml.model", "str", "gpt2"], ["tokenizer.ggml.pre", "str", "gpt-2"], ["tokenizer.ggml.tokens", "strs", tokens],
            ["tokenizer.ggml.token_type", "i32s", [1] * (VOCAB - 2) + [3, 3]], ["tokenizer.ggml.merges", "strs", ["a b"]],
            ["tokenizer.ggml.eos_token_id", "u32", VOCAB - 2], ["tokenizer.ggml.add_bos_token", "bool", False]]

def run_peer(path):
    """Logits of the last SHOWN prompt positions, and the greedy continuation."""
    import ctypes, llama_cpp as L
    if "-v" not in sys.argv:
        @L.llama_log_callback
        def quiet(level, text, data): pass
        L.llama_log_set(quiet, ctypes.c_void_p(0))
        run_peer.quiet = quiet
    L.llama_backend_init()
    mp = L.llama_model_default_params()
    if hasattr(mp, "use_extra_bufts"): mp.use_extra_bufts = False
    model = L.llama_model_load_from_file(path.encode(), mp)
    if not model: sys.exit("llama.cpp does not load it")
    cp = L.llama_context_default_params()
    cp.n_ctx = cp.n_batch = cp.n_ubatch = 64; cp.n_threads = cp.n_threads_batch = 1; cp.type_k = cp.type_v = L.GGML_TYPE_F32; cp.flash_attn_type = 0
    context = L.llama_init_from_model(model, cp)
    if not context: sys.exit("llama.cpp makes no context")
    def decode(ids, first):
        batch = L.llama_batch_init(len(ids), 0, 1); batch.n_tokens = len(ids)
        for i, t in enumerate(ids):
            batch.token[i] = t; batch.pos[i] = first + i; batch.n_seq_id[i] = 1; batch.seq_id[i][0] = 0; batch.logits[i] = 1
        if L.llama_decode(context, batch): sys.exit("llama.cpp does not decode")
        rows = np.stack([np.ctypeslib.as_array(L.llama_get_logits_ith(context, i), shape=(VOCAB,)).copy() for i in range(len(ids))])
        L.llama_batch_free(batch)
        return rows
    logits = decode(IDS, 0)
    greedy, last = [], logits[-1]
    for i in range(GREEDY):
        greedy.append(int(last.argmax()))
        last = decode([greedy[-1]], PROMPT + i)[0]
    # The very last row has seen every position of the continuation too.
    return np.vstack([logits[-SHOWN:], last]), greedy

def main():
    a = argparse.ArgumentParser(); a.add_argument("name", nargs="*"); a.add_argument("--keep"); a.add_argument("--write", action="store_true"); a.add_argument("--peer"); a.add_argument("-v", action="store_true"); o = a.parse_args()
    if o.peer:
        logits, greedy = run_peer(o.peer)
        print(json.dumps({"greedy": greedy})); sys.stdout.flush()
        np.ascontiguousarray(logits, "<f4").tofile(o.peer + ".f32"); os._exit(0)
    archive = zipfile.ZipFile(OUT, "w") if o.write else None
    entry = lambda name: zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    lines, bad = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = o.keep or temporary
        os.makedirs(folder, exist_ok=True)
        for r in recipes():
            if o.name and r.name not in o.name: continue
            path = os.path.join(folder, r.name + ".gguf"); write(r, path)
            done = subprocess.run([sys.executable, __file__, "--peer", path] + (["-v"] if o.v else []), capture_output=not o.v, text=True, stdout=subprocess.PIPE if o.v else None)
            if done.returncode:
                print(f"{r.name}: {((done.stderr or '') + done.stdout).strip().splitlines()[-1:]}"); bad += 1; continue
            logits = np.fromfile(path + ".f32", "<f4")
            line = json.loads(done.stdout.strip().splitlines()[-1])
            spread = float(np.abs(logits).max())
            print(f"{r.name}: logits up to {spread:.2f}, greedy {line['greedy']}")
            if o.keep: json.dump({"prompt": IDS, **line}, open(os.path.join(folder, r.name + ".json"), "w"))
            if archive:
                lines.append(json.dumps({"name": r.name, "architecture": r.arch, "keys": r.keys, "tensors": r.tensors, "prompt": IDS, "greedy": line["greedy"]}))
                archive.writestr(entry(r.name + ".f32"), logits.tobytes(), zipfile.ZIP_DEFLATED, 9)
    if archive:
        archive.writestr(entry("tokenizer.json"), json.dumps(tokenizer()), zipfile.ZIP_DEFLATED, 9)
        archive.writestr(entry("recipes.jsonl"), "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED, 9)
        archive.close()
    sys.exit(1 if bad else 0)

if __name__ == "__main__": main()
