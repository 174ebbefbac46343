/*
 * hf.h - checkpoints to and from the files of Hugging Face's transformers: model.safetensors, or model-00001-of-0000N
 * with an index, and config.json.
 *
 *   ours     theirs                                          model_type
 *   GPT      GPT2LMHeadModel                                 gpt2
 *   BERT     MegatronBertForPreTraining                      megatron-bert
 *   Llama    Llama-, Mistral-, Qwen2- and Qwen3ForCausalLM   llama, mistral, qwen2, qwen3
 *
 * hf_classes.c has a table of each. GPT: their names are "transformer." and ours; their attn.c_attn is our [d, 3, d]
 * seen as [d, 3d], Q | K | V. BERT: hf_names.c has the names; their matrices are [out, in], the transposes of ours,
 * except the embeddings; Q, K and V are three tensors. Llama: names and shapes are ours. Where the projection to the
 * vocabulary is tied to the token embedding, it has no tensor of its own. Our two orders of sentences (0 as in the text,
 * 1 swapped) are the two classes of BERT's seq_relationship. Their "bert" has its norms after the residual sums: it is
 * another model.
 */
#ifndef MUSTER_CKPT_MODELS_HF_H
#define MUSTER_CKPT_MODELS_HF_H

#include "ckpt/models/rewrite.h"

#define HF_DTYPES 3

/* NaN and infinite numbers among weights. */
struct hf_nonfinite {
    uint64_t count;
    char first[CKPT_NAME_SIZE + 80]; /* the first one in the model's order: "h.0.mlp.c_fc.weight[3, 17] is nan" */
};

struct hf_export {
    enum dtype dtype;
    uint64_t shard_bytes;           /* largest data of a file; a larger tensor has a file of its own */
    const char *tokenizer;          /* tokenizer/tokenizer_files.h; NULL: none */
    struct hf_nonfinite *nonfinite; /* begins zeroed; NULL: not wanted */
    void (*progress)(uint64_t done, uint64_t total, void *arg);
    void *arg;
};

/*
 * Write `param` of the job file's model into dir, which is made, and must be empty: a file that stayed from another
 * export could be taken for part of this one. The class follows from the model's fields (CODE_CONFIG if transformers has
 * no such model). What is too large for bf16 or fp16 becomes infinite, as in their own conversion. NaN and
 * infinite weights are counted in *nonfinite. Memory: 64 MiB and the reader's.
 *
 * With a tokenizer, its files come along, and tokenizer_config.json is completed: AutoTokenizer and
 * AutoModelForCausalLM load the folder as it is. config.json and, of a model that predicts the next token,
 * generation_config.json have the ids of its special tokens; a generation_config.json that came with the tokenizer is
 * kept, with all ids that end a text. CODE_USAGE for a tokenizer that has more ids than the model.
 */
int hf_export(struct ckpt *ckpt, const char *dir, const struct hf_export *how, struct error *err);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct hf_model;

/*
 * Open a model at `path`: a directory with model.safetensors or an index, or one file. A directory's model.safetensors
 * is preferred to an index, as transformers does. heads 0: config.json's; otherwise it must agree with config.json.
 *
 * The logits are those of transformers, or NULL with CODE_DATA and one line:
 *
 * - config.json is read first: the type of model, its sizes, and every key that changes its computations. A missing key
 *   has the value that transformers gives it. Without config.json the model is taken for a GPT-2, whose sizes the
 *   tensors have.
 * - The tensors must be exactly the model's. fp32, fp16 and bf16 are taken; GPT-2's with or without the prefix. Causal
 *   masks and the like (hf_is_buffer) are left out. Of a tied model, a copy of the token embedding (lm_head.weight,
 *   cls.predictions.decoder.weight) is left out when it is equal, and refused when it differs.
 * - Names in an index are plain names in its own directory, and no link is followed.
 * - NaN and infinite weights are read and counted.
 *
 * A rotary model's max_positions is max_position_embeddings, and its seq_length that, but at most 8192.
 */
struct hf_model *hf_model_open(const char *path, int heads, struct error *err);
void hf_model_close(struct hf_model *model);

/* Whether hf_model_open should be tried: `path` is a file, or a directory with a config.json. */
bool hf_is_model(const char *path);

const struct model_shape *hf_model_shape(const struct hf_model *model);

/* Of what was read so far. */
const struct hf_nonfinite *hf_model_nonfinite(const struct hf_model *model);

/* Puts the pieces, of units_create's tensors of that model, one after the other into `to`. From any thread. */
int hf_model_read(struct hf_model *model, const struct ckpt_piece *pieces, size_t npieces, float *to,
                  struct error *err);

/* Make a checkpoint of step 0 in `dir`, with moments of 0. */
int hf_import(struct hf_model *model, const char *dir, const struct rewrite_to *to, struct error *err);

/* The names of an enum dtype: of --dtype, in .safetensors files, and in config.json. */
struct hf_dtype {
    const char *option, *stored, *torch;
};

extern const struct hf_dtype hf_dtypes[HF_DTYPES];

#endif
