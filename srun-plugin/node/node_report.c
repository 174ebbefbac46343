#include "srun-plugin/node/node_report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct table_output {
    node_print *print;
    void *arg;
};

static void __attribute__((format(printf, 2, 3))) print_line(const struct table_output *out, const char *format, ...)
{
    char line[1024], *end;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (end = line + strlen(line); end > line && end[-1] == ' '; end--) /* blanks of empty last columns */
        end[-1] = '\0';
    out->print(line, out->arg);
}

/* "120 GiB", rounded. */
static const char *format_bytes(uint64_t count, char *text, size_t size)
{
    if (count < UINT64_C(1) << 30)
        snprintf(text, size, "%llu MiB", (unsigned long long)(count >> 20));
    else
        snprintf(text, size, "%llu GiB", (unsigned long long)((count + (UINT64_C(1) << 29)) >> 30));
    return text;
}

static const char *numa_name(const struct node *node, int numa, char *text, size_t size)
{
    if (numa < 0)
        return "?";
    snprintf(text, size, "%u", node->numas[numa].os_index);
    return text;
}

static void report_machine(const struct node *node, const struct table_output *out)
{
    char total[32], shm[32], unused[32], list[64];

    print_line(out, "machine  %s", node->title[0] ? node->title : "(not in its firmware)");
    print_line(out, "memory   %s, /dev/shm %s, %s free", format_bytes(node->memory_total, total, sizeof total),
               format_bytes(node->shm_size, shm, sizeof shm), format_bytes(node->shm_free, unused, sizeof unused));
    if (node->has_hwloc)
        print_line(out, "cores    %zu, CPUs %s", node->core_count, cpus_format(&node->cpus, list, sizeof list));
    if (!cpus_equal(&node->cpus, &node->allowed))
        print_line(out, "allowed  CPUs %s", cpus_format(&node->allowed, list, sizeof list));
}

static void report_numas(const struct node *node, const struct table_output *out)
{
    if (!node->numa_count)
        return;
    print_line(out, "%s", "");
    print_line(out, "numa  socket  memory    CPUs");
    for (size_t i = 0; i < node->numa_count; i++) {
        const struct node_numa *numa = &node->numas[i];
        char memory[32], list[64];

        print_line(out, "%4u  %6d  %8s  %s", numa->os_index, numa->package,
                   format_bytes(numa->memory, memory, sizeof memory), cpus_format(&numa->cpus, list, sizeof list));
    }
}

static void report_gpus(const struct node *node, const struct table_output *out)
{
    if (!node->gpu_count)
        return;
    print_line(out, "%s", "");
    print_line(out, "gpu  address       numa  state      driver    model");
    for (size_t i = 0; i < node->gpu_count; i++) {
        const struct node_gpu *gpu = &node->gpus[i];
        char numa[16];

        print_line(out, "%3zu  %-12s  %4s  %-9s  %-8s  %s", i, gpu->address,
                   numa_name(node, gpu->numa, numa, sizeof numa), gpu_state_name(gpu->state),
                   gpu->driver[0] ? gpu->driver : "-", gpu->model);
    }
}

static void report_nics(const struct node *node, const struct table_output *out)
{
    print_line(out, "%s", "");
    print_line(out, "nic              kind        numa  link  Gbit/s  interface     address");
    for (size_t i = 0; i < node->nic_count; i++) {
        const struct node_nic *nic = &node->nics[i];
        char numa[16], rate[16], bond[NODE_NAME_SIZE + 4] = "";

        snprintf(rate, sizeof rate, "%u", nic->rate);
        if (nic->bond[0])
            snprintf(bond, sizeof bond, "%sin %s", nic->inet[0] ? " " : "", nic->bond);
        print_line(out, "%-15s  %-10s  %4s  %-4s  %6s  %-12s  %s%s%s", node_nic_name(nic), nic_kind_name(nic->kind),
                   nic->kind == NIC_VIRTUAL ? "-" : numa_name(node, nic->numa, numa, sizeof numa),
                   nic->up ? "up" : "down",
                   !nic->up    ? "-"
                   : nic->rate ? rate
                               : "?",
                   nic->netdev[0] ? nic->netdev : "-", nic->inet, nic->default_route ? " (default)" : "", bond);
    }
}

void node_report(const struct node *node, node_print *print, void *arg)
{
    const struct table_output out = {print, arg};

    report_machine(node, &out);
    report_numas(node, &out);
    report_gpus(node, &out);
    report_nics(node, &out);
    if (node->problem_count)
        print_line(&out, "%s", "");
    for (size_t i = 0; i < node->problem_count; i++)
        print_line(&out, "problem: %s", node->problems[i]);
}

static void list_nics(const struct node *node, const struct bind_rank *rank, char *text, size_t size)
{
    size_t used = 0;

    snprintf(text, size, "-");
    for (size_t i = 0; i < rank->nic_count && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", i ? "," : "", node_nic_name(&node->nics[rank->nics[i]]));
}

void bind_report(const struct node *node, const struct bind_plan *plan, node_print *print, void *arg)
{
    const struct table_output out = {print, arg};

    print_line(&out, "rank  gpu  path     numa  threads  CPUs                      NICs%s",
               plan->by_user ? "  (CPUs as requested from Slurm)" : "");
    for (size_t i = 0; i < plan->count; i++) {
        const struct bind_rank *rank = &plan->ranks[i];
        char gpu[16] = "-", mems[32], cpus[48], nics[256];

        if (rank->gpu >= 0)
            snprintf(gpu, sizeof gpu, "%d", rank->gpu);
        list_nics(node, rank, nics, sizeof nics);
        print_line(&out, "%4zu  %3s  %-7s  %4s  %7u  %-24s  %s", i, gpu,
                   rank->nic_count ? node_path_name(rank->path) : "-", cpus_format(&rank->mems, mems, sizeof mems),
                   rank->threads, cpus_format(&rank->cpus, cpus, sizeof cpus), nics);
    }
    if (plan->note_count)
        print_line(&out, "%s", "");
    for (size_t i = 0; i < plan->note_count; i++)
        print_line(&out, "note: %s", plan->notes[i]);
}
