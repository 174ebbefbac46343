/*
 * hf.h - checkpoints to and from the files of Hugging Face's GPT-2: model.safetensors, or model-00001-of-0000N with an
 * index, and config.json. https://huggingface.co/docs/transformers/model_doc/gpt2
 *
 * Their names are ours behind "transformer."; their attn.c_attn is our [d, 3, d] seen as [d, 3d], Q | K | V. The head
 * is tied to wte and has no tensor of its own.
 */
#ifndef MUSTER_CKPT_MODELS_HF_H
#define MUSTER_CKPT_MODELS_HF_H

#include <jansson.h>

#include "ckpt/ckpt.h"
#include "ckpt/file/file.h"
#include "common/job.h"
#include "common/mesh.h"
#include "common/safetensors.h"

#define HF_PREFIX  "transformer."
#define HF_CONFIG  "config.json"
#define HF_MODEL   "model.safetensors"
#define HF_INDEX   "model.safetensors.index.json"
#define HF_HEAD    "lm_head.weight"
#define HF_EPSILON 1e-5 /* of their norms, and ours */

struct hf_export {
    enum dtype dtype;
    uint64_t shard_bytes; /* of a file's data, at most, but for a tensor that alone is larger */
    int heads;            /* 0: the job file's; otherwise it must agree with the job file */
    void (*progress)(uint64_t done, uint64_t total, void *arg);
    void *arg;
};

/*
 * Write `param` of a GPT into dir, which is made, and must be empty: a file that stayed from another export could be
 * taken for part of this one. What is too large for bf16 or fp16 becomes infinite, as in their own conversion. Memory:
 * 32 MiB and the reader's.
 */
int hf_export(struct ckpt *ckpt, const char *dir, const struct hf_export *how, struct error *err);

/* NaN and infinite numbers among imported weights. */
struct hf_nonfinite {
    uint64_t count;
    char first[CKPT_NAME_SIZE + 80]; /* the first one in the model's order: "h.0.mlp.c_fc.weight[3, 17] is nan" */
};

struct hf_import {
    struct mesh mesh; /* of the shards; any may load any */
    int chunks, zero;
    int heads; /* 0: config.json's; otherwise it must agree with config.json */
    void (*progress)(uint64_t done, uint64_t total, void *arg);
    void *arg;
};

/*
 * Make a checkpoint of step 0 in `dir` of a model at `path`: a directory with model.safetensors or an index, or one
 * file. A directory's model.safetensors is preferred to an index, as transformers does. fp32, fp16 and bf16 are taken,
 * and tensors with or without the prefix. attn.bias and attn.masked_bias are masks and left out. lm_head.weight is left
 * out when it equals wte.weight, and refused when it differs. exp_avg and exp_avg_sq are 0. The model is described in
 * *shape. config.json is checked first, and must describe the computations of muster's GPT. Names in an index are plain
 * names in its own directory, and no link is followed. NaN and infinite weights are imported and counted in *nonfinite.
 */
int hf_import(const char *path, const char *dir, const struct hf_import *how, struct model_shape *shape,
              struct hf_nonfinite *nonfinite, struct error *err);

/* ---- within hf_*.c ----------------------------------------------------------------------------------------------- */

/* The model group of a job file, "model = { layers = 12; ... };", as text. */
void hf_model_text(char *text, size_t size, const struct model_shape *shape);

/* config.json of a model; `job` may be NULL. */
json_t *hf_config(const struct model_shape *shape, const struct job *job, enum dtype dtype);

/* Check that config.json describes muster's GPT: its type, and every key that changes the computations. */
int hf_check_type(json_t *config, struct error *err);

/* Check that config.json has the tensors' sizes; *heads is set if it has n_head. */
int hf_check_sizes(json_t *config, const struct model_shape *shape, int *heads, struct error *err);

/*
 * Set the number of heads, which no tensor's shape shows: `found` in `source` (a file, for messages) or `given` by the
 * caller; 0 is unknown. If the two differ, neither can be trusted: CODE_USAGE.
 */
int hf_heads(struct model_shape *shape, const char *path, const char *source, int found, int given, struct error *err);

/* The shape in their files: at most two dimensions. Returns how many. */
int hf_shape(const struct ckpt_tensor *tensor, uint64_t shape[2]);

/* Their name and shape as our tensor, or as HF_HEAD; false for a mask, which is left out. */
bool hf_tensor(const char *name, int ndim, const uint64_t *shape, struct ckpt_tensor *tensor);

/*
 * The .safetensors files of a model, as one table of tensors. All files are opened beneath the given directory, by
 * plain names and through no links: an index cannot lead outside.
 */
struct hf_file {
    char name[256];
    int fd;
};

/* The place of tensors[t], which has muster's name and shape, in a file. */
struct hf_place {
    int file;
    enum dtype dtype;
    uint64_t offset; /* bytes from the file's start */
};

struct hf_files {
    struct directory directory;
    struct hf_file *files;
    int count;
    struct ckpt_tensor *tensors; /* the model's: without masks and lm_head.weight */
    struct hf_place *places;
    size_t ntensors, room;
    struct ckpt_tensor head; /* lm_head.weight; its name is empty where there is none */
    struct hf_place head_place;
};

/*
 * Opens the directory: `path`, or the directory of the one file that it names. On failure it needs no closing.
 * hf_files_json can be used from here on; hf_files_scan opens the .safetensors files and fills the table of tensors.
 */
int hf_files_open(struct hf_files *files, const char *path, struct error *err);
int hf_files_scan(struct hf_files *files, struct error *err);
void hf_files_close(struct hf_files *files);

/* Elements [first, first + count) of the tensor at that place as fp32. From any thread. */
int hf_files_read(const struct hf_files *files, const struct hf_place *place, uint64_t first, uint64_t count, float *to,
                  struct error *err);

/* An object of JSON in the directory; NULL on failure, and when there is no such file: then *there is false. */
json_t *hf_files_json(const struct hf_files *files, const char *name, bool *there, struct error *err);

#endif
