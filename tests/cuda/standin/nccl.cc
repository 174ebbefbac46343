/*
 * nccl.cc - collectives between processes of one machine, through a file that they share. As in NCCL's non-blocking
 * mode a call is often still in progress when it returns, and begins nothing on the stream before it is asked about
 * again; meanwhile nothing else may be called on that communicator.
 */
#include <nccl.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "tests/cuda/standin/standin.h"

enum { RANKS = 16, SLOT = 1 << 18 };
enum kind { ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER };

struct call {
    enum kind kind;
    int type;
    size_t count;
};

/* Of one communicator. A rank writes what is its own, by its number. */
struct board {
    std::atomic<int> attached;
    std::atomic<uint64_t> written[RANKS], taken[RANKS]; /* rounds of a collective */
    std::atomic<uint64_t> splits[RANKS];
    int color[2][RANKS], key[2][RANKS];
    call calls[RANKS];
    char slots[RANKS][SLOT];
};

struct shared {
    std::string path;
    board *at = NULL;
    int rank = 0, size = 0;
    uint64_t round = 0;
    std::atomic<bool> aborted{false};

    ~shared()
    {
        if (at)
            munmap(at, sizeof *at);
    }
};

struct ncclComm {
    std::shared_ptr<shared> all;
    int steps = 0;                /* how often it is still in progress */
    std::function<bool()> finish; /* what then happens; false to be asked again */
    uint64_t splits = 0;
};

static unsigned turns; /* of the host's thread; it need not be random, only different each time */

static bool attach(shared &s, const std::string &path, int rank, int size)
{
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *at = fd < 0 || ftruncate(fd, sizeof(board)) < 0
                   ? MAP_FAILED
                   : mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED)
        return false;
    s.path = path;
    s.at = static_cast<board *>(at);
    s.rank = rank;
    s.size = size;
    if (++s.at->attached == size)
        unlink(path.c_str());
    return true;
}

static bool all_there(const shared &s)
{
    return s.at->attached == s.size;
}

/* The call is in progress until it has been asked about a few times, and `finish` agrees. */
static ncclResult_t begin(ncclComm *comm, std::function<bool()> finish)
{
    if (comm->finish) {
        standin_fail(1, "NCCL: a call on a communicator while another is in progress");
        return ncclInvalidUsage;
    }
    comm->steps = (int)(turns++ % 3);
    comm->finish = std::move(finish);
    if (comm->steps > 0 || !comm->finish())
        return ncclInProgress;
    comm->finish = nullptr;
    return ncclSuccess;
}

static ncclResult_t progress(ncclComm *comm)
{
    if (comm->finish && (comm->steps-- > 0 || !comm->finish()))
        return ncclInProgress;
    comm->finish = nullptr;
    return ncclSuccess;
}

/* ---- collectives, on the stream ---------------------------------------------------------------------------------- */

static size_t element_size(int type)
{
    return type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 2;
}

static float get(int type, const void *x, size_t i)
{
    if (type == ncclFloat32)
        return static_cast<const float *>(x)[i];
    uint16_t bits = static_cast<const uint16_t *>(x)[i];
    return type == ncclBfloat16 ? bf16_to_float(bits) : f16_to_float(bits);
}

static void put(int type, void *x, size_t i, float value)
{
    if (type == ncclFloat32)
        static_cast<float *>(x)[i] = value;
    else
        static_cast<uint16_t *>(x)[i] = type == ncclBfloat16 ? bf16_of_float(value) : f16_of_float(value);
}

struct collective {
    call what;
    const char *send;
    char *recv;
    size_t at = 0; /* elements that are done */
    bool written = false;

    size_t most(const shared &s) const;
    bool reachable(const shared &s) const;
    void write(shared &s, size_t count) const;
    void read(shared &s, size_t count) const;
    bool step(shared &s);
};

/* Elements that go through the slots at once. */
size_t collective::most(const shared &s) const
{
    size_t room = SLOT / element_size(what.type);

    return std::min(what.count - at, what.kind == REDUCE_SCATTER ? room / (size_t)s.size : room);
}

bool collective::reachable(const shared &s) const
{
    size_t bytes = what.count * element_size(what.type), all = bytes * (size_t)s.size;

    return standin_reachable(send, what.kind == REDUCE_SCATTER ? all : bytes, "NCCL's send buffer") &&
           standin_reachable(recv, what.kind == ALL_GATHER ? all : bytes, "NCCL's receive buffer");
}

void collective::write(shared &s, size_t count) const
{
    size_t element = element_size(what.type);
    char *slot = s.at->slots[s.rank];

    s.at->calls[s.rank] = what;
    for (int r = 0; r < (what.kind == REDUCE_SCATTER ? s.size : 1); r++)
        memcpy(slot + (size_t)r * count * element, send + ((size_t)r * what.count + at) * element, count * element);
}

void collective::read(shared &s, size_t count) const
{
    size_t element = element_size(what.type);

    for (int r = 0; r < s.size; r++)
        if (memcmp(&s.at->calls[r], &what, sizeof what) != 0)
            standin_fail(1, "NCCL: ranks %d and %d call different collectives", s.rank, r);
    if (what.kind == ALL_GATHER) {
        for (int r = 0; r < s.size; r++)
            memcpy(recv + ((size_t)r * what.count + at) * element, s.at->slots[r], count * element);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        size_t place = what.kind == REDUCE_SCATTER ? (size_t)s.rank * count + i : i;
        float sum = 0;

        for (int r = 0; r < s.size; r++)
            sum += get(what.type, s.at->slots[r], place);
        put(what.type, recv, at + i, sum);
    }
}

static bool everyone(const std::atomic<uint64_t> *counts, int size, uint64_t least)
{
    return std::all_of(counts, counts + size, [=](const std::atomic<uint64_t> &count) { return count >= least; });
}

/* True when all of it is done. */
bool collective::step(shared &s)
{
    while (!s.aborted && at < what.count) {
        size_t count = most(s);

        if (!written && !everyone(s.at->taken, s.size, s.round))
            return false;
        if (!written) {
            write(s, count);
            s.at->written[s.rank] = s.round + 1;
            written = true;
        }
        if (!everyone(s.at->written, s.size, s.round + 1))
            return false;
        read(s, count);
        s.at->taken[s.rank] = ++s.round;
        written = false;
        at += count;
    }
    return true;
}

static ncclResult_t collect(ncclComm *comm, enum kind kind, int type, const void *send, void *recv, size_t count,
                            cudaStream_t stream)
{
    std::shared_ptr<shared> all = comm->all;
    auto work = std::make_shared<collective>();

    memset(&work->what, 0, sizeof work->what);
    work->what.kind = kind;
    work->what.type = type;
    work->what.count = count;
    work->send = static_cast<const char *>(send);
    work->recv = static_cast<char *>(recv);
    if (!work->reachable(*all))
        return ncclUnhandledCudaError;
    return begin(comm, [=] {
        standin_enqueue(stream, [=] { return !work->reachable(*all) || work->step(*all); });
        return true;
    });
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */

/* The others of this colour, in the order of their keys, and then of their ranks. */
static ncclComm *make_child(const shared &parent, uint64_t split)
{
    const board &b = *parent.at;
    int color = b.color[split % 2][parent.rank];
    std::vector<std::pair<int, int>> group;
    ncclComm *child = new ncclComm;

    for (int r = 0; r < parent.size; r++)
        if (b.color[split % 2][r] == color)
            group.push_back({b.key[split % 2][r], r});
    std::sort(group.begin(), group.end());
    child->all = std::make_shared<shared>();
    for (size_t r = 0; r < group.size(); r++)
        if (group[r].second == parent.rank &&
            !attach(*child->all, parent.path + "." + std::to_string(split) + "." + std::to_string(color), (int)r,
                    (int)group.size()))
            standin_fail(1, "NCCL: no file to share");
    child->finish = [all = child->all] { return all_there(*all); };
    return child;
}

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t status)
{
    return status == ncclInvalidUsage ? "invalid usage" : status == ncclSuccess ? "no error" : "an error";
}

ncclResult_t ncclGroupStart(void)
{
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    const char *directory = getenv("TMPDIR");
    int fd;

    snprintf(id->internal, sizeof id->internal, "%.90s/standin-XXXXXX", directory ? directory : "/tmp");
    fd = mkstemp(id->internal);
    if (fd < 0) {
        perror(id->internal);
        return ncclSystemError;
    }
    close(fd);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    auto all = std::make_shared<shared>();

    if (config->blocking != 0 || size > RANKS)
        return ncclInvalidArgument;
    if (!attach(*all, id.internal, rank, size))
        return ncclSystemError;
    *comm = new ncclComm;
    (*comm)->all = all;
    return begin(*comm, [=] { return all_there(*all); });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config)
{
    std::shared_ptr<shared> all = comm->all;
    uint64_t split = comm->splits++;

    if (config->blocking != 0)
        return ncclInvalidArgument;
    all->at->color[split % 2][all->rank] = color;
    all->at->key[split % 2][all->rank] = key;
    all->at->splits[all->rank] = split + 1;
    *made = NULL;
    return begin(comm, [=] {
        if (!everyone(all->at->splits, all->size, split + 1))
            return false;
        if (color != NCCL_SPLIT_NOCOLOR)
            *made = make_child(*all, split);
        return true;
    });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *status)
{
    *status = progress(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    return begin(comm, [] { return true; });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm->finish)
        return ncclInvalidUsage;
    delete comm;
    return ncclSuccess;
}

/* What is on a stream ends without a result. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->all->aborted = true;
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return collect(comm, ALL_GATHER, type, send, recv, count, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    return op == ncclSum ? collect(comm, ALL_REDUCE, type, send, recv, count, stream) : ncclInvalidArgument;
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    return op == ncclSum ? collect(comm, REDUCE_SCATTER, type, send, recv, count, stream) : ncclInvalidArgument;
}
}
