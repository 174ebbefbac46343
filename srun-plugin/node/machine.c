#include "srun-plugin/node/machine.h"

#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "common/library.h"
#include "common/text.h"
#include "srun-plugin/node/cpus.h"
#include "srun-plugin/node/sysfs.h"

#ifdef HAVE_HWLOC

#include <hwloc.h>

/* The size of a list of CPUS_MAX CPUs of which every second one is missing. */
#define LIST_SIZE (CPUS_MAX * 3)

/* hwloc 2; loaded on first use, since most processes of Slurm that load the plugin never call it. */
#define HWLOC_FUNCTIONS(f)                                                                                             \
    f(hwloc_bitmap_first) f(hwloc_bitmap_intersects) f(hwloc_bitmap_isincluded) f(hwloc_bitmap_next)                   \
        f(hwloc_get_nbobjs_by_depth) f(hwloc_get_obj_by_depth) f(hwloc_get_type_depth) f(hwloc_topology_destroy)       \
            f(hwloc_topology_export_xml) f(hwloc_topology_get_allowed_cpuset) f(hwloc_topology_get_topology_cpuset)    \
                f(hwloc_topology_init) f(hwloc_topology_load) f(hwloc_topology_set_all_types_filter)                   \
                    f(hwloc_topology_set_components) f(hwloc_topology_set_flags) f(hwloc_topology_set_type_filter)     \
                        f(hwloc_topology_set_xml)

static struct hwloc {
    HWLOC_FUNCTIONS(LIBRARY_MEMBER)
} hwloc;

static int load_hwloc(struct error *err)
{
    static const struct library library = {"hwloc", "MUSTER_HWLOC", "libhwloc.so.15", "2.1"};
    static const char *const names[] = {HWLOC_FUNCTIONS(LIBRARY_NAME)};

    if (hwloc.hwloc_topology_load || library_load(&library, names, sizeof names / sizeof *names, &hwloc, err) == 0)
        return 0;
    hwloc = (struct hwloc){0};
    if (err)
        err->code = CODE_INTERNAL;
    return error_prefix(err, "cores, memory and GPUs are not known");
}

/* The next object of a type, the first for NULL. */
static hwloc_obj_t next_object(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_obj_t previous)
{
    if (previous)
        return previous->next_cousin;
    return hwloc.hwloc_get_obj_by_depth(topology, hwloc.hwloc_get_type_depth(topology, type), 0);
}

/*
 * Only the types that are needed: without caches and OS devices hwloc opens far fewer files and loads none of its
 * plugins (NVML, CUDA, OpenCL), which could take seconds and start GPUs. PCI devices are children of groups where a
 * socket has several NUMA nodes.
 */
static int select_types(hwloc_topology_t topology)
{
    static const hwloc_obj_type_t types[] = {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_CORE, HWLOC_OBJ_BRIDGE, HWLOC_OBJ_PCI_DEVICE};

    if (hwloc.hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) < 0)
        return -1;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (hwloc.hwloc_topology_set_type_filter(
                topology, types[i], i < 2 ? HWLOC_TYPE_FILTER_KEEP_ALL : HWLOC_TYPE_FILTER_KEEP_IMPORTANT) < 0)
            return -1;
    if (hwloc.hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) < 0)
        return -1;
    return hwloc.hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
}

/*
 * Most of hwloc's time goes into reading the configuration space of PCI devices, in a virtual machine a millisecond
 * each. With one NUMA node and no GPU the PCI tree is not needed.
 */
static bool needs_pci(void)
{
    char nodes[64] = "", class[16] = "", **devices;
    bool found = false;

    if (!sysfs_line("/", nodes, sizeof nodes, "sys/devices/system/node/online") || strcmp(nodes, "0") != 0)
        return true;
    devices = sysfs_list("/", "sys/bus/pci/devices");
    for (char **device = devices; device && *device && !found; device++)
        found = sysfs_line("/", class, sizeof class, "sys/bus/pci/devices/%s/class", *device) &&
                (strncmp(class, "0x03", 4) == 0 || strncmp(class, "0x12", 4) == 0);
    sysfs_list_free(devices);
    return found;
}

/*
 * hwloc's component for x86 binds this thread to each CPU in turn to read its CPUID, which adds nothing to what Linux
 * reports.
 */
static int load_topology(hwloc_topology_t topology, const char *xml)
{
    hwloc.hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    if (select_types(topology) < 0)
        return -1;
    if (xml && hwloc.hwloc_topology_set_xml(topology, xml) < 0)
        return -1;
    if (!xml && !needs_pci())
        hwloc.hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "linux:pci");
    return hwloc.hwloc_topology_load(topology);
}

static int open_topology(hwloc_topology_t *topology, const char *xml, struct error *err)
{
    if (load_hwloc(err) < 0)
        return -1;
    if (xml && access(xml, R_OK) < 0)
        return error_errno(err, CODE_IO, "%s", xml);
    if (hwloc.hwloc_topology_init(topology) < 0)
        return error_errno(err, CODE_IO, "hwloc does not start");
    if (load_topology(*topology, xml) == 0)
        return 0;
    if (xml)
        error_set(err, CODE_DATA, "%s: not a topology that hwloc can read; lstopo --of xml writes one", xml);
    else
        error_errno(err, CODE_IO, "hwloc cannot read this machine");
    hwloc.hwloc_topology_destroy(*topology);
    return -1;
}

int machine_save(const char *xml, const char *path, struct error *err)
{
    hwloc_topology_t topology;
    int rc;

    if (open_topology(&topology, xml, err) < 0)
        return -1;
    if ((rc = hwloc.hwloc_topology_export_xml(topology, path, 0)) < 0)
        error_errno(err, CODE_IO, "%s cannot be written", path);
    hwloc.hwloc_topology_destroy(topology);
    return rc < 0 ? -1 : 0;
}

/* ---- cores and memory -------------------------------------------------------------------------------------------- */

struct writer {
    FILE *out;
    hwloc_topology_t topology;
    hwloc_obj_t *numas; /* of the text */
    int numa_count;
    int rows; /* bridges and devices so far */
};

static void write_cpus(struct writer *w, const char *before, hwloc_const_bitmap_t from)
{
    char text[LIST_SIZE];
    struct cpus set = {0};

    for (int cpu = from ? hwloc.hwloc_bitmap_first(from) : -1; cpu >= 0 && cpu < CPUS_MAX;
         cpu = hwloc.hwloc_bitmap_next(from, cpu))
        cpus_add(&set, (unsigned)cpu);
    fprintf(w->out, "%s %s\n", before, cpus_format(&set, text, sizeof text));
}

static int package_of(struct writer *w, hwloc_obj_t numa)
{
    hwloc_obj_t package = NULL;

    while ((package = next_object(w->topology, HWLOC_OBJ_PACKAGE, package)))
        if (hwloc.hwloc_bitmap_intersects(package->nodeset, numa->nodeset))
            return (int)package->logical_index;
    return -1;
}

static void write_numas(struct writer *w)
{
    hwloc_obj_t numa = NULL;
    char before[96];

    while ((numa = next_object(w->topology, HWLOC_OBJ_NUMANODE, numa))) {
        /* The kernel shows the memory of some GPUs as NUMA nodes (Grace Hopper); no rank is bound there. */
        if (numa->subtype && strcmp(numa->subtype, "GPUMemory") == 0)
            continue;
        w->numas[w->numa_count++] = numa;
        snprintf(before, sizeof before, "numa %u %d %" PRIu64, numa->os_index, package_of(w, numa),
                 (uint64_t)numa->attr->numanode.local_memory);
        write_cpus(w, before, numa->cpuset);
    }
}

/* ---- PCI --------------------------------------------------------------------------------------------------------- */

/* The NUMA node of a device; -1 if it belongs to a package or machine with several. */
static int numa_of_device(const struct writer *w, hwloc_obj_t device)
{
    hwloc_obj_t holder = hwloc_get_non_io_ancestor_obj(w->topology, device);

    for (int i = 0; i < w->numa_count; i++)
        if (hwloc.hwloc_bitmap_intersects(w->numas[i]->cpuset, holder->cpuset))
            return hwloc.hwloc_bitmap_isincluded(holder->cpuset, w->numas[i]->cpuset) ? i : -1;
    return -1;
}

static void write_pci(struct writer *w, hwloc_obj_t object, int above)
{
    const struct hwloc_pcidev_attr_s *pci = object->attr ? &object->attr->pcidev : NULL;
    int own = above;

    if (object->type == HWLOC_OBJ_BRIDGE || object->type == HWLOC_OBJ_PCI_DEVICE)
        own = w->rows++;
    if (object->type == HWLOC_OBJ_BRIDGE)
        fprintf(w->out, "bridge %d %s\n", above,
                object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI ? "pci" : "host");
    else if (object->type == HWLOC_OBJ_PCI_DEVICE)
        fprintf(w->out, "device %d %d %04x %04x:%04x %04x:%02x:%02x.%x\n", above, numa_of_device(w, object),
                pci->class_id, pci->vendor_id, pci->device_id, (unsigned)pci->domain & 0xffff, pci->bus, pci->dev,
                (unsigned)pci->func & 7);
    for (hwloc_obj_t child = object->first_child; child; child = child->next_sibling)
        write_pci(w, child, own);
    for (hwloc_obj_t child = object->io_first_child; child; child = child->next_sibling)
        write_pci(w, child, own);
}

/* ---- the whole text ---------------------------------------------------------------------------------------------- */

static char *write_text(hwloc_topology_t topology)
{
    hwloc_obj_type_t type = next_object(topology, HWLOC_OBJ_CORE, NULL) ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    hwloc_obj_t core = NULL;
    int numas = hwloc.hwloc_get_nbobjs_by_depth(topology, HWLOC_TYPE_DEPTH_NUMANODE);
    char *text = NULL;
    size_t size;
    struct writer w = {.topology = topology,
                       .out = open_memstream(&text, &size),
                       .numas = calloc((size_t)numas + 1, sizeof(hwloc_obj_t))};

    if (w.out && w.numas) {
        fputs(MACHINE_FORM "\n", w.out);
        write_cpus(&w, "allowed", hwloc.hwloc_topology_get_allowed_cpuset(topology));
        write_cpus(&w, "cpus", hwloc.hwloc_topology_get_topology_cpuset(topology));
        write_numas(&w);
        while ((core = next_object(topology, type, core)))
            write_cpus(&w, "core", core->cpuset);
        write_pci(&w, hwloc.hwloc_get_obj_by_depth(topology, 0, 0), -1);
        fputs("end\n", w.out);
    }
    if (w.out && (fclose(w.out) != 0 || !w.numas)) {
        free(text);
        text = NULL;
    }
    free(w.numas);
    return text;
}

char *machine_read(const char *xml, struct error *err)
{
    hwloc_topology_t topology;
    char *text;

    if (open_topology(&topology, xml, err) < 0)
        return NULL;
    if (!(text = write_text(topology)))
        error_set(err, CODE_IO, "no memory for the machine");
    hwloc.hwloc_topology_destroy(topology);
    return text;
}

#else

char *machine_read(const char *xml, struct error *err)
{
    (void)xml;
    error_set(err, CODE_INTERNAL,
              "cores, memory and GPUs are not known: built without hwloc; install libhwloc-dev and build again");
    return NULL;
}

int machine_save(const char *xml, const char *path, struct error *err)
{
    (void)xml;
    return error_set(err, CODE_INTERNAL, "%s cannot be written: built without hwloc", path);
}

#endif

/* ---- the copy of slurmd ------------------------------------------------------------------------------------------ */

#define TEXT_MAX (4 << 20)

static bool is_trusted(const struct stat *status)
{
    return (status->st_uid == 0 || status->st_uid == geteuid()) && (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* KIND-BOOT_ID; false if the kernel has no such number. Not by sysfs_line: snapshots do not need it. */
static bool name_file(const char *kind, char *name, size_t size)
{
    static char *boot; /* read once a process */

    boot = boot ? boot : text_read_file("/proc/sys/kernel/random/boot_id", 64, NULL, NULL);
    if (!boot || snprintf(name, size, "%s-%.*s", kind, (int)strcspn(boot, "\n"), boot) >= (int)size)
        return false;
    for (char *slash = name; (slash = strchr(slash, '/'));)
        *slash = '_';
    return true;
}

/* A descriptor of dir, if others cannot write there; -1 and errno. */
static int open_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;

    if (fd >= 0 && fstat(fd, &status) == 0 && is_trusted(&status))
        return fd;
    if (fd >= 0) {
        close(fd);
        errno = EPERM;
    }
    return -1;
}

/* Writes another file and renames it, so that a reader sees a whole file or none. A machine may have several slurmd. */
static int replace_file(int dir_fd, const char *name, const char *text, size_t size)
{
    char draft[32];
    int fd;

    snprintf(draft, sizeof draft, "new-%d", (int)getpid());
    unlinkat(dir_fd, draft, 0);
    fd = openat(dir_fd, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    if (io_write_all(fd, text, size) < 0 || fchmod(fd, 0644) < 0) {
        close(fd);
        unlinkat(dir_fd, draft, 0);
        return -1;
    }
    return close(fd) < 0 ? -1 : renameat(dir_fd, draft, dir_fd, name);
}

int slurmd_cache_write(const char *dir, const char *kind, const char *text, struct error *err)
{
    char name[NAME_MAX];
    int fd = -1, status;

    if (!name_file(kind, name, sizeof name))
        return error_set(err, CODE_IO, "%s: the kernel has no boot_id to name a file by, or a path is too long", dir);
    if ((mkdir(dir, 0755) < 0 && errno != EEXIST) || (fd = open_dir(dir)) < 0)
        return error_errno(err, CODE_IO, "%s cannot be used", dir);
    status = replace_file(fd, name, text, strlen(text));
    if (status < 0)
        error_errno(err, CODE_IO, "%s/%s", dir, name);
    close(fd);
    return status;
}

int machine_cache_write(const char *dir, struct error *err)
{
    char *text = machine_read(NULL, err);
    int status = text ? slurmd_cache_write(dir, MACHINE_CACHE, text, err) : -1;

    free(text);
    return status;
}

char *slurmd_cache_read(const char *dir, const char *kind)
{
    char name[NAME_MAX], *text = NULL;
    struct stat status;
    int dir_fd = open_dir(dir), fd = -1;

    if (dir_fd >= 0 && name_file(kind, name, sizeof name))
        fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && is_trusted(&status) &&
        status.st_size <= TEXT_MAX && (text = calloc(1, (size_t)status.st_size + 1)) &&
        io_read_at(fd, text, (size_t)status.st_size, 0) != status.st_size) {
        free(text);
        text = NULL;
    }
    if (fd >= 0)
        close(fd);
    if (dir_fd >= 0)
        close(dir_fd);
    return text;
}
