#!/usr/bin/env python3
"""Data sets of tokens, read and written as Megatron-LM lays them out, by code that shares nothing with muster's.

    indexed.py sentences PREFIX TEXT...   PREFIX is of these texts, a byte a token and a sentence a sequence
    indexed.py documents PREFIX TEXT...   the same with a document a sequence
    indexed.py write PREFIX CODE TEXT...  write such a data set of sentences, with tokens of this type (1, 4 or 8)
"""
import re
import struct
import sys

TYPES = {1: "B", 4: "i", 8: "H"}

# The rule of muster-data(1), as one expression: white space, text, and then a stop and white space, or a blank line.
SENTENCE = re.compile(rb"""\s*(?=\S).*?(?:[.!?][.!?"')\]]*\s+|\n[ \t\r\f\v]*\n\s*|\Z)""", re.DOTALL)


def read(prefix):
    """Documents, each a list of sequences, each bytes."""
    with open(prefix + ".idx", "rb") as file:
        index = file.read()
    with open(prefix + ".bin", "rb") as file:
        tokens = file.read()
    assert index[:9] == b"MMIDIDX\0\0", index[:9]
    version, code, count, boundaries = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1 and code == 1, (version, code)
    lengths = struct.unpack_from("<%di" % count, index, 34)
    begins = struct.unpack_from("<%dq" % count, index, 34 + 4 * count)
    documents = struct.unpack_from("<%dq" % boundaries, index, 34 + 12 * count)
    assert len(index) == 34 + 12 * count + 8 * boundaries, len(index)
    assert documents[0] == 0 and documents[-1] == count, documents
    assert sum(lengths) == len(tokens), (sum(lengths), len(tokens))
    sequences = [tokens[begin : begin + length] for begin, length in zip(begins, lengths)]
    return [sequences[first:last] for first, last in zip(documents, documents[1:])]


def write(prefix, code, documents):
    letter = TYPES[code]
    lengths, begins, boundaries, position = [], [], [0], 0
    with open(prefix + ".bin", "wb") as file:
        for document in documents:
            for sequence in document:
                file.write(struct.pack("<%d%s" % (len(sequence), letter), *sequence))
                lengths.append(len(sequence))
                begins.append(position)
                position += len(sequence) * struct.calcsize("<" + letter)
            boundaries.append(len(lengths))
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(boundaries)))
        file.write(struct.pack("<%di" % len(lengths), *lengths))
        file.write(struct.pack("<%dq" % len(begins), *begins))
        file.write(struct.pack("<%dq" % len(boundaries), *boundaries))


def main(what, prefix, *rest):
    code = int(rest[0]) if what == "write" else 1
    texts = []
    for path in rest[1:] if what == "write" else rest:
        with open(path, "rb") as file:
            texts.append(file.read())
    wanted = [[text] if what == "documents" else SENTENCE.findall(text) for text in texts]
    assert all(b"".join(sentences) == text for sentences, text in zip(wanted, texts))
    if what == "write":
        write(prefix, code, wanted)
    elif read(prefix) != wanted:
        sys.exit("indexed.py: %s does not hold the %s of these texts" % (prefix, what))
    print("%d tokens, %d sentences, %d documents" % (sum(map(len, texts)), sum(map(len, wanted)), len(texts)))


if __name__ == "__main__":
    main(*sys.argv[1:])
