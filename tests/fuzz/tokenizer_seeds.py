"""tokenizer_seeds.py DIR - small tokenizers for fuzz_tokenizer.c, which says what the first byte of each is."""

import base64
import json
import os
import struct
import sys

SHOWN = [*range(33, 127), *range(161, 173), *range(174, 256)]
TEXT = b"\x01The cat's the\xff \xc3\xa9 12345\n\n <|e|> th in the hat"
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
BERT = {"type": "BertNormalizer", "clean_text": True, "strip_accents": None, "lowercase": True}
WORDS = ["[UNK]", "[SEP]", "un", "##aff", "the", "##the", "cat", "'", "s", "\u4e2d"]


def vocab():
    other = iter(range(256, 400))
    ids = {chr(b) if b in SHOWN else chr(next(other)): b for b in range(256)}
    return {**ids, "th": 256, "the": 257, "\u0120the": 258}


def byte_level(pre, normalizer=None):
    return {
        "added_tokens": [{"id": 259, "content": "<|e|>", "special": True, "normalized": False, "lstrip": True}],
        "normalizer": normalizer,
        "pre_tokenizer": pre,
        "model": {"type": "BPE", "vocab": vocab(), "merges": ["t h", "th e", ["\u0120", "the"]]},
    }


def split(pattern):
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [step, {"type": "Digits", "individual_digits": True}, GPT2]}


def field(number, data):
    if isinstance(data, int):
        return bytes([number << 3, data])
    if isinstance(data, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", data)
    return bytes([number << 3 | 2, len(data)]) + data


def model(kind):
    pieces = [("<unk>", 2), ("<s>", 3), ("</s>", 3)]
    pieces += [(text, 1) for text in ("\u2581", "t", "h", "e", "th", "the", "\u2581the")]
    pieces += [(f"<0x{byte:02X}>", 6) for byte in range(256)]
    out = b""
    for number, (piece, type_) in enumerate(pieces):
        out += field(1, field(1, piece.encode()) + field(2, -float(number)) + field(3, type_))
    options = field(1, b"identity") + field(3, 1) + field(4, 0)
    return out + field(2, field(3, kind) + b"\x98\x02\x01") + field(3, options)


def characters(lacks=(), **changes):
    """A tokenizer.json of Llama 2."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256) if byte not in lacks)]
    pieces += ["\u2581", "t", "h", "e", "c", "a", "'", "th", "the", "\u2581the"]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    return {
        "added_tokens": [{"id": 2, "content": "</s>", "special": True, "normalized": False}],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace]},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                  "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": ["t h", "th e", "\u2581 the"]},
        **changes,
    }


def metaspace(**options):
    return {"type": "Metaspace", "replacement": "\u2581", **options}


def main():
    seeds = {
        "j-gpt2": json.dumps(byte_level(GPT2)).encode() + TEXT,
        "j-split": json.dumps(byte_level(split(r"\p{L}+|[\r\n]"), {"type": "NFC"})).encode() + TEXT,
        "j-bert": json.dumps({
            "normalizer": BERT, "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {word: i for i, word in enumerate(WORDS)}},
        }, ensure_ascii=False).encode() + TEXT,
        "v": json.dumps(vocab()).encode() + TEXT,
        "m": b"#version: 0.2\nt h\nth e\n" + TEXT,
        "w": "\n".join(WORDS).encode() + TEXT,
        "j-prepend": json.dumps(characters(), ensure_ascii=False).encode() + TEXT,
        "j-lacks": json.dumps(characters((0xC3, 0x0A)), ensure_ascii=False).encode() + TEXT,
        "j-first": json.dumps(characters(
            normalizer=None, pre_tokenizer=metaspace(prepend_scheme="first", split=False)), ensure_ascii=False).encode() + TEXT,
        "j-always": json.dumps(characters(normalizer=None, pre_tokenizer=metaspace()), ensure_ascii=False).encode() + TEXT,
        "j-digits": json.dumps(byte_level({"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Contiguous"}, GPT2]},
            {"type": "Sequence", "normalizers": []})).encode() + TEXT,
        "r": b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256)),
        "s-unigram": model(1),
        "s-bpe": model(2),
    }
    for name, data in seeds.items():
        with open(os.path.join(sys.argv[1], name), "wb") as file:
            file.write(name[:1].encode() + data)


main()
