#!/usr/bin/env python3
"""Budget against speed and memory for one model: a Markdown table, and a plot as SVG.

    cargo build --release
    python3 benches/streaming.py MODEL.gguf [--steps 6] [--svg OUT.svg] [-p 16] [-n 24]

Budgets go in even steps from the least that runs to full residency. RSS is the kernel's peak for the whole process
(VmHWM); the bound is the larger of disk and compute time for the bytes that a token streams.
"""
import argparse
import json
import subprocess
import sys

MIB = 1 << 20


def bench(program, model, budget, prompt, generate):
    command = [program, "bench", model, "--budget", str(budget), "-p", str(prompt), "-n", str(generate), "-r", "3"]
    done = subprocess.run([*command, "--ctx", "512", "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def svg(rows, title):
    """Two lines over the budget: tokens a second (left axis) and peak RSS (right axis)."""
    width, height, left, top = 640, 320, 60, 40
    most_budget = max(row["budget"] for row in rows)
    most_speed, most_rss = max(row["tok_s"] for row in rows), max(row["rss"] for row in rows)

    def points(key, most):
        return " ".join(
            f"{left + row['budget'] / most_budget * width:.1f},{top + height - row[key] / most * height:.1f}" for row in rows
        )

    marks = "".join(
        f'<text x="{left + row["budget"] / most_budget * width:.0f}" y="{top + height + 18}" text-anchor="middle">'
        f'{row["budget"]:.0f}</text>'
        for row in rows
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 2 * left} {height + top + 60}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{left}" y="20" font-size="14">{title}</text>'
        f'<path d="M{left} {top}V{top + height}H{left + width}V{top}" fill="none" stroke="#888"/>{marks}'
        f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle">budget, MiB</text>'
        f'<polyline points="{points("tok_s", most_speed)}" fill="none" stroke="#0a6" stroke-width="2"/>'
        f'<polyline points="{points("rss", most_rss)}" fill="none" stroke="#c50" stroke-width="2" stroke-dasharray="6 3"/>'
        f'<text x="{left - 6}" y="{top + 4}" text-anchor="end" fill="#0a6">{most_speed:.0f} tok/s</text>'
        f'<text x="{left + width + 6}" y="{top + 4}" fill="#c50">{most_rss:.0f} MiB</text></svg>\n'
    )


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--steps", type=int, default=6)
    arguments.add_argument("--svg")
    arguments.add_argument("-p", "--prompt", type=int, default=16)
    arguments.add_argument("-n", "--generate", type=int, default=24)
    arguments.add_argument("--sipllm", default="target/release/sipllm")
    options = arguments.parse_args()

    def measure(budget):
        return bench(options.sipllm, options.model, budget, options.prompt, options.generate)

    least, full = measure(0), measure("100%")
    low, high = least["budget_bytes"], full["budget_bytes"]
    budgets = [low + (high - low) * step // (options.steps - 1) for step in range(options.steps)]
    runs = [least, *(measure(budget) for budget in budgets[1:-1]), full]
    rows = [
        {
            "budget": run["budget_bytes"] / MIB,
            "rss": run["peak_rss_bytes"] / MIB,
            "streamed": run["decode_streamed_bytes_per_token"] / MIB,
            "tok_s": run["decode_tok_s"],
            "bound": run["bound_ratio"],
        }
        for run in runs
    ]
    print("| budget MiB | peak RSS MiB | streamed a token MiB | decode tok/s | share of the bound |")
    print("|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['budget']:.0f} | {row['rss']:.0f} | {row['streamed']:.1f} | {row['tok_s']:.1f} | {row['bound']:.0%} |")
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as out:
            out.write(svg(rows, f"{least['model']}, {least['quant']}: speed (solid) and peak RSS (dashed)"))


if __name__ == "__main__":
    main()
