#!/usr/bin/env python3
"""Writes src/tokenizer/pretokenize/unicode_table.rs: the general category (letter, number, mark, punctuation, symbol) of every code point.

Needs the tables of Unicode 15.1, the version that llama.cpp b11434 cuts text by: `pip install unicodedata2==15.1.0`, or Python 3.13.
Usage: gen_unicode_table.py > src/tokenizer/pretokenize/unicode_table.rs
"""
try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

assert unicodedata.unidata_version == "15.1.0", unicodedata.unidata_version
CLASSES = {"N": 1, "L": 2, "M": 3, "P": 4, "S": 5}
starts, last = [], None
for cp in range(0x110000):
    category = unicodedata.category(chr(cp))
    cls = CLASSES.get(category[0], 0)
    if cls != last:
        starts.append(cp << 3 | cls)
        last = cls
print("//! General categories of Unicode 15.1, written by tests/tools/gen_unicode_table.py.\n")
print("/// Where each run of code points of one class starts: `code point << 3 | class`, ascending; the classes are those of")
print("/// [`super::unicode::Class`].")
print("#[rustfmt::skip]")
print(f"pub(super) static RUNS: [u32; {len(starts)}] = [")
for i in range(0, len(starts), 12):
    print("    " + " ".join(f"{s:#x}," for s in starts[i:i + 12]))
print("];")
