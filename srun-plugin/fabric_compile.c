/*
 * fabric_compile.c - makes C of profiles, when muster is built: `fabric_compile FILE.cfg... >fabric_shipped.c`. The
 * check is that of a site's profiles, so that a broken one of ours fails the build.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/job_text.h"
#include "srun-plugin/fabric_keys.h"
#include "srun-plugin/fabric_profile.h"

static void print_string(const char *text)
{
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c == '"' || *c == '\\' || *c >= 0x7f)
            printf("\\%03o", *c);
        else
            putchar(*c);
    putchar('"');
}

static void print_names(const char *const *names)
{
    if (!names) {
        printf("NULL");
        return;
    }
    printf("(const char *const[]){");
    for (; *names; names++) {
        print_string(*names);
        printf(", ");
    }
    printf("NULL}");
}

static void print_part(const struct fabric_part *part)
{
    printf("{FABRIC_");
    for (const char *c = fabric_condition_keys[part->topic].name; *c; c++)
        putchar(toupper((unsigned char)*c));
    printf(", %ld, ", part->number);
    print_names(part->names);
    printf("}, ");
}

static void print_condition(const struct fabric_condition *condition)
{
    if (condition->count == 0) {
        printf("{NULL, 0}");
        return;
    }
    printf("{(const struct fabric_part[]){");
    for (size_t i = 0; i < condition->count; i++)
        print_part(&condition->parts[i]);
    printf("}, %zu}", condition->count);
}

static void print_set(const struct fabric_profile *profile)
{
    printf("    .set = (const struct fabric_setting[]){\n");
    for (size_t i = 0; i < profile->set_count; i++) {
        const struct fabric_setting *setting = &profile->set[i];

        printf("        {");
        print_string(setting->name);
        printf(", ");
        print_string(setting->value);
        printf(",\n         ");
        print_string(setting->why);
        printf(",\n         %d, ", setting->line);
        print_condition(&setting->when);
        printf("},\n");
    }
    printf("    },\n    .set_count = %zu,\n", profile->set_count);
}

static void print_warn(const struct fabric_profile *profile)
{
    printf("    .warn = (const struct fabric_warning[]){\n");
    for (size_t i = 0; i < profile->warn_count; i++) {
        printf("        {");
        print_string(profile->warn[i].text);
        printf(",\n         %d, ", profile->warn[i].line);
        print_condition(&profile->warn[i].when);
        printf("},\n");
    }
    printf("    },\n    .warn_count = %zu,\n", profile->warn_count);
}

static void print_profile(const struct fabric_profile *profile, int number)
{
    printf("\nstatic const struct fabric_profile profile_%d = {\n    .file = ", number);
    print_string(profile->file);
    printf(",\n    .name = ");
    print_string(profile->name);
    printf(",\n    .priority = %d,\n    .match = ", profile->priority);
    print_condition(&profile->match);
    printf(",\n");
    if (profile->set_count > 0)
        print_set(profile);
    if (profile->warn_count > 0)
        print_warn(profile);
    printf("    .leave = ");
    print_names(profile->leave);
    printf(",\n};\n");
}

static int compile(const char *path, int number, struct error *err)
{
    const char *slash = strrchr(path, '/');
    const struct fabric_profile *profile;
    char *text = job_text_read(path, err);

    if (!text)
        return -1;
    profile = fabric_read(text, slash ? slash + 1 : path, err);
    free(text);
    if (!profile)
        return -1;
    print_profile(profile, number);
    fabric_forget(profile);
    return 0;
}

int main(int argc, char *argv[])
{
    struct error err;

    printf("/* Made of etc/fabric by fabric_compile.c. */\n#include \"srun-plugin/fabric_profile.h\"\n");
    for (int i = 1; i < argc; i++)
        if (compile(argv[i], i, &err) < 0) {
            fprintf(stderr, "fabric_compile: %s\n", err.text);
            return err.code;
        }
    printf("\nconst struct fabric_profile *const fabric_shipped[] = {\n");
    for (int i = 1; i < argc; i++)
        printf("    &profile_%d,\n", i);
    printf("    NULL,\n};\n");
    return ferror(stdout) || fflush(stdout) ? CODE_IO : 0;
}
