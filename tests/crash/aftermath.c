#include "tests/crash/aftermath.h"
#include "tests/cmocka_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

void aftermath_create(struct aftermath *aftermath, const struct plan *plan)
{
    memset(aftermath, 0, sizeof *aftermath);
    aftermath->plan = plan;
    aftermath->writer = plan_create(plan, 0, &aftermath->world);
    aftermath->reader = plan_create(plan, plan->shards + 1, &aftermath->world);
}

void aftermath_destroy(struct aftermath *aftermath)
{
    topology_destroy(aftermath->writer, &aftermath->world);
    topology_destroy(aftermath->reader, &aftermath->world);
}

static enum finding found(struct aftermath *aftermath, enum finding finding, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum finding found(struct aftermath *aftermath, enum finding finding, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vsnprintf(aftermath->text, sizeof aftermath->text, format, list);
    va_end(list);
    return finding;
}

static enum finding look_at(struct aftermath *aftermath, const char *dir, uint64_t step)
{
    struct error err = {0};
    struct ckpt *ckpt;
    char path[512];
    bool whole, right = false;

    ckpt_step_path(path, sizeof path, dir, step);
    ckpt = ckpt_open(path, &err);
    if (!ckpt)
        return found(aftermath, BROKEN, "does not open: %s", err.text);
    plan_step(&aftermath->world, aftermath->plan, step);
    topology_clear(aftermath->reader, &aftermath->world);
    whole = ckpt_verify(ckpt, 1, NULL, NULL, &err) == 0 &&
            world_read(&aftermath->world, aftermath->reader, ckpt, &err) == 0;
    if (whole)
        right = topology_is_right(aftermath->reader, &aftermath->world);
    ckpt_close(ckpt);
    if (!whole)
        return found(aftermath, BROKEN, "does not verify: %s", err.text);
    return right ? ALL_WELL : found(aftermath, TORN, "%s verifies and holds other values", path);
}

/* The tool's exit code; what it prints goes nowhere. */
static int run_tool(const char *tool, const char *command, const char *dir)
{
    char *argv[] = {(char *)(uintptr_t)tool, (char *)(uintptr_t)command, (char *)(uintptr_t)dir, NULL};
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t child;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&child, tool, &actions, NULL, argv, environ) == 0)
        waitpid(child, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

enum finding aftermath_look(struct aftermath *aftermath, const char *dir, uint64_t promised)
{
    struct error err = {0};
    enum finding worst = ALL_WELL;
    bool have = promised == 0;
    uint64_t *steps;
    size_t count;
    int code;

    if (ckpt_list(dir, &steps, &count, &err) < 0)
        return found(aftermath, STUCK, "cannot be listed: %s", err.text);
    for (size_t i = 0; i < count; i++) {
        enum finding finding = look_at(aftermath, dir, steps[i]);

        /* Where one is kept, a newer one may have been committed by somebody who did not live to say so. */
        have = have ||
               (finding == ALL_WELL && (steps[i] == promised || (aftermath->plan->keep == 1 && steps[i] > promised)));
        if (finding == TORN || worst == ALL_WELL)
            worst = finding;
    }
    free(steps);
    if (worst == TORN)
        return TORN;
    if (!have)
        return found(aftermath, LOST, "step %llu was committed and is not there whole", (unsigned long long)promised);
    if (worst != ALL_WELL || !aftermath->tool || count == 0)
        return worst;
    code = run_tool(aftermath->tool, "list", dir);
    if (code == 0)
        code = run_tool(aftermath->tool, "verify", dir);
    return code == 0 ? ALL_WELL : found(aftermath, STUCK, "muster-ckpt list or verify ended with %d", code);
}

static enum finding save(struct aftermath *aftermath, const char *dir, uint64_t step)
{
    struct error err = {0};

    plan_step(&aftermath->world, aftermath->plan, step);
    topology_fill(aftermath->writer, &aftermath->world);
    for (int s = 0; s < aftermath->writer->shards; s++) {
        struct ckpt_save part = world_save(&aftermath->world, aftermath->writer, s, dir, step, "again");

        if (ckpt_write_shard(&part, &err) < 0)
            return found(aftermath, STUCK, "the next save fails: %s", err.text);
    }
    if (ckpt_commit(dir, step, "again", &err) != 1)
        return found(aftermath, STUCK, "the next commit fails: %s", err.text);
    if (ckpt_prune(dir, aftermath->plan->keep, 0, &err) < 0)
        return found(aftermath, STUCK, "the next prune fails: %s", err.text);
    return ALL_WELL;
}

/* latest.*.tmp stay for a day: another process may be writing one. */
static bool may_lie_there(const char *name)
{
    static const char *const starts[] = {"latest", "owner-", "step-"};

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, ".trash") == 0)
        return true;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return !strstr(name, ".partial") && !strstr(name, ".abandoned") &&
                   (name[0] != 'o' || !strstr(name, ".tmp"));
    return false;
}

static enum finding look_for_litter(struct aftermath *aftermath, const char *dir)
{
    char trash[512];
    DIR *stream = opendir(dir);
    struct dirent *entry;
    enum finding finding = ALL_WELL;

    while (stream && (entry = readdir(stream)))
        if (!may_lie_there(entry->d_name))
            finding = found(aftermath, LITTER, "%s is still there", entry->d_name);
    if (stream)
        closedir(stream);
    stream = opendir(join(trash, dir, ".trash"));
    while (stream && (entry = readdir(stream)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            finding = found(aftermath, LITTER, ".trash/%s is still there", entry->d_name);
    if (stream)
        closedir(stream);
    return finding;
}

static uint64_t newest(const char *dir)
{
    struct error err;
    uint64_t *steps, step = 0;
    size_t count;

    if (ckpt_list(dir, &steps, &count, &err) == 0 && count > 0)
        step = steps[0];
    free(steps);
    return step;
}

enum finding aftermath_go_on(struct aftermath *aftermath, const char *dir, uint64_t promised, bool recover)
{
    struct error err = {0};
    enum finding finding = aftermath_look(aftermath, dir, promised);

    if (finding == ALL_WELL && recover && ckpt_recover(dir, &err) < 0)
        finding = found(aftermath, STUCK, "recovery fails: %s", err.text);
    if (finding == ALL_WELL && recover)
        finding = aftermath_look(aftermath, dir, promised);
    for (int i = 0; i < 2 && finding == ALL_WELL; i++) {
        uint64_t next = newest(dir) + 10;

        finding = save(aftermath, dir, next);
        if (finding == ALL_WELL)
            finding = aftermath_look(aftermath, dir, next);
    }
    return finding == ALL_WELL ? look_for_litter(aftermath, dir) : finding;
}
