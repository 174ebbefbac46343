"""peer_models.py - write tests/fixtures/llama: tiny Llama, Mistral and Qwen models, and what transformers computes.

  build/peers/venv5/bin/python3 tests/interop/peer_models.py DIR        all of it, into DIR, which must not exist
  build/peers/venv4/bin/python3 tests/interop/peer_models.py DIR NAME   one model, as transformers 4 saves it
  PYTHON tests/interop/peer_models.py exports [DTYPE MODEL EXPORT]...
      in either: each EXPORT, of the folder MODEL, loads, has its tensors rounded to DTYPE, and with those of MODEL
      itself gives the logits in its peer.safetensors to 1e-4

DIR/NAME is a folder as save_pretrained of transformers 5 writes it. Its weights are random, and so are those of norms
and the biases. Beside its files are

  v4/               config.json and generation_config.json as transformers 4 writes them for the same tensors
  peer.safetensors  what transformers 5 computes in fp32 (below)
  peer.json         numbers of it, and what wrong models would give

A batch has two samples of 128 tokens. The second continues the first, so that `ids` and the last target make a text of
257 tokens; 0 ends a document. Two variants of each model are computed: "causal" takes the 0 as any token; in
"documents" tokens see only their own document, positions start again in each, and nothing is to be predicted after a 0.

peer.safetensors has `ids` and `positions` (of the logits in a sample), and for each variant
  VARIANT.targets       [2, 128], -1 where nothing is to be predicted
  VARIANT.losses        [2, 128], the loss of each token, 0 where there is no target
  VARIANT.logits        [2, positions, vocab]
  VARIANT.grad.TENSOR   the gradient of the mean loss, flat: all elements if there are at most 256, else 256 of them,
                        those at i * 7919 modulo the tensor's size for i = 0 to 255
peer.json has
  class, transformers, torch, v4 (the release of transformers 4)
  VARIANT.loss          the mean over all targets
  VARIANT.grad_norm     of each tensor, the L2 norm of its whole gradient
  VARIANT.fp64          what fp32 is off from float64 (angles are in fp32 there too): relative L2 norms of the losses,
                        of the samples' sums of losses, of the logits, and of the elements of all gradients together
  VARIANT.bf16          what a model that is bf16 as a whole, in PyTorch, is off from fp32
  shapes                of each tensor
  controls              the causal model with one thing wrong, by name: its loss, and how far off it is, as in fp64.
                        "no-documents" is the causal model on the targets of the documents.
"""
import copy
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

if __name__ == "__main__":
    del sys.path[0]  # this file's own directory: transformers must not find the safetensors.py in it

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

TOP = os.path.realpath(__file__).rsplit("/tests/", 1)[0]
SAMPLES, SEQ, VOCAB = 2, 128, 96
ENDS = [19, 20, 76, 140, 200]  # where documents end in the text; 20 is a document of one token
POSITIONS = [0, 1, 21, 39, 40, 77, 101, 127]
ELEMENTS, STEP = 256, 7919

COMMON = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1,
          "eos_token_id": 0}
SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 32}

# NAME: class, fields of its config, and how it is saved. With theta 1e5 and 8 frequencies, llama3 scaling leaves the
# first as it is, blends the second and divides the others. 128 tokens are more than three windows of 40.
MODELS = {
    "llama": ("Llama", {"rope_theta": 1e5, "rms_norm_eps": 1e-5}, {}),
    "llama3": ("Llama", {"rope_theta": 1e5, "rope_scaling": SCALING, "head_dim": 16, "num_key_value_heads": 1,
                         "rms_norm_eps": 1e-5, "tie_word_embeddings": True}, {}),
    "mistral": ("Mistral", {"rope_theta": 1e6, "sliding_window": 40, "rms_norm_eps": 1e-5}, {}),
    "mistral-bf16": ("Mistral", {"rope_theta": 1e6, "sliding_window": None, "head_dim": 16, "num_key_value_heads": 1,
                                 "rms_norm_eps": 1e-5}, {"dtype": torch.bfloat16}),
    "qwen2": ("Qwen2", {"rope_theta": 1e6, "tie_word_embeddings": True}, {"max_shard_size": "64KB"}),
    "qwen2-window": ("Qwen2", {"rope_theta": 1e6, "use_sliding_window": True, "sliding_window": 40,
                               "max_window_layers": 0}, {"dtype": torch.float16}),
    "qwen3": ("Qwen3", {"rope_theta": 1e6, "head_dim": 16, "tie_word_embeddings": True}, {}),
    "qwen3-odd": ("Qwen3", {"rope_theta": 1e6, "hidden_size": 48, "num_attention_heads": 5, "num_key_value_heads": 1,
                            "head_dim": 8}, {}),
}


def build(name):
    kind, fields, saving = MODELS[name]
    model_class = getattr(transformers, kind + "ForCausalLM")
    model = model_class(model_class.config_class(**{**COMMON, **copy.deepcopy(fields)}))
    random = torch.Generator().manual_seed(1 + list(MODELS).index(name))
    with torch.no_grad():
        for tensor, p in model.named_parameters():
            value = torch.randn(p.shape, generator=random)
            if "norm" in tensor:
                value = 1 + 0.3 * value
            elif "embed" in tensor:
                value *= 0.2
            elif p.dim() == 1:
                value *= 0.3
            else:  # attention that looks at few tokens, so that a wrong position or window shows
                value *= (1.4 if "q_proj" in tensor or "k_proj" in tensor else 1.0) / p.shape[1] ** 0.5
            p.copy_(value)
    return model.to(saving.get("dtype", torch.float32)), saving.get("max_shard_size", "1GB")


def save(name, directory):
    model, size = build(name)
    model.save_pretrained(directory, max_shard_size=size)


def load(directory):
    """The model of a folder, in fp32. Transformers must find every tensor, and know every one that is there."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    wrong = {kind: names for kind, names in info.items() if names}
    assert not wrong, f"{directory}: from_pretrained complains: {wrong}"
    return model.train()  # there is no dropout


def batch():
    """ids, and by variant: targets, and the first position of each token's document."""
    random = torch.Generator().manual_seed(0)
    text = torch.randint(1, VOCAB, (SAMPLES * SEQ + 1,), generator=random)
    text[ENDS] = 0
    ids, targets = text[:-1].view(SAMPLES, SEQ), text[1:].view(SAMPLES, SEQ)
    after = torch.where(ids == 0, torch.arange(1, SEQ + 1), 0).cummax(1).values
    starts = torch.zeros_like(ids)
    starts[:, 1:] = after[:, :-1]
    return ids, {"causal": (targets, torch.zeros_like(ids)), "documents": (targets.masked_fill(ids == 0, -1), starts)}


def window_of(config):
    layers = getattr(config, "layer_types", None) or []
    assert len(set(layers)) < 2, "layers that differ"
    window = None if "full_attention" in layers else getattr(config, "sliding_window", None)
    return window or SEQ


def run(model, ids, targets, starts):
    """loss, [samples, seq] losses, logits and all gradients, with a mask and positions of our own."""
    at = torch.arange(SEQ)
    behind = at[:, None] - at
    seen = (behind >= 0) & (behind < window_of(model.config)) & (at >= starts[:, :, None])
    dtype = model.model.embed_tokens.weight.dtype
    mask = torch.zeros(SAMPLES, 1, SEQ, SEQ, dtype=dtype).masked_fill(~seen[:, None], torch.finfo(dtype).min)
    model.zero_grad()
    logits = model(ids, attention_mask=mask, position_ids=at - starts, use_cache=False).logits
    wide = logits.double() if dtype == torch.float64 else logits.float()
    losses = F.cross_entropy(wide.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="none")
    loss = losses.sum() / (targets >= 0).sum()
    loss.backward()
    return {"loss": loss.item(), "losses": losses.detach().view(SAMPLES, SEQ), "logits": logits.detach(),
            "grads": {name: p.grad.clone() for name, p in model.named_parameters()}}


def elements(gradient):
    flat = gradient.flatten()
    return flat if flat.numel() <= ELEMENTS else flat[torch.arange(ELEMENTS) * STEP % flat.numel()]


def off(result, truth):
    """Relative L2 norms of the differences."""
    both = [{"losses": r["losses"].double(), "samples": r["losses"].double().sum(1),
             "logits": r["logits"][:, POSITIONS].double(),
             "gradients": torch.cat([elements(g).double() for g in r["grads"].values()])} for r in (result, truth)]
    return {name: float(f"{((both[0][name] - t).norm() / t.norm()).item():.6g}") for name, t in both[1].items()}


def wrong_models(model):
    """(name, model): each with one thing wrong."""
    config, state = model.config, model.state_dict()

    def changed(change=lambda config: None, tensors={}):
        other = copy.deepcopy(config)
        change(other)
        other._attn_implementation = "eager"
        new = type(model)(other).train()
        new.load_state_dict({**state, **tensors})
        return new

    def rope(**fields):
        def change(other):
            other.rope_parameters = {**other.rope_parameters, **fields}
        return change

    def window(by):
        def change(other):
            other.sliding_window += by
        return change

    yield "theta-1e4", changed(rope(rope_theta=1e4))
    if config.rope_parameters["rope_type"] != "default":
        yield "no-scaling", changed(rope(rope_type="default"))
    if window_of(config) < SEQ:
        yield "window+1", changed(window(1))
        yield "window-1", changed(window(-1))
        yield "no-window", changed(window(SEQ))
    if config.num_key_value_heads > 1:
        heads = {name: t.view(config.num_key_value_heads, -1, *t.shape[1:]).roll(1, 0).reshape(t.shape)
                 for name, t in state.items() if "k_proj" in name or "v_proj" in name}
        yield "kv-groups-permuted", changed(tensors=heads)
    yield "norms-of-ones", changed(tensors={name: torch.ones_like(t) for name, t in state.items() if "norm" in name})
    yield "eps-times-10", changed(lambda c: setattr(c, "rms_norm_eps", 10 * c.rms_norm_eps))


def logits_of(directory):
    """By the mask and the positions that transformers makes from the config."""
    with torch.no_grad():
        return load(directory)(batch()[0], use_cache=False).logits[:, POSITIONS]


def compute(directory):
    """peer.json and peer.safetensors of a folder."""
    model, (ids, variants) = load(directory), batch()
    tensors = {"ids": ids.int(), "positions": torch.tensor(POSITIONS, dtype=torch.int32)}
    numbers = {"class": type(model).__name__, "transformers": transformers.__version__, "torch": torch.__version__,
               "shapes": {name: list(p.shape) for name, p in model.named_parameters()}}
    results = {}
    for variant, (targets, starts) in variants.items():
        result = results[variant] = run(model, ids, targets, starts)
        tensors[variant + ".targets"] = targets.int()
        tensors[variant + ".losses"] = result["losses"]
        tensors[variant + ".logits"] = result["logits"][:, POSITIONS]
        tensors.update({f"{variant}.grad.{name}": elements(g) for name, g in result["grads"].items()})
        assert all(g.abs().max() > 0 for g in result["grads"].values())
        numbers[variant] = {
            "loss": result["loss"],
            "grad_norm": {name: g.double().norm().item() for name, g in result["grads"].items()},
            "fp64": off(result, run(copy.deepcopy(model).double(), ids, targets, starts)),
            "bf16": off(run(copy.deepcopy(model).bfloat16(), ids, targets, starts), result)}
    assert torch.allclose(tensors["causal.logits"], logits_of(directory), rtol=1e-5, atol=1e-5), "the mask of ours"
    wrong = {name: (run(other, ids, *variants["causal"]), results["causal"]) for name, other in wrong_models(model)}
    no_documents = run(model, ids, variants["documents"][0], variants["causal"][1])
    wrong["no-documents"] = no_documents, results["documents"]
    numbers["controls"] = {name: {"loss": result["loss"], **off(result, truth)}
                           for name, (result, truth) in wrong.items()}
    save_file({name: t.contiguous() for name, t in tensors.items()}, directory + "/peer.safetensors")
    return numbers


def tensors_of(directory):
    return {name: t for file in glob.glob(directory + "/model*.safetensors") for name, t in load_file(file).items()}


def take_v4(name, directory):
    """v4/: the files that transformers 4 writes. Its tensors must be the same, and so must the logits of its folder."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([TOP + "/build/peers/venv4/bin/python3", __file__, scratch + "/v4", name], check=True)
        theirs, ours = tensors_of(scratch + "/v4"), tensors_of(directory)
        assert theirs.keys() == ours.keys() and all(torch.equal(ours[name], t) for name, t in theirs.items())
        assert torch.equal(logits_of(scratch + "/v4"), logits_of(directory))
        os.mkdir(directory + "/v4")
        for file in ("config.json", "generation_config.json"):
            shutil.copy(f"{scratch}/v4/{file}", f"{directory}/v4")
        with open(f"{scratch}/v4/logits.json") as file:
            release, theirs = json.load(file)
        assert torch.allclose(torch.tensor(theirs), logits_of(directory), rtol=1e-5, atol=1e-5)
        return release


def make(directory):
    os.makedirs(directory)
    for name in MODELS:
        path = f"{directory}/{name}"
        save(name, path)
        numbers = compute(path)
        numbers["v4"] = take_v4(name, path)
        with open(path + "/peer.json", "w") as file:
            json.dump(numbers, file, indent=1, sort_keys=True)
            file.write("\n")
        print(name, f"{numbers['causal']['loss']:.6f}", numbers["causal"]["fp64"], numbers["causal"]["bf16"])
        for control, values in numbers["controls"].items():
            print("   ", control, values)


def save_v4(directory, name):
    """The folder, and in logits.json what this transformers computes with it."""
    save(name, directory)
    with open(directory + "/logits.json", "w") as file:
        json.dump([transformers.__version__, logits_of(directory).tolist()], file)


def check_export(dtype, folder, export):
    """The greatest difference of a logit."""
    model, tensors, truth = load(export), tensors_of(folder), load_file(folder + "/peer.safetensors")
    with open(export + "/config.json") as file:
        written = json.load(file)
    assert dtype in (written.get("dtype"), written.get("torch_dtype")), written
    for name, p in model.named_parameters():
        assert torch.equal(p.data, tensors[name].to(getattr(torch, dtype)).float()), f"{export}: {name}"
        p.data = tensors[name].float()
    with torch.no_grad():
        logits = model(truth["ids"].long(), use_cache=False).logits[:, POSITIONS]
    return (logits - truth["causal.logits"]).abs().max().item()


def check_exports(*words):
    off = [check_export(*three) for three in zip(words[::3], words[1::3], words[2::3], strict=True)]
    print(f"transformers {transformers.__version__}: {len(off)} exports, logits {max(off):.1e} apart at most")
    assert max(off) <= 1e-4, off


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if sys.argv[1] == "exports":
        check_exports(*sys.argv[2:])
    elif len(sys.argv) == 3:
        save_v4(*sys.argv[1:])
    else:
        make(sys.argv[1])
