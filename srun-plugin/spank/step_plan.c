#include "srun-plugin/spank/step_plan.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

enum field_kind { FIELD_FLAG, FIELD_NUMBER, FIELD_TEXT };

static const struct field {
    const char *key;
    enum field_kind kind;
    size_t offset, most; /* most: bytes of a text with its zero, or the largest number */
} fields[] = {
    {"head", FIELD_TEXT, offsetof(struct step_plan, master_address), STEP_PLAN_ADDRESS_SIZE},
    {"peer", FIELD_TEXT, offsetof(struct step_plan, peer), STEP_PLAN_ADDRESS_SIZE},
    {"head_node", FIELD_NUMBER, offsetof(struct step_plan, rank0_node), 0xffffff},
    {"port", FIELD_NUMBER, offsetof(struct step_plan, port), 65535},
    {"refused", FIELD_NUMBER, offsetof(struct step_plan, exit_code), 255},
    {"complete", FIELD_FLAG, offsetof(struct step_plan, step_known), 1},
    {"cpus_inherited", FIELD_FLAG, offsetof(struct step_plan, cpus_inherited), 1},
    {"user_binds", FIELD_FLAG, offsetof(struct step_plan, user_binds), 1},
    {"by_hostfile", FIELD_FLAG, offsetof(struct step_plan, by_hostfile), 1},
    {"by_map", FIELD_FLAG, offsetof(struct step_plan, by_map), 1},
    {"cpus_are_cores", FIELD_FLAG, offsetof(struct step_plan, cpus_are_cores), 1},
    {"job_file", FIELD_TEXT, offsetof(struct step_plan, job_file), PATH_MAX},
    {"mesh", FIELD_TEXT, offsetof(struct step_plan, mesh), AUTO_SIZE},
};

void step_plan_clear(struct step_plan *plan)
{
    file_variables_clear(&plan->variables);
    plan->job_file[0] = plan->mesh[0] = '\0';
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_value(FILE *out, const char *value)
{
    for (; *value; value++)
        if ((unsigned char)*value <= ' ' || *value == '%' || *value == 0x7f)
            fprintf(out, "%%%02X", (unsigned char)*value);
        else
            fputc(*value, out);
}

static void write_field(FILE *out, const struct field *field, const struct step_plan *plan)
{
    const char *at = (const char *)plan + field->offset;

    if (field->kind == FIELD_TEXT && at[0]) {
        fprintf(out, " %s=", field->key);
        write_value(out, at);
    } else if (field->kind == FIELD_NUMBER && *(const unsigned *)(const void *)at) {
        fprintf(out, " %s=%u", field->key, *(const unsigned *)(const void *)at);
    } else if (field->kind == FIELD_FLAG && *(const bool *)at) {
        fprintf(out, " %s=1", field->key);
    }
}

char *step_plan_text(const struct step_plan *plan, struct error *err)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out)
        fprintf(out, "%d", STEP_PLAN_FORMAT);
    for (size_t i = 0; out && i < sizeof fields / sizeof fields[0]; i++)
        write_field(out, &fields[i], plan);
    for (size_t i = 0; out && i < plan->variables.count; i++) {
        const struct file_variable *variable = &plan->variables.items[i];

        fprintf(out, " env=%d:%s=", variable->line, variable->name);
        write_value(out, variable->value);
    }
    if (!out || fclose(out) != 0) {
        error_errno(err, CODE_IO, "no memory for the plan of a step");
    } else if (size <= STEP_PLAN_MOST) {
        return text;
    } else {
        error_set(err, CODE_CONFIG, "the variables of group environment take %zu bytes; %d is the limit", size,
                  STEP_PLAN_MOST);
    }
    free(text);
    return NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* In place. A "%" without two hexadecimal digits stays. */
static void decode_value(char *value)
{
    char *to = value;

    for (; *value; value++, to++) {
        *to = *value;
        if (*value == '%' && isxdigit((unsigned char)value[1]) && isxdigit((unsigned char)value[2])) {
            const char digits[] = {value[1], value[2], '\0'};

            *to = (char)strtoul(digits, NULL, 16);
            value += 2;
        }
    }
    *to = '\0';
}

static void read_field(const struct field *field, const char *value, struct step_plan *plan)
{
    char *at = (char *)plan + field->offset;
    long number;

    if (field->kind == FIELD_TEXT && strlen(value) < field->most)
        strcpy(at, value);
    else if (field->kind == FIELD_NUMBER && text_to_long(value, 0, (long)field->most, &number))
        *(unsigned *)(void *)at = (unsigned)number;
    else if (field->kind == FIELD_FLAG)
        *(bool *)at = strcmp(value, "1") == 0;
}

/* "12:NCCL_DEBUG=INFO" */
static int read_variable(char *text, struct step_plan *plan, struct error *err)
{
    char *name = strchr(text, ':'), *value = name ? strchr(name, '=') : NULL;

    if (!value)
        return 0;
    *value++ = '\0';
    return file_variables_add(&plan->variables, name + 1, value, atoi(text), err);
}

static int read_pair(char *pair, struct step_plan *plan, struct error *err)
{
    char *value = strchr(pair, '=');

    if (!value)
        return 0;
    *value++ = '\0';
    decode_value(value);
    if (strcmp(pair, "env") == 0)
        return read_variable(value, plan, err);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(pair, fields[i].key) == 0)
            read_field(&fields[i], value, plan);
    return 0;
}

int step_plan_read(const char *text, struct step_plan *plan, struct error *err)
{
    char *copy = strndup(text, STEP_PLAN_MOST), *rest = NULL, *pair = copy ? strtok_r(copy, " ", &rest) : NULL;
    long format = 0;
    int rc = -1;

    *plan = (struct step_plan){.step_known = false};
    if (!copy)
        error_errno(err, CODE_IO, "no memory for the plan of a step");
    else if (!pair || !text_to_long(pair, 0, LONG_MAX, &format) || format != STEP_PLAN_FORMAT)
        error_set(err, CODE_DATA,
                  "srun's plan of the step has format %.20s, this node reads format %d: " STEP_PLAN_NAME " is ignored",
                  pair ? pair : "\"\"", STEP_PLAN_FORMAT);
    else
        rc = 0;
    while (rc == 0 && (pair = strtok_r(NULL, " ", &rest)))
        rc = read_pair(pair, plan, err);
    free(copy);
    if (rc < 0) {
        step_plan_clear(plan);
        *plan = (struct step_plan){.step_known = false};
    }
    return rc;
}
