#include "common/job_data.h"

#include <float.h>
#include <libconfig.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

#define WEIGHT_MOST 1e30
#define BLANKS      " \t"
#define EXAMPLE     "a blend is written \"0.7 web 0.3 code\""

/* ---- the string -------------------------------------------------------------------------------------------------- */

static bool is_number(const char *word, size_t length)
{
    char text[64];
    double ignored;

    snprintf(text, sizeof text, "%.*s", (int)(length < sizeof text ? length : sizeof text - 1), word);
    return text_to_double(text, -DBL_MAX, DBL_MAX, &ignored) || strcmp(text, "nan") == 0 || strcmp(text, "inf") == 0;
}

/* The number of words of `text`; bit i of *numbers is set if word i, of the first four, is a number. */
static int count_words(const char *text, unsigned *numbers)
{
    int words = 0;

    *numbers = 0;
    for (text += strspn(text, BLANKS); *text; words++) {
        size_t length = strcspn(text, BLANKS);

        if (words < 4 && is_number(text, length))
            *numbers |= 1u << words;
        text += length;
        text += strspn(text, BLANKS);
    }
    return words;
}

static int find_set(const struct job_data *data, const char *prefix)
{
    for (int i = 0; i < data->count; i++)
        if (strcmp(data->sets[i].prefix, prefix) == 0)
            return i;
    return -1;
}

static int add_set(struct job_data *data, const char *weight, const char *prefix, struct error *err)
{
    struct job_set *set = &data->sets[data->count];
    double number;

    if (!text_to_double(weight, -DBL_MAX, DBL_MAX, &number))
        return error_set(err, CODE_CONFIG, "\"%.100s\" is not a weight; " EXAMPLE, weight);
    if (!prefix)
        return error_set(err, CODE_CONFIG, "no data set follows the weight %s; " EXAMPLE, weight);
    if (!(number > 0 && number <= WEIGHT_MOST))
        return error_set(err, CODE_CONFIG, "the weight of %.200s is %s; more than 0 and at most 1e30", prefix, weight);
    if (data->count == JOB_SETS_MOST)
        return error_set(err, CODE_CONFIG,
                         "%.200s is one data set too many; at most %d (muster-data makes one of many texts)", prefix,
                         JOB_SETS_MOST);
    if (strlen(prefix) >= JOB_PATH_SIZE)
        return error_set(err, CODE_CONFIG, "a prefix of %zu bytes; at most %d", strlen(prefix), JOB_PATH_SIZE - 1);
    if (find_set(data, prefix) >= 0)
        return error_set(err, CODE_CONFIG, "the data set %.200s is given twice; add its weights", prefix);
    *set = (struct job_set){.prefix = prefix, .weight = number};
    data->count++;
    return 0;
}

static int measure_parts(struct job_data *data, struct error *err)
{
    double sum = 0;

    for (int i = 0; i < data->count; i++)
        sum += data->sets[i].weight;
    for (int i = 0; i < data->count; i++) {
        data->sets[i].part = data->sets[i].weight / sum;
        if (data->sets[i].part < JOB_PART_LEAST)
            return error_set(err, CODE_CONFIG,
                             "the weight of %.200s is %g, less than a ten-millionth of the sum; raise it, or leave the "
                             "set out",
                             data->sets[i].prefix, data->sets[i].weight);
    }
    return 0;
}

int job_data_parse(struct job_data *data, const char *text, struct error *err)
{
    char *rest = data->text, *weight;
    unsigned numbers;
    int words = count_words(text, &numbers);

    data->count = 0;
    if (strlen(text) >= sizeof data->text)
        return error_set(err, CODE_CONFIG, "%zu bytes long; at most %zu", strlen(text), sizeof data->text - 1);
    strcpy(data->text, text);
    if (words >= 4 && words % 2 == 0 && numbers == 0xa)
        return error_set(err, CODE_CONFIG, "the weights come after the data sets; " EXAMPLE);
    if (words < 2 || !(numbers & 1)) {
        if (strlen(text) >= JOB_PATH_SIZE)
            return error_set(err, CODE_CONFIG, "%zu bytes long; at most %d", strlen(text), JOB_PATH_SIZE - 1);
        data->sets[0] = (struct job_set){.prefix = data->text, .weight = 1, .part = 1};
        data->count = text[0] != '\0';
        return 0;
    }
    while ((weight = strtok_r(rest, BLANKS, &rest)))
        if (add_set(data, weight, strtok_r(rest, BLANKS, &rest), err) < 0)
            return -1;
    return measure_parts(data, err);
}

/* Appends "weight prefix", the weight with the fewest digits that read back the same; integers in full. */
static int append_set(char *text, size_t *used, double weight, const char *prefix, struct error *err)
{
    int digits = weight >= 1e6 && weight < 1e15 ? 15 : 6;
    char number[32];

    do
        snprintf(number, sizeof number, "%.*g", digits, weight);
    while (strtod(number, NULL) != weight && ++digits <= 17);
    *used += (size_t)snprintf(text + *used, JOB_DATA_SIZE - *used, "%s%s %s", *used ? " " : "", number, prefix);
    if (*used < JOB_DATA_SIZE)
        return 0;
    return error_set(err, CODE_CONFIG, "too long with all its prefixes; at most %d bytes", JOB_DATA_SIZE - 1);
}

int job_data_format(const struct job_data *data, char *text, struct error *err)
{
    size_t used = 0;

    if (data->count < 2) {
        strcpy(text, data->count ? data->sets[0].prefix : "");
        return 0;
    }
    for (int i = 0; i < data->count; i++)
        if (append_set(text, &used, data->sets[i].weight, data->sets[i].prefix, err) < 0)
            return -1;
    return 0;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

#define ELEMENT "write { data = \"web\"; weight = 0.7; }"

/* Appends "weight prefix" of one element of the list. */
static int append_element(const config_setting_t *element, char *text, size_t *used, struct error *err)
{
    const config_setting_t *weight = config_setting_get_member(element, "weight");
    const char *prefix = NULL;

    if (!config_setting_is_group(element))
        return error_set(err, CODE_CONFIG, "an element of the list is not a group; " ELEMENT);
    for (int i = 0; i < config_setting_length(element); i++) {
        const char *name = config_setting_name(config_setting_get_elem(element, (unsigned)i));

        if (strcmp(name, "data") != 0 && strcmp(name, "weight") != 0)
            return error_set(err, CODE_CONFIG, "unknown key '%s' of a data set; " ELEMENT, name);
    }
    if (!config_setting_lookup_string(element, "data", &prefix) || prefix[0] == '\0')
        return error_set(err, CODE_CONFIG, "a data set without its prefix, a string; " ELEMENT);
    if (prefix[strcspn(prefix, BLANKS)] != '\0')
        return error_set(err, CODE_CONFIG,
                         "\"%.200s\" has blanks, which separate the sets of a blend; rename the files", prefix);
    if (!weight || !config_setting_is_number(weight))
        return error_set(err, CODE_CONFIG, "the data set %.200s has no weight that is a number; " ELEMENT, prefix);
    return append_set(text, used,
                      config_setting_type(weight) == CONFIG_TYPE_FLOAT ? config_setting_get_float(weight)
                                                                       : (double)config_setting_get_int64(weight),
                      prefix, err);
}

int job_data_from_list(const config_setting_t *list, char *text, int *lines, struct error *err)
{
    size_t used = 0;

    *lines = 0;
    text[0] = '\0';
    if (config_setting_length(list) == 0)
        return error_set(err, CODE_CONFIG, "an empty list; " ELEMENT);
    for (int i = 0; i < config_setting_length(list); i++) {
        const config_setting_t *element = config_setting_get_elem(list, (unsigned)i);

        *lines = (int)config_setting_source_line(element) - (int)config_setting_source_line(list);
        if (append_element(element, text, &used, err) < 0)
            return -1;
    }
    *lines = 0;
    return 0;
}
