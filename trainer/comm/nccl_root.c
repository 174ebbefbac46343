#include "trainer/comm/comm_nccl.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"

enum {
    END_SECONDS = 5,
    GROUPS_ABORT = 22200, /* the first version that allows ncclCommAbort within a group */
};

struct nccl_api nccl_api;

static const struct library library = {
    .name = "NCCL",
    .variable = "MUSTER_NCCL",
    .soname = "libnccl.so.2",
    .version = "2.18",
};

int comm_nccl_load(struct error *err)
{
    static const char *const names[] = {NCCL_FUNCTIONS(LIBRARY_NAME)};

    return library_load(&library, names, sizeof names / sizeof *names, &nccl_api, err);
}

void comm_nccl_version(char *text, size_t size)
{
    int version = 0;

    if (nccl_api.ncclGetVersion(&version) != ncclSuccess)
        version = 0;
    snprintf(text, size, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

/* ---- failures ---- */

static bool abort_one(struct nccl_member *member)
{
    ncclResult_t status = member->handle ? nccl_api.ncclCommAbort(member->handle) : ncclSuccess;
    bool aborted = status == ncclSuccess || status == ncclInProgress;

    member->handle = NULL;
    return aborted;
}

void nccl_root_abort(struct nccl_root *root, const struct error *err)
{
    int version = 0;
    bool clean = true, grouped;

    if (!root || root->aborted)
        return;
    root->aborted = true;
    root->why = *err;
    grouped = nccl_api.ncclGetVersion(&version) == ncclSuccess && version >= GROUPS_ABORT &&
              nccl_api.ncclGroupStart() == ncclSuccess;
    for (struct nccl_member *member = root->members; member; member = member->next)
        clean &= abort_one(member);
    clean &= abort_one(&root->all);
    if (grouped)
        clean &= nccl_api.ncclGroupEnd() == ncclSuccess;
    if (!clean)
        error_prefix(&root->why, "NCCL could not be aborted, after");
}

int nccl_root_usable(const struct nccl_root *root, struct error *err)
{
    if (!root->aborted)
        return 0;
    *err = root->why;
    return -1;
}

static int fail_root(struct nccl_root *root, ncclResult_t status, const char *what, struct error *err)
{
    bool lost = status == ncclRemoteError || status == ncclSystemError;

    error_set(err, lost ? CODE_PEER : CODE_INTERNAL, "NCCL: %s: %s", what, nccl_api.ncclGetErrorString(status));
    nccl_root_abort(root, err);
    return -1;
}

int nccl_look(struct nccl_root *root, ncclComm_t handle, struct error *err)
{
    ncclResult_t status = ncclSuccess, asked;

    if (nccl_root_usable(root, err) < 0)
        return -1;
    if (comm_interrupted(err) || (root->world->ops->check_failure && root->world->ops->check_failure(err))) {
        nccl_root_abort(root, err);
        return -1;
    }
    asked = handle ? nccl_api.ncclCommGetAsyncError(handle, &status) : ncclSuccess;
    if (asked != ncclSuccess)
        status = asked;
    return status == ncclSuccess || status == ncclInProgress ? 0 : fail_root(root, status, "another rank", err);
}

int nccl_settle(struct nccl_root *root, ncclComm_t handle, ncclResult_t status, const char *what, struct error *err)
{
    ncclResult_t asked;
    bool again = false;

    while (status == ncclInProgress || (status == ncclSuccess && !again)) {
        if (again)
            sched_yield();
        if (again && nccl_look(root, NULL, err) < 0)
            return -1;
        again = true;
        asked = nccl_api.ncclCommGetAsyncError(handle, &status);
        if (asked != ncclSuccess)
            status = asked;
    }
    return status == ncclSuccess ? 0 : fail_root(root, status, what, err);
}

/* ---- the communicators ---- */

/* Waits until the others have ended their operations too, but not for long: this rank may be the one that fails. */
static void end_member(struct nccl_root *root, struct nccl_member *member)
{
    double until = clock_monotonic() + END_SECONDS;
    ncclResult_t status;

    if (!member->handle)
        return;
    status = nccl_api.ncclCommFinalize(member->handle);
    while (status == ncclInProgress && clock_monotonic() < until) {
        sched_yield();
        if (nccl_api.ncclCommGetAsyncError(member->handle, &status) != ncclSuccess)
            status = ncclInternalError;
    }
    if ((status != ncclSuccess || nccl_api.ncclCommDestroy(member->handle) != ncclSuccess) && !abort_one(member)) {
        root->aborted = true;
        error_set(&root->why, CODE_INTERNAL, "NCCL: a communicator could be neither ended nor aborted");
    }
    member->handle = NULL;
}

/* Ranks that cannot reach each other hang here: the record shows the watchdog that they wait. */
static struct record_op enter_world(struct comm *world, const char *what)
{
    struct record_op op;

    comm_purpose(world, "NCCL", what);
    op = comm_record_enter(world, RECORD_SPLIT, -1);
    recorder_wait_begin(&op);
    return op;
}

int nccl_root_split(struct nccl_root *root, bool join, int color, int key, struct nccl_member *member,
                    struct error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct record_op op;
    ncclResult_t status;
    int result;

    if (nccl_root_usable(root, err) < 0)
        return -1;
    config.blocking = 0;
    op = enter_world(root->world, "groups");
    status = nccl_api.ncclCommSplit(root->all.handle, join ? color : NCCL_SPLIT_NOCOLOR, key, &member->handle, &config);
    result = nccl_settle(root, root->all.handle, status, "ncclCommSplit", err);
    if (result == 0) {
        member->next = root->members;
        root->members = member;
    }
    /* The parent may be done with the split before the child is with its start. */
    if (result == 0 && join)
        result = nccl_settle(root, member->handle, ncclInProgress, "ncclCommSplit", err);
    recorder_leave(&op);
    return result;
}

void nccl_root_leave(struct nccl_root *root, struct nccl_member *member)
{
    end_member(root, member);
    for (struct nccl_member **at = &root->members; *at; at = &(*at)->next)
        if (*at == member) {
            *at = member->next;
            return;
        }
}

struct nccl_root *comm_nccl_root_create(struct comm *world, struct device *dev, struct error *err)
{
    struct nccl_root *root = error_calloc(1, sizeof *root, err);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = {{0}};
    ncclResult_t status = ncclSuccess;
    struct record_op op;
    int result = root ? 0 : -1;

    config.blocking = 0;
    if (result == 0 && world->rank == 0)
        status = nccl_api.ncclGetUniqueId(&id);
    if (status != ncclSuccess)
        result = error_set(err, CODE_INTERNAL, "NCCL: its unique id: %s", nccl_api.ncclGetErrorString(status));
    if (comm_agree(world, result, err) < 0 || comm_broadcast(world, &id, sizeof id, 0, err) < 0)
        goto fail;
    root->world = world;
    root->dev = dev;
    op = enter_world(world, "start");
    status = nccl_api.ncclCommInitRankConfig(&root->all.handle, world->size, id, world->rank, &config);
    result = nccl_settle(root, root->all.handle, status, "its start", err);
    recorder_leave(&op);
    if (result == 0)
        return root;
fail:
    free(root);
    return NULL;
}

void comm_nccl_root_destroy(struct nccl_root *root)
{
    if (!root)
        return;
    end_member(root, &root->all);
    free(root);
}
