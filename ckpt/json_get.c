#include "config.h"

#include "ckpt/json_get.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

int json_get_integer(json_t *object, const char *key, uint64_t most, uint64_t *out, struct error *err)
{
    json_t *value = json_object_get(object, key);

    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > most)
        return error_set(err, CODE_DATA, "\"%s\" must be an integer of 0 to %" PRIu64, key, most);
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

int json_get_int(json_t *object, const char *key, int *out, struct error *err)
{
    uint64_t value;

    if (json_get_integer(object, key, INT32_MAX, &value, err) < 0)
        return -1;
    *out = (int)value;
    return 0;
}

int json_get_number(json_t *object, const char *key, double *out, struct error *err)
{
    json_t *value = json_object_get(object, key);

    if (!json_is_number(value))
        return error_set(err, CODE_DATA, "\"%s\" must be a number", key);
    *out = json_number_value(value);
    return 0;
}

int json_get_string(json_t *object, const char *key, char *out, size_t size, struct error *err)
{
    json_t *value = json_object_get(object, key);

    if (!json_is_string(value) || json_string_length(value) >= size)
        return error_set(err, CODE_DATA, "\"%s\" must be a string of at most %zu bytes", key, size - 1);
    memcpy(out, json_string_value(value), json_string_length(value) + 1);
    return 0;
}

int json_get_array(json_t *object, const char *key, json_t **out, struct error *err)
{
    *out = json_object_get(object, key);
    return json_is_array(*out) ? 0 : error_set(err, CODE_DATA, "\"%s\" must be an array", key);
}

int json_parse_hex(const char *text, int digits, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        if (!isxdigit((unsigned char)text[i]) || isupper((unsigned char)text[i]))
            return -1;
        *out = *out << 4 | (uint64_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
    }
    return 0;
}

int json_get_hex(json_t *object, const char *key, int digits, uint64_t *out, struct error *err)
{
    json_t *value = json_object_get(object, key);

    if (!json_is_string(value) || json_string_length(value) != (size_t)digits ||
        json_parse_hex(json_string_value(value), digits, out) < 0)
        return error_set(err, CODE_DATA, "\"%s\" must be a string of %d hexadecimal digits", key, digits);
    return 0;
}
