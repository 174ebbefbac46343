"""hf_variants.py - Hugging Face folders of many forms: muster-ckpt import gives transformers' logits, or refuses.

  hf_variants.py LOGITS GPT_JOB BERT_JOB

Every row of the tables below changes a folder that transformers saved. A row of EQUAL must be imported, and its logits
(by LOGITS, the program of logits.c) be those of transformers on the same folder, to 1e-4. A row of REFUSED must be
refused with one line that has the given words, and leave nothing behind. Works in the current directory; prints a line
for each row that failed.
"""
import copy
import json
import os
import shutil
import subprocess
import sys

here = sys.path.pop(0)  # of this file: transformers must not find the safetensors.py in it
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

sys.path.insert(0, here)
import hf

LAYERS, HIDDEN, HEADS, SEQ, VOCAB = 2, 16, 2, 16, 301


class Folder:
    """A model as transformers saved it, to be changed and written."""

    def __init__(self, model):
        self.config = json.loads(model.config.to_json_string(use_diff=False))
        self.config.pop("_name_or_path")
        twins = "lm_head.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
        self.tensors = {name: tensor.clone() for name, tensor in model.state_dict().items() if name not in twins}
        self.metadata = {"format": "pt"}
        self.files = 1
        self.after = None  # called with the folder's path when all is written

    def text(self):
        return json.dumps(self.config)

    def write(self, path):
        os.makedirs(path)
        names = list(self.tensors)
        index = {}
        for file in range(self.files):
            name = "model.safetensors" if self.files == 1 else f"model-{file + 1:05}-of-{self.files:05}.safetensors"
            part = names[len(names) * file // self.files:len(names) * (file + 1) // self.files]
            index.update({tensor: name for tensor in part})
            save_file({tensor: self.tensors[tensor].contiguous() for tensor in part}, f"{path}/{name}", self.metadata)
        if self.files > 1:
            with open(f"{path}/model.safetensors.index.json", "w") as out:
                json.dump({"metadata": {"total_size": 1}, "weight_map": index}, out)
        with open(f"{path}/config.json", "w") as out:
            out.write(self.text())
        if self.after:
            self.after(path)


# ---- changes: each returns a function of a folder -------------------------------------------------------------------


def config(**keys):
    return lambda f: f.config.update(keys)


def without(*keys):
    return lambda f: [f.config.pop(key) for key in keys]


def renamed(change):
    """The names of all tensors through a function; None leaves one out."""
    def rename(f):
        f.tensors = {change(name): tensor for name, tensor in f.tensors.items() if change(name)}
    return rename


def dtypes(*types):
    """The tensors' types, in turn."""
    def cast(f):
        f.tensors = {name: tensor.to(types[i % len(types)]) for i, (name, tensor) in enumerate(f.tensors.items())}
    return cast


def tensor(name, change):
    """The tensor, from a function of all tensors."""
    return lambda f: f.tensors.update({name: change(f.tensors).clone()})


def masks(dtype):
    def add(f):
        for layer in range(LAYERS):
            f.tensors[f"transformer.h.{layer}.attn.bias"] = torch.ones(SEQ, SEQ).tril().view(1, 1, SEQ, SEQ).to(dtype)
            f.tensors[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    return add


def fields(**keys):
    """Fields of the Folder itself."""
    return lambda f: f.__dict__.update(keys)


def both(*changes):
    return lambda f: [change(f) for change in changes]


def written(text):
    """config.json as the function makes it of the right text."""
    def replace(f):
        right = f.text()
        f.text = lambda: text(right)
    return replace


def shell(command):
    return fields(after=lambda path: subprocess.run(command, shell=True, cwd=path, check=True))


def double(path):
    """A second shard with a tensor that the first has."""
    shutil.copy(f"{path}/model-00001-of-00002.safetensors", f"{path}/twice.safetensors")
    with open(f"{path}/model.safetensors.index.json") as file:
        index = json.load(file)
    index["weight_map"]["other"] = "twice.safetensors"
    with open(f"{path}/model.safetensors.index.json", "w") as file:
        json.dump(index, file)


def aliases(f):
    for key, alias in (("n_embd", "hidden_size"), ("n_layer", "num_hidden_layers"), ("n_head", "num_attention_heads"),
                       ("n_positions", "max_position_embeddings")):
        f.config[alias] = f.config.pop(key)


def narrower(f):
    """48 of the 64 columns of each MLP."""
    for layer in range(LAYERS):
        name = f"transformer.h.{layer}.mlp."
        for part in "c_fc.weight", "c_fc.bias":
            f.tensors[name + part] = f.tensors[name + part][..., :48]
        f.tensors[name + "c_proj.weight"] = f.tensors[name + "c_proj.weight"][:48]


WTE, FC = "transformer.wte.weight", "transformer.h.1.mlp.c_fc.weight"
BERT_WTE = "bert.embeddings.word_embeddings.weight"
QUANTIZED = {"load_in_8bit": True, "quant_method": "bitsandbytes"}

# kind, name, change
EQUAL = [
    ("gpt", "as it is", both()),
    ("gpt", "several files", fields(files=3)),
    ("gpt", "without the prefix", renamed(lambda name: name.removeprefix("transformer."))),
    ("gpt", "GPT2Model's names and class", both(renamed(lambda name: name.removeprefix("transformer.")),
                                                config(architectures=["GPT2Model"]))),
    ("gpt", "a copy of wte as the head", tensor("lm_head.weight", lambda t: t[WTE])),
    ("gpt", "a head in another file", both(tensor("lm_head.weight", lambda t: t[WTE]), fields(files=2))),
    ("gpt", "fp16", dtypes(torch.float16)),
    ("gpt", "bf16", dtypes(torch.bfloat16)),
    ("gpt", "three types", dtypes(torch.float32, torch.float16, torch.bfloat16)),
    ("gpt", "fp16 and a head", both(dtypes(torch.float16), tensor("lm_head.weight", lambda t: t[WTE]))),
    ("gpt", "masks", masks(torch.float32)),
    ("gpt", "masks of bytes", masks(torch.uint8)),
    ("gpt", "masks of booleans, several files", both(masks(torch.bool), fields(files=4))),
    ("gpt", "metadata with more keys", fields(metadata={"format": "pt", "step": "12"})),
    ("gpt", "tensors in another order", lambda f: fields(tensors=dict(reversed(f.tensors.items())))(f)),
    ("gpt", "n_inner is 4 x n_embd", config(n_inner=4 * HIDDEN)),
    ("gpt", "n_inner missing", without("n_inner")),
    ("gpt", "gelu_pytorch_tanh", config(activation_function="gelu_pytorch_tanh")),
    ("gpt", "gelu_fast", config(activation_function="gelu_fast")),
    ("gpt", "no activation", without("activation_function")),
    ("gpt", "no epsilon", without("layer_norm_epsilon")),
    ("gpt", "another epsilon", config(layer_norm_epsilon=1e-3)),
    ("gpt", "narrower MLPs", both(config(n_inner=48), narrower)),
    ("gpt", "epsilon in digits", written(lambda text: text.replace("1e-05", "0.000010"))),
    ("gpt", "another number of heads", config(n_head=4)),
    ("gpt", "one head", config(n_head=1)),
    ("gpt", "attention upcast", config(reorder_and_upcast_attn=True)),
    ("gpt", "numbers for booleans", config(scale_attn_weights=1, scale_attn_by_inverse_layer_idx=0,
                                           add_cross_attention=0, tie_word_embeddings=1)),
    ("gpt", "null for false", config(scale_attn_by_inverse_layer_idx=None)),
    ("gpt", "flags missing", without("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "tie_word_embeddings")),
    ("gpt", "dropout", config(resid_pdrop=0.5, embd_pdrop=0.25, attn_pdrop=0.9)),
    ("gpt", "the general names of sizes", aliases),
    ("gpt", "both names of a size", config(hidden_size=HIDDEN, num_attention_heads=HEADS)),
    ("gpt", "dtype, as later transformers have it", both(without("torch_dtype"), config(dtype="float32"))),
    ("gpt", "torch_dtype of other tensors", config(torch_dtype="bfloat16")),
    ("gpt", "no class", without("architectures")),
    ("gpt", "no pruned heads", config(pruned_heads={})),
    ("gpt", "unknown keys", config(n_ctx=999, task_specific_params={"text-generation": {"do_sample": True}},
                                   use_cache=False, gradient_checkpointing=True)),
    ("gpt", "unknown keys of any value", config(n_ctx=10**30, a=float("nan"), b=float("-inf"), c="\ud800")),
    ("gpt", "a key twice", written(lambda text: '{"n_head": 4, ' + text[1:])),
    ("gpt", "a stale index beside the file", shell("echo '{\"weight_map\": {\"a\": \"b\"}}' "
                                                   ">model.safetensors.index.json")),
    ("gpt", "a pickle beside the file", shell("echo >pytorch_model.bin")),
    ("gpt", "links, as in the cache", shell("for f in *; do mv $f .$f; ln -s .$f $f; done")),
    ("bert", "as it is", both()),
    ("bert", "several files", fields(files=5)),
    ("bert", "fp16", dtypes(torch.float16)),
    ("bert", "three types", dtypes(torch.bfloat16, torch.float32, torch.float16)),
    ("bert", "copies of the ties", both(tensor("cls.predictions.decoder.weight", lambda t: t[BERT_WTE]),
                                        tensor("cls.predictions.decoder.bias", lambda t: t["cls.predictions.bias"]))),
    ("bert", "gelu_pytorch_tanh", config(hidden_act="gelu_pytorch_tanh")),
    ("bert", "another epsilon", config(layer_norm_eps=1e-2)),
    ("bert", "no epsilon, which means 1e-12", without("layer_norm_eps")),
    ("bert", "four heads", config(num_attention_heads=4)),
    ("bert", "dropout", config(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0)),
    ("bert", "absent keys with the right defaults", without("position_embedding_type", "type_vocab_size", "is_decoder",
                                                            "tie_word_embeddings", "architectures")),
    ("bert", "no number of heads, which means 16", without("num_attention_heads")),
    ("bert", "no token for padding", config(pad_token_id=None)),
]

# The same, where transformers does not load the folder: the logits are those of the unchanged one.
EQUAL_TO_SAVED = [
    ("gpt", "metadata without a format", fields(metadata={"step": "12"})),
    ("gpt", "no metadata", fields(metadata=None)),
    ("gpt", "no model_type", without("model_type")),
    ("gpt", "no quantization", config(quantization_config=None)),
    ("bert", "position_ids", tensor("bert.embeddings.position_ids", lambda t: torch.arange(SEQ).view(1, -1))),
]

# kind, name, change, and what the line has
REFUSED = [
    ("gpt", "gelu", config(activation_function="gelu"), 'activation_function is "gelu", must be "gelu_new"'),
    ("gpt", "relu", config(activation_function="relu"), 'activation_function is "relu"'),
    ("gpt", "quick_gelu", config(activation_function="quick_gelu"), 'activation_function is "quick_gelu"'),
    ("gpt", "no name of an activation", config(activation_function=None), 'activation_function is ""'),
    ("gpt", "epsilon of 0", config(layer_norm_epsilon=0), "layer_norm_epsilon must be a number of more than 0"),
    ("gpt", "epsilon as text", config(layer_norm_epsilon="1e-5"), "layer_norm_epsilon must be a number"),
    ("gpt", "epsilon null", config(layer_norm_epsilon=None), "layer_norm_epsilon must be a number"),
    ("gpt", "n_inner", config(n_inner=48), 'h.0.mlp.c_fc.weight" is [16, 64], must be [16, 48]'),
    ("gpt", "odd n_inner", config(n_inner=63), 'h.0.mlp.c_fc.weight" is [16, 64], must be [16, 63]'),
    ("gpt", "n_inner of 0", config(n_inner=0), "n_inner must be an integer of at least 1"),
    ("gpt", "a narrower MLP", both(tensor(FC, lambda t: t[FC][:, :48]),
                                   tensor("transformer.h.1.mlp.c_fc.bias", lambda t: torch.ones(48))),
     "is [16, 48], must be [16, 64]"),
    ("gpt", "attention without a scale", config(scale_attn_weights=False), "scale_attn_weights must be true"),
    ("gpt", "text for a boolean", config(scale_attn_weights="true"), "scale_attn_weights must be true"),
    ("gpt", "attention scaled by layer", config(scale_attn_by_inverse_layer_idx=True), "_layer_idx must be false"),
    ("gpt", "cross attention", config(add_cross_attention=True), "add_cross_attention must be false"),
    ("gpt", "cross attention by number", config(add_cross_attention=1.5), "add_cross_attention must be false"),
    ("gpt", "not tied", config(tie_word_embeddings=False), "tie_word_embeddings must be true"),
    ("gpt", "not tied, with a head", both(config(tie_word_embeddings=False),
                                          tensor("lm_head.weight", lambda t: t[WTE] + 1)), "must be true"),
    ("gpt", "another head", tensor("lm_head.weight", lambda t: t[WTE] + 1), "lm_head.weight differs from wte.weight"),
    ("gpt", "a longer head", tensor("lm_head.weight", lambda t: torch.ones(VOCAB + 3, HIDDEN)), "has another shape"),
    ("gpt", "only the head", lambda f: f.tensors.update({"lm_head.weight": f.tensors.pop(WTE)}),
     'tensor "wte.weight" is missing'),
    ("gpt", "a tensor less", lambda f: f.tensors.pop(FC), 'tensor "h.1.mlp.c_fc.weight" is missing'),
    ("gpt", "a tensor more", tensor("score.weight", lambda t: torch.ones(2, HIDDEN)),
     'tensor "score.weight" is not one of a GPT2LMHeadModel'),
    ("gpt", "a layer more", tensor("transformer.h.2.ln_1.weight", lambda t: torch.ones(HIDDEN)),
     'h.2.ln_1.weight" is not one of a GPT2LMHeadModel'),
    ("gpt", "a mask of no layer", tensor("transformer.attn.bias", lambda t: torch.ones(SEQ)), "is not one of a GPT2"),
    ("gpt", "the prefix twice", renamed(lambda name: "transformer." + name), 'tensor "wte.weight" is missing'),
    ("gpt", "another prefix", renamed(lambda name: "model." + name), 'tensor "wte.weight" is missing'),
    ("gpt", "the prefix of some", renamed(lambda name: name.removeprefix("transformer.") if "ln_f" in name
                                          else name),
     'is without "transformer."'),
    ("gpt", "matrices transposed", tensor(FC, lambda t: t[FC].T), "is [64, 16], must be [16, 64]"),
    ("gpt", "a matrix as a vector", tensor(FC, lambda t: t[FC].flatten()), "is [1024], must be [16, 64]"),
    ("gpt", "three dimensions", tensor(FC, lambda t: t[FC].view(2, 8, 64)), "is of 3 dimensions, must be [16, 64]"),
    ("gpt", "embeddings as a vector", tensor(WTE, lambda t: t[WTE].flatten()), "is [4816], must be [301, 16]"),
    ("gpt", "more layers", config(n_layer=3), 'tensor "h.2.ln_1.weight" is missing'),
    ("gpt", "no number of layers, which means 12", without("n_layer"), 'tensor "h.2.ln_1.weight" is missing'),
    ("gpt", "too many layers", config(n_layer=5000), "config.json: as a job file:1: model.layers = 5000; at most 4096"),
    ("gpt", "no number of heads", without("n_head"), "model.hidden = 16 is not a multiple of model.heads = 12"),
    ("gpt", "heads that do not divide", config(n_head=3), "model.hidden = 16 is not a multiple of model.heads = 3"),
    ("gpt", "no heads", config(n_head=0), "n_head must be an integer of at least 1"),
    ("gpt", "heads as text", config(n_head="2"), "n_head must be an integer"),
    ("gpt", "heads as a fraction", config(n_head=2.0), "n_head must be an integer"),
    ("gpt", "heads as a boolean", config(n_head=True), "n_head must be an integer"),
    ("gpt", "width as text", config(n_embd="16"), "n_embd must be an integer"),
    ("gpt", "another width", config(n_embd=32), "is [301, 16], must be [301, 32]"),
    ("gpt", "another vocabulary", config(vocab_size=304), "is [301, 16], must be [304, 16]"),
    ("gpt", "other positions", config(n_positions=8), "is [16, 16], must be [8, 16]"),
    ("gpt", "two widths", config(hidden_size=32), "n_embd is 16, but hidden_size is 32"),
    ("gpt", "quantized", config(quantization_config=QUANTIZED), "has quantization_config"),
    ("gpt", "pruned", config(pruned_heads={"0": [1]}), "has pruned_heads"),
    ("gpt", "code of its own", config(auto_map={"AutoModelForCausalLM": "modeling.Other"}), "has auto_map"),
    ("gpt", "gpt_neox", config(model_type="gpt_neox"), 'model_type is "gpt_neox"; the ones that can be imported are gpt2, megatron-bert'),
    ("gpt", "llama", config(model_type="llama"), 'tensor "model.embed_tokens.weight" is missing'),
    ("gpt", "no name of a type", config(model_type=None), 'model_type is ""'),
    ("gpt", "only a class, another one", both(without("model_type"), config(architectures=["FalconForCausalLM"])),
     'architectures has "FalconForCausalLM"'),
    ("gpt", "fp64", dtypes(torch.float64), "is F64; must be F32, F16 or BF16"),
    ("gpt", "bytes", tensor(FC, lambda t: t[FC].to(torch.int8)), "is I8; must be F32, F16 or BF16"),
    ("gpt", "a tensor twice", fields(files=2, after=double), "is in the model twice"),
    ("gpt", "a file missing", both(fields(files=2), shell("rm model-00002*")), "model-00002-of-00002.safetensors: No"),
    ("gpt", "a file cut off", shell("truncate -s -1 model.safetensors"), "model.safetensors"),
    ("gpt", "an empty file", shell(": >model.safetensors"), "model.safetensors"),
    ("gpt", "only a pickle", shell("mv model.safetensors pytorch_model.bin"), "pytorch_model.bin is not read"),
    ("gpt", "no tensors", shell("rm model.safetensors"), "model.safetensors: No such file"),
    ("gpt", "config.json is a list", written(lambda text: f"[{text}]"), "config.json: must be an object"),
    ("gpt", "config.json is empty", written(lambda text: ""), "config.json:1:"),
    ("gpt", "an epsilon of NaN", written(lambda text: text.replace("1e-05", "NaN")), "epsilon must be a number"),
    ("gpt", "a width of many digits", config(n_embd=10**30), "n_embd must be an integer of at least 1"),
    ("bert", "gelu", config(hidden_act="gelu"), 'hidden_act is "gelu", must be "gelu_new"'),
    ("bert", "no activation", without("hidden_act"), 'hidden_act is missing, which means "gelu"'),
    ("bert", "relative positions", config(position_embedding_type="relative_key"), "must be absolute"),
    ("bert", "a decoder", config(is_decoder=True), "is_decoder must be false"),
    ("bert", "not tied", config(tie_word_embeddings=False), "tie_word_embeddings must be true"),
    ("bert", "another MLP", config(intermediate_size=32), "is [64, 16], must be [32, 16]"),
    ("bert", "heads that do not divide", config(num_attention_heads=3), "model.hidden = 16 is not a multiple of model.heads = 3"),
    ("bert", "three types", tensor("bert.embeddings.token_type_embeddings.weight", lambda t: torch.ones(3, HIDDEN)),
     "is [3, 16], must be [2, 16]"),
    ("bert", "without pooler and order", renamed(lambda name: None if "pooler" in name or "seq_rel" in name else name),
     'tensor "bert.pooler.dense.weight" is missing'),
    ("bert", "without heads", renamed(lambda name: None if name.startswith("cls.") else name), "is missing"),
    ("bert", "another projection", tensor("cls.predictions.decoder.weight", lambda t: t[BERT_WTE] * 2),
     "cls.predictions.decoder.weight differs from bert.embeddings.word_embeddings.weight"),
    ("bert", "another bias", tensor("cls.predictions.decoder.bias", lambda t: t["cls.predictions.bias"] + 1),
     "cls.predictions.decoder.bias differs from cls.predictions.bias"),
    ("bert", "the prefix of a GPT", renamed(lambda name: "transformer." + name), "is not one of a MegatronBert"),
    ("bert", "no config.json", shell("rm config.json"), 'tensor "wte.weight" is missing'),
    ("bert", "as a GPT", config(model_type="gpt2"), 'tensor "wte.weight" is missing'),
    ("bert", "norms after the sums", config(model_type="bert"), 'model_type is "bert", whose norms follow'),
    ("bert", "roberta", config(model_type="roberta"), 'model_type is "roberta"'),
]

class Checks:
    def __init__(self, logits, jobs):
        self.logits, self.jobs = logits, jobs
        self.models = {kind: hf.random_model(kind, LAYERS, HIDDEN, HEADS, SEQ, VOCAB).eval() for kind in jobs}
        self.samples = {kind: hf.random_samples(kind, SEQ, VOCAB, 3) for kind in jobs}
        for kind, samples in self.samples.items():
            samples.tofile(kind + ".tokens")
        self.failures = 0

    def import_folder(self, kind, change):
        folder = Folder(copy.deepcopy(self.models[kind]))
        change(folder)
        for path in "folder", "ckpt":
            shutil.rmtree(path, ignore_errors=True)
        folder.write("folder")
        return subprocess.run(["muster-ckpt", "import", "--format", "hf", "folder", "ckpt"], capture_output=True,
                              text=True)

    def equal(self, kind, change, model):
        run = self.import_folder(kind, change)
        if run.returncode != 0 or "warning" in run.stderr:
            return f"not imported: {run.stderr}"
        try:
            model = model or hf.load("folder")
        except Exception as error:
            return f"transformers does not load it: {error!r}"
        sets = [item.strip() for item in run.stdout.removeprefix("model = {").split(";")[:-2]]
        sets = ["model." + item.replace(" = ", "=") for item in sets]
        subprocess.run([self.logits, self.jobs[kind], "ckpt", kind + ".tokens", "logits", *sets], check=True)
        theirs = hf.their_logits(model, self.samples[kind])
        off = np.abs(hf.our_logits(model, self.samples[kind], "logits") - theirs).max()
        assert theirs.std() > 0.1
        return None if off <= 1e-4 else f"logits are {off:.1e} apart"

    def refused(self, kind, change, line):
        run = self.import_folder(kind, change)
        if run.returncode not in (64, 65):
            return f"exit code {run.returncode}: {run.stderr}"
        if len(run.stderr.splitlines()) != 1 or line not in run.stderr or run.stdout:
            return f"should have \"{line}\": {run.stderr}{run.stdout}"
        return "left a checkpoint" if os.path.exists("ckpt") else None

    def note(self, kind, name, problem):
        if problem:
            self.failures += 1
            print(f"{kind}, {name}: {problem}")


def main(logits, gpt_job, bert_job):
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    checks = Checks(logits, {"gpt": gpt_job, "bert": bert_job})
    for kind, name, change in EQUAL:
        checks.note(kind, name, checks.equal(kind, change, None))
    for kind, name, change in EQUAL_TO_SAVED:
        checks.note(kind, name, checks.equal(kind, change, checks.models[kind]))
    for kind, name, change, line in REFUSED:
        checks.note(kind, name, checks.refused(kind, change, line))
    print(f"{len(EQUAL) + len(EQUAL_TO_SAVED)} folders give transformers' logits, {len(REFUSED)} are refused; "
          f"{checks.failures} failures")
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
