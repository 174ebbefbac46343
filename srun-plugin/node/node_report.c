#include "srun-plugin/node/bind.h"

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

static void report_machine(const struct node *node, FILE *out)
{
    char total[32], shm[32], unused[32], list[64];

    fprintf(out, "machine  %s\n", node->title[0] ? node->title : "(not in its firmware)");
    if (node->memory_total)
        fprintf(out, "memory   %s, /dev/shm %s, %s free\n", format_bytes(node->memory_total, total, sizeof total),
                format_bytes(node->shm_size, shm, sizeof shm), format_bytes(node->shm_free, unused, sizeof unused));
    if (node->core_count)
        fprintf(out, "cores    %zu, CPUs %s\n", node->core_count, cpus_format(&node->cpus, list, sizeof list));
    if (!cpus_equal(&node->cpus, &node->allowed))
        fprintf(out, "allowed  CPUs %s\n", cpus_format(&node->allowed, list, sizeof list));
}

static void report_numas(const struct node *node, FILE *out)
{
    if (!node->numa_count)
        return;
    fputs("\nnuma  socket  memory    CPUs\n", out);
    for (size_t i = 0; i < node->numa_count; i++) {
        const struct node_numa *numa = &node->numas[i];
        char memory[32], list[64];

        fprintf(out, "%4u  %6d  %8s  %s\n", numa->os_index, numa->package,
                format_bytes(numa->memory, memory, sizeof memory), cpus_format(&numa->cpus, list, sizeof list));
    }
}

static void report_gpus(const struct node *node, FILE *out)
{
    if (!node->gpu_count)
        return;
    fputs("\ngpu  address       numa  state      driver    model\n", out);
    for (size_t i = 0; i < node->gpu_count; i++) {
        const struct node_gpu *gpu = &node->gpus[i];
        char numa[16];

        fprintf(out, "%3zu  %-12s  %4s  %-9s  %-8s  %s\n", i, gpu->address,
                numa_name(node, gpu->numa, numa, sizeof numa), gpu_state_name(gpu->state),
                gpu->driver[0] ? gpu->driver : "-", gpu->model);
    }
}

static void report_nics(const struct node *node, FILE *out)
{
    if (!node->nic_count)
        return;
    fputs("\nnic              kind        numa  link  Gbit/s  interface     address\n", out);
    for (size_t i = 0; i < node->nic_count; i++) {
        const struct node_nic *nic = &node->nics[i];
        bool last = !nic->inet[0] && !nic->default_route && !nic->bond[0]; /* no blanks at the end of a line */
        char numa[16], rate[16];

        snprintf(rate, sizeof rate, "%u", nic->rate);
        fprintf(out, "%-15s  %-10s  %4s  %-4s  %6s  %-*s%s%s%s%s%s%s\n", node_nic_name(nic), nic_kind_name(nic->kind),
                nic->kind == NIC_VIRTUAL ? "-" : numa_name(node, nic->numa, numa, sizeof numa), nic->up ? "up" : "down",
                !nic->up    ? "-"
                : nic->rate ? rate
                            : "?",
                last ? 0 : 12, nic->netdev[0] ? nic->netdev : "-", last ? "" : "  ", nic->inet,
                nic->default_route ? " (default)" : "", nic->inet[0] && nic->bond[0] ? " " : "",
                nic->bond[0] ? "in " : "", nic->bond);
    }
}

void node_report(const struct node *node, FILE *out)
{
    report_machine(node, out);
    report_numas(node, out);
    report_gpus(node, out);
    report_nics(node, out);
    if (node->problem_count)
        fputc('\n', out);
    for (size_t i = 0; i < node->problem_count; i++)
        fprintf(out, "problem: %s\n", node->problems[i]);
}

void bind_report(const struct node *node, const struct binding *binding, FILE *out)
{
    fprintf(out, "rank  gpu  path     numa  threads  CPUs                      NICs%s\n",
            binding->keeps_given ? "  (CPUs as bound by Slurm)" : "");
    for (size_t i = 0; i < binding->count; i++) {
        const struct bind_rank *rank = &binding->ranks[i];
        char gpu[16] = "-", mems[32], cpus[48];

        if (rank->gpu >= 0)
            snprintf(gpu, sizeof gpu, "%d", rank->gpu);
        fprintf(out, "%4zu  %3s  %-7s  %4s  %7u  %-24s  %s", i, gpu, rank->nic_count ? node_path_name(rank->path) : "-",
                cpus_format(&rank->mems, mems, sizeof mems), rank->threads, cpus_format(&rank->cpus, cpus, sizeof cpus),
                rank->nic_count ? "" : "-");
        for (size_t j = 0; j < rank->nic_count; j++)
            fprintf(out, "%s%s", j ? "," : "", node_nic_name(&node->nics[rank->nics[j]]));
        fputc('\n', out);
    }
    if (binding->note_count)
        fputc('\n', out);
    for (size_t i = 0; i < binding->note_count; i++)
        fprintf(out, "note: %s\n", binding->notes[i]);
}
