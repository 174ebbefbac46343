#include "srun-plugin/fabric_skim.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A name, a string with its quotes, or one character; of length 0 at the end of the text. */
struct token {
    const char *at;
    size_t length;
};

static const char *skip_blanks(const char *at)
{
    for (;;) {
        at += strspn(at, " \t\r\n\f");
        if (at[0] == '#' || (at[0] == '/' && at[1] == '/'))
            at += strcspn(at, "\n");
        else if (at[0] == '/' && at[1] == '*' && strstr(at + 2, "*/"))
            at = strstr(at + 2, "*/") + 2;
        else
            return at;
    }
}

static size_t length_of_string(const char *at)
{
    size_t length = 1;

    while (at[length] && at[length] != '"')
        length += at[length] == '\\' && at[length + 1] ? 2 : 1;
    return length + (at[length] == '"');
}

static size_t length_of_name(const char *at)
{
    return strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_*");
}

static struct token next(const char **at)
{
    struct token token = {.at = skip_blanks(*at)};

    if (*token.at == '"')
        token.length = length_of_string(token.at);
    else if (!(token.length = length_of_name(token.at)))
        token.length = *token.at != '\0';
    *at = token.at + token.length;
    return token;
}

static bool is(struct token token, const char *text)
{
    return token.length == strlen(text) && memcmp(token.at, text, token.length) == 0;
}

/* Behind `wanted = value`, where name is wanted and that comes at *at; else *at stays. */
static bool enters(const char **at, struct token name, const char *wanted, const char *value)
{
    const char *ahead = *at;
    struct token sign;

    if (!is(name, wanted))
        return false;
    sign = next(&ahead);
    if ((!is(sign, "=") && !is(sign, ":")) || !is(next(&ahead), value))
        return false;
    *at = ahead;
    return true;
}

static bool is_one_of(struct token string, const char *const *kinds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(kinds[i]) == string.length - 2 && strncasecmp(kinds[i], string.at + 1, string.length - 2) == 0)
            return true;
    return false;
}

/* Of "kind", "kind" ] at *at; true also for what is no such list. */
static bool names_one(const char **at, const struct fabric_expected *expected)
{
    bool found = false;

    for (;;) {
        struct token string = next(at), behind = next(at);

        if (string.length < 2 || *string.at != '"' || memchr(string.at, '\\', string.length))
            return true;
        found = found || is_one_of(string, expected->kinds, expected->kind_count);
        if (!is(behind, ","))
            return found || !is(behind, "]");
    }
}

/* The number of `name = 4;` at *at, behind the name; -1 where it is none that is as plain as that. */
static long number(const char *at)
{
    struct token sign = next(&at), digits = next(&at);

    if ((!is(sign, "=") && !is(sign, ":")) || digits.length < 1 || digits.length > 9 || *digits.at == '0' ||
        strspn(digits.at, "0123456789") != digits.length || !memchr(";,}", *next(&at).at, 3))
        return -1;
    return strtol(digits.at, NULL, 10);
}

/* Whether the nodes are too few, or too many, for what stands behind the name of a key. */
static bool is_out_of_nodes(struct token key, const char *behind, const struct fabric_expected *expected)
{
    if (!expected->nodes)
        return false;
    if (is(key, "least_nodes"))
        return number(behind) > (long)expected->nodes;
    if (is(key, "most_nodes"))
        return number(behind) >= 0 && number(behind) < (long)expected->nodes;
    return is(key, "most_job_nodes") && number(behind) >= 0 && number(behind) < (long)expected->job_nodes;
}

/* Behind the { of match. */
static bool may_hold(const char *text, const struct fabric_expected *expected)
{
    int depth = 1;

    for (struct token token = next(&text); token.length && depth > 0; token = next(&text)) {
        if (depth == 1 && !expected->gpus && enters(&text, token, "gpus", "true"))
            return false;
        if (depth == 1 && is_out_of_nodes(token, text, expected))
            return false;
        if (depth == 1 && enters(&text, token, "nics", "[")) {
            if (!names_one(&text, expected))
                return false;
        } else if (strchr("{[(", *token.at)) {
            depth++;
        } else if (strchr("}])", *token.at)) {
            depth--;
        }
    }
    return true;
}

bool fabric_may_match(const char *text, const struct fabric_expected *expected)
{
    int depth = 0;

    for (struct token token = next(&text); token.length && *token.at != '@'; token = next(&text)) {
        if (depth == 0 && enters(&text, token, "match", "{"))
            return may_hold(text, expected);
        if (strchr("{[(", *token.at))
            depth++;
        else if (strchr("}])", *token.at))
            depth--;
    }
    return true;
}
