/*
 * spank_srun.c - what the plugin does in srun, sbatch and salloc (plugin.h says when). Its only tools are srun's own
 * environment, which the tasks inherit, and short calls to slurmctld: one for the switches, one for the layout, one or
 * two for addresses, whatever the number of ranks.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "common/error.h"
#include "common/job.h"
#include "srun-plugin/env.h"
#include "srun-plugin/epilog_timeout.h"
#include "srun-plugin/handoff.h"
#include "srun-plugin/layout.h"
#include "srun-plugin/module.h"
#include "srun-plugin/plugin.h"
#include "srun-plugin/port.h"
#include "srun-plugin/report.h"
#include "srun-plugin/route.h"
#include "srun-plugin/srun_line.h"
#include "srun-plugin/srun_order.h"

/* Why srun's own words could not be read; 0 where they were. */
static int wordless;

/* What is wrong with the job file of an srun that may be an interactive step's; "" where nothing is. */
static struct error held_back;

static struct handoff handoff;

/* ---- the words of srun ------------------------------------------------------------------------------------------- */

/* /proc/self/cmdline; words[0] is the text that all of them lie in, to be freed with the array. */
static char **read_words(size_t *count)
{
    FILE *file = fopen("/proc/self/cmdline", "re");
    char *text = NULL, **words = NULL, *word;
    size_t room = 0;
    ssize_t length = file ? getdelim(&text, &room, EOF, file) : -1;

    *count = 0;
    if (length > 0)
        words = calloc((size_t)length + 1, sizeof *words);
    for (word = text; words && word < text + length; word += strlen(word) + 1)
        words[(*count)++] = word;
    if (!words)
        free(text);
    if (file)
        fclose(file);
    return words;
}

static void free_words(char **words)
{
    if (words)
        free(words[0]);
    free(words);
}

/* An option of the job's, as sbatch and salloc hand it to the sruns inside; NULL where it was not given. */
static const char *option_of_job(const char *option)
{
    char name[128];

    snprintf(name, sizeof name, "SLURM_SPANK__SLURM_SPANK_OPTION_spank_muster_%s", option);
    return getenv(name);
}

static bool asked_for(const struct srun_line *line)
{
    return line->muster || option_of_job("muster") || option_of_job("muster_report") ||
           option_of_job("muster_preflight");
}

/* As srun_check will settle it; "(null)" is how Slurm passes an option without value on. */
static const char *job_file(const struct srun_line *line)
{
    const char *outer = option_of_job("muster");

    if (line->file)
        return line->file;
    return outer && outer[0] && strcmp(outer, "(null)") != 0 ? outer : getenv("MUSTER_JOB");
}

/* Whether a variable is the user's word, and not what an srun --muster around this one has set. */
static bool is_users(const char *name)
{
    const char *value = getenv(name), *record = getenv("MUSTER_SET");

    return value && !(record && env_was_set(record, name, value));
}

void srun_begin(void)
{
    struct srun_line line = {0};
    size_t count;
    char **words;

    errno = 0;
    words = read_words(&count);
    if (words)
        srun_line_read(words, count, &line);
    else
        wordless = errno ? errno : ENODATA;
    line.places |= !words; /* he may have asked for anything */
    line.binds |= !words;
    if (!words || asked_for(&line)) {
        handoff.user_binds =
            line.binds || getenv("SLURM_CPU_BIND") || getenv("SLURM_HINT") || getenv("SLURM_THREADS_PER_CORE");
        if (srun_order_begin(&line, job_file(&line), is_users("MASTER_ADDR"), site.topology))
            handoff.ordered = true;
    }
    free_words(words);
}

/* ---- the job file ------------------------------------------------------------------------------------------------ */

/* The SLURM_CPUS_PER_TASK around srun; "" for none. */
static char outer_cpus[32];

/*
 * srun sets SLURM_CPUS_PER_TASK only where it was given --cpus-per-task, and else leaves that of sbatch there. It has
 * read its inputs by now: with the variable gone, srun_step sees whether srun set it.
 */
static void hide_outer_cpus(void)
{
    const char *value = getenv("SLURM_CPUS_PER_TASK");

    if (!value || strlen(value) >= sizeof outer_cpus)
        return;
    snprintf(outer_cpus, sizeof outer_cpus, "%s", value);
    unsetenv("SLURM_CPUS_PER_TASK");
}

static void show_outer_cpus(void)
{
    if (!outer_cpus[0] || getenv("SLURM_CPUS_PER_TASK"))
        return;
    setenv("SLURM_CPUS_PER_TASK", outer_cpus, 1);
    handoff.cpus_inherited = true;
}

static int check_job_file(struct error *err)
{
    struct job job;

    if (job_load(&job, wish.file, NULL, 0, err) < 0)
        return -1;
    job_destroy(&job);
    return 0;
}

/* The tasks' working directory may be another: they get the absolute path. */
static int pass_job_file_on(struct error *err)
{
    char path[PATH_MAX];

    if (!realpath(wish.file, path) || setenv("MUSTER_JOB", path, 1) < 0)
        return error_errno(err, CODE_IO, "%s", wish.file);
    return 0;
}

/* True for "-n" and "--ntasks", whose value may be the next word; false for "-n1" and "--ntasks=1". */
static bool may_take_a_value(const char *option)
{
    return option[1] == '-' ? !strchr(option, '=') : strlen(option) == 2;
}

/*
 * With LaunchParameters=use_interactive_step, salloc's shell is that of a hidden `srun --interactive` in the job. No
 * item tells it from others before the step exists, but its options do. `srun --muster PROGRAM --interactive` looks
 * like it: local_user_init, which knows the step's id, decides. To leave every decision to it would not do: a step
 * whose srun ends there holds its CPUs until the job ends.
 */
static bool may_be_interactive(void)
{
    FILE *file = getenv("SLURM_JOB_ID") ? fopen("/proc/self/cmdline", "r") : NULL;
    char *word = NULL;
    size_t size = 0;
    bool found = false, value = true; /* the first word is srun's own name */

    if (!file)
        return false;
    while (!found && getdelim(&word, &size, '\0', file) > 0 && (word[0] == '-' || value)) {
        found = strcmp(word, "--interactive") == 0;
        if (strcmp(word, "--") == 0)
            break;
        value = word[0] == '-' && may_take_a_value(word);
    }
    free(word);
    fclose(file);
    return found;
}

static void warn_of_job_file(const struct error *err)
{
    slurm_spank_log("muster: warning: %s; srun will refuse it like this", err->text);
}

/* SPANK has no way to choose srun's exit code. No task was launched as yet. */
static void refuse_job_file(const struct error *err)
{
    slurm_spank_log("muster: %s", err->text);
    exit((int)err->code);
}

void sbatch_check(void)
{
    struct error err;

    if (wish.file[0] && check_job_file(&err) < 0)
        /* The job may sit in the queue for days, and its file be mended meanwhile, or be in another directory. */
        warn_of_job_file(&err);
}

void srun_check(void)
{
    const char *outer = getenv("MUSTER_JOB");
    struct error err;

    if (wordless)
        slurm_spank_log("muster: warning: cannot read what srun was asked for: %s; the ranks are neither ordered nor "
                        "bound",
                        strerror(wordless));
    hide_outer_cpus();
    if (wish.preflight.on)
        preflight_look_around(&wish.preflight);
    if (!wish.file[0] && outer)
        snprintf(wish.file, sizeof wish.file, "%s", outer);
    if (!wish.file[0] || (check_job_file(&err) == 0 && pass_job_file_on(&err) == 0))
        return;
    if (!may_be_interactive())
        refuse_job_file(&err);
    held_back = err;
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* The address of rank 0's node, and of one other; where slurmctld does not tell one, the node's name has to do. */
static void find_addresses(struct layout *layout)
{
    struct error err;

    if (layout_find_head(layout, &err) < 0)
        slurm_spank_log("muster: warning: %s; MASTER_ADDR is its name", err.text);
    snprintf(handoff.head, sizeof handoff.head, "%s", layout->head);
    handoff.cpus_are_cores = layout->cpus_are_cores;
    handoff.head_node = (unsigned)(layout_node_of_rank_0(layout) - layout->nodes);
    layout_find_peer(layout, handoff.peer, sizeof handoff.peer);
}

/* A port that is free here is of use only where rank 0 will listen here. */
static void find_port(const struct layout *layout)
{
    char host[LAYOUT_NAME_SIZE] = "";

    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    if (strcmp(host, layout_node_of_rank_0(layout)->name) == 0)
        handoff.port = port_choose(layout->job_id, layout->step_id, port_is_free, NULL);
}

static void hand_over(void)
{
    char text[HANDOFF_SIZE];

    setenv(HANDOFF_NAME, handoff_text(&handoff, text), 1);
}

/* What srun shall end with, since preflight found a bad node; 0 where it did not. */
static int refused;

static void check_nodes(const struct layout *layout)
{
    struct error err = {.text = "the step is heterogeneous"};
    bool can = !getenv("SLURM_HET_SIZE");

    wish.preflight.program = site.preflight ? site.preflight : PREFLIGHT_PATH;
    wish.preflight.job_file = wish.file;
    if (can && !site.preflight)
        can = module_trust(PREFLIGHT_PATH, &err) == 0;
    if (can)
        refused = preflight_option_run(&wish.preflight, layout, plugin_print);
    else
        slurm_spank_log("muster: preflight: warning: the nodes were not checked: %s", err.text);
}

/*
 * slurm.conf as srun has it in memory: configless, it has no file of it. Slurm's headers declare the type only. Weak:
 * without it the plugin still loads.
 */
extern slurm_conf_t slurm_conf __attribute__((weak));

static void warn_of_timeout(void)
{
    int timeout = NO_VAL16; /* Slurm's value for none */
    char warning[512];

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
    if (&slurm_conf)
        timeout = slurm_conf.epilog_timeout;
#else
    if (&slurm_conf)
        timeout = slurm_conf.prolog_epilog_timeout;
#endif
    epilog_timeout_fit(site.epilog_seconds, timeout < NO_VAL16 ? timeout : EPILOG_NO_TIMEOUT, warning, sizeof warning);
    if (warning[0])
        plugin_print(warning);
}

static void report(const struct layout *layout)
{
    srun_order_report(layout, wish.file[0] ? wish.file : NULL, site.topology, wish.json, plugin_print);
    warn_of_timeout();
}

static void lay_out(uint32_t job_id, uint32_t step_id)
{
    struct error err;
    struct layout *layout = layout_create(job_id, step_id, &err);

    if (!layout) {
        slurm_spank_log("muster: warning: %s; MASTER_ADDR is the first node's name", err.text);
        return;
    }
    find_addresses(layout);
    find_port(layout);
    handoff.mapped = srun_order_step(layout, wish.file[0] ? wish.file : NULL, site.topology);
    if (wish.report)
        report(layout);
    hand_over(); /* preflight may end this process, or let the step be launched only to end it */
    if (wish.preflight.on)
        check_nodes(layout);
    layout_destroy(layout);
}

/* On a dead node not even a task that ends at once can be started, and srun has a code of its own. */
void srun_end(void)
{
    if (!refused)
        return;
    fflush(NULL);
    _exit(refused);
}

void srun_step(spank_t spank)
{
    uint32_t job_id, step_id;

    srun_order_clean();
    show_outer_cpus();
    if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS) {
        if (held_back.text[0])
            refuse_job_file(&held_back);
        slurm_spank_log("muster: warning: Slurm does not tell the step's id; MASTER_ADDR is the first node's name");
        hand_over();
        return;
    }
    if (held_back.text[0] && step_id < SLURM_MAX_NORMAL_STEP_ID)
        refuse_job_file(&held_back);
    if (held_back.text[0])
        warn_of_job_file(&held_back);
    if (step_id >= SLURM_MAX_NORMAL_STEP_ID)
        return; /* it has no ranks */
    hand_over();
    lay_out(job_id, step_id);
}
