/*
 * hf_files.h - the .safetensors files of a model by Hugging Face, as one table of tensors that can be read at any
 * place.
 *
 * Everything is opened beneath the directory that was named, by plain names, through no links: what an index says can
 * lead nowhere else.
 */
#ifndef MUSTER_CKPT_HF_FILES_H
#define MUSTER_CKPT_HF_FILES_H

#include "ckpt/file.h"
#include "ckpt/hf.h"
#include "common/safetensors.h"

struct hf_file {
    char name[256];
    int fd;
};

/* tensors[t], which is ours by name and shape, lies at that place of a file. */
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

/* An object of JSON in the directory; NULL on failure, and when there is no such file, which *there tells. */
json_t *hf_files_json(const struct hf_files *files, const char *name, bool *there, struct error *err);

#endif
