"""hf.py - Hugging Face's GPT-2 and Megatron-BERT beside ours.

  hf.py make gpt|bert DIR SHARD_SIZE DTYPE LAYERS HIDDEN HEADS SEQ VOCAB   a model of random weights, as safetensors
  hf.py tokens gpt|bert FILE SEQ VOCAB SAMPLES                             random samples for logits.c
  hf.py compare DIR TOKENS LOGITS TOLERANCE                                its logits against those that logits.c wrote
  hf.py folders DIR                                                        in DIR, a model for each kind of tokenizer
  hf.py tokenizers TOKENIZE DIR...                                         a folder's tokenizer, against tokenize.c's

compare exits with 1 when the largest difference of any logit is more than TOLERANCE, and says how large the logits are:
zeros would agree with anything. DIR is loaded as any folder is: by the class that its config.json names.
"""
import glob
import os
import struct
import subprocess
import sys

if __name__ == "__main__":
    del sys.path[0]  # this file's own directory: transformers must not find the safetensors.py in it

import numpy as np

if sys.argv[1:2] != ["tokens"]:  # it needs neither, and they take seconds
    import torch
    import transformers
    from transformers import GPT2Config, GPT2LMHeadModel, MegatronBertConfig, MegatronBertForPreTraining


def random_model(kind, layers, hidden, heads, seq, vocab):
    torch.manual_seed(7)
    if kind == "gpt":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=vocab, n_positions=seq, n_embd=hidden, n_layer=layers,
                                           n_head=heads, initializer_range=0.1))
    else:
        model = MegatronBertForPreTraining(MegatronBertConfig(
            vocab_size=vocab, max_position_embeddings=seq, hidden_size=hidden, num_hidden_layers=layers,
            num_attention_heads=heads, intermediate_size=4 * hidden, hidden_act="gelu_new", layer_norm_eps=1e-5,
            initializer_range=0.1))
    with torch.no_grad():
        for parameter in model.parameters():  # biases begin as 0 and norms as 1: one that got lost would not show
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model


def make(kind, directory, shard_size, dtype, *sizes):
    model = random_model(kind, *map(int, sizes))
    model.to(getattr(torch, dtype)).save_pretrained(directory, max_shard_size=shard_size, safe_serialization=True)


def random_samples(kind, seq, vocab, samples):
    """Every token of the vocabulary, and in an order that has nothing to do with the text."""
    random = np.random.default_rng(3)
    tokens = random.integers(0, vocab, (samples, seq), dtype="<i4")
    if kind == "gpt":
        return tokens
    lengths = random.integers(seq // 2, seq + 1, (samples, 1), dtype="<i4")
    return np.concatenate([tokens, random.integers(0, 2, (samples, seq), dtype="<i4"), lengths], 1)


def tokens(kind, path, *sizes):
    random_samples(kind, *map(int, sizes)).tofile(path)


def load(directory):
    """The model of a folder; transformers must find every tensor, and know every one that is there."""
    config = transformers.AutoConfig.from_pretrained(directory)
    auto = transformers.AutoModelForCausalLM if config.model_type == "gpt2" else transformers.AutoModelForPreTraining
    model, info = auto.from_pretrained(directory, torch_dtype=torch.float32, output_loading_info=True)
    wrong = {kind: names for kind, names in info.items() if names}
    assert not wrong, f"from_pretrained complains: {wrong}"
    return model.eval()


def their_logits(model, samples):
    """All numbers that logits.c writes; those of a BERT's padding are 0."""
    samples = torch.from_numpy(samples.astype(np.int64))
    with torch.no_grad():
        if model.config.model_type == "gpt2":
            return model(samples).logits.flatten(1).numpy()
        seq = model.config.max_position_embeddings
        mask = torch.arange(seq) < samples[:, -1:]
        out = model(samples[:, :seq], attention_mask=mask, token_type_ids=samples[:, seq:2 * seq])
        logits = out.prediction_logits * mask[:, :, None]
        return torch.cat([logits.flatten(1), out.seq_relationship_logits.log_softmax(-1)], 1).numpy()


def our_logits(model, samples, path):
    ours = np.fromfile(path, "<f4").reshape(len(samples), -1)
    if model.config.model_type != "gpt2":
        padding = np.arange(model.config.max_position_embeddings) >= samples[:, -1:]
        ours[:, :-2][np.repeat(padding, model.config.vocab_size, 1)] = 0
    return ours


def compare(directory, tokens, logits, tolerance):
    model = load(directory)
    bert = model.config.model_type != "gpt2"
    samples = np.fromfile(tokens, "<i4").reshape(-1, 2 * model.config.max_position_embeddings + 1 if bert else
                                                 model.config.n_positions)
    theirs, ours = their_logits(model, samples), our_logits(model, samples, logits)
    off = np.abs(ours - theirs).max()
    print(f"{len(samples)} samples, logits of {theirs.min():.2f} to {theirs.max():.2f}, {off:.1e} apart at most")
    assert len(samples) > 0 and np.isfinite(off) and theirs.std() > 0.1
    return 0 if off <= float(tolerance) else 1


TEXTS = ["In the beginning God created the heaven and the earth.", "3.14\t(the  void)",
         "let there be light: and there was light", "one . two !\n\n three's   four\r\n", "Caf\u00e9, na\u00efve; \u4e16\u754c \U0001f600"]


def save_tokenizers(directory):
    """The files of a tokenizer of each kind that tokenizer_files.h lists, each in a folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(TEXTS * 9, trainers.BpeTrainer(
        vocab_size=295, special_tokens=["<|endoftext|>", "<pad>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    for kind in "json", "pair", "lines":
        os.makedirs(f"{directory}/{kind}")
    bpe.save(f"{directory}/json/tokenizer.json")
    bpe.model.save(f"{directory}/pair")
    words = sorted({word.lower() for text in TEXTS for word in text.split()})
    letters = [chr(code) for code in range(33, 127)]
    with open(f"{directory}/lines/vocab.txt", "w") as file:
        file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + letters +
                             ["##" + letter for letter in letters] + [w for w in words if len(w) > 1]) + "\n")
    try:
        import sentencepiece
    except ImportError:
        return
    os.makedirs(f"{directory}/model")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 9), model_prefix=f"{directory}/model/some", vocab_size=120, model_type="bpe",
        hard_vocab_limit=False, byte_fallback=False, minloglevel=2)


def folders(directory):
    save_tokenizers(directory)
    for folder in glob.glob(directory + "/*"):
        random_model("gpt", 2, 32, 2, 16, 400).save_pretrained(folder, safe_serialization=True)


def tokenizers(tokenize, *directories):
    """Ids, special tokens, and a few words of the model, as an evaluation harness gets them from the folder."""
    for directory in directories:
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        with open("texts", "wb") as file:
            for text in TEXTS:
                file.write(struct.pack("<I", len(text.encode())) + text.encode())
        same = "bytes" if os.path.basename(directory) == "bytes" else directory
        subprocess.run([tokenize, same, "encode", "texts", "ids"], check=True)
        subprocess.run([tokenize, same, "decode", "ids", "decoded"], check=True)
        ours = np.fromfile("ids", "<i4").tolist()
        with open("decoded", "rb") as file:
            decoded = file.read()
        for text in TEXTS:
            ids, ours = ours[1:1 + ours[0]], ours[1 + ours[0]:]
            assert ids == tokenizer(text, add_special_tokens=False).input_ids, (directory, text)
            size = 4 + int.from_bytes(decoded[:4], "little")
            if not os.path.exists(f"{directory}/vocab.txt"):  # transformers cleans the text of a BERT up
                assert tokenizer.decode(ids) == decoded[4:size].decode(), (directory, text, tokenizer.decode(ids))
            decoded = decoded[size:]
        # kind, size, fingerprint, then the ids of enum special_token
        fields = subprocess.run([tokenize, same], check=True, capture_output=True, text=True).stdout.split()
        end, begin, pad = [None if id == "-1" else int(id) for id in fields[-7:-4]]
        model = load(directory)
        assert (tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.pad_token_id) == (end, begin, pad), directory
        for config in model.config, model.generation_config:
            assert config.eos_token_id == end and config.pad_token_id == pad, directory
            assert config.bos_token_id == (end if begin is None else begin), directory
        assert len(tokenizer) <= model.config.vocab_size
        assert tokenizer.model_max_length == model.config.max_position_embeddings
        inputs = tokenizer(TEXTS[0][:9], return_tensors="pt", add_special_tokens=False)
        count = model.generate(**inputs, max_new_tokens=3, min_new_tokens=3, pad_token_id=0).shape[1]
        assert count == inputs.input_ids.shape[1] + 3
        print(f"{directory}: {type(tokenizer).__name__}, {len(tokenizer)} tokens")


if __name__ == "__main__":
    if sys.argv[1] != "tokens":
        torch.set_num_threads(1)
    sys.exit({"make": make, "tokens": tokens, "compare": compare, "folders": folders,
              "tokenizers": tokenizers}[sys.argv[1]](*sys.argv[2:]))
