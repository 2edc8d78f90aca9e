#!/usr/bin/env python3
"""A mixture of experts in a quarter of its size: what a token reads, and the speed against llama.cpp in the same cgroup.

    cargo build --release
    VENV/bin/python benches/experts.py [--model MODEL.gguf] [--share 0.25] [-n 40]     (VENV as compare.py has it; root, for the cgroup)

Without --model a toy of 64 experts, 8 used, 1.9 GiB, is made. It says how far the bytes read a token are from those of the routed experts
that were not in memory, how much less that is than whole layers, and the ratio of decode speeds.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
TOY = "--arch qwen3moe --layers 34 --width 1024 --heads 16 --kv-heads 4 --ffn 512 --experts 64 --experts-used 8 --vocab 32000 --type q4_0".split()


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--sipllm", default=ROOT / "target/release/sipllm")
    a.add_argument("--model")
    a.add_argument("--share", type=float, default=0.25)
    a.add_argument("-n", type=int, default=40)
    a.add_argument("--no-peer", action="store_true")
    o = a.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        model = o.model or os.path.join(folder, "toy.gguf")
        if not o.model:
            subprocess.run([o.sipllm, "toy", model, *TOY], check=True)
        inspected = run([o.sipllm, "inspect", model, "--json"])
        tensors, metadata = inspected["tensors"], inspected["metadata"]
        experts = sum(t["bytes"] for t in tensors if "_exps." in t["name"])
        always = sum(t["bytes"] for t in tensors if "_exps." not in t["name"] and t["name"] != "token_embd.weight")
        value = lambda suffix: next(v for k, v in metadata.items() if k.endswith(suffix))
        used, count = value(".expert_used_count"), value(".expert_count")
        limit = int(os.path.getsize(model) * o.share) >> 20
        memcap = [ROOT / "tests/tools/memcap", str(limit)]
        # A little of the group's memory is the kernel's.
        bench = run([*memcap, o.sipllm, "bench", model, "--budget", f"{limit - 8}M", "-p", "8", "-n", str(o.n), "-r", "1", "--json"])
        routed = experts * used / count
        missed = routed * (1 - bench["expert_hit_rate"])
        read = bench["decode_streamed_bytes_per_token"]
        whole = (experts + always) * (1 - (bench["pinned_bytes"] / (experts + always)))
        print(f"experts {experts / 2**20:.0f} MiB, {used} of {count} used: {routed / 2**20:.1f} MiB a token; {limit} MiB for all")
        print(f"in memory: {bench['experts_resident']} experts, {bench['expert_hit_rate']:.1%} of those asked for")
        print(f"read a token: {read / 2**20:.2f} MiB; routed and not in memory: {missed / 2**20:.2f} MiB ({read / missed - 1:+.2%})")
        print(f"whole layers not in memory: {whole / 2**20:.0f} MiB a token, {whole / read:.1f}x as much")
        print(f"sipllm decodes {bench['decode_tok_s']:.2f} tok/s, {bench['bound_ratio']:.0%} of the bound", flush=True)
        if not o.no_peer:
            peer = [sys.executable, ROOT / "benches/compare.py", model, "--peer-only", "--no-repack", "-p", "8", "-n", "12", "--threads", "2"]
            theirs = run([*memcap, *peer])["decode_tok_s"]
            print(f"llama.cpp {theirs:.2f} tok/s: sipllm is {bench['decode_tok_s'] / theirs:.1f}x as fast")


if __name__ == "__main__":
    main()
