"""bench_peer.py write|compare DIR MODEL [KEY=NUMBER]... - is the model of bench/torch_models.py muster's?

write: random weights of that model, as a Hugging Face folder DIR/hf, and random tokens, DIR/text. compare: the losses
of this model in fp32 and bf16 with those weights on DIR/text, beside those of step 1 in DIR/fp32.jsonl and
DIR/bf16.jsonl, muster-train's metrics. They are within 1e-3.
"""
import json
import os
import sys

sys.path[0] = os.path.realpath(__file__).rsplit("/tests/", 1)[0] + "/bench"

import torch
from safetensors.torch import save_file

import gpu_sizes
from torch_models import EPS, model_of

SAMPLES = 2


def tensors(m, model):
    yield "model.embed_tokens.weight", model.embed.weight
    yield "model.norm.weight", model.norm
    for i, block in enumerate(model.blocks):
        width = m.kv_heads * m.head_size
        products = {"self_attn": ("qkv", "q k v", (m.hidden, width, width)),
                    "mlp": ("gate_up", "gate up", (m.inner, m.inner))}
        for group, (product, names, rows) in products.items():
            for name, part in zip(names.split(), getattr(block, product).weight.split(rows)):
                yield f"model.layers.{i}.{group}.{name}_proj.weight", part
        yield f"model.layers.{i}.self_attn.o_proj.weight", block.o.weight
        yield f"model.layers.{i}.mlp.down_proj.weight", block.down.weight
        yield f"model.layers.{i}.input_layernorm.weight", block.norm_1
        yield f"model.layers.{i}.post_attention_layernorm.weight", block.norm_2


def config(m):
    scaling = {"rope_type": "llama3", "factor": float(m.factor), "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": m.layers,
            "hidden_size": m.hidden, "num_attention_heads": m.heads, "num_key_value_heads": m.kv_heads,
            "intermediate_size": m.inner, "vocab_size": m.vocab, "rope_theta": m.theta, "rms_norm_eps": EPS,
            "rope_scaling": scaling if m.factor else None, "max_position_embeddings": 131072 if m.factor else 8192,
            "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": "float32"}


def random_model(m):
    model = model_of(m, m.seq)
    for parameter in model.parameters():  # large, so that attention is far from uniform
        torch.nn.init.normal_(parameter, *((1, 0.1) if parameter.dim() == 1 else (0, 0.1)))
    return model


def write(place, m):
    os.makedirs(f"{place}/hf")
    save_file({name: part.detach().clone() for name, part in tensors(m, random_model(m))},
              f"{place}/hf/model.safetensors", {"format": "pt"})
    with open(f"{place}/hf/config.json", "w") as file:
        json.dump(config(m), file)
    with open(f"{place}/text", "wb") as file:
        file.write(bytes(torch.randint(97, 123, (SAMPLES * m.seq + 1,), dtype=torch.uint8)))


def compare(place, m):
    model = random_model(m)
    tokens = torch.tensor(list(open(f"{place}/text", "rb").read()))
    inputs, targets = tokens[:-1].view(SAMPLES, -1), tokens[1:].view(SAMPLES, -1)
    for precision in ("fp32", "bf16"):
        with torch.no_grad():
            theirs = float((model if precision == "fp32" else model.bfloat16())(inputs, targets))
        ours = json.loads(open(f"{place}/{precision}.jsonl").readline())["loss"]
        exact = theirs if precision == "fp32" else exact
        print(f"{precision}: {ours:.6f}, PyTorch {theirs:.6f}, in fp32 {exact:.6f}")
        assert abs(ours - exact) < abs(theirs - exact) + 1e-3  # which products PyTorch takes for bf16 depends on the CPU


shape = gpu_sizes.shape_of(sys.argv[3], sys.argv[4:])
{"write": write, "compare": compare}[sys.argv[1]](sys.argv[2], shape)
