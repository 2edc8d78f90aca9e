#!/usr/bin/env python3
"""Renders every template of tests/data/templates, and each line of its features.txt, as transformers would, for the Rust tests to compare with.

Usage: render_templates.py        (needs jinja2; writes tests/data/templates/expected.zip)

The settings are those of transformers' `_compile_jinja_template`: an immutable sandbox, trim_blocks, lstrip_blocks, loop controls, the
`generation` tag, `tojson` without HTML escapes, `raise_exception`, and `strftime_now`, here at a fixed time.
"""
import datetime, json, pathlib, zipfile
import jinja2, jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).parent.parent / "data" / "templates"
NOW = datetime.datetime(2025, 7, 4, 9, 30, 5)

class Generation(jinja2.ext.Extension):
    tags = {"generation"}
    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_within"), [], [], body).set_lineno(line)
    def _within(self, caller): return caller()

def raise_exception(message): raise jinja2.exceptions.TemplateError(message)
def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = NOW.strftime

S, U, A = (lambda text, role=role: {"role": role, "content": text} for role in ("system", "user", "assistant"))
CONVERSATIONS = [
    [U("What is the capital of France?")],
    [S("You are terse."), U("What is the capital of France?")],
    [U("Hi"), A("Hello! How can I help?"), U("Tell me a joke.\nA short one.")],
    [S("Speak like a pirate."), U("Hi"), A("Arr."), U("Who?"), A("  Me.  "), U("Bye")],
    [U("Sum 1 and 2"), A("<think>\nOne and two.\n</think>\n\nThree."), U("Sure?"), A("<think>Yes.</think>Yes."), U("Thanks")],
    [U("  spaces around, ünïcödé 漢字 🚀, \"quotes\" & <tags>, {{ x }} {% y %}, \\n and \\ \n\n```c\nint x = 'a';\n```\n ")],
    [S(""), U("An empty system message.")],
    [S("/no_think"), U("Think not. /no_think"), A(""), U("An empty answer.")],
    [S("One."), U("First"), U("Second")],
    [A("I begin."), U("And I follow.")],
    [U("Complete"), A("this sentence")],
]
EFFORTS = ["low", "medium", "high"]
TOKENS = {  # bos, eos
    "meta-llama-Llama-2": ("<s>", "</s>"), "meta-llama": ("<|begin_of_text|>", "<|eot_id|>"), "NousResearch": ("<|begin_of_text|>", "<|im_end|>"),
    "Qwen": ("", "<|im_end|>"), "google": ("<bos>", "<eos>"), "mistralai": ("<s>", "</s>"), "unsloth-mistral": ("<s>", "</s>"), "microsoft-Phi-3": ("<s>", "<|endoftext|>"),
    "deepseek": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"), "openai": ("<|startoftext|>", "<|return|>"), "TinyLlama": ("<s>", "</s>"),
    "LFM2": ("<|startoftext|>", "<|im_end|>"), "ibm": ("<|end_of_text|>", "<|end_of_text|>"),
}

def with_thoughts(source, messages):
    """gpt-oss's template takes what was thought as a field of the message."""
    if "<|channel|>" not in source: return messages
    def split(message):
        thought, closed, answer = message["content"].strip().removeprefix("<think>").partition("</think>")
        if message["role"] != "assistant" or not closed: return message
        return message | {"content": answer.lstrip(), "thinking": thought.strip()}
    return [split(message) for message in messages]

def render(template, tokens, messages, prompt, thinking):
    variables = dict(messages=messages, add_generation_prompt=prompt, bos_token=tokens[0], eos_token=tokens[1], tools=None, documents=None)
    if thinking is not None: variables |= dict(enable_thinking=thinking != "off", thinking=thinking != "off")
    if thinking in EFFORTS: variables["reasoning_effort"] = thinking
    try: return {"text": template.render(**variables)}
    except jinja2.exceptions.TemplateError as error: return {"refused": str(error)}
    except (TypeError, AttributeError, KeyError, ValueError) as error: return {"failed": f"{type(error).__name__}: {error}"}

lines = []
for path in sorted(FOLDER.glob("*.jinja")):
    source = path.read_text(encoding="utf8")
    template = environment.from_string(source)
    tokens = next((t for name, t in TOKENS.items() if path.name.startswith(name)), ("<s>", "</s>"))
    for messages in CONVERSATIONS:
        seen = []
        for prompt, thinking in [(True, None), (False, None), *((True, how) for how in ("on", "off", *EFFORTS))]:
            result = render(template, tokens, with_thoughts(source, messages), prompt, thinking)
            if thinking is not None and result == seen[0]: continue
            seen.append(result)
            lines.append(dict(template=path.stem, bos=tokens[0], eos=tokens[1], messages=messages, prompt=prompt, thinking=thinking) | result)
# What else templates are written with, a line each, after what the user says.
features = []
for source in (FOLDER / "features.txt").read_text(encoding="utf8").splitlines():
    messages = [U("hello world"), A("  hi "), U("bye")]
    result = render(environment.from_string("{{ messages[0].content }}|" + source), ("<s>", "</s>"), messages, True, None)
    features.append(dict(source=source) | result)
with zipfile.ZipFile(FOLDER / "expected.zip", "w") as archive:
    for name, entries in ("expected.jsonl", lines), ("features.jsonl", features):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in entries)
        archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED, 9)
kinds = [next(k for k in ("text", "refused", "failed") if k in line) for line in lines]
print(f"{len(lines)} renderings of {len({line['template'] for line in lines})} templates:", {k: kinds.count(k) for k in set(kinds)})
for line in lines:
    if "failed" in line: print(" ", line["template"], line["failed"][:100])
