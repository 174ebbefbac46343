/* hf_internal.h - what the files hf_*.c share: Hugging Face's names, its files and its config.json. */
#ifndef MUSTER_CKPT_MODELS_HF_INTERNAL_H
#define MUSTER_CKPT_MODELS_HF_INTERNAL_H

#include <jansson.h>

#include "ckpt/file/file.h"
#include "ckpt/models/hf.h"
#include "ckpt/models/units.h"
#include "common/safetensors.h"

#define HF_PREFIX     "transformer." /* of GPT2LMHeadModel's tensors; GPT2Model's have none */
#define HF_CONFIG     "config.json"
#define HF_GENERATION "generation_config.json"
#define HF_MODEL      "model.safetensors"
#define HF_INDEX      "model.safetensors.index.json"
#define HF_NAME_SIZE  96

/* ---- classes: hf_classes.c --------------------------------------------------------------------------------------- */

/* What a key of config.json holds. */
enum hf_key_type {
    HF_SIZE,    /* an integer of at least 1 */
    HF_SIZE_0,  /* the same, or null, which is 0: it follows from other fields, or there is none */
    HF_NUMBER,  /* a number of more than 0 */
    HF_TIED,    /* a boolean: not `untied` */
    HF_BIASES,  /* two booleans, which must be alike: all products have biases, or none has */
    HF_WINDOW,  /* Qwen's window, which layers may have or not: all must be alike */
    HF_WRITTEN, /* a number of the training: exports have it, imports do not read it */
};

struct hf_key {
    const char *key, *other; /* NULL, or another name of the same; of HF_BIASES: the second boolean */
    enum hf_key_type type;
    size_t field; /* of struct job */
};

/* A key that has one value in every model of the class, or is missing: a boolean, or a text. */
struct hf_fixed {
    const char *key;
    bool value;
    const char *text, *why;
};

/*
 * What its files have twice: `name` has the values of `of`. transformers ties them, or not, by config.json; a muster
 * model has them once. The list is ended by an entry without a name.
 */
struct hf_twin {
    const char *name, *of;
};

/* One of transformers' classes. Lists of keys are ended by an entry without a key. */
struct hf_class {
    const char *model_type, *name;
    const char *family;           /* what the names of its model's classes begin with */
    struct model_shape shape;     /* of a config.json without these keys; other fields are the class's own */
    bool whole_heads;             /* refuses a hidden size that is no multiple of heads, whatever the head size */
    const char *activation;       /* the key */
    const char *absent, *written; /* its values: of a missing key, and of an export */
    const char *synonyms[5];      /* of the same activation */
    struct hf_key keys[16];
    struct hf_fixed fixed[6];

    bool prefixed; /* its names may have HF_PREFIX */
    bool bert;     /* names, transposed products, and Q, K and V apart; else names and shapes are ours */
    struct hf_twin twins[3];
    int64_t end; /* id of the end of a document in the tokenizer that its models usually have; -1: none is usual */
};

/* The class of a config.json. CODE_DATA names the model_type if muster has no such model. */
const struct hf_class *hf_class_find(json_t *config, struct error *err);

/* The class whose models have these fields. CODE_CONFIG if there is none. */
const struct hf_class *hf_class_for(const struct model_shape *shape, struct error *err);

/* ---- names: hf_names.c ------------------------------------------------------------------------------------------- */

/*
 * One of their tensors. With `transposed`, theirs is [out, in] and ours [in, out]. `part` 0, 1 or 2: Q, K or V, which
 * are three tensors in a BERT: part [:, part, :] of our [d, 3, d], or [part, :] of our [3, d]. part -1: all of ours.
 */
struct hf_tensor {
    char name[HF_NAME_SIZE]; /* without HF_PREFIX */
    uint32_t ours;           /* index into units->tensors */
    int part;
    bool transposed;
    int ndim;
    uint64_t shape[2];
};

/* All tensors of a model in the order of ours. */
struct hf_layout {
    struct units *units; /* the whole model */
    struct hf_tensor *tensors;
    size_t count;
    size_t *start; /* [units->ntensors + 1] our tensor t is tensors start[t] to start[t + 1] - 1 */
};

/* NULL when out of memory. `destroy` does nothing for NULL. */
struct hf_layout *hf_layout_create(const struct hf_class *class, const struct model_shape *shape, struct error *err);
void hf_layout_destroy(struct hf_layout *layout);

uint64_t hf_tensor_elements(const struct hf_tensor *tensor);

/* Fills in nonfinite->first: the tensor in their files, the weight's row and column there, and its value. */
void hf_name_nonfinite(struct hf_nonfinite *nonfinite, const struct hf_tensor *tensor, uint64_t element, float value);

/*
 * Elements [first, first + count) of their tensor as a piece of ours. Of a transposed tensor these are whole rows, and
 * the piece has them as columns: element (r, c) of theirs is number c * rows + r of the piece.
 */
struct ckpt_piece hf_piece(const struct hf_layout *layout, const struct hf_tensor *tensor, uint64_t first,
                           uint64_t count);

/* Buffers, no weights: the causal mask, position numbers, inverse frequencies of rotations. */
bool hf_is_buffer(const char *name);

/* ---- config.json: hf_config.c ------------------------------------------------------------------------------------ */

/*
 * The model of a config.json of that class. A key that is absent has the value that transformers gives it. With `heads`
 * above 0 a missing number of heads is that, and another one CODE_USAGE. CODE_DATA for what a muster model is not: every
 * key that changes the computations is looked at.
 */
int hf_config_read(json_t *config, const struct hf_class *class, int heads, struct model_shape *shape,
                   struct error *err);

/* Ids of special tokens; -1 is none. */
struct hf_ids {
    int64_t begin, end, pad;
};

/* A new config.json of a job's model, and a new generation_config.json. */
json_t *hf_config_make(const struct hf_class *class, const struct job *job, const struct hf_ids *ids, enum dtype dtype);
json_t *hf_generation_make(const struct hf_ids *ids);

/* ---- files: hf_files.c ------------------------------------------------------------------------------------------- */

/*
 * The .safetensors files of a model, as one table of tensors. All files are opened beneath the given directory, by
 * plain names and through no links: an index cannot lead outside.
 */
struct hf_file {
    char name[256];
    int fd;
};

/* A tensor in a file. */
struct hf_place {
    char name[HF_NAME_SIZE]; /* without HF_PREFIX */
    bool prefixed;           /* it had it */
    int file;
    enum dtype dtype;
    int ndim;
    uint64_t shape[2]; /* the first two */
    uint64_t offset;   /* bytes from the file's start */
    bool used;         /* for the caller */
};

struct hf_files {
    struct directory directory;
    char only[256]; /* the one file that was named, in the directory; "": none was */
    struct hf_file *files;
    int count;
    struct hf_place *places; /* by name; without buffers */
    size_t nplaces, room, file_room;
};

/*
 * Opens the directory: `path`, or the directory of the one file that it names. On failure it needs no closing.
 * hf_files_scan opens the .safetensors files and fills the table of tensors, in which no name is twice.
 */
int hf_files_open(struct hf_files *files, const char *path, struct error *err);
int hf_files_scan(struct hf_files *files, struct error *err);
void hf_files_close(struct hf_files *files);

/* The tensor of that name, or NULL. */
struct hf_place *hf_files_find(const struct hf_files *files, const char *name);

/* Elements [first, first + count) of the tensor at that place as fp32. From any thread. */
int hf_files_read(const struct hf_files *files, const struct hf_place *place, uint64_t first, uint64_t count, float *to,
                  struct error *err);

/* An object of JSON in a directory; NULL on failure, and when there is no such file: then *there is false. */
json_t *hf_json(const struct directory *directory, const char *name, bool *there, struct error *err);

/* ---- tokenizers: hf_tokenizer.c ---------------------------------------------------------------------------------- */

/*
 * A tokenizer (tokenizer/tokenizer_files.h) for a model's folder, with the ids of its special tokens. open reads
 * its vocabulary and writes nothing; write copies its files. AutoTokenizer must be able to load the folder: where
 * tokenizer_config.json does not name a class, the class, the special tokens and the longest text are added, and a
 * SentencePiece model gets a tokenizer.json beside it. "bytes" becomes a tokenizer.json.
 */
struct hf_tokenizer {
    const char *path; /* borrowed */
    struct hf_ids ids;
    json_t *config; /* a tokenizer_config.json to write; NULL: the one at `path` is copied */
    json_t *json;   /* a tokenizer.json to write; NULL: none */
};

/* CODE_USAGE for a tokenizer with more ids than the model. On failure it needs no closing. */
int hf_tokenizer_open(struct hf_tokenizer *tokenizer, const char *path, const struct model_shape *shape,
                      struct error *err);
int hf_tokenizer_write(const struct hf_tokenizer *tokenizer, const struct directory *directory, struct error *err);

/*
 * hf_tokenizer_json.c: a tokenizer.json that gives the ids of "bytes". It has 256 tokens, and one for the end of a
 * document if the model has an id for that.
 */
json_t *hf_make_byte_json(const struct model_shape *shape);

/*
 * A tokenizer.json of the SentencePiece model at `path`. It decodes ids to the same text. It encodes a text to the same
 * ids, except where a Unigram model has two segmentations that are equally good, and for rare characters that a compiled
 * normalization replaces.
 */
json_t *hf_make_piece_json(const char *path, struct error *err);

/* A tokenizer.json of Llama 3's ranks, with the same ids. */
struct tokenizer_files;
json_t *hf_make_rank_json(const struct tokenizer_files *files, struct error *err);

/* Does nothing for a struct that is all zeros. */
void hf_tokenizer_close(struct hf_tokenizer *tokenizer);

#endif
