/* muster-plan - which mesh, how fast, what fits. See muster-plan(1). */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/option.h"
#include "plan/predict.h"

static const char usage[] =
    "Usage: muster-plan predict --machine NAME --stack NAME TABLE.csv\n"
    "\n"
    "Predict prints the rows of a table of runs with the columns predicted_gib,\n"
    "predicted_seconds and predicted_fits.\n"
    "\n"
    "  --machine NAME    a file, or a name of etc/machines: a100-40, h200, ...\n"
    "  --stack NAME      of etc/machines/stacks.cfg, or FILE:NAME (default muster)\n"
    "  -h, --help        show this\n"
    "  -V, --version     show the version\n";

struct plan_options {
    const char *machine, *stack;
};

static int run_predict(const struct plan_options *options, const char *path)
{
    struct cluster machine;
    struct stack stack;
    struct error err;
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    int result;

    if (!in)
        result = error_errno(&err, CODE_IO, "%s", path);
    else if (cluster_read(&machine, options->machine, &err) < 0 || stack_read(&stack, options->stack, &err) < 0)
        result = -1;
    else
        result = predict_table(in, stdout, path, &machine, &stack, &err);
    if (in && in != stdin)
        fclose(in);
    return result < 0 ? error_report(&err) : CODE_OK;
}

int main(int argc, char **argv)
{
    struct plan_options options = {.stack = "muster"};
    const struct option_row rows[] = {
        {"machine", OPTION_TEXT, .to = &options.machine}, {"stack", OPTION_TEXT, .to = &options.stack}, {0}};
    int code = options_read(rows, argc, argv, usage);

    if (code >= 0)
        return error_output(code);
    if (!options.machine)
        return option_fail("--machine is missing");
    if (argc - optind == 2 && strcmp(argv[optind], "predict") == 0)
        return error_output(run_predict(&options, argv[optind + 1]));
    return option_fail("what should it do? \"predict TABLE.csv\"");
}
