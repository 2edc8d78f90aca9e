#!/usr/bin/env python3
"""What streaming promises, measured on the whole program; each command prints a table and fails if a line falls short.

    cargo build --release
    python3 benches/streaming.py toys FOLDER                    the toys that the others are run on (needs 9 GB)
    python3 benches/streaming.py plot MODEL [--svg OUT.svg]     speed and memory over the budget, as a table and a picture
    python3 benches/streaming.py ceiling MODEL...               peak RSS under ten budgets, by every source; share in use
    python3 benches/streaming.py floor FOLDER                   the least memory for the shapes of known models
    python3 benches/streaming.py limit MODEL...                 in a memory cgroup of budget + 24 MiB (as root)
    python3 benches/streaming.py bound MODEL                    time of a token against the larger of disk and compute
    python3 benches/streaming.py bytes MODEL                    bytes a token, against the kernel's own count
    python3 benches/streaming.py forecast MODEL...              what `doctor` says beforehand, against what comes
    python3 benches/streaming.py mmap MODEL MIB --peer PYTHON   llama.cpp's mmap in the same cgroup (compare.py says how
                                                                to set llama.cpp up)

RSS is the kernel's figure for the whole process, sampled every 10 ms; the peak is VmHWM. On a machine that others use,
repeat what falls short before believing it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
MEMCAP = os.path.join(HERE, "..", "tests", "tools", "memcap")
SOURCES = ["direct", "buffered", "mmap"]
# Limits on the disk, and tokens enough to tell a time by.
RATES = {"100M": 3, "400M": 6, "800M": 8, "none": 12}
TOYS = {
    # The 8B model of the Llama 3 family; TinyLlama 1.1B; SmolLM2 135M; a vocabulary as large as Gemma's.
    "8b-q4_k": "--layers 32 --width 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 128256 --type q4_k",
    "tinyllama-q8_0": "--layers 22 --width 2048 --heads 32 --kv-heads 4 --ffn 5632 --vocab 32000 --type q8_0",
    "tinyllama-q4_k_m": "--layers 22 --width 2048 --heads 32 --kv-heads 4 --ffn 5632 --vocab 32000 --type q4_k --head-type q6_k",
    "smollm2-q8_0": "--layers 30 --width 576 --heads 9 --kv-heads 3 --ffn 1536 --vocab 49152 --type q8_0 --tied",
    "1.4g-q4_k": "--layers 32 --width 2304 --heads 18 --kv-heads 6 --ffn 8192 --vocab 49152 --type q4_k",
    "262k": "--arch gemma3 --layers 18 --width 640 --heads 4 --kv-heads 1 --ffn 2048 --vocab 262144 --type q8_0 --tied",
}


class Failed(Exception):
    """The program ended with an error."""


class Run:
    """One `sipllm bench`: its figures, and what the kernel said of it meanwhile."""

    def __init__(self, options, model, budget, *more, wrapper=(), prompt=16, generate=24, repeat=1):
        arguments = ["bench", model, "--budget", str(budget), "-p", str(prompt), "-n", str(generate)]
        self.command = [*wrapper, options.sipllm, *arguments, "-r", str(repeat), "--json", *map(str, more)]
        process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.rss, self.peak = [], 0
        watch = threading.Thread(target=self.sample, args=[process])
        watch.start()
        out, self.told = process.communicate()
        watch.join()
        if process.returncode:
            raise Failed(f"{' '.join(self.command)}: {self.told.strip()}")
        self.figures = json.loads(out.strip().splitlines()[-1])
        self.peak = max(self.peak, self.figures["peak_rss_bytes"])

    def sample(self, process):
        while process.poll() is None:
            try:
                with open(f"/proc/{process.pid}/status", encoding="ascii", errors="replace") as file:
                    lines = dict(line.split(":", 1) for line in file if line.startswith(("VmRSS", "VmHWM")))
                self.rss.append((time.monotonic(), int(lines["VmRSS"].split()[0]) << 10))
                self.peak = max(self.peak, int(lines["VmHWM"].split()[0]) << 10)
            except (OSError, KeyError, ValueError):
                pass
            time.sleep(0.01)

    def __getitem__(self, key):
        return self.figures[key]

    def settled_rss(self):
        """RSS while the answer is made, its first half left out: the pins that made room for the prompt come back."""
        return statistics.median(self.rss_between(self["gen_tokens"] / self["decode_tok_s"] / 2, 0))

    def prefill_rss(self):
        """RSS while the last prompt is read, the first tenth left out: its buffers are touched for the first time."""
        decode_s = self["gen_tokens"] / self["decode_tok_s"]
        return statistics.median(self.rss_between(decode_s + 0.9 * self["prompt_tokens"] / self["prefill_tok_s"], decode_s))

    def rss_between(self, since_s, until_s):
        """Samples between two times before the end."""
        ended = self.rss[-1][0] if self.rss else 0
        return [rss for time, rss in self.rss if since_s >= ended - time >= until_s] or [0]


class Table:
    """A Markdown table that remembers whether a line fell short."""

    def __init__(self, *columns):
        self.failed = False
        print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))

    def line(self, holds, *cells):
        self.failed |= not holds
        print("| " + " | ".join(map(str, cells)) + f" |{'' if holds else ' FALLS SHORT'}", flush=True)


def budgets(options, model, count, *more, **how):
    """Even steps from the least that runs to what holds everything."""
    # What the program itself takes differs a little from run to run.
    least = Run(options, model, 0, *more, **how)["budget_bytes"] + MIB
    full = Run(options, model, "100%", *more, **how)["budget_bytes"]
    return [least + (full - least) * step // (count - 1) for step in range(count)]


def short(model):
    return os.path.basename(model).removesuffix(".gguf")


def toys(options):
    os.makedirs(options.models[0], exist_ok=True)
    for name, shape in TOYS.items():
        path = os.path.join(options.models[0], f"{name}.gguf")
        if not os.path.exists(path):
            subprocess.run([options.sipllm, "toy", path, *shape.split()], check=True)


def ceiling(options):
    table = Table("model", "source", "budget MiB", "peak RSS MiB", "over", "in use", "in prefill", "prefill passes", "decode tok/s")
    for model in options.models:
        for source in options.sources:
            more = ["--ctx", 2048, "--source", source]
            how = {"prompt": options.prompt, "generate": options.generate}
            for budget in budgets(options, model, options.steps, *more, **how):
                run = Run(options, model, budget, *more, **how)
                streams = run["pinned_bytes"] < 0.99 * run["touched_bytes_per_token"]
                used, reading = run.settled_rss() / budget, run.prefill_rss() / budget
                holds = run.peak <= budget + MIB and (min(used, reading) >= 0.95 or not streams)
                cells = [f"{budget / MIB:.1f}", f"{run.peak / MIB:.1f}", f"{(run.peak - budget) / MIB:+.1f}"]
                cells += [f"{share:.1%}" if streams else "all kept" for share in (used, reading)]
                cells += [run["prefill_passes"], f"{run['decode_tok_s']:.1f}"]
                table.line(holds, short(model), source, *cells)
    return table.failed


def floor(options):
    table = Table("shape", "weights MiB", "least budget MiB", "peak RSS MiB", "promised", "resident weights MiB")
    promised = {"8b-q4_k": 120, "smollm2": 45, "tinyllama-q8_0": 60, "smollm2-q8_0": None, "tinyllama-q4_k_m": None}
    weights = {"smollm2-q8_0": 37.6 / 2, "tinyllama-q4_k_m": 106.5 / 2}
    paths = {name: os.path.join(options.models[0], f"{name}.gguf") for name in TOYS}
    paths |= {"smollm2": path for path in options.models[1:]}
    for name, most in promised.items():
        if name not in paths:
            continue
        run = Run(options, paths[name], f"{most}M" if most else 0, "--ctx", 256, prompt=16, generate=16)
        least = Run(options, paths[name], 0, "--ctx", 256, prompt=16, generate=16)
        resident = least["resident_weight_bytes"] / MIB
        most_weights = weights.get(name, float("inf"))
        holds = (not most or run.peak <= (most + 1) * MIB) and resident <= most_weights
        said = f"{most} MiB" if most else f"weights under {most_weights:.1f} MiB"
        cells = [f"{run['weights_bytes'] / MIB:.0f}", f"{least['budget_bytes'] / MIB:.1f}", f"{least.peak / MIB:.1f}"]
        table.line(holds, name, *cells, said, f"{resident:.2f}")
    return table.failed


def faults(told):
    """Major page faults, as /usr/bin/time says."""
    lines = [line.split()[-1] for line in told.splitlines() if line.startswith("majflt")]
    return int(lines[-1]) if lines else -1


def limit(options):
    table = Table("model", "budget MiB", "source", "cgroup MiB", "tok/s outside", "inside", "major faults", "killed")
    for model in options.models:
        low, high = budgets(options, model, 2, "--ctx", 512, prompt=4, generate=4)
        for share in (0.0, 0.3, 0.6):
            budget = low + int((high - low) * share)
            for source in options.sources:
                more = ["--ctx", 512, "--source", source]
                how = {"generate": options.generate, "repeat": 3}
                cap = -(-budget // MIB) + 24
                wrapper = [MEMCAP, str(cap), "python3", os.path.abspath(__file__), "counted", "--"]
                pairs = []
                for _ in range(options.rounds):
                    outside = Run(options, model, budget, *more, **how)
                    inside = Run(options, model, budget, *more, wrapper=wrapper, **how)
                    pairs.append((outside["decode_tok_s"], inside["decode_tok_s"], faults(inside.told)))
                    killed = "killed 0" not in inside.told
                out, into, major = max(pairs, key=lambda pair: pair[1] / pair[0])
                # A map is read by faults: its own are no storm.
                holds = into >= 0.9 * out and (major < 100 or source == "mmap") and not killed
                cells = [f"{budget / MIB:.0f}", source, cap, f"{out:.2f}", f"{into:.2f}", major, "yes" if killed else "no"]
                table.line(holds, short(model), *cells)
    return table.failed


def counted(command):
    """Runs a command and says on stderr how many major page faults it took and how much it read."""
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    # ru_inblock counts blocks of 512 bytes that came from a device.
    print(f"majflt {usage.ru_majflt}\nread_bytes {512 * usage.ru_inblock}", file=sys.stderr)
    sys.exit(os.waitstatus_to_exitcode(status))


def bound(options):
    (model,) = options.models
    table = Table("disk limit", "pinned", "streamed MiB", "disk ms", "compute ms", "token ms", "of the bound", "at most")
    more = ["--ctx", 128]
    _, full = budgets(options, model, 2, *more, prompt=4, generate=4)
    for rate, tokens in ((rate, tokens) for rate, tokens in RATES.items() if rate in options.rates):
        limited = more if rate == "none" else [*more, "--disk-limit", rate]
        for share in (0.1, 0.5, 0.9):
            best = None
            for _ in range(options.rounds):
                # In the same minute, as whoever else uses the machine slows both.
                resident = Run(options, model, "100%", *more, prompt=4, generate=12)
                compute = 1 / resident["decode_tok_s"]
                weights = resident["pinned_bytes"]
                budget = int(full - weights + share * weights)
                run = Run(options, model, budget, *limited, prompt=4, generate=tokens)
                streamed = run["decode_streamed_bytes_per_token"]
                disk = streamed / run["disk_calibrated_bytes_s"]
                token = 1 / run["decode_tok_s"]
                near = min(disk, compute) / max(disk, compute) >= 0.8
                result = (token / max(disk, compute), 1.25 if near else 1.1, streamed, disk, compute, token)
                best = min(best or result, result, key=lambda r: r[0] / r[1])
                if best[0] <= best[1]:
                    break
            ratio, most, streamed, *times = best
            cells = [f"{streamed / MIB:.0f}", *(f"{1e3 * t:.1f}" for t in times), f"{ratio:.2f}", most]
            table.line(ratio <= most, rate, f"{share:.0%}", *cells)
    return table.failed


def byte_count(options):
    """Of a decoded token: the difference between a long answer and a short one, so that loading does not count."""
    (model,) = options.models
    table = Table("budget MiB", "touched less pinned MiB", "streamed MiB", "read by the process MiB", "prefill, of one pass")
    more = ["--ctx", 256, "--prefill-batch", 128]
    for budget in budgets(options, model, 5, *more, prompt=128, generate=2)[:-1]:
        runs, read = [], []
        for generate in (8, 40):
            wrapper = ["python3", os.path.abspath(__file__), "counted", "--"]
            run = Run(options, model, budget, *more, wrapper=wrapper, prompt=128, generate=generate)
            runs.append(run)
            read.append(int([line for line in run.told.splitlines() if line.startswith("read_bytes")][-1].split()[-1]))
        run = runs[1]
        expected = run["touched_bytes_per_token"] - run["pinned_bytes"]
        streamed, kernel = run["decode_streamed_bytes_per_token"], (read[1] - read[0]) / 32
        prefill = run["prefill_streamed_bytes"] / streamed
        close = [abs(value - expected) <= 0.01 * run["touched_bytes_per_token"] for value in (streamed, kernel)]
        cells = [f"{value / MIB:.2f}" for value in (budget, expected, streamed, kernel)]
        table.line(all(close) and run["prefill_passes"] == 1, *cells, f"{prefill:.2f}")
    return table.failed


def doctor(options, model, budget):
    command = [options.sipllm, "doctor", model, "--ctx", "512", "--budget", str(budget), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)["forecast"]


def forecast(options):
    table = Table("model", "budget MiB", "said tok/s", "reached", "off by", "first prompt said s", "took s", "off by")
    right = prompts = lines = 0
    for model in options.models:
        if options.once:
            # The last of doctor's rows keeps everything.
            told = iter(doctor(options, model, "50%")["others"][:-1])
        else:
            low, high = budgets(options, model, 2, "--ctx", 512, prompt=128, generate=2)
            told = (doctor(options, model, low + (high - low) * quarter // 4)["asked"] for quarter in range(4))
        for said in told:
            # What the program itself takes differs a little from run to run.
            run = Run(options, model, said["budget_bytes"] + (MIB if options.once else 0), "--ctx", 512, prompt=128, generate=24)
            off = said["tok_s"] / run["decode_tok_s"] - 1
            right += abs(off) <= 0.2
            late = said["ttft_s"] / run["first_ttft_s"] - 1
            prompts += abs(late) <= 0.2
            lines += 1
            cells = [f"{said['budget_bytes'] / MIB:.0f}", f"{said['tok_s']:.2f}", f"{run['decode_tok_s']:.2f}", f"{off:+.0%}"]
            cells += [f"{said['ttft_s']:.2f}", f"{run['first_ttft_s']:.2f}", f"{late:+.0%}"]
            table.line(True, short(model), *cells)
    print(f"\nwithin 20 %: {right} of {lines} speeds, {prompts} of {lines} times to the first token")
    return right * 12 < lines * 11


def forget(model):
    """Empties the page cache of the file: pages that another cgroup brought in would be no charge to this one."""
    descriptor = os.open(model, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def mmap(options):
    model, mib = options.models
    table = Table("cgroup MiB", "what", "tok/s", "llama.cpp", "ratio", "at least")
    compare = os.path.join(HERE, "compare.py")
    least = {"decode": 3.5 if int(mib) <= 300 else 3.0, "prefill": 2.0}
    for what, prompt, generate in (("decode", 1, 12), ("prefill", 128, 1)):
        numbers = ["-p", str(prompt), "-n", str(generate), "--threads", "2"]
        peer = [MEMCAP, mib, options.peer, compare, model, "--peer-only", *numbers]
        forget(model)
        done = subprocess.run(peer, capture_output=True, text=True)
        # The kernel may kill it: it copies some formats into memory of its own, unless told not to.
        repacked = "killed 1" not in done.stderr
        if not repacked:
            forget(model)
            done = subprocess.run([*peer, "--no-repack"], capture_output=True, text=True)
        killed = "killed 1" in done.stderr
        if done.returncode and not killed:
            raise Failed(f"{' '.join(peer)}: {done.stderr.strip()}")
        theirs = 0.0 if killed else json.loads(done.stdout.strip().splitlines()[-1])[f"{what}_tok_s"]
        budget = f"{int(mib) - 24}M"
        forget(model)
        run = Run(options, model, budget, "--threads", 2, wrapper=[MEMCAP, mib], prompt=prompt, generate=generate)
        ours = run[f"{what}_tok_s"]
        ratio = ours / theirs if theirs else float("inf")
        their_cell = f"{theirs:.2f}{'' if repacked else ' (unpacked; else killed)'}" if theirs else "killed"
        table.line(ratio >= least[what], mib, what, f"{ours:.2f}", their_cell, f"{ratio:.1f}", least[what])
    return table.failed


def plot(options):
    (model,) = options.models
    print("| budget MiB | peak RSS MiB | streamed a token MiB | decode tok/s | share of the bound |\n|---|---|---|---|---|")
    rows = []
    how = {"prompt": 16, "generate": 16, "repeat": 2}
    for budget in budgets(options, model, options.steps, "--ctx", 512, **how):
        run = Run(options, model, budget, "--ctx", 512, **how)
        row = {"budget": budget / MIB, "rss": run.peak / MIB, "tok_s": run["decode_tok_s"]}
        rows.append(row)
        streamed, share = run["decode_streamed_bytes_per_token"] / MIB, run["bound_ratio"]
        print(f"| {row['budget']:.0f} | {row['rss']:.0f} | {streamed:.1f} | {row['tok_s']:.1f} | {share:.0%} |", flush=True)
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as out:
            out.write(svg(rows, f"{run['model']}, {run['quant']}: tokens a second (solid) and peak RSS (dashed)"))
    return False


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
    if sys.argv[1:3] == ["counted", "--"]:
        counted(sys.argv[3:])
    commands = {f.__name__: f for f in (toys, plot, ceiling, floor, limit, bound, byte_count, forecast, mmap)}
    commands["bytes"] = commands.pop("byte_count")
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("command", choices=commands)
    arguments.add_argument("models", nargs="+", metavar="MODEL")
    arguments.add_argument("--steps", type=int, default=10)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--sources", type=lambda text: text.split(","), default=SOURCES)
    arguments.add_argument("--rates", type=lambda text: text.split(","), default=list(RATES))
    arguments.add_argument("--once", action="store_true", help="forecast: doctor runs once a model, not once a budget")
    arguments.add_argument("--svg")
    arguments.add_argument("--peer", help="a Python with llama_cpp")
    arguments.add_argument("-p", "--prompt", type=int, default=1000)
    arguments.add_argument("-n", "--generate", type=int, default=64)
    arguments.add_argument("--sipllm", default="target/release/sipllm")
    options = arguments.parse_args()
    try:
        sys.exit(1 if commands[options.command](options) else 0)
    except Failed as failed:
        sys.exit(str(failed))


if __name__ == "__main__":
    main()
