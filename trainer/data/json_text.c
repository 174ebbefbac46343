#include "trainer/data/parcel.h"

#include <stdlib.h>
#include <string.h>

#include "common/text.h"

struct json_scan {
    const char *line, *at, *end;
    bool needed;       /* the string at `at` */
    const char *wrong; /* the value of the key, if it is not a string */
    struct error *err;
};

/* At scan->at. */
static int refuse_json(struct json_scan *scan, const char *what)
{
    return error_set(scan->err, CODE_DATA, "%s", scan->at < scan->end ? what : "the JSON ends early");
}

static void skip_space(struct json_scan *scan)
{
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t' || *scan->at == '\r' || *scan->at == '\n'))
        scan->at++;
}

static bool take_sign(struct json_scan *scan, char sign)
{
    skip_space(scan);
    if (scan->at == scan->end || *scan->at != sign)
        return false;
    scan->at++;
    return true;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* The rest of \uXXXX behind its u, or of two of them that are one character (surrogates). Half of such a pair is taken
 * where it is not needed. */
static int take_code(struct json_scan *scan, uint32_t *code)
{
    int first = utf16_read(scan->at - 2, scan->end), second;

    *code = (uint32_t)first;
    if (first < 0)
        return refuse_json(scan, "expected four hexadecimal digits after \\u");
    scan->at += 4;
    if (first < 0xd800 || first > 0xdfff)
        return 0;
    second = first < 0xdc00 ? utf16_read(scan->at, scan->end) : -1;
    if (second < 0xdc00 || second > 0xdfff)
        return scan->needed ? error_set(scan->err, CODE_DATA, "half of a surrogate pair, which is no character") : 0;
    scan->at += 6;
    *code = 0x10000 + ((*code - 0xd800) << 10) + ((uint32_t)second - 0xdc00);
    return 0;
}

static int take_escape(struct json_scan *scan, struct text_list *text)
{
    static const char signs[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *sign = scan->at < scan->end && *scan->at ? strchr(signs, *scan->at) : NULL;
    char out[4];
    size_t count = 1;
    uint32_t code;

    if (sign) {
        out[0] = values[sign - signs];
        scan->at++;
    } else if (scan->at < scan->end && *scan->at == 'u') {
        scan->at++;
        if (take_code(scan, &code) < 0)
            return -1;
        count = (size_t)utf8_write(code, out);
    } else {
        return refuse_json(scan, "an unknown escape after \\");
    }
    return text ? text_list_append(text, out, count, scan->err) : 0;
}

/* The string whose quote is at scan->at; `text` may be NULL. The line is UTF-8 already. */
static int take_string(struct json_scan *scan, struct text_list *text)
{
    scan->at++;
    if (text)
        text->count = 0;
    for (;;) {
        const char *begin = scan->at;

        while (scan->at < scan->end && *scan->at != '"' && *scan->at != '\\' && (uint8_t)*scan->at >= ' ')
            scan->at++;
        if (text && text_list_append(text, begin, (size_t)(scan->at - begin), scan->err) < 0)
            return -1;
        if (scan->at == scan->end)
            return refuse_json(scan, "");
        if (*scan->at == '"') {
            scan->at++;
            return 0;
        }
        if (*scan->at != '\\')
            return refuse_json(scan, "a control character in a string: it must be escaped");
        scan->at++;
        if (take_escape(scan, text) < 0)
            return -1;
    }
}

/* ---- other values ------------------------------------------------------------------------------------------------ */

static int take_digits(struct json_scan *scan)
{
    const char *begin = scan->at;

    while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9')
        scan->at++;
    return scan->at > begin ? 0 : refuse_json(scan, "expected a digit");
}

static int take_number(struct json_scan *scan)
{
    scan->at += *scan->at == '-';
    if (scan->at < scan->end && *scan->at == '0')
        scan->at++;
    else if (take_digits(scan) < 0)
        return -1;
    if (scan->at < scan->end && *scan->at == '.') {
        scan->at++;
        if (take_digits(scan) < 0)
            return -1;
    }
    if (scan->at == scan->end || (*scan->at != 'e' && *scan->at != 'E'))
        return 0;
    scan->at++;
    scan->at += scan->at < scan->end && (*scan->at == '+' || *scan->at == '-');
    return take_digits(scan);
}

static int take_scalar(struct json_scan *scan)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"}; /* Python's, too */

    for (int i = 0; i < 6; i++) {
        size_t length = strlen(words[i]);

        if ((size_t)(scan->end - scan->at) >= length && memcmp(scan->at, words[i], length) == 0) {
            scan->at += length;
            return 0;
        }
    }
    if (scan->at < scan->end && (*scan->at == '-' || (*scan->at >= '0' && *scan->at <= '9')))
        return take_number(scan);
    return refuse_json(scan, "expected a value");
}

/* The key of a member, into `name` unless that is NULL, and its colon. */
static int take_key(struct json_scan *scan, struct text_list *name)
{
    skip_space(scan);
    if (scan->at == scan->end || *scan->at != '"')
        return refuse_json(scan, "expected a key in quotes");
    if (take_string(scan, name) < 0)
        return -1;
    return take_sign(scan, ':') ? 0 : refuse_json(scan, "expected a colon");
}

/* Any value, whatever is in it. */
static int skip_value(struct json_scan *scan, int depth)
{
    bool object;

    skip_space(scan);
    if (scan->at < scan->end && *scan->at == '"')
        return take_string(scan, NULL);
    object = scan->at < scan->end && *scan->at == '{';
    if (!object && (scan->at == scan->end || *scan->at != '['))
        return take_scalar(scan);
    if (depth == JSON_DEPTH_MOST)
        return refuse_json(scan, "too many brackets within each other");
    scan->at++;
    if (take_sign(scan, object ? '}' : ']'))
        return 0;
    do
        if ((object && take_key(scan, NULL) < 0) || skip_value(scan, depth + 1) < 0)
            return -1;
    while (take_sign(scan, ','));
    return take_sign(scan, object ? '}' : ']') ? 0 : refuse_json(scan, "expected a comma or a closing bracket");
}

/* ---- the line ---------------------------------------------------------------------------------------------------- */

/* A member of the object: its value is taken if it has the key. *text is scratch until then. */
static int take_member(struct json_scan *scan, const char *key, struct text_list *text, struct text_list *name,
                       bool *found)
{
    if (take_key(scan, name) < 0)
        return -1;
    skip_space(scan);
    if (name->count != strlen(key) || memcmp(name->text, key, name->count) != 0)
        return skip_value(scan, 0);
    *found = true;
    scan->wrong = scan->at < scan->end && *scan->at == '"' ? NULL : scan->at;
    if (scan->wrong)
        return skip_value(scan, 0);
    scan->needed = true;
    if (take_string(scan, text) < 0)
        return -1;
    scan->needed = false;
    return 0;
}

static int take_object(struct json_scan *scan, const char *key, struct text_list *text, struct text_list *name)
{
    bool found = false;

    if (text_mark(scan->at, (size_t)(scan->end - scan->at), NULL))
        return refuse_json(scan, "a byte order mark: remove these three bytes");
    if (!take_sign(scan, '{'))
        return refuse_json(scan, "expected a JSON object, as {\"text\": \"...\"}, on each line");
    if (!take_sign(scan, '}')) {
        do
            if (take_member(scan, key, text, name, &found) < 0)
                return -1;
        while (take_sign(scan, ','));
        if (!take_sign(scan, '}'))
            return refuse_json(scan, "expected a comma or a closing brace");
    }
    skip_space(scan);
    if (scan->at < scan->end)
        return refuse_json(scan, "more after the object: expected one object a line");
    if (scan->wrong) {
        scan->at = scan->wrong;
        return error_set(scan->err, CODE_DATA, "the value of \"%.100s\" is not a string", key);
    }
    if (!found) {
        scan->at = scan->line;
        return error_set(scan->err, CODE_DATA, "the object has no key \"%.100s\"; --key names another", key);
    }
    return 0;
}

int json_line_text(const char *line, size_t bytes, const char *key, struct text_list *text, size_t *at,
                   struct error *err)
{
    struct json_scan scan = {.line = line, .at = line, .end = line + bytes, .err = err};
    struct text_list name = {0};
    int result;

    text->count = 0;
    *at = text_utf8_end(line, bytes);
    if (*at < bytes)
        return error_set(err, CODE_DATA, "not UTF-8");
    result = take_object(&scan, key, text, &name);
    *at = (size_t)(scan.at - line);
    free(name.text);
    return result;
}

#define LONGEST_TOKEN 16 /* "-Infinity", two escapes: more than what can be cut off of one */

/* Whether a value may have failed only because the bytes end within it. */
static bool is_cut_off(const struct json_scan *scan, bool ended)
{
    return !ended && scan->end - scan->at < LONGEST_TOKEN;
}

bool json_text_is_array(const char *text, size_t bytes, bool ended)
{
    struct json_scan scan = {.at = text, .end = text + bytes};

    if (!take_sign(&scan, '['))
        return false;
    skip_space(&scan);
    return scan.at < scan.end && *scan.at == '{' && (skip_value(&scan, 0) == 0 || is_cut_off(&scan, ended));
}

bool json_text_begins(const char *text, size_t bytes, bool ended)
{
    struct json_scan scan = {.at = text, .end = text + bytes};
    const char *line_end;

    skip_space(&scan);
    if (scan.at == scan.end || *scan.at != '{')
        return false;
    line_end = memchr(scan.at, '\n', (size_t)(scan.end - scan.at));
    scan.end = line_end ? line_end : scan.end;
    if (skip_value(&scan, 0) < 0)
        return !line_end && is_cut_off(&scan, ended);
    skip_space(&scan);
    return scan.at == scan.end;
}
