#!/usr/bin/env python3
"""Packs the vocabulary of a GGUF file into a small zip that tests/support/vocab.rs makes a GGUF file of again.

Usage: pack_vocab.py MODEL.gguf OUT.zip        (needs the `gguf` package)

Entries: `metadata.json`, a list of [key, type, value] for what is no array; `tokens`, each a length (one byte, or 255 and two bytes, little
endian) and its bytes; `types`, one byte a token; `scores`, f32 little endian; and, as every merge makes a token, `merge_tokens`, how far the
token that a merge makes is from that of the merge before (i16 little endian), with `merge_lefts`, the length in bytes of the merge's left side.
"""
import json, struct, sys, zipfile
from gguf import GGUFReader, GGUFValueType as T

source, out = sys.argv[1:]
fields = GGUFReader(source).fields
strings = lambda key: [bytes(fields[key].parts[i]) for i in fields[key].data]
metadata = []
for key, field in fields.items():
    if field.types[0] == T.ARRAY or not key.startswith(("general.", "tokenizer.")):
        continue
    if key.startswith("general.") and key not in ("general.architecture", "general.name"):
        continue
    metadata.append([key, field.types[0].name.lower(), field.contents()])
tokens = strings("tokenizer.ggml.tokens")
entries = {"metadata.json": json.dumps(metadata, ensure_ascii=False).encode()}
entries["tokens"] = b"".join((bytes([len(t)]) if len(t) < 255 else b"\xff" + struct.pack("<H", len(t))) + t for t in tokens)
if "tokenizer.ggml.token_type" in fields:
    entries["types"] = bytes(int(fields["tokenizer.ggml.token_type"].parts[i][0]) for i in fields["tokenizer.ggml.token_type"].data)
if "tokenizer.ggml.scores" in fields:
    entries["scores"] = b"".join(struct.pack("<f", fields["tokenizer.ggml.scores"].parts[i][0]) for i in fields["tokenizer.ggml.scores"].data)
if "tokenizer.ggml.merges" in fields:
    ids = {t: i for i, t in enumerate(tokens)}
    steps, lefts, last = bytearray(), bytearray(), 0
    for merge in strings("tokenizer.ggml.merges"):
        cut = merge.index(b" ", 1)
        token = ids[merge[:cut] + merge[cut + 1:]]
        steps += struct.pack("<h", token - last)
        lefts.append(cut)
        last = token
    entries["merge_tokens"], entries["merge_lefts"] = bytes(steps), bytes(lefts)
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for name, data in entries.items():
        archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED, 9)
