#!/usr/bin/env python3
"""Compares sipllm's tokens with llama.cpp's on random text.

Usage: compare_tokens.py TOKENIZE_LINES VOCAB.gguf.. [-n STRINGS] [--seed S] [--pre NAME,NAME..|all] [--record OUT.jsonl]

TOKENIZE_LINES is the built example (`cargo build --release --example tokenize_lines`). Needs llama-cpp-python, whose llama.cpp is the
reference. -n strings are spread over the vocabularies. With --pre each vocabulary is taken with its `tokenizer.ggml.pre` replaced by each
name, which tries every pre-tokenizer with one vocabulary. --record writes the reference's ids for a fixed set of texts instead.
"""
import argparse, ctypes, json, os, random, struct, subprocess, sys, tempfile
import llama_cpp as L

@L.llama_log_callback
def quiet(level, text, data): pass
L.llama_log_set(quiet, ctypes.c_void_p(0))
L.llama_backend_init()

PRES = """default llama-bpe jais-2 dbrx glm4 minicpm5 qwen2 qwen35 ufakzeka seed-coder laguna exaone-moe gpt-2 smollm falcon bloom viking tekken gpt-4o
granite-embed-multi-97m tiny_aya youtu kimi-k2 deepseek-v3 spark2_5 afmoe deepseek-llm deepseek-coder superbpe chameleon bailingmoe""".split()

WORDS = """the The THE HELLO hello Hello don't DON'T I'm we'll they've you'RE x's ' 's 'S 't 'll 'LL 're'd can't'll CamelCase snake_case iPhone McDONALD
1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0x1F ½ ٣٤٥ ²³ Ⅷ 一二三 漢字かな交じり文 カタカナ ひらがな 한국어 한 ㄱㄴ ㄅㄆ ภาษาไทย ລາວ ភាសា မြန်မာ हिन्दी বাংলা தமிழ்
العربية עברית Ελληνικά Русский язык Grüße Straße ÉCOLE école naïve e\u0301 a\u0300\u0301 ǅ ǆ ʰ ª ﬁ ſ İ ı K ＡＢＣ ａｂｃ １２３ 🚀 👩‍👩‍👧 🇫🇷 ❤️ € $ £ ¥ § ° ± × ÷ ≠ ∑ … “quoted” ‘single’ «guillemets»
— – - -- --- _ __ ( ) [ ] { } <tag> </tag> <|im_start|> <|endoftext|> <s> </s> <unk> [INST] <sentinel:12> IMGIMGABCZ IMGIMGABCDEZ // /* */ # ## ! !! ? ?! , . ; : @ & * ^ % ~ ` | \\ \\n = == => -> ++ += !=
if(x){return;} fn main() def f(x): $var ${x} http://example.com/a?b=c&d user@host.com 2024-01-02T03:04:05Z 、 。 ！ ， ： ； ？ （ ） 《 》 ، ۔ । ‥ ・ ･ ﾟ \u200b \u200d \ufeff \u0007 \u007f \u0085 \u00a0 \u3000 \u2003 \u2028 \u1680 \ufffd \U000e0041 \U0010ffff \u0378""".split(" ")
WORDS = [w for line in WORDS for w in line.split("\n")]
BLANKS = [" ", " ", " ", "  ", "   ", "    ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", " \n \n  ", "\t\t", "", "", "", "\u00a0", "\u3000", "\x0b", "\x0c", "\u2003 ", " " * 17, "\n" * 7, " /", "\n/"]
POOL = [(0x20, 0x7E), (0x20, 0x7E), (0, 0x1F), (0x80, 0x17F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0xDFF), (0xE00, 0xEFF), (0x1000, 0x11FF), (0x1C80, 0x1FFF),
        (0x2000, 0x206F), (0x2070, 0x2BFF), (0x2C00, 0x2FFF), (0x3000, 0x30FF), (0x3100, 0x33FF), (0x4E00, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7FF), (0xE000, 0xF8FF), (0xF900, 0xFFFF),
        (0x10000, 0x10FFF), (0x11000, 0x12000), (0x1D400, 0x1D7FF), (0x1F000, 0x1FAFF), (0x20000, 0x2FFFF), (0xE0000, 0xE01EF)]

def text(rng):
    kind, parts = rng.random(), []
    for _ in range(rng.choice([1, 2, 3, 5, 8, 13, 21, 34])):
        if kind < 0.55:
            parts += [rng.choice(WORDS), rng.choice(BLANKS)]
        elif kind < 0.8:
            a, b = rng.choice(POOL)
            parts += ["".join(chr(rng.randint(a, b)) for _ in range(rng.randint(1, 4)))]
        elif kind < 0.9:
            parts += [rng.choice("aA1 \n'.é漢\u0301") * rng.choice([1, 2, 3, 7, 30])]
        else:
            parts += [rng.choice(WORDS + BLANKS)]
    raw = "".join(parts).encode("utf8", "surrogatepass")
    if rng.random() < 0.05:  # bytes that are no UTF-8; beyond U+10FFFF llama.cpp throws
        raw = bytearray(raw)
        for _ in range(rng.randint(1, 3)):
            raw.insert(rng.randint(0, len(raw)), rng.choice([0x80, 0xBF, 0xC3, 0xE6, 0xFF, 0xFE, 0xF0]))
        raw = bytes(raw)
        if any(raw[i] in (0xF4, 0xF5, 0xF6, 0xF7) or raw[i] == 0xF0 for i in range(len(raw))):
            raw = raw.replace(b"\xf0", b"\xe6")
    return raw

class Peer:
    def __init__(self, path):
        params = L.llama_model_default_params(); params.vocab_only = True
        self.model = L.llama_model_load_from_file(path.encode(), params)
        if not self.model: raise SystemExit(f"llama.cpp cannot load {path}")
        self.vocab = L.llama_model_get_vocab(self.model)
    def ids(self, raw, special):
        buf = (L.llama_token * (4 * len(raw) + 16))()
        n = L.llama_tokenize(self.vocab, raw, len(raw), buf, len(buf), False, special)
        assert n >= 0, n
        return list(buf[:n])
    def close(self): L.llama_model_free(self.model)

def with_pre(path, pre, folder):
    data = open(path, "rb").read()
    key = b"tokenizer.ggml.pre" + struct.pack("<I", 8)
    at = data.index(key) + len(key)
    old = struct.unpack_from("<Q", data, at)[0]
    out = os.path.join(folder, f"{os.path.basename(path)}.{pre}")
    open(out, "wb").write(data[:at] + struct.pack("<Q", len(pre)) + pre.encode() + data[at + 8 + old:])
    return out

a = argparse.ArgumentParser(); a.add_argument("tool"); a.add_argument("vocab", nargs="+"); a.add_argument("-n", type=int, default=20000); a.add_argument("--seed", type=int, default=1)
a.add_argument("--pre", default=""); a.add_argument("--record"); o = a.parse_args()
pres = PRES if o.pre == "all" else [p for p in o.pre.split(",") if p]
total = bad = 0
record = open(o.record, "w", encoding="utf8") if o.record else None
with tempfile.TemporaryDirectory() as folder:
    runs = [(v, p) for v in o.vocab for p in pres or [None]]
    for path, pre in runs:
        model = with_pre(path, pre, folder) if pre else path
        peer = Peer(model)
        rng = random.Random(f"{o.seed} {path} {pre}")
        if record:
            rng = random.Random(o.seed)
            fixed = [t for t in (text(rng) for _ in range(400)) if len(t) < 80][:30]
            for raw in fixed:
                try: shown = raw.decode()
                except UnicodeDecodeError: continue
                record.write(json.dumps({"pre": pre, "text": shown, "ids": peer.ids(raw, False)}, ensure_ascii=False) + "\n")
            continue
        cases = [(text(rng), rng.random() < 0.5) for _ in range(o.n // len(runs))]
        lines = "".join(json.dumps({"hex": raw.hex(), "special": special}) + "\n" for raw, special in cases)
        done = subprocess.run([o.tool, model], input=lines, capture_output=True, text=True)
        if done.returncode: raise SystemExit(done.stderr)
        wrong = 0
        for (raw, special), line in zip(cases, done.stdout.splitlines(), strict=True):
            want, got = peer.ids(raw, special), json.loads(line)
            if want != got:
                wrong += 1
                if wrong <= 3: print(f"  {raw!r} special={special}\n    llama.cpp {want}\n    sipllm    {got}")
        total += len(cases); bad += wrong
        print(f"{os.path.basename(path)}{' as ' + pre if pre else ''}: {len(cases)} strings, {wrong} differences", flush=True)
        peer.close()
        if pre: os.remove(model)
if not record:
    print(f"{total} strings, {bad} differences")
    sys.exit(1 if bad else 0)
