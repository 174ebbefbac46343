"""hf.py - Hugging Face's GPT-2 beside ours.

  hf.py make DIR SHARD_SIZE DTYPE LAYERS HIDDEN HEADS SEQ VOCAB   a model of random weights, saved as safetensors
  hf.py compare DIR TOKENS LOGITS TOLERANCE                       its logits against raw fp32 that logits.c wrote

TOKENS are int32, as many samples of n_positions as there are. Exits 1 when the largest difference of any logit is more
than TOLERANCE, and says how large the logits are: zeros would agree with anything.
"""
import sys

del sys.path[0]  # this file's own directory: transformers must not find the safetensors.py in it

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def make(directory, shard_size, dtype, *sizes):
    layers, hidden, heads, seq, vocab = map(int, sizes)
    torch.manual_seed(7)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=vocab, n_positions=seq, n_embd=hidden, n_layer=layers, n_head=heads,
                                       initializer_range=0.1))
    with torch.no_grad():
        for parameter in model.parameters():  # biases begin as 0 and norms as 1: one that got lost would not show
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    model.to(getattr(torch, dtype)).save_pretrained(directory, max_shard_size=shard_size, safe_serialization=True)


def compare(directory, tokens, logits, tolerance):
    model, info = GPT2LMHeadModel.from_pretrained(directory, torch_dtype=torch.float32, output_loading_info=True)
    wrong = {kind: names for kind, names in info.items() if names}
    assert not wrong, f"from_pretrained complains: {wrong}"
    samples = np.fromfile(tokens, "<i4").reshape(-1, model.config.n_positions)
    ours = np.fromfile(logits, "<f4").reshape(*samples.shape, model.config.vocab_size)
    with torch.no_grad():
        theirs = model.eval()(torch.from_numpy(samples.astype(np.int64))).logits.numpy()
    off = np.abs(ours - theirs).max()
    print(f"{len(samples)} samples, logits of {theirs.min():.2f} to {theirs.max():.2f}, {off:.1e} apart at most")
    assert len(samples) > 0 and np.isfinite(off) and theirs.std() > 0.1
    return 0 if off <= float(tolerance) else 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit({"make": make, "compare": compare}[sys.argv[1]](*sys.argv[2:]))
