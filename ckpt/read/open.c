/* open.c - an open checkpoint: checks its shards against the manifest, and reads its blocks and verifies them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/file/workers.h"
#include "ckpt/read/checkpoint.h"
#include "common/crc32c.h"
#include "common/safetensors.h"

#define CHECK_THREADS 16 /* on a network file system, opening a file is mostly waiting */
#define CHECK_SHARDS  64 /* a thread has at least so many */

/* ---- shards ------------------------------------------------------------------------------------------------------ */

/* Check that the shard's header agrees with the manifest. */
static int compare_header(const struct ckpt *ckpt, const struct manifest_shard *shard, const struct safetensors *st,
                          struct error *err)
{
    if (st->data_offset != shard->data_offset)
        return error_set(err, CODE_DATA, "its data starts at offset %" PRIu64 ", the manifest says %" PRIu64,
                         st->data_offset, shard->data_offset);
    for (size_t k = 0; k < ckpt->manifest->nkinds; k++) {
        const struct safetensors_entry *entry = safetensors_find(st, ckpt->manifest->kinds[k]);

        if (!entry)
            return error_set(err, CODE_DATA, "has no tensor \"%s\"", ckpt->manifest->kinds[k]);
        if (strcmp(entry->dtype, "F32") != 0 || entry->ndim != 1 || entry->shape[0] != shard->layout.elements ||
            entry->begin != k * shard->layout.stride)
            return error_set(err, CODE_DATA, "tensor \"%s\" must be F32 [%" PRIu64 "] at data offset %" PRIu64,
                             entry->name, shard->layout.elements, k * shard->layout.stride);
    }
    return 0;
}

static int check_header(const struct ckpt *ckpt, int index, int fd, struct error *err)
{
    const struct manifest_shard *shard = &ckpt->manifest->shard[index];
    void *header = manifest_read_header(ckpt->manifest, index, fd, &ckpt->directory, err);
    struct safetensors st = {0};
    char name[FILE_NAME_SIZE];
    int result;

    if (!header)
        return -1;
    result = safetensors_parse(&st, header, shard->data_offset, manifest_shard_bytes(shard), err);
    if (result == 0)
        result = compare_header(ckpt, shard, &st, err);
    name_shard(name, SHARD_DATA, index, ckpt->manifest->shards);
    if (result < 0)
        error_prefix(err, "%s/%s", ckpt->directory.path, name);
    safetensors_destroy(&st);
    free(header);
    return result;
}

/*
 * Opens a shard's file for reading. Checks its size against the manifest and, the first time, its header. Any thread
 * may call it. Returns the descriptor.
 */
static int open_shard(const struct ckpt *ckpt, int shard, struct error *err)
{
    int fd = manifest_open_shard(ckpt->manifest, shard, &ckpt->directory, err);

    if (fd < 0 || atomic_load(&ckpt->checked[shard]))
        return fd;
    if (check_header(ckpt, shard, fd, err) < 0) {
        close(fd);
        return -1;
    }
    atomic_store(&ckpt->checked[shard], true);
    return fd;
}

static int check_shard(void *arg, int worker, size_t item, struct error *err)
{
    const struct ckpt *ckpt = arg;
    int fd;

    (void)worker;
    if (atomic_load(&ckpt->checked[item]))
        return 0;
    fd = open_shard(ckpt, (int)item, err);
    return fd < 0 ? -1 : close(fd);
}

/* Checks the sizes and headers of all shards that were not checked before. */
static int check_shards(struct ckpt *ckpt, struct error *err)
{
    int threads = ckpt->manifest->shards / CHECK_SHARDS;

    return workers_run(threads < 1               ? 1
                       : threads > CHECK_THREADS ? CHECK_THREADS
                                                 : threads,
                       (size_t)ckpt->manifest->shards, check_shard, ckpt, err);
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

/* Opens the directory of a checkpoint. A missing directory is CODE_DATA. Removes slashes from the end of
 * directory->path. */
static int open_step(struct directory *directory, const char *path, struct error *err)
{
    size_t length;

    if (directory_open(directory, NULL, path, err) < 0) {
        if (err && (errno == ENOENT || errno == ENOTDIR))
            err->code = CODE_DATA;
        return -1;
    }
    length = strlen(directory->path);
    while (length > 1 && directory->path[length - 1] == '/')
        directory->path[--length] = '\0';
    return 0;
}

char *ckpt_manifest_text(const char *path, size_t *bytes, struct error *err)
{
    struct directory directory;
    char *text;

    if (open_step(&directory, path, err) < 0)
        return NULL;
    text = file_read(&directory, MANIFEST_NAME, MANIFEST_MAX_BYTES, bytes, err);
    directory_close(&directory);
    return text;
}

struct ckpt *ckpt_open_with(const char *path, const char *text, size_t bytes, struct error *err)
{
    struct ckpt *ckpt = error_calloc(1, sizeof *ckpt, err);
    char parent[sizeof ckpt->directory.path];
    uint64_t step;

    if (!ckpt)
        return NULL;
    if (open_step(&ckpt->directory, path, err) < 0)
        goto fail;
    ckpt->manifest = manifest_decode(text, bytes, -1, 0, err);
    if (!ckpt->manifest || piece_index_create(&ckpt->index, ckpt->manifest, err) < 0) {
        error_prefix(err, "%s/" MANIFEST_NAME, ckpt->directory.path);
        goto fail;
    }
    if (ckpt_split_step_path(parent, sizeof parent, &step, path) && step != ckpt->manifest->state.step) {
        error_set(err, CODE_DATA, "%s/" MANIFEST_NAME ": has step %" PRIu64 ", its directory's name has another",
                  ckpt->directory.path, ckpt->manifest->state.step);
        goto fail;
    }
    ckpt->checked = calloc((size_t)ckpt->manifest->shards, sizeof *ckpt->checked);
    ckpt->by_name = tensors_by_name(ckpt->manifest->tensors, ckpt->manifest->ntensors);
    if (ckpt->checked && ckpt->by_name)
        return ckpt;
    error_errno(err, CODE_IO, "%s: tables of %d shards and %zu tensors", path, ckpt->manifest->shards,
                ckpt->manifest->ntensors);
fail:
    ckpt_close(ckpt);
    return NULL;
}

struct ckpt *ckpt_open_lazily(const char *path, struct error *err)
{
    size_t bytes;
    char *text = ckpt_manifest_text(path, &bytes, err);
    struct ckpt *ckpt = text ? ckpt_open_with(path, text, bytes, err) : NULL;

    free(text);
    return ckpt;
}

struct ckpt *ckpt_open(const char *path, struct error *err)
{
    struct ckpt *ckpt = ckpt_open_lazily(path, err);

    if (ckpt && check_shards(ckpt, err) < 0) {
        ckpt_close(ckpt);
        return NULL;
    }
    return ckpt;
}

void ckpt_close(struct ckpt *ckpt)
{
    if (!ckpt)
        return;
    directory_close(&ckpt->directory);
    piece_index_destroy(&ckpt->index);
    manifest_destroy(ckpt->manifest);
    free(ckpt->by_name);
    free(ckpt->checked);
    free(ckpt);
}

/* ---- what it holds ----------------------------------------------------------------------------------------------- */

struct ckpt_summary ckpt_summary(const struct ckpt *ckpt)
{
    const struct manifest *manifest = ckpt->manifest;
    struct ckpt_summary summary = {
        .version = manifest->version,
        .attempt = manifest->attempt,
        .host = manifest->shard[0].host,
        .shards = manifest->shards,
        .kinds = (const char *const *)manifest->kinds,
        .nkinds = manifest->nkinds,
    };

    for (int i = 0; i < manifest->shards; i++) {
        summary.bytes += manifest_shard_bytes(&manifest->shard[i]);
        if (manifest->shard[i].written > summary.written)
            summary.written = manifest->shard[i].written;
    }
    return summary;
}

const struct ckpt_progress *ckpt_progress(const struct ckpt *ckpt)
{
    return &ckpt->manifest->state;
}

const char *ckpt_job_text(const struct ckpt *ckpt)
{
    return ckpt->manifest->job_text;
}

const char *ckpt_path(const struct ckpt *ckpt)
{
    return ckpt->directory.path;
}

const struct ckpt_tensor *ckpt_tensors(const struct ckpt *ckpt, size_t *count)
{
    *count = ckpt->manifest->ntensors;
    return ckpt->manifest->tensors;
}

const struct ckpt_tensor *checkpoint_find(const struct ckpt *ckpt, const char *name)
{
    return tensors_find(ckpt->by_name, ckpt->manifest->ntensors, name);
}

int checkpoint_find_kind(const struct ckpt *ckpt, const char *kind)
{
    for (size_t k = 0; k < ckpt->manifest->nkinds; k++)
        if (strcmp(ckpt->manifest->kinds[k], kind) == 0)
            return (int)k;
    return -1;
}

int checkpoint_read_pieces(struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, const char *kind,
                           const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    void **targets = error_calloc(npieces + 1, sizeof *targets, err);
    int result;

    if (!targets)
        return -1;
    for (size_t p = 0; p < npieces; to += pieces[p++].count)
        targets[p] = to;
    result = ckpt_read(ckpt, tensors, ntensors, &kind, 1, pieces, npieces, targets, err);
    free(targets);
    return result;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

struct open_file {
    int shard; /* -1: none */
    bool direct;
    int users;               /* threads that read it now */
    pthread_mutex_t opening; /* for fd, which another thread may be about to open */
    int fd;                  /* -1 until then */
};

struct block_reader {
    const struct ckpt *ckpt;
    int threads;
    pthread_mutex_t lock;    /* for all of files[] but fd */
    struct open_file *files; /* [threads]: each thread uses one at a time, so there is always a free one */
    void **buffers;          /* [threads] NULL before their first use */
};

struct block_reader *block_reader_create(const struct ckpt *ckpt, int threads, struct error *err)
{
    struct block_reader *reader = error_calloc(1, sizeof *reader, err);

    if (!reader)
        return NULL;
    *reader = (struct block_reader){.ckpt = ckpt, .lock = PTHREAD_MUTEX_INITIALIZER};
    reader->files = error_calloc((size_t)threads, sizeof *reader->files, err);
    reader->buffers = error_calloc((size_t)threads, sizeof *reader->buffers, err);
    if (!reader->files || !reader->buffers) {
        block_reader_destroy(reader);
        return NULL;
    }
    reader->threads = threads;
    for (int i = 0; i < threads; i++)
        reader->files[i] = (struct open_file){.shard = -1, .fd = -1, .opening = PTHREAD_MUTEX_INITIALIZER};
    return reader;
}

void block_reader_destroy(struct block_reader *reader)
{
    if (!reader)
        return;
    for (int i = 0; i < reader->threads; i++) {
        if (reader->files[i].fd >= 0)
            close(reader->files[i].fd);
        free(reader->buffers[i]);
    }
    free(reader->files);
    free(reader->buffers);
    free(reader);
}

void *block_reader_buffer(struct block_reader *reader, int thread, struct error *err)
{
    if (!reader->buffers[thread] && !(reader->buffers[thread] = aligned_alloc(SHARD_ALIGN, SHARD_BLOCK)))
        error_errno(err, CODE_IO, "a buffer of %zu bytes", SHARD_BLOCK);
    return reader->buffers[thread];
}

/* The file of that shard, or a free place for it, which drops the earliest shard that no thread reads. Locked. */
static struct open_file *choose_file(struct block_reader *reader, int shard, bool direct)
{
    struct open_file *best = NULL;

    for (struct open_file *file = reader->files; file < reader->files + reader->threads; file++) {
        if (file->shard == shard && file->direct == direct)
            return file;
        if (file->users == 0 && (!best || file->shard < best->shard))
            best = file;
    }
    if (best->fd >= 0)
        close(best->fd);
    best->fd = -1;
    best->shard = shard;
    best->direct = direct;
    return best;
}

/* The header is not read with O_DIRECT, which would want an aligned buffer: the flag comes after it. */
static int open_for_blocks(const struct ckpt *ckpt, int shard, bool direct, struct error *err)
{
    int fd = open_shard(ckpt, shard, err), flags;

    if (fd >= 0 && direct && (flags = fcntl(fd, F_GETFL)) >= 0)
        fcntl(fd, F_SETFL, flags | O_DIRECT); /* where the file system refuses, reads go through the page cache */
    return fd;
}

/* Each user gives it back: file->users. */
static struct open_file *acquire_file(struct block_reader *reader, int shard, bool direct, int *fd, struct error *err)
{
    struct open_file *file;

    pthread_mutex_lock(&reader->lock);
    file = choose_file(reader, shard, direct);
    file->users++;
    pthread_mutex_unlock(&reader->lock);
    /* Opened without the reader's lock: on a network file system other threads open other shards meanwhile. */
    pthread_mutex_lock(&file->opening);
    if (file->fd < 0)
        file->fd = open_for_blocks(reader->ckpt, shard, direct, err);
    *fd = file->fd;
    pthread_mutex_unlock(&file->opening);
    return file;
}

/* With O_DIRECT a read must be of whole sectors; the last one of the file comes back short. */
static int read_direct(int fd, void *buffer, size_t bytes, uint64_t offset)
{
    size_t rounded = (bytes + SHARD_ALIGN - 1) / SHARD_ALIGN * SHARD_ALIGN;
    ssize_t got;

    do
        got = pread(fd, buffer, rounded, (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got >= 0 && (size_t)got == bytes ? 0 : -1;
}

static int read_block(const struct ckpt *ckpt, const struct block_place *place, int fd, bool direct, void *buffer,
                      struct error *err)
{
    const struct manifest_shard *of = &ckpt->manifest->shard[place->shard];
    uint64_t offset = of->data_offset + place->block * SHARD_BLOCK;
    size_t bytes = shard_block_bytes(&of->layout, place->block);
    char name[FILE_NAME_SIZE];
    uint32_t crc;

    name_shard(name, SHARD_DATA, place->shard, ckpt->manifest->shards);
    if (!direct || read_direct(fd, buffer, bytes, offset) < 0) {
        int flags = fcntl(fd, F_GETFL);

        if (flags >= 0 &&
            (flags & O_DIRECT)) /* refused or short: again through the page cache, with the reason if that fails */
            fcntl(fd, F_SETFL, flags & ~O_DIRECT);
        if (file_read_at(fd, buffer, bytes, offset, ckpt->directory.path, name, err) < 0)
            return -1;
    }
    crc = crc32c(0, buffer, bytes);
    if (crc != of->block_crcs[place->block])
        return error_set(err, CODE_DATA,
                         "%s/%s: checksum mismatch in bytes %" PRIu64 " to %" PRIu64 ": %08" PRIx32
                         ", the manifest says %08" PRIx32,
                         ckpt->directory.path, name, offset, offset + bytes, crc, of->block_crcs[place->block]);
    return 0;
}

int block_reader_read(struct block_reader *reader, const struct block_place *place, bool direct, void *buffer,
                      struct error *err)
{
    int fd, result = -1;
    struct open_file *file = acquire_file(reader, place->shard, direct, &fd, err);

    if (fd >= 0)
        result = read_block(reader->ckpt, place, fd, direct, buffer, err);
    pthread_mutex_lock(&reader->lock);
    file->users--;
    pthread_mutex_unlock(&reader->lock);
    return result;
}

/* ---- ckpt_verify ------------------------------------------------------------------------------------------------- */

struct verify {
    const struct ckpt *ckpt;
    struct workers_progress progress; /* bytes of data */
    struct block_place *blocks;
    size_t count;
    struct block_reader *reader;
};

static int list_all(struct verify *verify, struct error *err)
{
    const struct manifest *manifest = verify->ckpt->manifest;
    size_t room = 0;

    for (int s = 0; s < manifest->shards; s++) {
        verify->progress.total += manifest->shard[s].layout.data_bytes;
        for (uint64_t block = 0; block < manifest->shard[s].layout.blocks; block++) {
            if (error_reserve(&verify->blocks, &room, verify->count, 1, sizeof *verify->blocks, err) < 0)
                return -1;
            verify->blocks[verify->count++] = (struct block_place){s, block};
        }
    }
    return 0;
}

static int verify_block(void *arg, int worker, size_t item, struct error *err)
{
    struct verify *verify = arg;
    const struct block_place *at = &verify->blocks[item];
    void *buffer = block_reader_buffer(verify->reader, worker, err);

    if (!buffer || block_reader_read(verify->reader, at, true, buffer, err) < 0)
        return -1;
    workers_progress_add(&verify->progress,
                         shard_block_bytes(&verify->ckpt->manifest->shard[at->shard].layout, at->block));
    return 0;
}

int ckpt_verify(struct ckpt *ckpt, int threads, void (*progress)(uint64_t done, uint64_t total, void *arg), void *arg,
                struct error *err)
{
    struct verify verify = {.ckpt = ckpt,
                            .progress = {.report = progress, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER}};
    int result = check_shards(ckpt, err); /* those without data have no block */

    threads = threads > WORKERS_MOST ? WORKERS_MOST : threads;
    if (result == 0)
        result = list_all(&verify, err);
    if (result == 0 && !(verify.reader = block_reader_create(ckpt, threads, err)))
        result = -1;
    if (result == 0)
        result = workers_run(threads, verify.count, verify_block, &verify, err);
    block_reader_destroy(verify.reader);
    free(verify.blocks);
    return result;
}
