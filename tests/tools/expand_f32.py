#!/usr/bin/env python3
"""Expands every tensor of a GGUF file to F32, so that llama.cpp computes with it exactly.

Usage: expand_f32.py MODEL.gguf OUT.gguf        (needs the `gguf` package)

Metadata is copied byte for byte; only the directory and the data are new.
"""
import struct, sys
import numpy as np
from gguf import GGUFReader, GGMLQuantizationType, quants

source, out = sys.argv[1:]
reader = GGUFReader(source)
raw = open(source, "rb").read(reader.data_offset)
# The directory begins where the first tensor's entry does.
start = min(tensor.field.offset for tensor in reader.tensors)
header = raw[:start]
directory, offset, align = b"", 0, int(reader.alignment)
for tensor in reader.tensors:
    name, shape = tensor.name.encode(), [int(n) for n in tensor.shape]
    directory += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
    directory += struct.pack("<IQ", int(GGMLQuantizationType.F32), offset)
    offset += -(-int(np.prod(shape)) * 4 // align) * align
with open(out, "wb") as file:
    file.write(header + directory)
    file.write(b"\0" * (-file.tell() % align))
    for tensor in reader.tensors:
        values = np.ascontiguousarray(quants.dequantize(tensor.data, tensor.tensor_type), "<f4")
        file.write(values.tobytes())
        file.write(b"\0" * (-values.nbytes % align))
