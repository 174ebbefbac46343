/*
 * muster_preflight.c - the program muster-preflight: one process a node checks it and prints an answer (judge.h). srun
 * --muster-preflight starts it on all nodes of a step and judges the answers (preflight.c).
 *
 * It always ends: each check is bounded in time, and an alarm ends a check that hangs in a library or a file system.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/error.h"
#include "common/job.h"
#include "common/nvml.h"
#include "common/option.h"
#include "config.h"
#include "srun-plugin/node/node.h"
#include "srun-plugin/node/sysfs.h"
#include "srun-plugin/order/slurmctld.h"
#include "srun-plugin/preflight/judge.h"

static char node_name[ANSWER_NAME_SIZE] = "?";

/* Prints a line of judge.h as one write: all nodes share one pipe in the end. Newlines become blanks. */
static void __attribute__((format(printf, 2, 3))) write_finding(const char *key, const char *format, ...)
{
    char line[ANSWER_LINE_SIZE];
    int length = snprintf(line, sizeof line, "preflight %s %s ", node_name, key);
    size_t end;
    va_list args;

    va_start(args, format);
    vsnprintf(line + length, sizeof line - (size_t)length - 1, format, args);
    va_end(args);
    error_tame(line);
    end = strlen(line);
    line[end] = '\n';
    if (write(STDOUT_FILENO, line, end + 1) < 0)
        return; /* the reader has a deadline; nobody else can be told */
}

/*
 * Whether slurmd has loaded the plugin, in a step of srun --muster: the plugin removes SLURM_MUSTER_STEP from the
 * environment. If not it is a problem: the ranks of that node would have no RANK, while the others wait for them.
 */
static void check_plugin(void)
{
    write_finding("fact", "plugin %s", getenv(PLUGIN_VERSION_NAME) ? getenv(PLUGIN_VERSION_NAME) : "an unknown one");
    if (getenv(HANDOFF_NAME))
        write_finding(
            "problem",
            "slurmd has not loaded spank_muster.so there: its ranks would have no RANK and no MASTER_ADDR; add it "
            "to the node's plugstack.conf");
}

/* GPUs of the machine under `root`: fewer usable ones than Slurm gave (SLURM_GPUS_ON_NODE) are a problem. What else
 * node_read finds, such as a dead port, may be the site's choice: a note. */
static void check_machine(const char *root)
{
    const char *given = getenv("SLURM_GPUS_ON_NODE");
    struct error err = {0};
    struct node *node = node_read(root, NULL, &err);
    size_t usable;

    if (!node) {
        write_finding("problem", "the node's hardware cannot be read: %s", err.text);
        return;
    }
    usable = node_usable_gpus(node, NULL);
    write_finding("fact", "usable-GPUs %zu", usable);
    if (node->core_count && given && atoi(given) > (int)usable)
        write_finding("problem", "Slurm gave %d GPUs, but %zu are usable", atoi(given), usable);
    for (size_t i = 0; i < node->problem_count; i++)
        write_finding("note", "%s", node->problems[i]);
    if (node->title[0])
        write_finding("fact", "machine %s", node->title);
    node_destroy(node);
}

/* ---- directories ------------------------------------------------------------------------------------------------- */

enum { SAMPLE = 64 * 1024 }; /* larger than the last free block of a quota or file system */

/* The nearest directory at or above `path` that exists; the trainer creates the others. */
static void find_nearest(const char *path, char *found, size_t size)
{
    char *slash;

    snprintf(found, size, "%s", path);
    while (access(found, F_OK) < 0 && errno == ENOENT) {
        if (!(slash = strrchr(found, '/'))) {
            snprintf(found, size, ".");
            return;
        }
        slash[slash == found] = '\0';
    }
}

/* 0, or -1 and errno. With fsync, since a full quota may show only then. */
static int write_sample(int fd)
{
    static char zeros[SAMPLE];
    ssize_t done = write(fd, zeros, sizeof zeros);

    if (done >= 0 && done < SAMPLE)
        errno = ENOSPC;
    return done == SAMPLE && fsync(fd) == 0 ? 0 : -1;
}

static int try_directory(const char *directory)
{
    char name[PATH_MAX];
    int fd, failed, why;

    if (snprintf(name, sizeof name, "%s/.muster-preflight.XXXXXX", directory) >= (int)sizeof name) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0)
        return -1;
    failed = write_sample(fd);
    why = errno;
    unlink(name);
    close(fd);
    errno = why;
    return failed;
}

/*
 * Whether a file can be created, synced and removed in `path`, or in the nearest directory above that exists, and
 * `bytes` are free there. `what` is its use, for the text: "checkpoints". Nothing if `path` is NULL or "".
 */
static void check_directory(const char *what, const char *path, uint64_t bytes)
{
    char directory[PATH_MAX];
    struct statvfs room;
    uint64_t available;

    if (!path || !path[0])
        return;
    find_nearest(path, directory, sizeof directory);
    if (try_directory(directory) < 0) {
        write_finding("problem", "%s cannot be written to %s: %s", what, directory, strerror(errno));
        return;
    }
    if (statvfs(directory, &room) < 0)
        return;
    available = (uint64_t)room.f_bavail * room.f_frsize;
    if (available < bytes)
        write_finding("problem", "%s: %s has %.1f GiB free, and %.1f GiB are needed", what, directory,
                      (double)available / (1 << 30), (double)bytes / (1 << 30));
}

static void check_device(const struct nvml *nvml, unsigned index)
{
    unsigned corrected, uncorrected, pending, failed;
    unsigned long long errors;
    char name[96] = "";
    nvml_device device;
    int rc = nvml->by_index(index, &device);

    if (rc != NVML_SUCCESS) {
        write_finding("problem", "GPU %u: the driver cannot reach it: %s", index, nvml->explain(rc));
        return;
    }
    nvml->uuid(device, name, sizeof name);
    if (nvml->ecc(device, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, &errors) == NVML_SUCCESS && errors)
        write_finding("problem", "GPU %u (%s): %llu uncorrected memory errors since its driver was loaded", index, name,
                      errors);
    if (nvml->rows(device, &corrected, &uncorrected, &pending, &failed) != NVML_SUCCESS)
        return; /* before Ampere there are none */
    if (failed)
        write_finding("problem", "GPU %u (%s): a row of its memory could not be remapped: replace the GPU", index,
                      name);
    else if (pending)
        write_finding("problem", "GPU %u (%s): rows of its memory need a reset to be remapped", index, name);
}

/*
 * NVML, if its library is installed: uncorrected ECC errors since the driver was loaded, and memory rows that need a
 * reset to be remapped or could not be remapped. Of this machine only.
 */
static void check_nvml(void)
{
    struct nvml nvml;
    unsigned count = 0;
    int rc;

    if (nvml_load(&nvml, NULL) < 0)
        return;
    rc = nvml.init();
    /* The library also lies on nodes without a GPU, where no driver is loaded. */
    if (rc == NVML_SUCCESS) {
        if (nvml.count(&count) == NVML_SUCCESS)
            for (unsigned i = 0; i < count; i++)
                check_device(&nvml, i);
        nvml.shutdown();
    } else if (access("/proc/driver/nvidia", F_OK) == 0) {
        write_finding("note", "NVIDIA's driver does not answer: %s", nvml.explain(rc));
    }
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

struct preflight_options {
    const char *checkpoint, *stage;
    long checkpoint_bytes, stage_bytes, seconds;
};

static const char usage[] = "usage: srun --ntasks-per-node=1 muster-preflight [--checkpoint DIR]\n"
                            "       [--checkpoint-bytes N] [--stage DIR] [--stage-bytes N] [--seconds N]\n"
                            "\nSee muster-preflight(1).\n";

/* Returns -1, or the exit code if the program is to end. */
static int read_options(int argc, char **argv, struct preflight_options *options)
{
    const struct option_row rows[] = {
        {"checkpoint", OPTION_TEXT, .to = &options->checkpoint},
        {"checkpoint-bytes", OPTION_WHOLE, .to = &options->checkpoint_bytes},
        {"stage", OPTION_TEXT, .to = &options->stage},
        {"stage-bytes", OPTION_WHOLE, .to = &options->stage_bytes},
        {"seconds", OPTION_WHOLE, .to = &options->seconds, .least = 3, .most = 3600},
        {0},
    };
    int code;

    *options = (struct preflight_options){.seconds = 15};
    code = options_read(rows, argc, argv, usage);
    if (code >= 0)
        return error_output(code);
    return optind < argc ? option_fail("unexpected argument %s", argv[optind]) : -1;
}

int main(int argc, char **argv)
{
    const char *slurm_name = getenv("SLURMD_NODENAME"), *other_root = getenv("MUSTER_PREFLIGHT_ROOT");
    const char *root = other_root && other_root[0] ? other_root : "/";
    double begun = clock_monotonic();
    struct preflight_options options;
    char driver[96], stage[JOB_PATH_SIZE];
    int code = read_options(argc, argv, &options);

    if (code >= 0)
        return code;
    gethostname(node_name, sizeof node_name - 1);
    if (slurm_name)
        snprintf(node_name, sizeof node_name, "%s", slurm_name);
    alarm((unsigned)options.seconds + 1);
    write_finding("clock", "%.6f", clock_realtime());
    check_plugin();
    write_finding("fact", "muster %s", PACKAGE_VERSION);
    if (sysfs_line(root, driver, sizeof driver, "sys/module/nvidia/version"))
        write_finding("fact", "NVIDIA-driver %s", driver);
    check_machine(root);
    if (root != other_root)
        check_nvml();
    check_directory("checkpoints", options.checkpoint, (uint64_t)options.checkpoint_bytes);
    if (options.stage && options.stage[0]) {
        job_stage_choose(options.stage, getenv(JOB_STAGE_VARIABLE), stage);
        check_directory("staged saves", stage, (uint64_t)options.stage_bytes);
    }
    write_finding("end", "%.3f", clock_monotonic() - begun);
    return CODE_OK;
}
