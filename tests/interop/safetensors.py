#!/usr/bin/env python3
"""Print the tensors of .safetensors files: name, dtype, shape and CRC-32 of the data, in the order of the data.

Reads with the `safetensors` package where it is installed, else with a strict parser of our own that shares nothing
with muster's. Either way a file that breaks the format ends the program with a line that says why, and status 65.
"""
import json
import struct
import sys
import zlib

del sys.path[0]  # this file's own directory: "import safetensors" must not find this file

SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4,
         "F32": 4, "F64": 8, "I64": 8, "U64": 8}


def no_duplicates(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError("duplicate keys")
    return dict(pairs)


def parse(data):
    """[(begin, end, name, dtype, shape)], and where the data starts."""
    if len(data) < 8:
        raise ValueError("shorter than 8 bytes")
    (length,) = struct.unpack("<Q", data[:8])
    if length > 100_000_000 or 8 + length > len(data):
        raise ValueError("header too long")
    text = data[8:8 + length].decode("utf-8")
    if not text.startswith("{") or not text.rstrip(" ").endswith("}"):
        raise ValueError("header is not one object padded with spaces")
    header = json.loads(text, object_pairs_hook=no_duplicates)
    if any(type(v) is not str for v in header.pop("__metadata__", {}).values()):
        raise ValueError("__metadata__ must map strings to strings")
    entries, at = [], 0
    for name, entry in header.items():
        if set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"{name}: wrong keys")
        entries.append((*entry["data_offsets"], name, entry["dtype"], entry["shape"]))
    for begin, end, name, dtype, shape in sorted(entries):
        size = SIZES[dtype]
        for extent in shape:
            size *= extent
        if begin != at or end - begin != size:
            raise ValueError(f"{name}: hole, overlap or wrong size")
        at = end
    if 8 + length + at != len(data):
        raise ValueError("the file does not end with its last tensor")
    return sorted(entries), 8 + length


def main(paths):
    try:
        from safetensors import safe_open
        print("reader: the safetensors package")
    except ImportError:
        safe_open = None
        print("reader: our own parser")
    for path in paths:
        with open(path, "rb") as file:
            data = file.read()
        try:
            if safe_open:
                with safe_open(path, framework="np") as reader:
                    shapes = {name: reader.get_slice(name).get_shape() for name in reader.keys()}
            entries, start = parse(data)
            if safe_open and shapes != {name: shape for _, _, name, _, shape in entries}:
                raise ValueError("the safetensors package sees other tensors")
        except Exception as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 65
        for begin, end, name, dtype, shape in entries:
            print(f"{name} {dtype} {json.dumps(shape)} {zlib.crc32(data[start + begin:start + end]):08x}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
