/*
 * Replayed machines: what `srun --muster` would set on each. tests/fixtures/machines/NAME/environment.txt has cases of
 *
 *     # what a vendor or site would set there, and where that is written
 *     $ muster-topo node --environment --nodes 2
 *     environment of 8 ranks on each of 2 nodes, profile infiniband
 *     ...
 *
 * After a wanted change: `test_environments --update` writes the files anew; look at the difference in git.
 */
#include <limits.h>

#include "tests/unit/machines.h"
#include "tests/unit/test_files.h"

#define PROMPT "$ muster-topo node "

static bool update;

static const char *top_source(void)
{
    const char *top = getenv("top_srcdir");

    return top ? top : "..";
}

/* Runs muster-topo as the prompt's line says; what it prints from "environment of" on goes to out. */
static void run(const char *arguments, const char *machine, FILE *out)
{
    char command[3 * PATH_MAX], line[8192];
    bool reached = false;
    FILE *in;

    snprintf(command, sizeof command, "'%s' node --profiles '%s/etc/fabric' %s '%s' 2>&1", built_program("muster-topo"),
             top_source(), arguments, machines_snapshot(machine));
    assert_non_null(in = popen(command, "r"));
    while (fgets(line, sizeof line, in)) {
        reached = reached || strncmp(line, "environment of ", strlen("environment of ")) == 0;
        if (reached)
            fputs(line, out);
    }
    if (pclose(in) != 0 || !reached)
        fail_msg("%s", command);
}

/* The file as it should be: its comments and prompts as they are, below each prompt what the program says. */
static char *rebuild(const char *machine, char *expected, size_t *cases)
{
    char *text = NULL, *rest = expected, *line;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    while ((line = strsep(&rest, "\n"))) {
        bool is_prompt = strncmp(line, PROMPT, strlen(PROMPT)) == 0;

        if (line[0] == '#' || is_prompt)
            fprintf(out, "%s\n", line);
        if (is_prompt) {
            run(line + strlen(PROMPT), machine, out);
            if (rest && strstr(rest, "\n" PROMPT))
                fputc('\n', out);
            (*cases)++;
        }
    }
    fclose(out);
    return text;
}

/* Prints the difference; false where there is one. */
static bool is_expected(const char *machine, const char *expected, const char *text)
{
    char path[PATH_MAX], now[PATH_MAX], command[3 * PATH_MAX];

    if (strcmp(expected, text) == 0)
        return true;
    snprintf(path, sizeof path, "%s/tests/fixtures/machines/%s/environment.txt", top_source(), machine);
    if (update) {
        write_text(path, text);
        return true;
    }
    snprintf(now, sizeof now, "%s", machines_scratch("environment.txt"));
    write_text(now, text);
    snprintf(command, sizeof command, "diff -u '%s' '%s' >&2", path, now);
    assert_int_not_equal(system(command), 0);
    return false;
}

static void each_machine_gets_its_environment(void **state)
{
    size_t machines = 0, cases = 0, wrong = 0;

    for (char **name = machines_names(); *name; name++, machines++) {
        char *expected = machines_file(*name, "environment.txt"), *copy, *text;

        if (!expected)
            fail_msg("%s has no environment.txt", *name);
        assert_non_null(copy = strdup(expected));
        text = rebuild(*name, copy, &cases);
        wrong += !is_expected(*name, expected, text);
        free(expected);
        free(copy);
        free(text);
    }
    assert_in_range(machines, 14, 1000);
    assert_in_range(cases, machines, 1000);
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_machine_gets_its_environment),
    };

    update = argc == 2 && strcmp(argv[1], "--update") == 0;
    return cmocka_run_group_tests(tests, machines_make, machines_remove);
}
