#include <dirent.h>
#include <unistd.h>

#include "common/job.h"
#include "common/job_impl.h"
#include "common/philox.h"
#include "tests/unit/test_files.h"
#include "tests/unit/test_job_broken.h"

/* libconfig 1.5 loses a string that a syntax error follows; it is not ours to free. LeakSanitizer asks for this. */
const char *__lsan_default_suppressions(void) __attribute__((visibility("default")));
const char *__lsan_default_suppressions(void)
{
    return "leak:strbuf_append\nleak:libconfig_yylex\n";
}

/* ---- tests/unit/broken_jobs -------------------------------------------------------------------------------------- */

/*
 * The first line of each file is "# WHERE: MESSAGE", WHERE being the line or "-" for the file as a whole. The error
 * must be exactly that.
 */
static void expected_error(const char *path, char *expected, size_t size)
{
    char line[1024], where[16], *message;
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    assert_int_equal(sscanf(line, "# %15[0-9-]:", where), 1);
    message = strstr(line, ": ");
    assert_non_null(message);
    snprintf(expected, size, "%s%s%s%s", path, strcmp(where, "-") == 0 ? "" : ":", strcmp(where, "-") == 0 ? "" : where,
             message);
}

void every_broken_file_has_its_message(void **state)
{
    char directory[600];
    struct dirent *entry;
    int count = 0;
    DIR *listing;

    snprintf(directory, sizeof directory, "%s/tests/unit/broken_jobs", getenv("top_srcdir"));
    listing = opendir(directory);
    assert_non_null(listing);
    while ((entry = readdir(listing))) {
        char path[1024], expected[2048];
        struct job job;
        struct error err;

        if (!strstr(entry->d_name, ".cfg"))
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        expected_error(path, expected, sizeof expected);
        if (job_load(&job, path, NULL, 0, &err) == 0)
            fail_msg("%s was accepted", path);
        assert_string_equal(err.text, expected);
        assert_int_equal(err.code, CODE_CONFIG);
        count++;
    }
    closedir(listing);
    assert_in_range(count, 80, 1000);
}

/* ---- overrides and files ----------------------------------------------------------------------------------------- */

static const char good[] = "model = { preset = \"gpt-tiny\"; };\n"
                           "data = { train = \"t\"; };\n";

void every_broken_override_has_its_message(void **state)
{
    static const struct {
        const char *set, *message;
    } rows[] = {
        {"batch.mirco_batch=4", "unknown key 'batch.mirco_batch'; did you mean 'batch.micro_batch'?"},
        {"batch.steps", "not one line path=value; an example: optimizer.lr=1e-4"},
        {"batch.steps=1\nbatch.seed=2", "not one line path=value; an example: optimizer.lr=1e-4"},
        {"", "not one line path=value; an example: optimizer.lr=1e-4"},
        {"=", "unknown key ''; there are: model, device, attention, parallel, batch, optimizer, data, precision, "
              "checkpoint, "
              "report, environment"},
        {"batch=3", "unknown key 'batch'; it is a group, which has: global_batch, micro_batch, steps, seed, "
                    "rampup_start, rampup_increment, rampup_samples"},
        {"batch.steps=", "batch.steps is nothing; it must be an integer"},
        {"batch.steps=abc", "batch.steps is abc; it must be an integer"},
        {"batch.steps=1.5", "batch.steps is a fraction; it must be an integer"},
        {"batch.steps=1; x = 2", "batch.steps is 1; x = 2; it must be an integer"},
        {"batch.steps=0", "batch.steps = 0; at least 1"},
        {"batch.steps=99999999999999999999", "the integer 99999999999999999999 is too large; at most 18 digits"},
        {"checkpoint.partner=1", "checkpoint.partner is an integer; it must be true or false"},
        {"checkpoint.partner=yes", "checkpoint.partner is yes; it must be true or false"},
        {"optimizer.lr=nan", "optimizer.lr is nan; it must be a number"},
        {"optimizer.schedule=step",
         "optimizer.schedule = \"step\"; one of \"cosine\", \"linear\", \"constant\", \"wsd\""},
        {"data.train=\"t", "a string is not closed on its line; write \"...\""},
        {"batch.micro_batch=9", "batch.micro_batch = 9 is more than batch.global_batch = 8; at most the global batch"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *set = (char *)rows[i].set, expected[1024];
        struct job job;
        struct error err;

        snprintf(expected, sizeof expected, "--set %s: %s", rows[i].set, rows[i].message);
        for (char *c = expected; *c; c++) /* errors are one line */
            *c = *c == '\n' ? ' ' : *c;
        assert_int_equal(job_parse(&job, good, "good.cfg", &set, 1, &err), -1);
        assert_string_equal(err.text, expected);
        assert_int_equal(err.code, CODE_CONFIG);
    }
}

static void assert_load_fails(const char *path, const char *message)
{
    struct job job;
    struct error err;

    assert_int_equal(job_load(&job, path, NULL, 0, &err), -1);
    assert_string_equal(err.text, message);
    assert_int_equal(err.code, CODE_CONFIG);
}

void unreadable_files_are_named(void **state)
{
    char *large = calloc(1, 2 << 20);

    assert_load_fails("no-such.cfg", "cannot read the job file no-such.cfg: No such file or directory");
    assert_load_fails(".", ".: not a regular file; a job file is text of at most 1 MiB");
    write_file("test_job.cfg", "model = 1;\0", 11);
    assert_load_fails("test_job.cfg", "test_job.cfg: a zero byte at offset 10; a job file is text");
    assert_non_null(large);
    memset(large, '\n', 2 << 20);
    write_file("test_job.cfg", large, 2 << 20);
    assert_load_fails("test_job.cfg", "test_job.cfg: larger than 1048576 bytes; a job file is text of at most 1 MiB");
    free(large);
    unlink("test_job.cfg");
}

/* Each string is a path, or named here. A later key that is a path joins by the column `files` of the table. */
void every_path_that_a_shell_would_expand_is_refused(void **state)
{
    static const char *const paths[] = {"~", "~/x", "~alice/x", "$SCRATCH/x", "/a/$_b", "a${HOME}"};
    static const char *const literal[] = {"./~x", "a~", "/a$/5$", "$", "$(x)"};
    static const char over[] = "model = { preset = \"gpt-tiny\"; };\n"
                               "data = { train = \"t\"; };\n"
                               "checkpoint = { dir = \"$SCRATCH/ck\"; };\n";
    struct job job;
    struct error err;
    int count = 0;

    write_file("test_job.cfg", good, strlen(good));
    for (int k = 0; k < job_key_count; k++) {
        char set[128], expected[512], *sets[] = {(char *)"report.metrics=m", set}; /* for report.tensorboard */

        if ((job_keys[k].type != JOB_KEY_STRING && job_keys[k].type != JOB_KEY_DATA) ||
            strcmp(job_keys[k].path, "model.preset") == 0)
            continue;
        for (size_t i = 0; i < sizeof paths / sizeof *paths; i++, count++) {
            snprintf(set, sizeof set, "%s=%s", job_keys[k].path, paths[i]);
            snprintf(expected, sizeof expected, "--set %s: %s: \"%s\" is not expanded: write the path in full, or ",
                     set, job_keys[k].path, paths[i]);
            assert_int_equal(job_load(&job, "test_job.cfg", sets, 2, &err), -1);
            assert_memory_equal(err.text, expected, strlen(expected));
            assert_int_equal(err.code, CODE_CONFIG);
            assert_int_equal(job_parse(&job, good, "a checkpoint", sets, 2, &err), 0);
            job_destroy(&job);
        }
        for (size_t i = 0; i < sizeof literal / sizeof *literal; i++) {
            snprintf(set, sizeof set, "%s=%s", job_keys[k].path, literal[i]);
            if (job_load(&job, "test_job.cfg", sets, 2, &err) < 0)
                fail_msg("%s", err.text);
            job_destroy(&job);
        }
    }
    write_file("test_job.cfg", over, strlen(over)); /* what the message advises works: the override counts */
    assert_int_equal(job_load(&job, "test_job.cfg", (char *[]){(char *)"checkpoint.dir=/scratch/ck"}, 1, &err), 0);
    job_destroy(&job);
    unlink("test_job.cfg");
    assert_in_range(count, 9 * 6, 1000);
}

void a_byte_order_mark_is_no_part_of_a_job_file(void **state)
{
    char *text = error_calloc(strlen(good) + 4, 1, NULL);
    struct job job;

    assert_non_null(text);
    sprintf(text, "\xef\xbb\xbf%s", good);
    write_file("test_job.cfg", text, strlen(text));
    assert_int_equal(job_load(&job, "test_job.cfg", NULL, 0, NULL), 0);
    assert_string_equal(job.text, good);
    job_destroy(&job);
    unlink("test_job.cfg");
    free(text);
}

/* ---- mutations --------------------------------------------------------------------------------------------------- */

static uint32_t draw(uint64_t *counter, uint32_t below)
{
    return philox_u32((struct philox_stream){.seed = 20240501}, (*counter)++) % below;
}

/* Replaces, removes, doubles or swaps a run of bytes. The text has room to double. */
static void mutate(char *text, uint64_t *counter)
{
    static const char bytes[] = "=;{}[]()\"#/*\\\n.,-+eELx0123456789@ abz\x80\xff";
    size_t length = strlen(text), at, run;

    if (length < 2)
        return;
    at = draw(counter, (uint32_t)length - 1);
    run = 1 + draw(counter, 8);
    run = run < length - at ? run : length - at;
    switch (draw(counter, 4)) {
    case 0:
        for (size_t i = 0; i < run; i++)
            text[at + i] = bytes[draw(counter, sizeof bytes - 1)];
        break;
    case 1:
        memmove(text + at, text + at + run, length - at - run + 1);
        break;
    case 2:
        memmove(text + at + run, text + at, length - at + 1);
        break;
    default:
        text[length] = text[at];
        text[at] = text[draw(counter, (uint32_t)length)];
        text[length] = '\0';
    }
}

/* Whatever the text: accepted, or refused with a located line. Run with --enable-sanitizers it means most. */
void mutations_never_crash(void **state)
{
    static char text[8192];
    char *original = read_source("etc/gpt-125m.cfg");
    uint64_t counter = 0;
    int accepted = 0, refused = 0;

    assert_in_range(strlen(original), 1000, sizeof text / 2 - 1);
    for (int round = 0; round < 2000; round++) {
        struct job job;
        struct error err = {0};

        strcpy(text, original);
        for (uint32_t i = 0, count = 1 + draw(&counter, 12); i < count; i++)
            mutate(text, &counter);
        if (job_parse(&job, text, "mutant.cfg", NULL, 0, &err) == 0) {
            accepted++;
            job_destroy(&job);
            continue;
        }
        refused++;
        assert_int_equal(err.code, CODE_CONFIG);
        assert_int_equal(strncmp(err.text, "mutant.cfg:", 11), 0);
        assert_null(strchr(err.text, '\n'));
    }
    assert_in_range(accepted, 100, 2000);
    assert_in_range(refused, 100, 2000);
    free(original);
}
