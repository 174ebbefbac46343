#include "plan/plan_machine.h"

#include <glob.h>
#include <libconfig.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/text.h"

#define MACHINE_FILE_MOST ((size_t)1 << 20)

/* A key of a file. */
struct machine_key {
    const char *name; /* NULL ends a table */
    size_t offset;
    enum { REQUIRED, OPTIONAL, FLAG } kind; /* a number, a number that may be missing, a boolean that may be missing */
};

#define KEY(type, member, is) .name = #member, .offset = offsetof(struct type, member), .kind = is

static const struct machine_key machine_keys[] = {{KEY(plan_machine, gpu, FLAG)},
                                                  {KEY(plan_machine, peak_fp32, REQUIRED)},
                                                  {KEY(plan_machine, peak_bf16, OPTIONAL)},
                                                  {KEY(plan_machine, peak_fp16, OPTIONAL)},
                                                  {KEY(plan_machine, product, REQUIRED)},
                                                  {KEY(plan_machine, attention, REQUIRED)},
                                                  {KEY(plan_machine, memory, REQUIRED)},
                                                  {KEY(plan_machine, bandwidth, REQUIRED)},
                                                  {KEY(plan_machine, units, OPTIONAL)},
                                                  {KEY(plan_machine, host_link, OPTIONAL)},
                                                  {KEY(plan_machine, host_rate, REQUIRED)},
                                                  {KEY(plan_machine, row_bandwidth, OPTIONAL)},
                                                  {0}};

static const struct machine_key level_keys[] = {
    {KEY(machine_level, bandwidth, OPTIONAL)}, {KEY(machine_level, latency, OPTIONAL)}, {0}};

static const struct machine_key stack_keys[] = {{KEY(stack, product, REQUIRED)},     {KEY(stack, rows, REQUIRED)},
                                                {KEY(stack, attention, REQUIRED)},   {KEY(stack, launch, REQUIRED)},
                                                {KEY(stack, links, REQUIRED)},       {KEY(stack, overlap, REQUIRED)},
                                                {KEY(stack, context, REQUIRED)},     {KEY(stack, cache, REQUIRED)},
                                                {KEY(stack, fused_attention, FLAG)}, {KEY(stack, splits_rows, FLAG)},
                                                {KEY(stack, fp16_gradients, FLAG)},  {KEY(stack, exact_memory, FLAG)},
                                                {KEY(stack, logit_bytes, REQUIRED)}, {KEY(stack, optimizer, REQUIRED)},
                                                {KEY(stack, error, OPTIONAL)},       {0}};

static int read_keys(const config_setting_t *group, const struct machine_key *keys, void *to, const char *path,
                     struct error *err)
{
    for (; keys->name; keys++) {
        const config_setting_t *value = config_setting_get_member(group, keys->name);
        void *at = (char *)to + keys->offset;

        if (!value && keys->kind != REQUIRED)
            continue;
        if (!value)
            return error_set(err, CODE_CONFIG, "%s:%u: \"%s\" is missing", path, config_setting_source_line(group),
                             keys->name);
        if (keys->kind == FLAG)
            *(bool *)at = config_setting_get_bool(value);
        else if (config_setting_is_number(value))
            *(double *)at = config_setting_type(value) == CONFIG_TYPE_FLOAT ? config_setting_get_float(value)
                                                                            : (double)config_setting_get_int64(value);
        else
            return error_set(err, CODE_CONFIG, "%s:%u: \"%s\" must be a number", path,
                             config_setting_source_line(value), keys->name);
    }
    return 0;
}

static int read_levels(const config_setting_t *root, struct plan_machine *machine, const char *path, struct error *err)
{
    const config_setting_t *list = config_setting_get_member(root, "levels");
    int count = list ? config_setting_length(list) : 0;

    if (count < 1 || count > MACHINE_LEVELS)
        return error_set(err, CODE_CONFIG, "%s: \"levels\" must list 1 to %d groups", path, MACHINE_LEVELS);
    for (machine->levels = 0; machine->levels < count; machine->levels++) {
        const config_setting_t *item = config_setting_get_elem(list, (unsigned)machine->levels);
        struct machine_level *level = &machine->level[machine->levels];

        if (read_keys(item, level_keys, level, path, err) < 0)
            return -1;
        config_setting_lookup_int(item, "ranks", &level->ranks);
        if (level->bandwidth <= 0 || (level->ranks < 1 && machine->levels < count - 1))
            return error_set(err, CODE_CONFIG, "%s:%u: a level needs \"bandwidth\" and, but for the last, \"ranks\"",
                             path, config_setting_source_line(item));
    }
    return 0;
}

/* Finds NAME.cfg: a path, or a file in $MUSTER_MACHINES, beside this program's tree, or where muster was installed, whose
 * name may differ in case. Lists in `known` the names of the machines that it passed. */
static bool find_file(const char *name, char *path, size_t size, char known[512])
{
    const char *own = getenv("MUSTER_MACHINES");
    char program[512] = "", pattern[1024];
    const char *const folders[][2] = {
        {own, ""}, {program, "/../etc/machines"}, {program, "/../share/muster/machines"}, {MACHINE_DIR, ""}};
    bool found = false;

    known[0] = '\0';
    snprintf(path, size, "%s", name);
    if (strchr(name, '/') || strstr(name, ".cfg"))
        return access(path, R_OK) == 0;
    if (readlink("/proc/self/exe", program, sizeof program - 1) > 0)
        *strrchr(program, '/') = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !found; i++) {
        glob_t files = {.gl_pathc = 0};

        snprintf(pattern, sizeof pattern, "%s%s/*.cfg", folders[i][0] ? folders[i][0] : "", folders[i][1]);
        if (folders[i][0] && folders[i][0][0])
            glob(pattern, 0, NULL, &files);
        for (size_t k = 0; k < files.gl_pathc && !found; k++) {
            char *base = strrchr(files.gl_pathv[k], '/') + 1;

            snprintf(path, size, "%s", files.gl_pathv[k]);
            base[strlen(base) - strlen(".cfg")] = '\0';
            found = strcasecmp(base, name) == 0;
            if (strcmp(base, "stacks") != 0 && !strstr(known, base))
                snprintf(known + strlen(known), 512 - strlen(known), "%s%s", known[0] ? ", " : "", base);
        }
        globfree(&files);
    }
    return found;
}

static int open_file(config_t *config, const char *name, char *path, size_t size, struct error *err)
{
    char known[512], *text;
    int read;

    if (!find_file(name, path, size, known))
        return error_set(err, CODE_CONFIG, "no file for \"%s\"%s%s", name, known[0] ? ": give a path, or one of " : "",
                         known);
    if (!(text = text_load(path, MACHINE_FILE_MOST, NULL, err)))
        return -1;
    config_init(config);
    read = config_read_string(config, text);
    free(text);
    if (read)
        return 0;
    error_set(err, CODE_CONFIG, "%s:%d: %s", path, config_error_line(config), config_error_text(config));
    config_destroy(config);
    return -1;
}

int plan_machine_read(struct plan_machine *machine, const char *name, struct error *err)
{
    const config_setting_t *root;
    char path[1024];
    config_t config;
    int result;

    *machine = (struct plan_machine){0};
    if (open_file(&config, name, path, sizeof path, err) < 0)
        return -1;
    snprintf(machine->name, sizeof machine->name, "%.63s", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    if (!strchr(name, '/') && !strstr(name, ".cfg"))
        *strrchr(machine->name, '.') = '\0';
    root = config_root_setting(&config);
    result = read_keys(root, machine_keys, machine, path, err);
    if (result == 0)
        result = read_levels(root, machine, path, err);
    config_destroy(&config);
    return result;
}

bool plan_machine_of_device(const char *device, char *name, size_t size)
{
    static const struct {
        const char *name, *model, *memory;
    } known[] = {{"h200", " H200", ""},
                 {"h100", " H100", "80GB"},
                 {"a100-40", " A100", "40GB"},
                 {"a100-80", " A100", "80GB"},
                 {"v100", " V100", "32GB"}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(device, known[i].model) && strstr(device, known[i].memory) && !strstr(device, " MIG ")) {
            snprintf(name, size, "%s", known[i].name);
            return true;
        }
    return false;
}

const char *plan_machine_stack(const struct plan_machine *machine)
{
    return machine->gpu ? "muster" : "muster-cpu";
}

static int read_settings(const config_setting_t *group, struct stack *stack, const char *path, struct error *err)
{
    const config_setting_t *list = config_setting_get_member(group, "settings");
    int count = list ? config_setting_length(list) : 0;

    for (int i = 0; i < count; i++) {
        const char *text = config_setting_get_string_elem(list, i);

        if (i == STACK_SETTINGS || !text || strlen(text) >= sizeof stack->settings[i])
            return error_set(err, CODE_CONFIG, "%s:%u: \"settings\" must list at most %d short strings", path,
                             config_setting_source_line(list), STACK_SETTINGS);
        strcpy(stack->settings[stack->nsettings++], text);
    }
    return 0;
}

int stack_read(struct stack *stack, const char *name, struct error *err)
{
    const char *colon = strrchr(name, ':'), *group_name = colon ? colon + 1 : name;
    char file[900] = "stacks", path[1024], known[512] = "";
    const config_setting_t *root, *group;
    config_t config;
    int result;

    *stack = (struct stack){0};
    snprintf(stack->name, sizeof stack->name, "%s", group_name);
    if (colon)
        snprintf(file, sizeof file, "%.*s", (int)(colon - name), name);
    if (open_file(&config, file, path, sizeof path, err) < 0)
        return -1;
    root = config_root_setting(&config);
    group = config_setting_get_member(root, group_name);
    if (group) {
        result = read_keys(group, stack_keys, stack, path, err);
        if (result == 0)
            result = read_settings(group, stack, path, err);
    } else {
        for (int i = 0; i < config_setting_length(root); i++)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                     config_setting_name(config_setting_get_elem(root, (unsigned)i)));
        result = error_set(err, CODE_CONFIG, "%s has no stack \"%s\": it has %s", path, group_name, known);
    }
    config_destroy(&config);
    return result;
}
