"""peer_compare.py - compare muster with the models of tests/fixtures/llama, which peer_models.py describes.

  peer_compare.py data FOLDER PREFIX     write the text of the batch as a data set: one sequence of int32
  peer_compare.py tokens FOLDER FILE     write the ids for logits.c
  peer_compare.py logits FOLDER FILE     logits.c's output for them
  peer_compare.py step fp32|bf16 causal|documents FOLDER OURS [FOLDER OURS]...
                                         OURS is what gradients.c wrote for a batch of both samples
  peer_compare.py wrong FOLDER DIR       write into DIR, by name, the folder with one thing wrong, for each control
  peer_compare.py controls FOLDER DIR    DIR/NAME/ours is what gradients.c wrote for it: "step fp32" fails, and the loss
                                         is what transformers computes of that wrong model

Each prints what it found, and exits with 1 if a difference is too large.

fp32: the greatest difference of logits, or of a tensor's gradient, relative to the greatest value; the L2 norm of each
gradient; the samples' losses; and the step's loss are all within 1e-4.
bf16: what all folders together are off from fp32 is at most 1.05 times what PyTorch's bf16 is: of the elements of all
gradients, in the relative L2 norm. That of the samples' losses is printed.
"""
import glob
import json
import os
import shutil
import struct
import sys

import indexed
import numpy as np

TOLERANCE, FACTOR = 1e-4, 1.05
ELEMENTS, STEP = 256, 7919
TYPES = {"F32": "<f4", "I32": "<i4"}


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header, tensors = json.loads(data[8:8 + length]), {}
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        part = data[8 + length + begin:8 + length + end]
        tensors[name] = np.frombuffer(part, TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


class Peer:
    def __init__(self, folder):
        self.folder, self.tensors = folder, read_safetensors(folder + "/peer.safetensors")
        with open(folder + "/peer.json", encoding="utf-8") as file:
            self.numbers = json.load(file)
        self.ids = self.tensors["ids"]
        self.text = np.append(self.ids, self.tensors["causal.targets"][-1, -1:])

    def gradients(self, variant):
        return {name: self.tensors[f"{variant}.grad.{name}"].astype(np.float64) for name in self.numbers["shapes"]}

    def samples(self, variant):
        return np.sort(self.tensors[variant + ".losses"].astype(np.float64).sum(1))


class Ours:
    """What gradients.c wrote."""

    def __init__(self, directory):
        flat, samples, tensors = np.fromfile(directory + "/gradients.bin", np.float32), [], {}
        with open(directory + "/index.txt", encoding="utf-8") as file:
            for key, *values in map(str.split, file):
                if key == "sample":
                    samples.append(float(values[0]))
                elif key == "tensor":
                    tensors[values[0]] = int(values[1]), list(map(int, values[2:]))
                else:
                    setattr(self, key, float(values[0]))
        self.samples = np.sort(samples)
        self.shapes = {name: shape for name, (_, shape) in tensors.items()}
        self.gradients = {name: flat[offset:offset + int(np.prod(shape))].astype(np.float64) / self.loss_scale
                          for name, (offset, shape) in tensors.items()}


def elements(gradient):
    return gradient if gradient.size <= ELEMENTS else gradient[np.arange(ELEMENTS) * STEP % gradient.size]


def greatest(ours, theirs):
    """The greatest difference, relative to the greatest value; infinite if ours is not finite."""
    error = np.abs(ours - theirs).max() / np.abs(theirs).max()
    return error if np.isfinite(error) else np.inf


def report(what, errors):
    where = max(errors, key=errors.get)
    print(f"{what}: greatest difference {errors[where]:.2e} ({where})")
    return errors[where] <= TOLERANCE


def check_fp32(peer, ours, variant):
    theirs = peer.numbers[variant]
    errors = {"the step's loss": greatest(np.array(ours.loss), np.array(theirs["loss"])),
              "samples' losses": greatest(ours.samples, peer.samples(variant))}
    for name, gradient in peer.gradients(variant).items():
        errors[name] = greatest(elements(ours.gradients[name]), gradient)
        norm = np.linalg.norm(ours.gradients[name])
        errors["norm of " + name] = greatest(norm, np.array(theirs["grad_norm"][name]))
    return report(f"{peer.folder} {variant}", errors)


def check_bf16(pairs, variant):
    passed = True
    for what in ("samples", "gradients"):
        off, peers_off, all_of_them = 0, 0, 0
        for peer, ours in pairs:
            if what == "samples":
                mine, truth = ours.samples, peer.samples(variant)
            else:
                truth = np.concatenate(list(peer.gradients(variant).values()))
                mine = np.concatenate([elements(ours.gradients[name]) for name in peer.numbers["shapes"]])
            square = np.square(truth).sum()
            off += np.square(mine - truth).sum()
            peers_off += peer.numbers[variant]["bf16"][what] ** 2 * square
            all_of_them += square
        ours_relative, theirs_relative = (off / all_of_them) ** 0.5, (peers_off / all_of_them) ** 0.5
        print(f"{variant} {what}: {ours_relative:.3e}, PyTorch {theirs_relative:.3e}:",
              f"{ours_relative / theirs_relative:.3f}")
        passed &= what == "samples" or ours_relative <= FACTOR * theirs_relative
    return passed


def check_step(precision, variant, *paths):
    pairs = [(Peer(folder), Ours(directory)) for folder, directory in zip(paths[::2], paths[1::2], strict=True)]
    for peer, ours in pairs:
        assert ours.shapes == peer.numbers["shapes"], f"{peer.folder}: other tensors: {ours.shapes}"
    if precision == "fp32":
        return all([check_fp32(peer, ours, variant) for peer, ours in pairs])
    return check_bf16(pairs, variant)


def change_rope(**fields):
    return lambda config: config["rope_parameters"].update(fields)


def change(key, function):
    return lambda config: config.update({key: function(config[key])})


# How peer_models.py makes them, of config.json or of the bytes of a tensor with that many rows.
WRONG_CONFIGS = {"theta-1e4": change_rope(rope_theta=1e4), "no-scaling": change_rope(rope_type="default"),
                 "window+1": change("sliding_window", lambda window: window + 1),
                 "window-1": change("sliding_window", lambda window: window - 1),
                 "no-window": change("sliding_window", lambda window: window + 128),
                 "eps-times-10": change("rms_norm_eps", lambda eps: 10 * eps), "no-documents": lambda config: None}
ONE = {"F32": np.float32(1).tobytes(), "F16": np.float16(1).tobytes(), "BF16": b"\x80\x3f"}


def permute_heads(name, entry, data, config):
    if "k_proj" in name or "v_proj" in name:
        rows = entry["shape"][0]
        data[:] = np.roll(data.reshape(rows, -1), rows // config["num_key_value_heads"], 0).ravel()


def set_norms(name, entry, data, config):
    if "norm" in name:
        data[:] = np.frombuffer(ONE[entry["dtype"]] * entry["shape"][0], np.uint8)


WRONG_TENSORS = {"kv-groups-permuted": permute_heads, "norms-of-ones": set_norms}


def change_tensors(path, function, config):
    data = np.fromfile(path, np.uint8)
    start = 8 + int(data[:8].view("<u8")[0])
    for name, entry in json.loads(data[8:start].tobytes()).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            function(name, entry, data[start + begin:start + end], config)
    data.tofile(path)


def write_wrong(folder, directory):
    for name in Peer(folder).numbers["controls"]:
        path = f"{directory}/{name}"
        shutil.copytree(folder, path, ignore=shutil.ignore_patterns("v4", "peer.*"))
        with open(path + "/config.json", encoding="utf-8") as file:
            config = json.load(file)
        WRONG_CONFIGS.get(name, lambda config: None)(config)
        with open(path + "/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        for file in glob.glob(path + "/*.safetensors") if name in WRONG_TENSORS else []:
            change_tensors(file, WRONG_TENSORS[name], config)


def check_control(peer, name, ours):
    documents, wrong = name == "no-documents", peer.numbers["controls"][name]["loss"]
    right = check_fp32(peer, ours, "documents" if documents else "causal")
    print(f"{peer.folder} with {name}: loss {ours.loss:.6f}, transformers {wrong:.6f}", "NOT NOTICED" if right else "")
    # Without data.reset muster has more targets than that control.
    return not right and (documents or abs(ours.loss - wrong) <= TOLERANCE * wrong)


def check_controls(folder, directory):
    peer, names = Peer(folder), os.listdir(directory)
    assert names
    return all([check_control(peer, name, Ours(f"{directory}/{name}/ours")) for name in sorted(names)])


def check_logits(folder, path):
    peer = Peer(folder)
    logits = np.fromfile(path, np.float32).reshape(*peer.ids.shape, -1)[:, peer.tensors["positions"]]
    return report(folder, {"logits": greatest(logits, peer.tensors["causal.logits"])})


def main(what, *arguments):
    if what == "data":
        indexed.write(arguments[1], 4, [[Peer(arguments[0]).text]])
    elif what == "tokens":
        Peer(arguments[0]).ids.tofile(arguments[1])
    elif what == "wrong":
        write_wrong(*arguments)
    else:
        check = {"step": check_step, "controls": check_controls, "logits": check_logits}[what]
        return 0 if check(*arguments) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
