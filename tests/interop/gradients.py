"""gradients.py [--eod TOKEN] HEADS SEQ fp32|bf16|fp16 DIR... - compare what gradients.c wrote into each DIR with PyTorch.

samples.c has written the same batch into DIR/batch.bin. The same model with the same weights (model.py) computes losses
and gradients there. With --eod a sample's documents, which end with that token, do not see each other.

fp32: every sample's losses, the step's loss, and every tensor's gradient, as the greatest difference relative to the
greatest gradient of the tensor, are within 1e-4 of PyTorch in float32 and in float64.

bf16: what is off from PyTorch's fp32 is at most 1.5 times as much as it is in PyTorch's own bf16. Its model is in bf16
as a whole, weights, activations and gradients, as by model.bfloat16(): muster too keeps the stream between the blocks in
bf16. Autocast keeps that in fp32, and only its products take bf16; it is printed beside it, and not asserted. Errors are
relative L2 norms: of all samples' losses, of each tensor's gradient, and of all gradients together. Those of a tensor are
taken over all DIRs, which differ in seed: a tensor of two numbers would otherwise be compared with one lucky rounding.

fp16: the same bound as for bf16 divided by 8, because fp16 keeps three bits more. (PyTorch has no fp16 on processors.)
"""
import sys

import numpy as np
import torch

import model

TOLERANCE = 1e-4
FACTORS = {"bf16": 1.5, "fp16": 1.5 / 8}
OUTSIDE_BLOCKS = {"gpt": 4, "bert": 14}  # tensors
LOSSES = ["losses of tokens", "losses of order"]  # the latter are 0 in a GPT
STEP = "the step's loss"


class Ours:
    def __init__(self, directory):
        flat = {name: torch.from_numpy(np.fromfile(f"{directory}/{name}.bin", np.float32))
                for name in ("weights", "gradients")}
        assert all(t.isfinite().all() for t in flat.values()), "not finite"
        samples, scale, self.weights, self.gradients = [], 0, {}, {}
        for line in open(f"{directory}/index.txt"):
            key, *values = line.split()
            if key == "sample":
                samples.append([float(v) for v in values])
            elif key == "loss":
                self.loss = float(values[0])
            elif key == "loss_scale":
                scale = float(values[0])
            else:
                offset, *shape = map(int, values[1:])
                part = slice(offset, offset + int(np.prod(shape)))
                self.weights[values[0]] = flat["weights"][part].view(shape)
                self.gradients[values[0]] = flat["gradients"][part].view(shape) / scale
        self.samples = torch.tensor(samples, dtype=torch.float64)
        self.kind = "bert" if "mlm.bias" in self.weights else "gpt"
        layers = sum(name.endswith("ln_1.weight") for name in self.weights)
        assert len(self.weights) == 12 * layers + OUTSIDE_BLOCKS[self.kind], "not every tensor of the model is there"


def theirs(weights, samples, heads, dtype, autocast=False):
    p = {name: w.to(dtype, copy=True).requires_grad_() for name, w in weights.items()}
    with torch.autocast("cpu", torch.bfloat16, autocast):
        tokens, order = model.losses(p, samples, heads)
    loss = model.mean_loss(tokens, order, samples)
    loss.backward()
    return loss.item(), torch.stack([tokens, order], 1).detach().double(), {n: t.grad.double() for n, t in p.items()}


def check_fp32(ours, samples, heads):
    failed = False
    for dtype in (torch.float64, torch.float32):
        loss, each, gradients = theirs(ours.weights, samples, heads, dtype)
        errors = {STEP: abs(ours.loss - loss) / loss}
        for i, name in enumerate(LOSSES):
            errors[name] = ((ours.samples[:, i] - each[:, i]).abs().max() / each[:, i].abs().max().clamp(1e-9)).item()
        for name, gradient in gradients.items():
            assert gradient.abs().max() > 0, f"PyTorch's gradient of {name} is zero"
            errors[name] = ((ours.gradients[name] - gradient).abs().max() / gradient.abs().max()).item()
        where = max(errors, key=lambda name: errors[name] if errors[name] == errors[name] else np.inf)
        print(f"{dtype}: loss {loss:.7f} against {ours.loss:.7f}; greatest difference {errors[where]:.2e} ({where})")
        failed |= not errors[where] <= TOLERANCE
    return failed


class Errors:
    """Squared differences from the truth, by what they are differences of."""

    def __init__(self):
        self.off, self.truth = {}, {}

    def add(self, name, value, truth):
        for key in (name,) if name in (STEP, *LOSSES) else (name, "all gradients"):
            self.off[key] = self.off.get(key, 0) + (value - truth).square().sum().item()
            self.truth[key] = self.truth.get(key, 0) + truth.square().sum().item()

    def relative(self, name):
        return (self.off[name] / self.truth[name]) ** 0.5


def measure(directories, seq, heads, eod):
    errors = {who: Errors() for who in ("muster", "PyTorch", "autocast")}
    for directory in directories:
        ours = Ours(directory)
        samples = model.Samples(f"{directory}/batch.bin", seq, eod)
        truth = theirs(ours.weights, samples, heads, torch.float32)
        results = {"muster": (ours.loss, ours.samples, ours.gradients),
                   "PyTorch": theirs(ours.weights, samples, heads, torch.bfloat16),
                   "autocast": theirs(ours.weights, samples, heads, torch.float32, autocast=True)}
        for who, (loss, each, gradients) in results.items():
            errors[who].add(STEP, torch.tensor(loss), torch.tensor(truth[0]))
            for i, name in enumerate(LOSSES[:1 if ours.kind == "gpt" else 2]):
                errors[who].add(name, each[:, i], truth[1][:, i])
            for name, gradient in gradients.items():
                errors[who].add(name, gradient, truth[2][name])
    return errors


def check_16_bits(directories, seq, heads, eod, factor):
    errors = measure(directories, seq, heads, eod)
    failed = False
    print(f"{'relative error against fp32':28} {'muster':>9} {'PyTorch':>9} {'autocast':>9}  muster/PyTorch")
    for name in errors["muster"].off:
        ours, bf16, autocast = (errors[who].relative(name) for who in ("muster", "PyTorch", "autocast"))
        # A mean of few seeds may be right by luck; what the single samples are off bounds what their mean is off.
        bound = factor * (bf16 if name != STEP else max(bf16, errors["PyTorch"].relative(LOSSES[0])))
        print(f"{name:28} {ours:9.2e} {bf16:9.2e} {autocast:9.2e}  {ours / bf16:.2f}{'' if ours <= bound else '  TOO MUCH'}")
        failed |= not ours <= bound
    return failed


def main():
    arguments, eod = sys.argv[1:], None
    if arguments[0] == "--eod":
        eod, arguments = int(arguments[1]), arguments[2:]
    heads, seq, precision, *directories = arguments
    heads, seq, failed = int(heads), int(seq), False
    assert directories
    if precision == "fp32":
        for directory in directories:
            failed |= check_fp32(Ours(directory), model.Samples(f"{directory}/batch.bin", seq, eod), heads)
    else:
        failed = check_16_bits(directories, seq, heads, eod, FACTORS[precision])
    return 1 if failed else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
