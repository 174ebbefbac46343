"""tokenize_peers.py - seconds to encode a text with tiktoken, tokenizers or sentencepiece, for bench/tokenize.

    tokenize_peers.py tiktoken|tokenizers|sentencepiece DIR FILE THREADS

DIR has encoder.json and vocab.bpe of GPT-2, tokenizer.json, or a tokenizer.model of Llama 3's ranks or of SentencePiece,
which is then encoded by one thread. The text is cut at line ends into pieces of the size at which each is fastest,
64 KiB, and 4 KiB for the others, which are encoded in batches of 64. Prints seconds and bytes; building the tokenizer and reading do
not count.
"""

import base64
import json
import os
import sys
import time

LLAMA3 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def cut(text, size):
    pieces, at = [], 0
    while at < len(text):
        stop = text.find("\n", at + size)
        stop = len(text) if stop < 0 else stop
        pieces.append(text[at:stop])
        at = stop
    return pieces


def read_gpt2(where):
    with open(os.path.join(where, "encoder.json"), encoding="utf-8") as source:
        vocab = json.load(source)
    with open(os.path.join(where, "vocab.bpe"), encoding="utf-8") as source:
        return vocab, [tuple(line.split()) for line in source.read().split("\n")[1:] if line]


def make_tiktoken(where, threads):
    import tiktoken

    model = os.path.join(where, "tokenizer.model")
    if os.path.exists(model):
        with open(model, "rb") as source:
            ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, source)}
        encoding = tiktoken.Encoding("llama3", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
        return lambda pieces: [encoding.encode_ordinary(piece) for piece in pieces]
    vocab = read_gpt2(where)[0]
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(b): b for b in shown}
    alphabet.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in shown)})
    ranks = {bytes(alphabet[c] for c in t): i for t, i in vocab.items() if t != "<|endoftext|>"}
    encoding = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|end|>": 50256})
    if threads == 1:
        return lambda pieces: [encoding.encode_ordinary(piece) for piece in pieces]
    return lambda pieces: encoding.encode_ordinary_batch(pieces, num_threads=threads)


def make_tokenizers(where):
    from tokenizers import Tokenizer, models, pre_tokenizers

    file = os.path.join(where, "tokenizer.json")
    if os.path.exists(file):
        model = Tokenizer.from_file(file)
    else:
        model = Tokenizer(models.BPE(*read_gpt2(where)))
        model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast = getattr(model, "encode_batch_fast", model.encode_batch)
    return lambda pieces: fast(pieces, add_special_tokens=False)


def make_sentencepiece(where):
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(where, "tokenizer.model"))
    return lambda pieces: [model.encode(piece) for piece in pieces]


def main():
    peer, where, file, threads = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    with open(file, encoding="utf-8", errors="replace", newline="") as source:
        text = source.read()
    if peer == "tiktoken":
        encode = make_tiktoken(where, threads)
    else:
        encode = make_tokenizers(where) if peer == "tokenizers" else make_sentencepiece(where)
    begin = time.perf_counter()
    pieces = cut(text, 65536 if peer == "tiktoken" else 4096)
    for first in range(0, len(pieces), 64):
        encode(pieces[first : first + 64])
    print(f"{time.perf_counter() - begin:.6f} {len(text.encode())}")


main()
