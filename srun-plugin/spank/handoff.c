#include "srun-plugin/spank/handoff.h"

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
    {"head", FIELD_TEXT, offsetof(struct handoff, master_address), HANDOFF_ADDRESS_SIZE},
    {"peer", FIELD_TEXT, offsetof(struct handoff, peer), HANDOFF_ADDRESS_SIZE},
    {"head_node", FIELD_NUMBER, offsetof(struct handoff, rank0_node), 0xffffff},
    {"port", FIELD_NUMBER, offsetof(struct handoff, port), 65535},
    {"refused", FIELD_NUMBER, offsetof(struct handoff, exit_code), 255},
    {"complete", FIELD_FLAG, offsetof(struct handoff, step_known), 1},
    {"cpus_inherited", FIELD_FLAG, offsetof(struct handoff, cpus_inherited), 1},
    {"user_binds", FIELD_FLAG, offsetof(struct handoff, user_binds), 1},
    {"by_hostfile", FIELD_FLAG, offsetof(struct handoff, by_hostfile), 1},
    {"by_map", FIELD_FLAG, offsetof(struct handoff, by_map), 1},
    {"cpus_are_cores", FIELD_FLAG, offsetof(struct handoff, cpus_are_cores), 1},
    {"job_file", FIELD_TEXT, offsetof(struct handoff, job_file), PATH_MAX},
    {"mesh", FIELD_TEXT, offsetof(struct handoff, mesh), AUTO_SIZE},
};

void handoff_clear(struct handoff *handoff)
{
    file_variables_clear(&handoff->variables);
    handoff->job_file[0] = handoff->mesh[0] = '\0';
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

static void write_field(FILE *out, const struct field *field, const struct handoff *handoff)
{
    const char *at = (const char *)handoff + field->offset;

    if (field->kind == FIELD_TEXT && at[0]) {
        fprintf(out, " %s=", field->key);
        write_value(out, at);
    } else if (field->kind == FIELD_NUMBER && *(const unsigned *)(const void *)at) {
        fprintf(out, " %s=%u", field->key, *(const unsigned *)(const void *)at);
    } else if (field->kind == FIELD_FLAG && *(const bool *)at) {
        fprintf(out, " %s=1", field->key);
    }
}

char *handoff_text(const struct handoff *handoff, struct error *err)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out)
        fprintf(out, "%d", HANDOFF_FORMAT);
    for (size_t i = 0; out && i < sizeof fields / sizeof fields[0]; i++)
        write_field(out, &fields[i], handoff);
    for (size_t i = 0; out && i < handoff->variables.count; i++) {
        const struct file_variable *variable = &handoff->variables.items[i];

        fprintf(out, " env=%d:%s=", variable->line, variable->name);
        write_value(out, variable->value);
    }
    if (!out || fclose(out) != 0) {
        error_errno(err, CODE_IO, "no memory for srun's handoff");
    } else if (size <= HANDOFF_MOST) {
        return text;
    } else {
        error_set(err, CODE_CONFIG, "the variables of group environment take %zu bytes; %d is the limit", size,
                  HANDOFF_MOST);
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

static void read_field(const struct field *field, const char *value, struct handoff *handoff)
{
    char *at = (char *)handoff + field->offset;
    long number;

    if (field->kind == FIELD_TEXT && strlen(value) < field->most)
        strcpy(at, value);
    else if (field->kind == FIELD_NUMBER && text_to_long(value, 0, (long)field->most, &number))
        *(unsigned *)(void *)at = (unsigned)number;
    else if (field->kind == FIELD_FLAG)
        *(bool *)at = strcmp(value, "1") == 0;
}

/* "12:NCCL_DEBUG=INFO" */
static int read_variable(char *text, struct handoff *handoff, struct error *err)
{
    char *name = strchr(text, ':'), *value = name ? strchr(name, '=') : NULL;

    if (!value)
        return 0;
    *value++ = '\0';
    return file_variables_add(&handoff->variables, name + 1, value, atoi(text), err);
}

static int read_pair(char *pair, struct handoff *handoff, struct error *err)
{
    char *value = strchr(pair, '=');

    if (!value)
        return 0;
    *value++ = '\0';
    decode_value(value);
    if (strcmp(pair, "env") == 0)
        return read_variable(value, handoff, err);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(pair, fields[i].key) == 0)
            read_field(&fields[i], value, handoff);
    return 0;
}

int handoff_read(const char *text, struct handoff *handoff, struct error *err)
{
    char *copy = strndup(text, HANDOFF_MOST), *rest = NULL, *pair = copy ? strtok_r(copy, " ", &rest) : NULL;
    long format = 0;
    int rc = -1;

    *handoff = (struct handoff){.step_known = false};
    if (!copy)
        error_errno(err, CODE_IO, "no memory for srun's handoff");
    else if (!pair || !text_to_long(pair, 0, LONG_MAX, &format) || format != HANDOFF_FORMAT)
        error_set(err, CODE_DATA,
                  "srun's handoff has format %.20s, this node reads format %d: " HANDOFF_NAME " is ignored",
                  pair ? pair : "\"\"", HANDOFF_FORMAT);
    else
        rc = 0;
    while (rc == 0 && (pair = strtok_r(NULL, " ", &rest)))
        rc = read_pair(pair, handoff, err);
    free(copy);
    if (rc < 0) {
        handoff_clear(handoff);
        *handoff = (struct handoff){.step_known = false};
    }
    return rc;
}
