#include "tests/unit/machines.h"

#include <limits.h>

#include "srun-plugin/node/sysfs.h"
#include "tests/cmocka_test.h"

static char base[] = "/tmp/muster-machines-XXXXXX";
static char **names;

static const char *fixtures(void)
{
    static char path[PATH_MAX];
    const char *top = getenv("top_srcdir");

    snprintf(path, sizeof path, "%s/tests/fixtures", top ? top : "..");
    return path;
}

int machines_make(void **state)
{
    char command[3 * PATH_MAX];

    assert_non_null(mkdtemp(base));
    names = sysfs_list(fixtures(), "machines");
    assert_non_null(names);
    for (char **name = names; *name; name++) {
        snprintf(command, sizeof command, "python3 '%s/make-machines' '%s/machines/%s/machine' '%s/%s'", fixtures(),
                 fixtures(), *name, base, *name);
        if (system(command) != 0)
            fail_msg("%s", command);
    }
    return 0;
}

int machines_remove(void **state)
{
    char command[PATH_MAX];

    snprintf(command, sizeof command, "rm -rf '%s'", base);
    assert_int_equal(system(command), 0);
    sysfs_list_free(names);
    return 0;
}

char **machines_names(void)
{
    return names;
}

const char *machines_snapshot(const char *name)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", base, name);
    return path;
}

struct node *machines_read(const char *name)
{
    struct error err = {0};
    struct node *node = node_read(machines_snapshot(name), NULL, &err);

    if (!node)
        fail_msg("%s: %s", name, err.text);
    return node;
}

static void no_complaint(const struct error *err, void *arg)
{
    (void)arg;
    fail_msg("%s", err->text);
}

void machines_add_shipped(struct fabric *fabric)
{
    const char *top = getenv("top_srcdir");
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/etc/fabric", top ? top : "..");
    assert_in_range(fabric_add_directory(fabric, FABRIC_SHIPPED, path, NULL, no_complaint, NULL), 8, 100);
}

const char *machines_scratch(const char *name)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", base, name);
    return path;
}

char *machines_file(const char *name, const char *file)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "machines/%s/%s", name, file);
    return sysfs_text(fixtures(), path);
}
